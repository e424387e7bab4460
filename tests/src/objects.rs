//! The objects of tenant clusters in a control cluster on a test vCenter. They are created with `kaas`, as operators
//! do, and read through the control cluster's API.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fleet::nodes::{Client, Method};
use serde_json::Value;
use tempfile::TempDir;

use crate::file_cluster::{CLUSTER, DATASTORE, FileCluster, NETWORK, drawn_key, texts};
use crate::places::kaas;
use crate::running::Running;
use crate::scenario::MOMENT;
use crate::vcenter::Site;

/// The Provider, which is the vCenter that the control cluster itself is on.
const PROVIDER: &str = "dc1";
/// The folders of tenants' VMs and of templates, which the operator creates.
const FOLDERS: [&str; 2] = ["tenants", "templates"];
/// The lease of the leader.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kaas-system/leases/kaas-controller";
const KINDS: &str = "/apis/kaas.local/v1alpha1";
/// The kinds of what a cluster is made of, and is gone with it.
const PARTS: [&str; 5] = ["tenantclusters", "nodepools", "machines", "pooladdresses", "operations"];

/// The operator's means to create objects.
pub struct Objects<'a> {
    site: &'a Site,
    control: &'a FileCluster<'a>,
    directory: TempDir,
}

impl<'a> Objects<'a> {
    /// Those of a control cluster, once its controller leads.
    pub fn of(site: &'a Site, control: &'a FileCluster<'a>) -> Self {
        let objects = Self { site, control, directory: tempfile::tempdir().expect("a temporary directory") };
        site.wait("a controller to lead", MOMENT, || {
            objects.ask(LEASE)?;
            Ok(objects.leader().is_some())
        });
        objects
    }

    /// Runs `kaas` with the control cluster's kubeconfig on the machines' network. Returns its output and duration.
    pub fn run(&self, arguments: &[&str]) -> (String, Duration) {
        self.begin(arguments).arrives()
    }

