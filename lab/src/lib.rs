//! The lab: VMs on this machine, for tests and for an operator without a vCenter.
//!
//! A lab is a hypervisor with one network and two engines. Its calls are possible in vSphere too. An import creates a
//! VM that is off. A UUID names a disk, never a position. "Off" is an observed fact, not the answer to a request.
//!
//! The name and the directory of a lab identify all that it creates on its host, so any later command can remove it.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! incomplete
//! cluster engines vcenter
//! complete container devices dhcp empty_lab find_ova forward hypervisor power qemu replace tenant
//! credentials engine environment plan
//! records
//! source
//! unpack
//! cdrom disk machine network process system_disk tools
//! deployment_lease directories engine_record host shown wait
//! ```

mod cdrom;
mod cluster;
mod complete;
mod container;
mod credentials;
mod deployment_lease;
mod devices;
mod dhcp;
mod directories;
mod disk;
mod empty_lab;
mod engine;
mod engine_record;
mod engines;
mod environment;
mod find_ova;
#[cfg(test)]
mod fixture;
mod forward;
mod host;
mod hypervisor;
mod incomplete;
mod machine;
#[cfg(test)]
mod named_commands_tests;
mod network;
mod plan;
mod power;
mod process;
mod qemu;
mod records;
mod replace;
mod shown;
mod source;
mod system_disk;
mod tenant;
mod tools;
mod unpack;
mod vcenter;
mod wait;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use container::Containers;
use contract::properties::ADDRESS;
use contract::properties::parse::addresses::DHCP;
use engines::Engines;
use fleet::hypervisor::Stamp;
use host::run;
use network::Network;
use qemu::VirtualMachines;
use records::{LabDirectory, VmRecord};

pub use cluster::Up;
pub use complete::NodeSize;
pub use container::RaisedLimit;
pub use deployment_lease::LeaseRequest;
pub use dhcp::check as check_dhcp;
pub use directories::{cache_directory, state_directory};
pub use empty_lab::EmptyLab;
pub use engine_record::{EngineRecord, Hardware};
pub use hypervisor::LabHypervisor;
pub use plan::{LabPlan, LabSpec, PlannedNode, TenantNetwork};
pub use qemu::{Kvm, emulation_runs_guests};
pub use replace::{BlankVm, ReplacedNode};
pub use source::Source;
pub use tools::Tools;
pub use unpack::UnpackedOva;
pub use vcenter::{MachineStatus, Running as RunningVCenter, USER as VCENTER_USER, VCenter};
pub use wait::{obtain, until};

#[derive(Clone, Debug)]
pub struct NewVm {
    /// Name in the inventory: a DNS label of at most 24 characters.
    pub name: String,
    /// Memory in MiB.
    pub memory: u32,
    pub processors: u32,
    /// Size in bytes of the VM's blank data disk, if it has one.
    pub data_disk: Option<u64>,
    /// Whether it has a network interface. Every VM of the OVA has one.
    pub network_interface: bool,
    /// OVF properties by key, as in vCenter's form. Without any, the form keeps its defaults.
    pub properties: BTreeMap<String, String>,
    /// Its image. `None` for the lab's.
    pub source: Option<Source>,
    pub engine: EngineRecord,
    /// Its stamp. `None` for a VM that is imported by hand.
    pub stamp: Option<Stamp>,
    /// Whether its `product_uuid` has vCenter's order of bytes ([`contract::platform::Dmi::of_vmware`]).
    pub in_order_uuid: bool,
}

/// A VM that has a record, but no configuration yet.
struct UnfinishedVm {
    record: VmRecord,
    document: String,
    data_disk: Option<u64>,
}

/// The stored record of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    /// Engine of its first VMs.
    engine: EngineRecord,
    /// Engine of replacements. `None` for `engine`.
    #[serde(default)]
    replacements: Option<EngineRecord>,
    source: Source,
    tools: PathBuf,
    plan: LabPlan,
    /// Name of its namespaces and cgroups, unique on this machine for all users.
    name_on_host: String,
    /// Engine of a tenant's next workers. `None` for the engine of replacements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workers: Option<EngineRecord>,
    /// Deployment in the stamps of its VMs, unique to this lab.
    deployment: Uuid,
    /// The lab whose network this tenant uses. `None` for a lab with its own network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beside: Option<HostLab>,
}

