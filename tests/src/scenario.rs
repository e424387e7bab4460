//! One scenario's lab: made at its beginning, gone at its end. When the
//! scenario fails, consoles and journals are kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fleet::find_ova;
use fleet::hypervisor::PowerState;
use fleet::lease::TakeOver;
use image::cache::Cache;
use image::debian::sources::Settings;
use image::progress::Progress;
use image::tools::ToolsTree;
use lab::{
    EngineRecord, Hardware, Kvm, Lab, LabSpec, LeaseRequest, NewVm, NodeSize, Source, Tools, UnpackedOva, Up,
    cache_directory, obtain, state_directory, until,
};
use nix::sys::statvfs::statvfs;
use serde_json::Value;

use crate::lab_command::LabCommand;
use crate::lab_names;
use crate::places::{named_ova, workspace};
use crate::tenant_command;

/// 4 GiB: enough for every scenario, and quick to format.
pub const DATA_DISK: u64 = 4 << 30;
/// The control-plane nodes of a cluster of three.
pub const ALL: [&str; 3] = ["cp1", "cp2", "cp3"];
/// How long containers may take to form a cluster, next to another scenario on a slow machine.
pub const FORMING: Duration = Duration::from_secs(600);
/// How long a container may take for what usually takes seconds.
pub const MOMENT: Duration = Duration::from_secs(240);
/// How long the API may be away when a control-plane node is lost: etcd elects and the virtual IP moves, on a loaded machine.
pub const API_MOVES: Duration = Duration::from_secs(20);

/// A running scenario.
pub struct Scenario {
    name: &'static str,
    lab: Option<Lab>,
    started: Instant,
}

/// The settings of a scenario's lab.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Short name: part of the lab's name, and no other scenario's.
    pub name: &'static str,
    /// Number of control-plane nodes.
    pub nodes: usize,
    /// The hardware of their VMs. `None` for containers.
    pub hardware: Option<Hardware>,
    /// The hardware of the VMs that replace them. `None` for the same.
    pub replacements: Option<Hardware>,
    /// Properties that differ from the lab's.
    pub properties: &'static [(&'static str, &'static str)],
}

impl Setting {
    /// One control-plane node in a container.
    pub fn one(name: &'static str) -> Self {
        Self { name, nodes: 1, hardware: None, replacements: None, properties: &[] }
    }

    /// Three control-plane nodes in containers.
    pub fn three(name: &'static str) -> Self {
        Self { nodes: 3, ..Self::one(name) }
    }
}

impl Scenario {
    /// Makes the lab with its VMs powered off. One that an interrupted run
    /// left behind is removed first.
    pub fn prepare(setting: &Setting) -> Self {
        let prepared = image_under_test().and_then(|source| Self::try_prepare(setting, source));
        prepared.unwrap_or_else(|error| panic!("preparing {}: {error:#}", setting.name))
    }

    pub fn ready_one(setting: &Setting) -> Self {
        let scenario = Self::prepare(setting);
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        scenario
    }

    /// As [`Scenario::prepare`], from something else than the OVA under test.
    pub fn prepare_from(setting: &Setting, source: Source) -> Self {
        Self::try_prepare(setting, source).unwrap_or_else(|error| panic!("preparing {}: {error:#}", setting.name))
    }

    fn try_prepare(setting: &Setting, source: Source) -> anyhow::Result<Self> {
        let (state, name) = (state_directory()?, lab_names::begin(setting.name)?);
        let tools = tools()?.root().to_owned();
        let engine = |hardware: Option<Hardware>| -> anyhow::Result<EngineRecord> {
            Ok(match hardware {
                None => EngineRecord::Container,
                Some(hardware) => EngineRecord::Qemu { kvm: kvm_runs_guests(&tools)?, hardware },
            })
        };
        let replacements = engine(setting.replacements.or(setting.hardware))?;
        let engine = engine(setting.hardware)?;
        let properties = setting.properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let wishes = LabSpec {
            name,
            nodes: setting.nodes,
            properties: properties.collect(),
            timeout_factor: engine.timeout_factor(),
            ..LabSpec::default()
        };
        let lab = Lab::import_cluster(
            &state,
            Up {
                spec: wishes,
                engine,
                replacements,
                workers: replacements,
                source,
                tools,
                size: NodeSize { memory: 2048, processors: 2, data_disk: DATA_DISK },
                beside: None,
            },
            &LeaseRequest { what: "a scenario", over: TakeOver::FromTheDead, say: &|_| {} },
        )?;
        Ok(Self { name: setting.name, lab: Some(lab), started: Instant::now() })
    }

