//! A vCenter to test against, and the input of commands: a description of a control cluster, and a small OVA.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use contract::role::Role;
use serde_json::json;
use tempfile::TempDir;
use testbed::{ADMINISTRATOR, Appliance, PASSWORD};
use vsphere::{Client, Settings, Unguarded};

/// A vCenter that ends when the value is dropped, and a directory with descriptions.
pub struct Bed {
    vcenter: testbed::Bed,
    directory: TempDir,
}

impl Deref for Bed {
    type Target = testbed::Bed;

    fn deref(&self) -> &testbed::Bed {
        &self.vcenter
    }
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

impl Bed {
    pub fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("password"), format!("{PASSWORD}\n")).unwrap();
        let keys = include_str!("../../../contract/src/properties/fixtures/ssh-keys.pub");
        let key = keys.lines().find(|line| line.starts_with("ssh-ed25519")).unwrap();
        fs::write(path("admin.pub"), format!("{key}\n")).unwrap();
        appliance(directory.path(), "kaas-control-plane", Role::ControlPlane);
        Self { vcenter: testbed::Bed::with_users(arguments), directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The example, for this vCenter, with replaced parts.
    pub fn described(&self, changes: &[(&str, &str)]) -> PathBuf {
        let server = format!("server = \"{}\"", self.address());
        let user = format!("user = \"{ADMINISTRATOR}\"");
        let thumbprint = format!("thumbprint = \"{}\"", self.thumbprint());
        let here = [
            ("server = \"vcenter.example.com\"", server.as_str()),
            (
                "# thumbprint = \"00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\"",
                &thumbprint,
            ),
            ("user = \"kaas@vsphere.local\"", &user),
            ("password = { prompt = \"Password of kaas@vsphere.local\" }", "password = { file = \"password\" }"),
            ("datacenter = \"Datacenter\"", "datacenter = \"DC0\""),
            ("cluster = \"Cluster\"", "cluster = \"DC0_C0\""),
            ("folder = \"kaas/control\"", "folder = \"control\""),
            ("datastore = \"datastore1\"\n", "datastore = \"LocalDS_0\"\n"),
            ("ova = \"build\"", "ova = \"appliance.ova\""),
            ("memory-mib = 4096", "memory-mib = 1024"),
            ("data-disk-gib = 32", "data-disk-gib = 4"),
        ];
        let example = include_str!("../../src/commands/control/deployment/examples/vsphere.toml").to_owned();
        let text = here.iter().chain(changes).fold(example, |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let path = self.path("cluster.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// The machines whose names begin with `called`, and the power state of each.
    pub fn machines(&self, called: &str) -> Vec<(String, String)> {
        let all = wait(self.vcenter.machines()).into_iter().map(|machine| (machine.name, machine.power));
        let mut found: Vec<_> = all.filter(|(name, _)| name.starts_with(called)).collect();
        found.sort();
        found
    }

    pub fn make_folder(&self, name: &str) {
        self.make_folder_in("DC0/vm", name);
    }

    pub fn make_folder_in(&self, parent: &str, name: &str) {
        self.vsphere(async |client| {
            let parent = client.find(parent).await.unwrap();
            client.changes(&Unguarded).create_folder(&parent, name).await.unwrap();
        });
    }

    /// Runs an action of another vCenter client.
    pub fn vsphere<T>(&self, act: impl AsyncFnOnce(&Client) -> T) -> T {
        wait(async {
            let client = self.client_of(ADMINISTRATOR, PASSWORD, Settings::default()).await;
            let done = act(&client).await;
            client.log_out().await.unwrap();
            done
        })
    }

    /// The next call of a method is not answered before [`Bed::goes_on`].
    pub fn hangs(&self, method: &str) {
        wait(self.vcenter.spoil(method, "delay", json!({ "milliseconds": 600_000 })));
    }

    /// Whether such a call has come.
    pub fn is_hanging(&self) -> bool {
        wait(self.vcenter.has_spoilt())
    }

    /// Answers all calls again.
    pub fn goes_on(&self) {
        wait(self.vcenter.spoil_nothing());
    }

    /// The calls during an action, by their names and in their order.
    pub fn asked(&self, act: impl FnOnce()) -> Vec<String> {
        wait(self.count_anew());
        act();
        wait(self.vcenter.calls()).order
    }

    /// After `skip` calls of a method, one is refused for a missing privilege.
    pub fn denies(&self, method: &str, skip: usize) {
        wait(self.spoil(method, "fault", json!({ "fault": "NoPermission", "skip": skip })));
    }

    /// Changes how the vCenter behaves.
    pub fn switches(&self, switches: serde_json::Value) {
        wait(self.vcenter.switch(switches));
    }

    /// The number of open sessions.
    pub fn sessions(&self) -> u64 {
        wait(async { self.count("Login").await - self.count("Logout").await })
    }
}

/// A small OVA, `appliance.ova`, with the form of a role.
pub fn appliance(directory: &Path, name: &str, role: Role) {
    let full_version = "0.2.0+bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb (etcd 3.6)";
    let properties = testbed::form(role);
    Appliance { name, full_version, properties, extra_config: Vec::new(), signer: None }.write(directory);
}