/// A lab whose network a tenant uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HostLab {
    lab: String,
    /// The `name_on_host` of the lab, which names its network.
    network: String,
}

/// A name that is unique on this machine and begins with the lab's.
fn name_on_host(name: &str) -> String {
    format!("{name}-{}", &Uuid::new_v4().simple().to_string()[..8])
}

pub struct Lab {
    name: String,
    directory: LabDirectory,
    record: Record,
    network: Network,
    engines: Engines,
}

impl Lab {
    /// Creates a lab without VMs: its directory and its network.
    ///
    /// # Errors
    /// When a lab of this name exists, or the host refuses. [`Lab::remove`] then cleans up.
    fn create(state: &Path, record: Record) -> anyhow::Result<Self> {
        let directory = LabDirectory::of(state, &record.plan.name)?;
        let _lock = directory.lock()?;
        directory.is_free()?;
        fs::create_dir_all(directory.path().join("disks"))?;
        records::save(&directory.record(), &record)?;
        let lab = Self::assemble(directory, record)?;
        match &lab.record.beside {
            None => lab.network.create(&lab.record.plan.bridge)?,
            Some(host) if !lab.network.exists() => bail!("the network of the lab {} is missing", host.lab),
            Some(_) => {}
        }
        Ok(lab)
    }

    /// Creates missing parts of the network of the lab's VMs, as after a reboot of this machine. For a tenant, this is
    /// the network of its host lab. The caller holds the lab's lock. After an error, a repeated call continues.
    pub(crate) fn make_network(&self) -> anyhow::Result<()> {
        let Some(HostLab { lab, network }) = &self.record.beside else {
            return self.network.create(&self.record.plan.bridge);
        };
        let state = self.directory.path().parent().context("a lab without a directory above it")?;
        let host = Self::open(state, lab)?;
        if host.on_host() != network {
            bail!("the lab {lab} is not the one that {} was made for", self.name);
        }
        let bridge = &host.record.plan.bridge;
        // Commands that create tenants hold the host's lock for minutes. A caller with a complete network does not
        // need it.
        if self.network.is_whole(bridge) {
            return Ok(());
        }
        // Other tenants may be powered on at the same time.
        let _lock = host.directory.lock()?;
        self.network.create(bridge)
    }

    /// Whether a lab of this name exists.
    pub fn exists(state: &Path, name: &str) -> anyhow::Result<bool> {
        Ok(LabDirectory::of(state, name)?.record().exists())
    }

    /// Opens a lab that this or another command created.
    pub fn open(state: &Path, name: &str) -> anyhow::Result<Self> {
        let directory = LabDirectory::of(state, name)?;
        if !directory.record().exists() {
            bail!("there is no lab {name} in {}; `kaas-dev lab up` makes one", state.display());
        }
        let record = records::load(&directory.record())?;
        Self::assemble(directory, record)
    }

