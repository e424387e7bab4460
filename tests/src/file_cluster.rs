//! A cluster of three that the operator's command creates from one file, on a test vCenter whose machines have bodies.
//! It is observed from outside: on the vCenter, in its datastores, through its kubeconfig.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fleet::nodes::{Client, Method};
use serde_json::Value;
use tempfile::TempDir;

use crate::places::kaas;
use crate::scenario::{ALL, MOMENT};
use crate::store::{ETCDCTL, KEPT, members};
use crate::upgrade::{self, SWAPPING};
use crate::vcenter::Site;

/// The cluster's name, and that of the folder of its VMs.
pub const CLUSTER: &str = "control";
/// Where its nodes, its operator and its API are on the machines' network.
pub const NETWORK: &str = "192.168.77";
/// The datastore of its VMs.
pub const DATASTORE: &str = "LocalDS_0";
/// The names of templates begin with this.
const TEMPLATE: &str = "kaas-image-";

/// A cluster, its description, and the operator's files: keys, kubeconfig, snapshots.
pub struct FileCluster<'a> {
    site: &'a Site,
    directory: TempDir,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    pub name: String,
    pub is_on: bool,
    pub is_template: bool,
}

impl<'a> FileCluster<'a> {
    /// Describes three nodes from an OVA by the command's own example, and creates the folder for them. Nothing else is
    /// created.
    pub fn three(site: &'a Site, ova: &Path) -> Self {
        Self::from_example(site, ova, |example| example)
    }

    /// The same with the first of them only.
    pub fn one(site: &'a Site, ova: &Path) -> Self {
        Self::from_example(site, ova, |example| {
            let [second, after] = ["\n[[node]]\nname = \"cp2\"", "\n# Properties of all nodes"]
                .map(|begin| example.find(begin).unwrap_or_else(|| panic!("the example has no {begin:?}")));
            format!("{}{}", &example[..second], &example[after..])
        })
    }

