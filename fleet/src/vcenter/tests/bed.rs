//! The vCenter to test against, with the objects of a deployment.

use std::ops::Deref;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;
use vsphere::{Client, DatastorePath, Settings};

pub use testbed::{ADMINISTRATOR, Count, Machine, NETWORK};

use crate::hypervisor::Vm;
use crate::vcenter::{Clones, DatastoreStore, Site, VcenterHypervisor};

pub const DEPLOYMENT: Uuid = Uuid::from_u128(0xde);

/// The directory of a deployment's journal.
pub fn journal_of(deployment: Uuid) -> DatastorePath {
    let name = if deployment == DEPLOYMENT { "control".to_owned() } else { deployment.to_string() };
    DatastorePath::new("LocalDS_0", format!("kaas/{name}"))
}

/// A vCenter that ends with its value.
pub struct Bed(testbed::Bed);

impl Deref for Bed {
    type Target = testbed::Bed;

    fn deref(&self) -> &testbed::Bed {
        &self.0
    }
}

impl Bed {
    pub fn start(arguments: &[&str]) -> Self {
        Self(testbed::Bed::start(arguments))
    }

    /// A vCenter with these accounts, in the form of the bed's `User`.
    pub fn of_users(users: &[serde_json::Value]) -> Self {
        Self(testbed::Bed::of_users(users, &[]))
    }

    /// A vCenter with the accounts of [`testbed::IN_ROLE`] and [`testbed::LOOKER`].
    pub fn with_users() -> Self {
        Self(testbed::Bed::with_users(&[]))
    }

    /// Clients do not wait long, and use a new template at once.
    pub fn settings() -> Settings {
        Settings {
            look_limit: Duration::from_secs(20),
            patience: Duration::from_secs(5),
            pause: Duration::from_millis(10),
            ..Settings::default()
        }
    }

    pub async fn client(&self) -> Client {
        self.client_of(ADMINISTRATOR, testbed::PASSWORD).await
    }

    pub async fn client_of(&self, user: &str, password: &str) -> Client {
        self.0.client_of(user, password, Self::settings()).await
    }

    /// The administrator's client, with other limits.
    pub async fn limited(&self, settings: Settings) -> Client {
        self.0.client_of(ADMINISTRATOR, testbed::PASSWORD, settings).await
    }

    /// Waits for the first call of this method.
    pub async fn reached(&self, method: &str) {
        while self.count(method).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until no more calls come: then every other caller waits for something else.
    pub async fn quiet(&self) {
        let (mut last, mut same) = (0, 0);
        while same < 20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let now = self.counts().await.values().map(|count| count.calls).sum::<u64>();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
    }

    pub fn site(&self) -> Site {
        Site {
            datacenter: "DC0".to_owned(),
            folder: "control".to_owned(),
            other_folders: Vec::new(),
            templates: None,
            resource_pool: "DC0_C0".to_owned(),
            datastore: "LocalDS_0".to_owned(),
            networks: vec![NETWORK.to_owned()],
            clones: Clones::Linked,
            different_hosts: false,
            restart: None,
            storage_policy: None,
            managed_by: None,
        }
    }

    /// The deployment's hypervisor with its own folder.
    pub async fn hypervisor(&self) -> VcenterHypervisor {
        self.hypervisor_of(DEPLOYMENT, &self.site()).await
    }

    pub async fn hypervisor_of(&self, deployment: Uuid, site: &Site) -> VcenterHypervisor {
        self.hypervisor_by(self.client().await, deployment, site).await
    }

    /// As [`Self::hypervisor_of`], with a client that others may share.
    pub async fn hypervisor_by(&self, client: Client, deployment: Uuid, site: &Site) -> VcenterHypervisor {
        self.make_folder(&client, &site.folder).await;
        let hypervisor = VcenterHypervisor::new(client, deployment, site, &journal_of(deployment)).await;
        hypervisor.unwrap().settling_within(Duration::from_secs(20)).resting(Duration::ZERO)
    }

    pub async fn store(&self) -> DatastoreStore {
        DatastoreStore::new(self.client().await, "DC0", journal_of(DEPLOYMENT)).await.unwrap()
    }

    /// A user renames an object.
    pub async fn rename(&self, path: &str, to: &str) {
        let _: serde_json::Value = self.ask("POST", "rename", json!({ "path": path, "to": to })).await;
    }

    /// The next call of this method takes its time, and its answer is lost.
    pub async fn delay_unanswered(&self, method: &str, milliseconds: u32) {
        self.spoil(method, "delay-task", json!({ "milliseconds": milliseconds })).await;
        self.spoil(method, "lose-answer", json!({})).await;
    }

    /// Sets a variable of a guest where vCenter shows it.
    pub async fn set_guestinfo(&self, vm: &Vm, key: &str, value: &str) {
        let client = self.client().await;
        let spec = vsphere::ConfigSpec::new().extra(key, value);
        let at = vsphere::MoRef::vm(&vm.reference.id);
        client.changes(&vsphere::Unguarded).reconfigure(&at, &spec).await.unwrap();
    }
}