    /// Begins what [`Self::run`] does; what it says is collected.
    pub fn begin(&self, arguments: &[&str]) -> RunningCommand<'_> {
        let mut command = self.command(arguments);
        let begun = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let running = Running::of(begun.unwrap_or_else(|error| panic!("starting kaas: {error}")));
        RunningCommand { site: self.site, what: format!("kaas {}", arguments.join(" ")), running }
    }

    /// The control-plane node whose controller leads, if one does.
    pub fn leader(&self) -> Option<String> {
        let lease = self.ask(LEASE).ok()?;
        // A controller is called by its node, and by something that no other one is.
        let holder = lease["spec"]["holderIdentity"].as_str()?.split(' ').rev().nth(1)?;
        Some(holder.to_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut command = self.site.opened().outside(&kaas(), &arguments);
        command.env("KUBECONFIG", self.control.kubeconfig());
        command
    }

    /// Writes a file for `kaas` or kubectl to read.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.directory.path().join(name);
        fs::write(&file, text).unwrap_or_else(|error| panic!("writing {}: {error}", file.display()));
        file
    }

    /// Makes the vCenter a Provider, with addresses on `VM Network` and a class of workers, `small`.
    pub fn provide(&self) {
        let made = self.site.vsphere(async |client| {
            let parent = client.find("DC0/vm").await?;
            for folder in FOLDERS {
                client.changes(&vsphere::Unguarded).create_folder(&parent, folder).await?;
            }
            Ok(())
        });
        made.unwrap_or_else(|error| panic!("making folders: {error}"));
        let (server, thumbprint) = self.site.address_for_machines();
        let [tenants, templates] = FOLDERS;
        let file = self.file(
            "provider.yaml",
            &format!(
                "apiVersion: kaas.local/v1alpha1
kind: Provider
metadata: {{name: {PROVIDER}}}
spec:
  type: vSphere
  vsphere:
    server: {server}
    thumbprint: {thumbprint}
    datacenter: DC0
    folder: {tenants}
    templatesFolder: {templates}
    zones: [{{name: a, cluster: DC0_C0, datastore: {DATASTORE}}}]
    networks: [{{name: blue, portGroup: VM Network, addressing: Pool, poolRef: {{name: blue}}}}]
  credentialsRef: {{name: {PROVIDER}}}
  allowedNamespaces: {{from: Listed, names: [default]}}
---
apiVersion: kaas.local/v1alpha1
kind: IPPool
metadata: {{name: blue}}
spec:
  subnet: {NETWORK}.0/24
  ranges: [{{first: {NETWORK}.101, last: {NETWORK}.120}}]
  gateway: {NETWORK}.1
---
apiVersion: kaas.local/v1alpha1
kind: VMClass
metadata: {{name: small}}
spec: {{processors: 2, memoryMiB: 2048}}
"
            ),
        );
        let password = self.site.opened().password_file();
        let [file, password] = [&file, &password].map(|path| path.to_str().expect("a path of text"));
        let words = ["--file", file, "--user", lab::VCENTER_USER, "--password-file", password];
        self.run(&[&["provider", "create"], &words[..]].concat());
    }

    /// Imports an unsigned image to the vCenter, and returns the name of its NodeImage.
    pub fn push(&self, ova: &Path) -> String {
        let ova = ova.to_str().expect("a path of text");
        let words = ["image", "push", ova, "--provider", PROVIDER, "--development", "--output", "json"];
        let said: Value = serde_json::from_str(&self.run(&words).0).expect("an outcome");
        said["image"]["metadata"]["name"].as_str().unwrap_or_else(|| panic!("no image in {said}")).to_owned()
    }

    /// The object or the list at a path of the control cluster's API.
    pub fn ask(&self, path: &str) -> anyhow::Result<Value> {
        let client = self.control.client();
        let answer = client.wait(client.ask_api(Method::GET, path, None))?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        answer.json().with_context(|| path.to_owned())
    }

    /// Changes an object of the control cluster, as an administrator does.
    pub fn change(&self, path: &str, change: &Value) {
        let client = self.control.client();
        self.site.wait(&format!("{path} to be changed"), MOMENT, || {
            let answer = client.wait(client.ask_api(Method::PATCH, path, Some(change)))?;
            ensure!(answer.status == 200, "{path}: {}", answer.status);
            Ok(true)
        });
    }

    /// The items of a list. Repeats failed requests: a control-plane node that ends takes its connections along.
    fn items(&self, path: &str) -> Vec<Value> {
        let list = self.site.obtain(&format!("{path} to be told"), MOMENT, || self.ask(path).map(Some));
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// The names of what there is of clusters.
    pub fn parts(&self) -> Vec<String> {
        let of = |plural: &str| {
            let name = |item: &Value| format!("{plural}/{}", item["metadata"]["name"].as_str().unwrap_or_default());
            self.items(&format!("{KINDS}/{plural}")).iter().map(name).collect::<Vec<_>>()
        };
        PARTS.into_iter().flat_map(of).collect()
    }

    /// Which VM each Machine is to be, by BIOS UUID.
    pub fn machines(&self) -> BTreeMap<String, String> {
        let items = self.items(&format!("{KINDS}/machines"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        items.iter().map(|item| (text(&item["metadata"]["name"]), text(&item["metadata"]["uid"]))).collect()
    }

    /// The Secrets of the tenants' namespace.
    pub fn secrets(&self) -> Vec<String> {
        let items = self.items("/api/v1/namespaces/default/secrets");
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The VMs of tenants, which are no templates, and whether each is on.
    pub fn vms(&self) -> Vec<(String, bool)> {
        let mut vms = self.seen(|seen| (seen.text("name").to_owned(), seen.text("runtime.powerState") == "poweredOn"));
        vms.sort();
        vms
    }

    /// Their BIOS UUIDs.
    pub fn made(&self) -> BTreeMap<String, String> {
        let vms = self.seen(|seen| (seen.text("name").to_owned(), seen.text("config.uuid").to_owned()));
        let (count, made) = (vms.len(), vms.into_iter().collect::<BTreeMap<_, _>>());
        assert_eq!(made.len(), count, "two VMs have one name");
        made
    }

    fn seen<T>(&self, of: impl Fn(&vsphere::Object) -> T) -> Vec<T> {
        let paths = ["name", "runtime.powerState", "config.template", "config.uuid"];
        let listed = self.site.vsphere(async |client| {
            let folder = client.find(&format!("DC0/vm/{}", FOLDERS[0])).await?;
            client.list(&folder, &["VirtualMachine"], true, &paths).await
        });
        let listed = listed.unwrap_or_else(|error| panic!("listing the VMs of tenants: {error}"));
        listed.iter().filter(|seen| !seen.flag("config.template")).map(of).collect()
    }

    /// The files of all datastores but those of the control cluster, by their datastore paths.
    pub fn files(&self) -> Vec<String> {
        // A VM is named after its node, and a data disk stays in the directory of the VM that it was created with.
        let is_of_control = |file: &str| {
            self.control.nodes().any(|node| [" ", "/"].iter().any(|before| file.contains(&format!("{before}{node}"))))
        };
        self.control.files().into_iter().filter(|file| !is_of_control(file)).collect()
    }

    /// A client of a tenant's API, by the kubeconfig that its administrator has.
    pub fn client(&self, cluster: &str) -> Client {
        let file = self.directory.path().join(format!("{cluster}.kubeconfig"));
        if !file.exists() {
            let path = file.to_str().expect("a path of text");
            self.run(&["cluster", "kubeconfig", cluster, "--to-file", path]);
        }
        let client = Client::from_inside(&file, self.site.opened().network_namespace());
        client.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Cuts off or powers on each VM of the control cluster.
    pub fn control_is(&self, power: &str) {
        for (vm, _) in self.control.vms() {
            self.site.govc(&["vm.power", power, &format!("/DC0/vm/{CLUSTER}/{vm}")]);
        }
    }
}

/// A command that goes on. It ends with the scenario at the latest.
pub struct RunningCommand<'a> {
    site: &'a Site,
    what: String,
    running: Running,
}

impl RunningCommand<'_> {
    /// Waits for its end.
    pub fn ends(self) {
        self.arrives();
    }

    /// Its output and its duration.
    fn arrives(self) -> (String, Duration) {
        let (output, took) = self.running.ends();
        let (said, failed) = texts(&output);
        assert!(output.status.success(), "{}: {}: {failed}\n{said}", self.what, output.status);
        self.site.reached(&format!("{} took {} s", self.what, took.as_secs()));
        (said, took)
    }
}

/// A cluster of one control-plane node, with a pool of workers and addresses for services, all of them small.
pub fn small_cluster(name: &str, image: &str, workers: usize) -> String {
    small_cluster_of(1, name, image, workers)
}

/// The same, with one or three control-plane nodes.
pub fn small_cluster_of(control_nodes: usize, name: &str, image: &str, workers: usize) -> String {
    format!(
        "apiVersion: kaas.local/v1alpha1
kind: TenantCluster
metadata: {{name: {name}}}
spec:
  providerRef: {{name: {PROVIDER}}}
  version: '1.37'
  image: {image}
  controlPlane: {{replicas: {control_nodes}, vmClass: small}}
  network:
    name: blue
    endpoint: {{address: {NETWORK}.100}}
    serviceVIPs: {{ranges: [{{first: {NETWORK}.130, last: {NETWORK}.133}}]}}
  site: {{sshAuthorizedKeys: ['{}']}}
  upgrade: {{commit: Manual}}
---
apiVersion: kaas.local/v1alpha1
kind: NodePool
metadata: {{name: {name}-general}}
spec: {{clusterRef: {{name: {name}}}, replicas: {workers}, vmClass: small, repair: {{afterSeconds: 60}}}}
",
        drawn_key().trim()
    )
}