    fn assemble(directory: LabDirectory, record: Record) -> anyhow::Result<Self> {
        let name = record.plan.name.clone();
        let on_host = &record.name_on_host;
        let network = Network::of(record.beside.as_ref().map_or(on_host, |host| &host.network));
        let engines = Engines {
            containers: Containers::new(on_host, directory.clone(), network.clone()),
            virtual_machines: VirtualMachines {
                directory: directory.clone(),
                network: network.clone(),
                tools: Tools::at(&record.tools),
            },
        };
        Ok(Self { name, directory, record, network, engines })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The deployment in the stamps of its VMs, unique to this lab.
    pub fn deployment(&self) -> Uuid {
        self.record.deployment
    }

    pub fn plan(&self) -> &LabPlan {
        &self.record.plan
    }

    pub fn engine(&self) -> EngineRecord {
        self.record.engine
    }

    pub fn replacements(&self) -> EngineRecord {
        self.record.replacements.unwrap_or(self.record.engine)
    }

    pub fn tools(&self) -> Tools {
        Tools::at(&self.record.tools)
    }

    /// The names of its VMs, sorted. A directory without a record, which a crash left, is no VM.
    pub fn vms(&self) -> anyhow::Result<Vec<String>> {
        let names = self.directory.vms()?.into_iter();
        let there = names.map(|vm| Ok(self.directory.recall_vm(&vm)?.is_some().then_some(vm)));
        there.filter_map(anyhow::Result::transpose).collect()
    }

    /// Directory of its lease and the journals of its upgrades. It is removed with the lab.
    pub fn upgrades(&self) -> PathBuf {
        self.directory.upgrades()
    }

    /// As [`Lab::upgrades`], for the workers of a tenant.
    pub fn workers(&self) -> PathBuf {
        self.directory.path().join("workers")
    }

    /// The network namespace from which its VMs are reachable.
    pub fn network_namespace(&self) -> PathBuf {
        self.network.path()
    }

    /// The network namespace of a VM of the container engine while it is on.
    pub fn namespace_of(&self, vm: &str) -> anyhow::Result<PathBuf> {
        Ok(self.network.container_namespace(&self.directory.load_vm(vm)?.port))
    }

    /// Path of a VM's console log.
    pub fn console(&self, vm: &str) -> PathBuf {
        self.directory.console(vm)
    }

    /// The socket of a virtual machine's second serial port: a terminal while the VM is on. System containers have
    /// none.
    pub fn terminal(&self, vm: &str) -> PathBuf {
        self.directory.terminal(vm)
    }

    /// A VM's console output since its last power-on. Fails if it was never on.
    pub fn console_text(&self, vm: &str) -> anyhow::Result<String> {
        self.directory.console_text(vm)
    }

    /// Creates a VM, powered off. Its data disk is new and blank.
    ///
    /// # Errors
    /// When the name is taken or vCenter would refuse the properties. Nothing exists then. When the host refuses: an
    /// incomplete VM may remain, which [`Lab::destroy`] removes.
    pub fn import(&self, vm: &NewVm) -> anyhow::Result<()> {
        // The name of its replacement will be longer.
        records::check_name("the VM's name", &vm.name, records::LONGEST_VM)?;
        let _lock = self.directory.lock()?;
        let half = self.make_vm(vm)?;
        self.finish_vm(half).map(drop)
    }

    /// Creates a VM's record with its stamp. [`Lab::finish_vm`] completes the VM, which must stay off until then. The
    /// caller holds the lab's lock.
    pub(crate) fn make_vm(&self, vm: &NewVm) -> anyhow::Result<UnfinishedVm> {
        self.make_vm_of(vm, Uuid::new_v4())
    }

    /// As [`Lab::make_vm`], with a BIOS UUID that the caller has recorded.
    pub(crate) fn make_vm_of(&self, vm: &NewVm, uuid: Uuid) -> anyhow::Result<UnfinishedVm> {
        records::check_name("the VM's name", &vm.name, records::LONGEST_REPLACEMENT)?;
        if self.directory.recall_vm(&vm.name)?.is_some() {
            bail!("the lab {} has a VM {} already", self.name, vm.name);
        }
        let left = self.directory.vm(&vm.name);
        if left.exists() {
            fs::remove_dir_all(&left).with_context(|| format!("removing what a crash left of {}", vm.name))?;
        }
        let mac = plan::mac(uuid);
        let source = vm.source.clone().unwrap_or_else(|| self.record.source.clone());
        let environment =
            environment::import(&source, &vm.properties, &mac).with_context(|| format!("importing {}", vm.name))?;
        let address = vm.properties.get(ADDRESS).map(String::as_str).unwrap_or_default();
        let by_dhcp = address.eq_ignore_ascii_case(DHCP);
        let record = VmRecord {
            name: vm.name.clone(),
            source,
            engine: vm.engine,
            uuid,
            in_order_uuid: vm.in_order_uuid,
            stamp: vm.stamp.clone(),
            mac,
            port: plan::port(uuid),
            address: address.split('/').next().filter(|it| !it.is_empty() && !by_dhcp).map(str::to_owned),
            by_dhcp,
            reserved: None,
            memory: vm.memory,
            processors: vm.processors,
            disks: Vec::new(),
            has_nic: vm.network_interface,
            nic_connected: true,
            cdrom_inserted: true,
            unconfigured: environment.unconfigured,
            process: None,
        };
        self.directory.save_vm(&record)?;
        Ok(UnfinishedVm { record, document: environment.document, data_disk: vm.data_disk })
    }

    /// Gives a VM its configuration and its blank data disk. The disk is in the record before its file exists, so
    /// that every file is known. The caller holds the lab's lock.
    pub(crate) fn finish_vm(&self, half: UnfinishedVm) -> anyhow::Result<Uuid> {
        let UnfinishedVm { mut record, document, data_disk } = half;
        self.lay_form(&record.name, &document)?;
        if let Some(capacity) = data_disk {
            let disk = Uuid::new_v4();
            record.disks.push(disk);
            self.directory.save_vm(&record)?;
            disk::create(&self.directory.disk(disk), capacity)?;
        }
        Ok(record.uuid)
    }

    /// Removes a VM that is off. Fails if it holds a data disk: a VM's removal never removes a disk.
    pub fn destroy(&self, vm: &str) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.destroy_locked(vm)
    }

