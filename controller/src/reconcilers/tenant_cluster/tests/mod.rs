//! Clusters from their creation to their deletion, on an API server and a hypervisor in memory.

mod add_ons;
mod api;
mod contents;
mod faults;
mod keys;
mod nodes;
mod place;
mod replace;
mod stories;
mod told;
mod unreadable;
mod upgrades;

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

pub use self::api::Mortal;
pub use self::place::{Fault as VmFault, InMemoryPlace};
use super::Reconciler;
use crate::context::ReconcileError;
use crate::decisions::{NAMESPACES_IN_USE, fixture, namespace_entry};
use crate::objects::{SYSTEM, TenantCluster, VMClass};
use crate::reach::in_memory::{Fault, InMemory};
use crate::reach::{Infrastructure, Objects};
use crate::term::{Clock, Term};

/// One reconcile of a cluster, on any hypervisor.
pub async fn reconcile(
    cluster: &TenantCluster,
    objects: &dyn Objects,
    places: &dyn Infrastructure,
    (term, clock): (&Term, &Clock),
) -> Result<Action, ReconcileError> {
    Reconciler { objects, places, term, clock, is_marked: true }.reconcile(cluster).await
}

/// An API server and a place, with all objects that a cluster of three control-plane nodes names.
pub struct World {
    pub api: InMemory,
    pub place: InMemoryPlace,
    pub clock: Clock,
    pub term: Term,
    pub cluster: TenantCluster,
    /// Whether the controller's build is that of the control cluster's definitions of kinds.
    pub is_marked: bool,
}

impl World {
    pub fn new() -> Self {
        let (api, place, clock) = (InMemory::default(), InMemoryPlace::new(), Clock::of_tests());
        api.put(&fixture::provider());
        api.put(&fixture::pool());
        api.put(&fixture::image("kaas-tenant-0.2.0", "0.2.0"));
        api.put(&VMClass::new("medium", fixture::class()));
        let cluster = fixture::cluster();
        api.put(&cluster);
        Self { api, place, clock, term: Term::unlimited("controller one"), cluster, is_marked: true }
    }

    /// With a cluster that is ready.
    pub async fn ready() -> Self {
        let world = Self::new();
        world.until("ready", Self::is_ready).await;
        world
    }

    /// Reconciles so many times, with a pause of so many seconds.
    pub async fn reconciles(&self, times: usize, seconds: u64) {
        for _ in 0..times {
            self.reconcile().await.unwrap();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    }

    pub async fn reconcile(&self) -> Result<Action, ReconcileError> {
        self.reconcile_at(&Mortal::new(&self.api, None)).await.unwrap()
    }

    /// As `reconcile`, by a controller that may die. `None` if it has died.
    pub async fn reconcile_at(&self, objects: &Mortal) -> Option<Result<Action, ReconcileError>> {
        let (places, is_marked) = (&self.place, self.is_marked);
        let work = Reconciler { objects, places, term: &self.term, clock: &self.clock, is_marked };
        tokio::select! {
            biased;
            () = objects.died.notified() => None,
            done = work.reconcile(&self.cluster) => Some(done),
        }
    }

    /// Reconciles repeatedly, as a controller does, until the condition holds.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..120 {
            if is_so(self) {
                return;
            }
            let _ = self.reconcile().await;
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        panic!("never {what}: {:#}", self.api.object("tenantclusters"));
    }

    /// Repeats a reconcile from the same objects, and loses its last call.
    pub async fn without_last_call<T>(&self, reconcile: impl AsyncFn() -> T) -> T {
        let (objects, calls) = (self.api.snapshot(), self.api.calls());
        reconcile().await;
        let last = self.api.calls() - calls - 1;
        self.api.restore(objects);
        self.api.fails_at(last, Fault::NotDone);
        reconcile().await
    }

    pub fn status(&self) -> Value {
        self.api.object("tenantclusters")["status"].clone()
    }

    /// Status, reason and message of one of the cluster's conditions.
    pub fn condition(&self, about: &str) -> (String, String, String) {
        let status = self.status();
        let found = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == about).cloned();
        let found = found.unwrap_or_else(|| json!({}));
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    /// Checks the reason of a condition, and that its message contains these words.
    pub fn says(&self, about: &str, reason: &str, words: &str) {
        let (_, is, message) = self.condition(about);
        assert!(is == reason && message.contains(words), "{is} instead of {reason} with {words}: {message}");
    }