    /// One control-plane node on the container engine, created by `kaas-dev lab up`, which has waited for it. Also the kubeconfig that
    /// the command names, and the lab's other commands.
    pub fn by_command(name: &'static str) -> (Self, PathBuf, LabCommand) {
        let started = Instant::now();
        let lab = lab_names::begin(name).unwrap_or_else(|error| panic!("preparing {name}: {error:#}"));
        let up = LabCommand::up(&lab);
        // Also where that failed: what there is of the lab is looked at, and removed.
        let scenario = Self { name, lab: state_directory().and_then(|state| Lab::open(&state, &lab)).ok(), started };
        let (commands, kubeconfig) = up.unwrap_or_else(|error| panic!("{error:#}"));
        scenario.reached("`kaas-dev lab up` has ended");
        (scenario, kubeconfig, commands)
    }

    /// A tenant next to this scenario's control cluster, created by `kaas-dev lab tenant up` with these numbers of control-plane nodes
    /// and workers, all from the tenants' OVA. It must end before this one.
    pub fn tenant(&self, name: &'static str, control_planes: &str, workers: &str) -> Self {
        self.tenant_with(name, control_planes, workers, &[])
    }

    /// The same with further options of the command.
    pub fn tenant_with(&self, name: &'static str, control_planes: &str, workers: &str, options: &[&str]) -> Self {
        let started = Instant::now();
        let lab = lab_names::begin(name).unwrap_or_else(|error| panic!("preparing {name}: {error:#}"));
        let arguments = [&["--control-planes", control_planes, "--workers", workers], options].concat();
        let made = tenant_command::up(self.lab(), &lab, &arguments);
        // Also where that failed: what there is of the lab is looked at, and removed.
        let scenario = Self { name, lab: state_directory().and_then(|state| Lab::open(&state, &lab)).ok(), started };
        let (_, status) = made.unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(status["arrived"], "done", "{status}");
        scenario.reached(&format!("`kaas-dev lab tenant up` has ended: {control_planes} and {workers} nodes"));
        scenario
    }

    /// Ends its lab by `kaas-dev lab down`.
    pub fn end_by_command(mut self, commands: LabCommand) {
        commands.down(self.lab.take().expect("a scenario has its lab until it ends"));
        self.reached("`kaas-dev lab down` leaves nothing behind");
    }

    /// Three control-plane nodes on the container engine that have formed their cluster.
    pub fn formed(name: &'static str) -> Self {
        Self::prepare(&Setting::three(name)).form()
    }

    /// The same from something else than the OVA under test.
    pub fn formed_from(name: &'static str, source: Source) -> Self {
        Self::prepare_from(&Setting::three(name), source).form()
    }

    fn form(self) -> Self {
        let scenario = self;
        scenario.power_on(&ALL);
        scenario.all_ready(FORMING);
        for node in ALL {
            scenario.soon_says(node, "kaas: ready");
        }
        scenario
    }

    /// The lab.
    pub fn lab(&self) -> &Lab {
        self.lab.as_ref().expect("a scenario has its lab until it ends")
    }

    /// Says how far the scenario is, with the time since its start.
    pub fn reached(&self, what: &str) {
        println!("{} {:>4} s  {what}", self.name, self.started.elapsed().as_secs());
    }