    /// As [`Lab::destroy`]. The caller holds the lab's lock.
    pub(crate) fn destroy_locked(&self, vm: &str) -> anyhow::Result<()> {
        let record = self.off(vm, "destroying it")?;
        if let Some(disk) = record.disks.first() {
            bail!("{vm} still holds the disk {disk}; detach it first");
        }
        self.engines.of(&record).release(&record)?;
        fs::remove_dir_all(self.directory.vm(vm)).with_context(|| format!("removing {vm}"))
    }

    fn off(&self, vm: &str, attempt: &str) -> anyhow::Result<VmRecord> {
        let record = self.directory.load_vm(vm)?;
        if self.engines.of(&record).is_on(&record) {
            bail!("{vm} is on; {attempt} needs it to be off");
        }
        Ok(record)
    }

    /// Runs a program inside a guest as root, at most `limit`, and returns its output.
    pub fn run_inside(&self, vm: &str, arguments: &[&str], limit: Duration) -> anyhow::Result<String> {
        let limit = limit.as_secs().max(1).to_string();
        run(&mut self.begun_inside(vm, &["timeout", &limit], arguments)?)
    }

    /// A program inside a guest as root. The caller starts it.
    pub fn command_inside(&self, vm: &str, arguments: &[&str]) -> anyhow::Result<Command> {
        self.begun_inside(vm, &[], arguments)
    }

    fn begun_inside(&self, vm: &str, by: &[&str], arguments: &[&str]) -> anyhow::Result<Command> {
        let mut record = self.directory.load_vm(vm)?;
        record.address = self.reached_at(&record)?;
        self.engines.of(&record).command_inside(&record, by, arguments)
    }