    /// Reconciles, and does something after so many seconds. Returns how long the reconcile took.
    pub async fn reconciles_with(&self, seconds: u64, does: impl FnOnce()) -> Duration {
        let begun = tokio::time::Instant::now();
        let later = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            does();
        };
        let (done, ()) = tokio::join!(self.reconcile(), later);
        done.unwrap();
        begun.elapsed()
    }

    pub fn is_ready(&self) -> bool {
        self.condition("Ready").0 == "True"
    }

    pub fn is_gone(&self) -> bool {
        self.api.names("tenantclusters").is_empty()
    }

    pub fn delete(&self) {
        self.api.remove::<TenantCluster>(Some("team-blue"), "shop");
    }

    /// The UUIDs of the disks that are recorded as left.
    pub fn left(&self) -> Vec<String> {
        let left = self.status()["deployment"]["retainedDisks"].clone();
        left.as_array().into_iter().flatten().filter_map(|disk| disk["uuid"].as_str().map(str::to_owned)).collect()
    }

    /// Reconciles until the cluster is gone, and nothing may then be left of it.
    pub async fn goes(&self, what: &str) {
        self.until(what, Self::is_gone).await;
        self.is_clean(what);
    }

    /// Deletes the cluster, and nothing may be left of it.
    pub async fn is_deleted(&self, what: &str) {
        self.delete();
        self.goes(what).await;
    }

    /// Checks that nothing of the cluster is left.
    pub fn is_clean(&self, what: &str) {
        self.is_clean_but(what, &[]);
    }

    /// As `is_clean`, except for these disks that were recorded as left.
    pub fn is_clean_but(&self, what: &str, left: &[String]) {
        for kind in ["machines", "pooladdresses", "secrets", "leases", "operations", "tenantclusters"] {
            assert_eq!(self.api.names(kind), [""; 0], "{what}: {kind}");
        }
        let list = self.api.named("configmaps", NAMESPACES_IN_USE).unwrap_or_default();
        assert!(list["data"][namespace_entry(&self.cluster)].is_null(), "{what}: {list}");
        assert!(self.place.vms().is_empty(), "{what}: {:?}", self.place.vms());
        let own: Vec<String> =
            self.place.lock().disks.iter().filter(|(_, own)| **own).map(|(disk, _)| disk.to_string()).collect();
        assert!(own.iter().all(|disk| left.contains(disk)), "{what}: disks");
    }

    /// Checks that the cluster serves, and is as declared.
    pub fn is_whole(&self, what: &str) {
        let machines = self.api.names("machines");
        assert_eq!(machines, ["shop-cp1", "shop-cp2", "shop-cp3"], "{what}");
        assert_eq!(self.place.vms().into_keys().collect::<Vec<_>>(), machines, "{what}");
        assert_eq!(self.api.names("pooladdresses").len(), 6, "{what}: three nodes, two Services and the endpoint");
        assert_eq!(self.api.names("secrets"), [fixture::UID, "shop-kubeconfig"], "{what}");
        assert_eq!(self.place.lock().disks.len(), 3 + self.left().len(), "{what}: disks");
    }

    pub fn secret(&self, name: &str) -> Secret {
        let of = crate::reach::Collection::of::<Secret>(Some("team-blue"));
        let found = futures_util::FutureExt::now_or_never(crate::reach::Objects::get(&self.api, &of, name));
        serde_json::from_value(found.unwrap().unwrap()).unwrap()
    }

    /// The Secret with the cluster's keys.
    pub fn keys(&self) -> Secret {
        self.api.read(Some(SYSTEM), fixture::UID).unwrap()
    }

    pub fn remove_keys(&self) {
        self.api.remove::<Secret>(Some(SYSTEM), fixture::UID);
    }

    /// The controller's own kubeconfig.
    pub fn own_kubeconfig(&self) -> String {
        String::from_utf8(self.keys().data.unwrap()["kubeconfig"].0.clone()).unwrap()
    }

    /// Replaces the controller's own kubeconfig. `None` removes it.
    pub fn put_own_kubeconfig(&self, text: Option<&str>) {
        let mut keys = self.keys();
        let data = keys.data.get_or_insert_default();
        match text {
            Some(text) => data.insert("kubeconfig".to_owned(), ByteString(text.as_bytes().to_vec())),
            None => data.remove("kubeconfig"),
        };
        self.api.put(&keys);
    }

    /// The kubeconfig for users.
    pub fn kubeconfig(&self) -> String {
        String::from_utf8(self.secret("shop-kubeconfig").data.unwrap()["value"].0.clone()).unwrap()
    }

    /// Replaces the kubeconfig in the cluster's Secret, as a user may.
    pub fn put_kubeconfig(&self, text: &str) {
        let mut secret = self.secret("shop-kubeconfig");
        secret.data.get_or_insert_default().insert("value".to_owned(), ByteString(text.as_bytes().to_vec()));
        self.api.put(&secret);
    }
}