    /// Powers VMs on.
    pub fn power_on(&self, vms: &[&str]) {
        for vm in vms {
            self.lab().power_on(vm).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }

    /// Cuts a VM's power.
    pub fn cut(&self, vm: &str) {
        self.lab().cut_power(vm).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Waits until all nodes are Ready.
    pub fn all_ready(&self, limit: Duration) {
        self.lab().wait_until_ready(limit).unwrap_or_else(|error| panic!("{error:#}"));
        self.reached("all nodes Ready");
    }

    /// Waits until exactly these nodes are Ready.
    pub fn ready(&self, nodes: &[&str], limit: Duration) {
        self.wait(&format!("{} to be Ready", nodes.join(" and ")), limit, || {
            let mut ready = self.lab().ready_nodes()?;
            ready.sort();
            Ok(ready == nodes)
        });
    }

    /// Waits for a condition.
    pub fn wait(&self, what: &str, limit: Duration, condition: impl FnMut() -> anyhow::Result<bool>) {
        until(what, limit, condition).unwrap_or_else(|error| panic!("{error:#}"));
        self.reached(what);
    }

    /// Waits until `look` returns a value.
    pub fn obtain<T>(&self, what: &str, limit: Duration, look: impl FnMut() -> anyhow::Result<Option<T>>) -> T {
        obtain(what, limit, look).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Waits until a VM has said `words` on its console since it was powered on.
    pub fn says(&self, vm: &str, words: &str, limit: Duration) {
        self.wait(&format!("{vm} to say {words:?}"), limit, || Ok(self.lab().console_text(vm)?.contains(words)));
    }

    /// Waits a moment for the same.
    pub fn soon_says(&self, vm: &str, words: &str) {
        self.says(vm, words, MOMENT);
    }

    /// kubectl's answer.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.lab().kubectl(arguments).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Has kubectl apply an object.
    pub fn apply(&self, object: &Value) {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), object.to_string()).expect("a temporary file");
        self.kubectl(&["apply", "--filename", file.path().to_str().expect("a temporary file's name")]);
    }

    /// The container image of a part that the image of a node carries, such as `coredns`.
    pub fn carried(&self, node: &str, part: &str) -> String {
        let said = self.inside(&self.vm_of(node), &["cat", "/usr/lib/kaas/image.json"]);
        let image: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("image.json of {node}: {error}"));
        let version = image[part].as_str().unwrap_or_else(|| panic!("image.json of {node} has no version of {part}"));
        format!("kaas.local/{part}:v{version}")
    }

    /// The output of a program inside a VM.
    pub fn inside(&self, vm: &str, arguments: &[&str]) -> String {
        self.inside_for(vm, arguments, Duration::from_secs(120))
    }

    /// The output of a program inside a VM, which may run as long as `limit`.
    pub fn inside_for(&self, vm: &str, arguments: &[&str], limit: Duration) -> String {
        self.lab().run_inside(vm, arguments, limit).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// The UID of the namespace kube-system: what tells one cluster from another.
    pub fn cluster_identity(&self) -> String {
        let command = ["get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}"];
        self.obtain("the cluster's identity", MOMENT, || self.lab().kubectl(&command).map(Some))
    }

    /// The VM that runs a node: the one of its name that is on. A swap's new VM is named after the node, too.
    pub fn vm_of(&self, node: &str) -> String {
        let lab = self.lab();
        let of_node = |vm: &String| vm == node || vm.starts_with(&format!("{node}-"));
        let on = |vm: &String| lab.power_state(vm).is_ok_and(|state| state == PowerState::On);
        let mut vms = lab.vms().unwrap_or_else(|error| panic!("{error:#}")).into_iter().filter(of_node).filter(on);
        let (vm, other) = (vms.next().unwrap_or_else(|| panic!("no VM of {node} is on")), vms.next());
        assert_eq!(other, None, "two VMs of {node} are on");
        vm
    }

    /// The node of a cluster of three that has the virtual IP on its interface, once one has.
    pub fn address_holder(&self) -> &'static str {
        let address = format!("inet {}/", self.lab().plan().api);
        let holds = |node: &&str| {
            let seen = self.lab().run_inside(node, &["ip", "-4", "address", "show"], MOMENT);
            seen.is_ok_and(|seen| seen.contains(&address))
        };
        self.obtain("a node to hold the virtual IP", MOMENT, || Ok(ALL.into_iter().find(holds)))
    }

    /// Checks that a VM, which can be entered, runs no etcd.
    pub fn has_no_etcd(&self, vm: &str) {
        let state = self.inside(vm, &["sh", "-c", "systemctl is-active etcd.service || true"]);
        assert_ne!(state.trim(), "active", "{vm} has started etcd");
    }

    /// The properties that the lab would give a node.
    pub fn properties(&self, node: &str) -> BTreeMap<String, String> {
        let planned = self.lab().plan().nodes.iter().find(|planned| planned.name == node);
        planned.unwrap_or_else(|| panic!("no node {node} was planned")).properties.clone()
    }

    /// A VM like the planned ones, with a blank data disk.
    pub fn vm(&self, name: &str, properties: BTreeMap<String, String>) -> NewVm {
        NewVm {
            name: name.to_owned(),
            memory: 2048,
            processors: 2,
            data_disk: Some(DATA_DISK),
            network_interface: true,
            properties,
            source: None,
            engine: self.lab().replacements(),
            stamp: None,
            in_order_uuid: false,
        }
    }