    /// Removes the lab: first the tenants on its network, then its VMs, their disks and everything else. Cuts every
    /// VM's power. A retry after an error continues.
    pub fn remove(self) -> anyhow::Result<()> {
        for tenant in self.tenants()? {
            let name = tenant.name.clone();
            tenant.remove().with_context(|| format!("removing the tenant {name}"))?;
        }
        let _lock = self.directory.lock()?;
        self.close_port_forward()?;
        for vm in self.directory.vms()? {
            if let Ok(record) = self.directory.load_vm(&vm) {
                self.engines.of(&record).cut(&record)?;
                self.engines.of(&record).release(&record)?;
            }
        }
        if self.record.beside.is_none() {
            self.end_leases()?;
            self.network.remove()?;
        }
        self.remove_files()?;
        let directory = self.directory.path();
        match fs::remove_dir(directory) {
            // Another command already creates a lab of this name.
            Err(error) if error.kind() != std::io::ErrorKind::DirectoryNotEmpty => {
                Err(error).with_context(|| removing(directory))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes all files of the lab. The caller holds its lock.
    ///
    /// The order makes an interruption safe. VMs and disks go first, then other files, then the record, so that the
    /// lab can be found and removed again. The lock is last: its next holder finds nothing.
    fn remove_files(&self) -> anyhow::Result<()> {
        for path in self.begin_removal()? {
            let is_directory = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| removing(&path))?;
        }
        Ok(())
    }

    /// Records the removal, and returns the paths in the directory, in the order of their removal. If there is no
    /// space for the record, the removal continues: a lab that has filled its disk must be removable. VMs' records
    /// come first, because a VM with a record and fewer files would look as if it was never on.
    fn begin_removal(&self) -> anyhow::Result<Vec<PathBuf>> {
        let (directory, going) = (self.directory.path(), self.directory.removal_mark());
        if let Err(error) = fs::write(&going, "") {
            log::warn!("that the lab goes is not noted in {}: {error}", going.display());
        }
        let first = ["vms", "disks"].map(|name| directory.join(name));
        let last = [going, self.directory.record(), self.directory.lock_file()];
        let place = |path: &PathBuf| {
            let of = |all: &[PathBuf]| all.iter().position(|one| one == path);
            of(&first).or_else(|| of(&last).map(|at| first.len() + 1 + at)).unwrap_or(first.len())
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory).with_context(|| removing(directory))? {
            paths.push(entry.with_context(|| removing(directory))?.path());
        }
        paths.sort_by_key(place);
        let records = self.directory.vms()?.into_iter().map(|vm| self.directory.vm_record(&vm));
        Ok(records.filter(|record| record.exists()).chain(paths).collect())
    }
}

fn removing(path: &Path) -> String {
    format!("removing {}", path.display())
}

/// The tools trees of this user's labs and vCenters. Fails on an unreadable record: its tools tree is unknown.
pub fn tools_in_use() -> anyhow::Result<Vec<PathBuf>> {
    #[derive(Deserialize)]
    struct Part {
        tools: PathBuf,
    }
    let state = state_directory()?;
    let labs = match fs::read_dir(&state) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        labs => labs.with_context(|| format!("reading {}", state.display()))?,
    };
    let mut tools = Vec::new();
    for lab in labs {
        let directory = lab?.path();
        for record in ["lab.json", "vcenter.json"].map(|record| directory.join(record)) {
            if record.exists() {
                tools.push(records::load::<Part>(&record)?.tools);
            }
        }
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_are_removed_first_and_the_lock_last() {
        let state = tempfile::tempdir().unwrap();
        let lab = fixture::lab(state.path(), 1, fixture::source(&state.path().join("tree")));
        let _lock = lab.directory.lock().unwrap();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        let directory = lab.directory.path().to_owned();
        for kept in ["workers/000001", "vms/cp1", "upgrades/000001", "disks", "dhcp"] {
            fs::create_dir_all(directory.join(kept)).unwrap();
        }
        fs::write(directory.join("ssh-key"), "").unwrap();
        fs::write(lab.directory.vm_record("cp1"), "").unwrap();
        let order = lab.begin_removal().unwrap();
        let order: Vec<_> = order.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        let (first, last) = (&["vm.json", "vms", "disks"][..], &["going", "lab.json", "lock"][..]);
        assert_eq!((&order[..3], &order[7..]), (first, last), "{order:?}");
        lab.remove_files().unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn labs_are_removed_even_without_a_record() {
        let state = tempfile::tempdir().unwrap();
        let lab = fixture::lab(state.path(), 1, fixture::source(&state.path().join("tree")));
        let _lock = lab.directory.lock().unwrap();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        let directory = lab.directory.path().to_owned();
        // No file can be created with this name.
        for kept in ["going", "vms/cp1", "disks"] {
            fs::create_dir_all(directory.join(kept)).unwrap();
        }
        let order = lab.begin_removal().unwrap();
        let order: Vec<_> = order.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(order, ["vms", "disks", "going", "lab.json", "lock"]);
        lab.remove_files().unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}