    fn from_example(site: &'a Site, ova: &Path, change: impl FnOnce(String) -> String) -> Self {
        let described = Self { site, directory: tempfile::tempdir().expect("a temporary directory") };
        let example = String::from_utf8(described.output(&["control", "create", "--example"]).stdout);
        let example = change(example.expect("an example of text"));
        let opened = site.opened();
        let quoted = |path: &Path| format!("{:?}", path.to_str().expect("a path of text"));
        let [password, authority, ova] = [&opened.password_file(), &opened.certificate_file(), ova].map(quoted);
        let changes = [
            ("server = \"vcenter.example.com\"", format!("server = \"{}\"", site.address())),
            ("# ca-file = \"vcenter-ca.pem\"", format!("ca-file = {authority}")),
            ("user = \"kaas@vsphere.local\"", format!("user = \"{}\"", lab::VCENTER_USER)),
            (
                "password = { prompt = \"Password of kaas@vsphere.local\" }",
                format!("password = {{ file = {password} }}"),
            ),
            ("datacenter = \"Datacenter\"", "datacenter = \"DC0\"".to_owned()),
            ("cluster = \"Cluster\"", "cluster = \"DC0_C0\"".to_owned()),
            ("folder = \"kaas/control\"", format!("folder = \"{CLUSTER}\"")),
            ("datastore = \"datastore1\"\n", format!("datastore = \"{DATASTORE}\"\n")),
            ("ova = \"build\"", format!("ova = {ova}")),
            ("memory-mib = 4096", "memory-mib = 2048".to_owned()),
            ("data-disk-gib = 32", "data-disk-gib = 4".to_owned()),
        ];
        let mut text = changes.iter().fold(example, |text, (from, to)| {
            assert!(text.contains(from), "the example has no {from}");
            text.replacen(from, to, 1)
        });
        assert!(text.contains("\"10.20.30.11/24\""), "the example has other addresses");
        text = text.replace("10.20.30.", &format!("{NETWORK}."));
        described.write("cluster.toml", &text);
        described.write("admin.pub", &drawn_key());
        site.vsphere(async |client| {
            let parent = client.find("DC0/vm").await?;
            client.changes(&vsphere::Unguarded).create_folder(&parent, CLUSTER).await
        })
        .unwrap_or_else(|error| panic!("making the folder {CLUSTER}: {error}"));
        described
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap_or_else(|error| panic!("writing {name}: {error}"));
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("cluster.toml")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join(format!("{CLUSTER}.kubeconfig"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self.site.opened().outside(&kaas(), &arguments)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap_or_else(|error| panic!("starting kaas: {error}"))
    }

    /// Runs `kaas` with the file on the machines' network. Returns its output and duration.
    pub fn run(&self, arguments: &[&str]) -> (String, Duration) {
        let started = Instant::now();
        let (ended, took) = (self.of_file(arguments), started.elapsed());
        let (said, failed) = texts(&ended);
        assert!(ended.status.success(), "kaas {}: {}: {failed}\n{said}", arguments.join(" "), ended.status);
        self.site.reached(&format!("kaas {} took {} s", arguments.join(" "), took.as_secs()));
        (said, took)
    }

    /// How it is refused, or what it says of its failure.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let ended = self.of_file(arguments);
        let (said, failed) = texts(&ended);
        assert!(!ended.status.success(), "kaas {} did not fail: {said}", arguments.join(" "));
        failed
    }

    fn of_file(&self, arguments: &[&str]) -> Output {
        let file = self.file();
        self.output(&[arguments, &["--file", file.to_str().expect("a path of text")]].concat())
    }

    /// Begins a command, given the file; what it says is collected.
    pub fn begin(&self, arguments: &[&str]) -> Child {
        let file = self.file();
        let mut command = self.command(&[arguments, &["--file", file.to_str().expect("a path of text")]].concat());
        let begun = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        begun.unwrap_or_else(|error| panic!("starting kaas: {error}"))
    }

    fn journal(&self) -> PathBuf {
        self.site.opened().datastores().join(DATASTORE).join("kaas").join(CLUSTER)
    }

    /// Waits until the last upgrade's journal has so many entries.
    pub fn has_written(&self, count: usize) {
        let journal = self.journal();
        self.site.wait(
            &format!("{count} entries of the journal"),
            SWAPPING,
            || Ok(upgrade::entries(&journal) >= count),
        );
    }

    /// The journals of upgrades, by the numbers of the holds.
    pub fn journals(&self) -> BTreeMap<String, String> {
        upgrade::journals(&self.journal())
    }

    /// A client with the kubeconfig that the command has left, on the machines' network.
    pub fn client(&self) -> Client {
        let kubeconfig = self.kubeconfig();
        let text = fs::read_to_string(&kubeconfig).unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
        assert!(text.contains(&format!("https://{NETWORK}.10:")), "it does not name the virtual IP");
        let client = Client::from_inside(&kubeconfig, self.site.opened().network_namespace());
        client.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// The version of each node's kubelet, by the nodes' names, as the API tells with that kubeconfig; of those that are Ready.
    pub fn ready(&self) -> BTreeMap<String, String> {
        self.ready_now().unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// As [`Self::ready`], but returns errors.
    pub fn ready_now(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let list = self.asked("/api/v1/nodes")?;
        let items = list["items"].as_array().context("a list of nodes")?.iter();
        let is_ready = |node: &&Value| {
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let of = |node: &Value| (text(&node["metadata"]["name"]), text(&node["status"]["nodeInfo"]["kubeletVersion"]));
        Ok(items.filter(is_ready).map(of).collect())
    }

    fn ask(&self, path: &str) -> Value {
        self.asked(path).unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn asked(&self, path: &str) -> anyhow::Result<Value> {
        let client = self.client();
        let answer = client.wait(client.ask_api(Method::GET, path, None))?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        answer.json().with_context(|| path.to_owned())
    }

    /// The UID of the namespace kube-system: what tells one cluster from another.
    pub fn identity(&self) -> String {
        let namespace = self.ask("/api/v1/namespaces/kube-system");
        namespace["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    /// The VMs and templates in its folder.
    pub fn machines(&self) -> Vec<Machine> {
        let paths = ["name", "runtime.powerState", "config.template"];
        let listed = self.site.vsphere(async |client| {
            let folder = client.find(&format!("DC0/vm/{CLUSTER}")).await?;
            client.list(&folder, &["VirtualMachine"], true, &paths).await
        });
        let listed = listed.unwrap_or_else(|error| panic!("listing the folder {CLUSTER}: {error}"));
        let machine = |seen: &vsphere::Object| Machine {
            name: seen.text(paths[0]).to_owned(),
            is_on: seen.text(paths[1]) == "poweredOn",
            is_template: seen.flag(paths[2]),
        };
        let mut machines: Vec<Machine> = listed.iter().map(machine).collect();
        machines.sort();
        machines
    }

    /// The VMs alone, and whether each is on.
    pub fn vms(&self) -> Vec<(String, bool)> {
        let vms = self.machines().into_iter().filter(|machine| !machine.is_template);
        vms.map(|machine| (machine.name, machine.is_on)).collect()
    }

    /// Rules of the compute cluster.
    pub fn rules(&self) -> usize {
        let rules = self.site.vsphere(async |client| {
            let cluster = client.find("DC0/host/DC0_C0").await?;
            client.anti_affinity_rules(&cluster).await
        });
        rules.unwrap_or_else(|error| panic!("looking for rules: {error}")).len()
    }

    /// The VM that runs a node: a swap's new VM is named after the node, too.
    pub fn vm_of(&self, node: &str) -> String {
        let of_node = |name: &str| name == node || name.starts_with(&format!("{node}-"));
        let on: Vec<String> =
            self.vms().into_iter().filter(|(name, is_on)| *is_on && of_node(name)).map(|(name, _)| name).collect();
        let [vm] = on.as_slice() else { panic!("of {node} these VMs are on: {on:?}") };
        vm.clone()
    }

    /// The nodes that the description names.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &'static str> + use<> {
        let described = fs::read_to_string(self.file()).unwrap_or_else(|error| panic!("the description: {error}"));
        ALL.into_iter().filter(move |node| described.contains(&format!("name = \"{node}\"")))
    }

    /// The data that all nodes must keep through any swap.
    pub fn kept(&self) -> BTreeMap<&'static str, (String, Vec<String>)> {
        let kept = |node: &'static str| {
            let vm = self.vm_of(node);
            let listed = self.site.inside(&vm, &[&ETCDCTL[..], &["member", "list"]].concat());
            (node, (self.site.inside(&vm, &["sh", "-ec", KEPT]), members(&listed)))
        };
        self.nodes().map(kept).collect()
    }

    /// Waits until every boot counts as healthy: an upgrade requires that.
    pub fn wait_until_healthy(&self) {
        for node in self.nodes() {
            let vm = self.vm_of(node);
            self.site.wait(&format!("{node} to be found good"), MOMENT, || {
                Ok(self.site.try_inside(&vm, &["test", "-e", "/run/kaas/good.json"]).is_ok())
            });
        }
    }

    /// `kaas control delete`, confirmed: the data disks that it says it has left, by their datastore paths.
    pub fn destroy(&self, further: &[&str]) -> Vec<String> {
        let words = [&["control", "delete", "--confirm", CLUSTER, "--output", "json"], further].concat();
        let said: Value = serde_json::from_str(&self.run(&words).0).expect("an outcome");
        assert_eq!(said["arrived"], "gone", "{said}");
        let left = said["left"].as_array().cloned().unwrap_or_default();
        left.iter().map(|disk| disk["path"].as_str().expect("a path").to_owned()).collect()
    }

    /// The files of all datastores, by their datastore paths, without templates and the cluster's journal. Both stay,
    /// as the documentation says.
    pub fn files(&self) -> Vec<String> {
        let stays = [TEMPLATE, &format!("kaas/{CLUSTER}/")].map(|begin| format!("[{DATASTORE}] {begin}"));
        let files = self.site.files().into_iter();
        files.filter(|file| !stays.iter().any(|begin| file.starts_with(begin))).collect()
    }
}

/// The files of a disk: its descriptor and its content.
pub fn files_of(disk: &str) -> [String; 2] {
    let begin = disk.strip_suffix(".vmdk").unwrap_or_else(|| panic!("{disk} is no disk"));
    [format!("{begin}-flat.vmdk"), disk.to_owned()]
}

/// The standard output and the standard error of a command.
pub(crate) fn texts(ended: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&ended.stdout), text(&ended.stderr))
}

/// A new public SSH key.
pub fn drawn_key() -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("key");
    let mut draw = std::process::Command::new("ssh-keygen");
    let drawn = draw.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file).status().expect("starting ssh-keygen");
    assert!(drawn.success(), "ssh-keygen ended with {drawn}");
    fs::read_to_string(file.with_extension("pub")).expect("a public key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_two_files() {
        assert_eq!(
            files_of("[LocalDS_0] cp1/cp1_1.vmdk"),
            ["[LocalDS_0] cp1/cp1_1-flat.vmdk", "[LocalDS_0] cp1/cp1_1.vmdk"]
        );
    }
}