    fn keep_evidence(&self) {
        // The lab still exists with all its disks. On a full disk everything fails, each program in another way.
        eprintln!("{}: {}", self.name, free_for(self.lab().directory()));
        let directory = workspace().join("build/evidence").join(self.name);
        let _ = fs::remove_dir_all(&directory);
        for file in self.lab().keep_evidence() {
            let vm = file.parent().and_then(Path::file_name).unwrap_or_default();
            let kept = directory.join(vm);
            let copy = fs::create_dir_all(&kept)
                .and_then(|()| fs::copy(&file, kept.join(file.file_name().unwrap_or_default())));
            if let Err(error) = copy {
                eprintln!("keeping {}: {error}", file.display());
            }
        }
        eprintln!("{}: consoles and journals are kept in {}", self.name, directory.display());
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        lab_names::end(self.name);
        if std::thread::panicking() && self.lab.is_some() {
            self.keep_evidence();
        }
        if let Some(lab) = self.lab.take()
            && let Err(error) = lab.remove()
        {
            // A panic within a panic would hide the first one.
            eprintln!("removing the lab of {}: {error:#}", self.name);
            assert!(std::thread::panicking(), "the scenario left something behind");
        }
    }
}

/// How much of the disk that a directory is on is free.
fn free_for(directory: &Path) -> String {
    match statvfs(directory) {
        Ok(disk) => {
            let free = disk.blocks_available().saturating_mul(disk.fragment_size()) >> 20;
            format!("{free} MiB are free for its lab in {}", directory.display())
        }
        Err(error) => format!("how much disk is free for its lab in {} is not known: {error}", directory.display()),
    }
}

/// An OVF environment with one property's value replaced. `value` is as written in XML.
///
/// # Panics
/// The environment has no such property.
pub fn with(environment: &str, key: &str, value: &str) -> String {
    let start = environment.find(&format!("oe:key=\"{key}\"")).unwrap_or_else(|| panic!("no property {key}"));
    let value_at = start + environment[start..].find("oe:value=\"").unwrap() + "oe:value=\"".len();
    let end = value_at + environment[value_at..].find('"').unwrap();
    format!("{}{value}{}", &environment[..value_at], &environment[end..])
}

/// The OVA of the VMs of scenarios.
///
/// # Errors
/// When there is no OVA, or it cannot be taken apart.
pub fn image_under_test() -> anyhow::Result<Source> {
    match std::env::var_os("KAAS_ROOT_TREE") {
        Some(tree) => Ok(Source::Tree { tree: Path::new(&tree).canonicalize()? }),
        None => unpacked(&find_ova(&named_ova())?),
    }
}

/// An OVA, taken apart once.
///
/// # Errors
/// When it cannot be.
pub fn unpacked(ova: &Path) -> anyhow::Result<Source> {
    let tools = Tools::at(tools()?.root());
    Ok(Source::Ova { unpacked: UnpackedOva::ensure(ova, &cache_directory()?, &tools, &|what| println!("{what}"))? })
}

/// Whether KVM runs guests here. It is asked once in a run: where guests hang, the answer takes more than a minute.
fn kvm_runs_guests(tools: &Path) -> anyhow::Result<bool> {
    static KNOWN: Mutex<Option<Kvm>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(|broken| broken.into_inner());
    let kvm = match *known {
        Some(kvm) => kvm,
        None => *known.insert(Kvm::probe(&Tools::at(tools))?),
    };
    Ok(kvm.runs_guests())
}

/// The image builder's tools tree, from the cache or created now.
///
/// # Errors
/// When it is missing and cannot be created.
pub fn tools() -> anyhow::Result<ToolsTree> {
    image::tools::ensure(&Settings::of_environment(), &Cache::of_user(lab::tools_in_use)?, &Progress::on_stderr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_and_unreadable_disks_are_named() {
        // A file system without any room.
        assert_eq!(free_for(Path::new("/proc")), "0 MiB are free for its lab in /proc");
        let free = free_for(Path::new(env!("CARGO_MANIFEST_DIR")));
        assert!(!free.starts_with("0 ") && free.contains(" MiB are free for its lab in "), "{free}");
        let unknown = free_for(Path::new("/nonexistent/lab"));
        assert!(unknown.ends_with("/nonexistent/lab is not known: ENOENT: No such file or directory"), "{unknown}");
    }
}
