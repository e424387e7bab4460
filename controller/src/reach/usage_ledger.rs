//! The ledger of clusters, Machines and Tenants, in the leader's memory. Admission of a worker reads it instead of listing all
//! Machines.
//!
//! Only the leader creates Machines, and the answer of each call changes the ledger before the caller continues. So two callers
//! that each created a Machine and then ask see each other. A list corrects the ledger once a minute, and after a call whose
//! answer was lost. Until then a Machine that another client removed still counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::ResourceExt;
use serde_json::Value;
use tokio::time::Instant;

use super::failure::Failure;
use super::inventory::inventory_of;
use super::kind::Kind;
use super::objects::Collection;
use crate::decisions::ClusterInventory;
use crate::objects::{Machine, Tenant, TenantCluster};

/// How long a list is used.
const VALID: Duration = Duration::from_secs(60);
/// How often a list is repeated because the answer of another call was lost meanwhile.
const TRIES: usize = 3;

#[derive(Default)]
pub(super) struct UsageLedger {
    /// The holder lists.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

/// Kind, namespace and name of an object.
type Place = (String, Option<String>, String);

#[derive(Default)]
struct State {
    /// The time at which the last list began, and its content with all later answers.
    known: Option<(Instant, Arc<ClusterInventory>)>,
    /// The last answer about each object since the list in progress began.
    since: Option<BTreeMap<Place, Value>>,
    /// Whether the answer of a write was lost since the last list began.
    is_doubtful: bool,
}

impl UsageLedger {
    /// The inventory, with all answers that were heard. `list` is called if the last list is too old.
    pub(super) async fn ask<L>(&self, list: impl Fn() -> L + Send + Sync) -> Result<Arc<ClusterInventory>, Failure>
    where
        L: Future<Output = Result<Arc<ClusterInventory>, Failure>> + Send,
    {
        if let Some(known) = self.state().valid() {
            return Ok(known);
        }
        let _turn = self.turn.lock().await;
        for _ in 0..TRIES {
            if let Some(known) = self.state().valid() {
                return Ok(known);
            }
            let begun = Instant::now();
            {
                let mut state = self.state();
                (state.known, state.since, state.is_doubtful) = (None, Some(BTreeMap::new()), false);
            }
            let listed = list().await;
            let mut state = self.state();
            let since = state.since.take().unwrap_or_default();
            state.known = Some((begun, listed?));
            for ((plural, ..), object) in since {
                state.apply(&plural, &object);
            }
        }
        let known = self.state().valid();
        known.ok_or_else(|| Failure::Unknown(anyhow::anyhow!("answers about Machines were lost again and again")))
    }

    /// Records an object as it was read or written.
    pub(super) fn hears(&self, of: &Collection, object: &Value) {
        if !concerns(of) {
            return;
        }
        let mut state = self.state();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = (of.plural.clone().into_owned(), of.namespace.clone(), name);
        if let Some(since) = &mut state.since {
            since.insert(key, object.clone());
        }
        state.apply(&of.plural, object);
    }

    /// A write begins.
    pub(super) fn awaits<'l>(&'l self, of: &'l Collection) -> AwaitedWrite<'l> {
        AwaitedWrite { ledger: self, of, is_lost: concerns(of) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the ledger has objects of this collection.
fn concerns(of: &Collection) -> bool {
    let all = [Collection::of::<Machine>(None), Collection::of::<TenantCluster>(None), Collection::of::<Tenant>(None)];
    all.iter().any(|known| (&known.version, &known.plural) == (&of.version, &of.plural))
}

/// A write whose answer is awaited. If its answer is lost, or its caller is dropped, it may have been done: the next caller lists.
pub(super) struct AwaitedWrite<'l> {
    ledger: &'l UsageLedger,
    of: &'l Collection,
    is_lost: bool,
}

impl AwaitedWrite<'_> {
    pub(super) fn hears(mut self, answer: &Result<Value, Failure>) {
        self.is_lost &= matches!(answer, Err(Failure::Unknown(_) | Failure::Ended(_)));
        if let Ok(object) = answer {
            self.ledger.hears(self.of, object);
        }
    }
}

impl Drop for AwaitedWrite<'_> {
    fn drop(&mut self) {
        if self.is_lost {
            self.ledger.state().is_doubtful = true;
        }
    }
}

impl State {
    fn valid(&self) -> Option<Arc<ClusterInventory>> {
        let known = self.known.as_ref().filter(|(begun, _)| begun.elapsed() < VALID && !self.is_doubtful);
        known.map(|(_, inventory)| Arc::clone(inventory))
    }

    /// Applies an answer to the last list. An object that cannot be read makes the ledger doubtful: the next list names it.
    fn apply(&mut self, plural: &str, object: &Value) {
        let Some((_, inventory)) = &mut self.known else { return };
        let inventory = Arc::make_mut(inventory);
        let of_kind = |of: Collection| if *plural == *of.plural { vec![object.clone()] } else { Vec::new() };
        let machines = of_kind(Collection::of::<Machine>(None));
        let clusters = of_kind(Collection::of::<TenantCluster>(None));
        let Ok(heard) = inventory_of(machines, clusters, of_kind(Collection::of::<Tenant>(None))) else {
            self.is_doubtful = true;
            return;
        };
        for cluster in heard.clusters {
            inventory.unread.retain(|other| !is_same(other, &cluster));
            put(&mut inventory.clusters, cluster);
        }
        for cluster in heard.unread {
            inventory.clusters.retain(|other| !is_same(other, &cluster));
            put(&mut inventory.unread, cluster);
        }
        heard.machines.into_iter().for_each(|machine| put(&mut inventory.machines, machine));
        heard.tenants.into_iter().for_each(|tenant| put(&mut inventory.tenants, tenant));
    }
}

fn is_same<K: Kind>(one: &K, other: &K) -> bool {
    one.namespace() == other.namespace() && one.name_any() == other.name_any()
}

/// Replaces an object by a newer version. An object that was being deleted is gone with its last finalizer.
fn put<K: Kind>(all: &mut Vec<K>, object: K) {
    // Resource versions can be compared as numbers (Kubernetes 1.35, "Resource versions").
    let version = |object: &K| object.resource_version().and_then(|version| version.parse::<u64>().ok());
    let is_gone = object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty();
    match all.iter().position(|other| is_same(other, &object)) {
        Some(at) if version(&all[at]) > version(&object) => {}
        Some(at) if is_gone => drop(all.swap_remove(at)),
        Some(at) => all[at] = object,
        None if is_gone => {}
        None => all.push(object),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::fixture::worker;
    use crate::reach::fenced::Fenced;
    use crate::reach::in_memory::{Fault, InMemory};
    use crate::reach::kinds;
    use crate::reach::objects::Objects;
    use crate::term::Term;

    fn machine(name: &str) -> Machine {
        let mut machine = Machine::new(name, worker());
        machine.metadata.namespace = Some("team-blue".to_owned());
        machine.metadata.finalizers = Some(vec!["kaas.local/machine".to_owned()]);
        machine
    }

    fn bed() -> (InMemory, Fenced) {
        let api = InMemory::default();
        (api.clone(), Fenced::new(Arc::new(api), Term::unlimited("controller of a test")))
    }

    async fn names(fenced: &Fenced) -> Vec<String> {
        let mut names: Vec<String> =
            fenced.inventory().await.unwrap().machines.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    }

    // Finding 9 of controller.md: each worker's admission listed all Machines.
    #[tokio::test(start_paused = true)]
    async fn answers_keep_the_ledger_current_without_lists() {
        let (api, fenced) = bed();
        assert_eq!(names(&fenced).await, [""; 0]);
        let calls = api.calls();
        for number in 1..=3 {
            kinds::create(&fenced, &machine(&format!("shop-w{number}"))).await.unwrap();
        }
        assert_eq!(names(&fenced).await, ["shop-w1", "shop-w2", "shop-w3"]);
        assert_eq!(api.calls() - calls, 3, "three writes, and no list");
        let there = api.read::<Machine>(Some("team-blue"), "shop-w2").unwrap();
        kinds::delete(&fenced, &there).await.unwrap();
        assert_eq!(names(&fenced).await.len(), 3, "its VM still exists");
        let there = api.read::<Machine>(Some("team-blue"), "shop-w2").unwrap();
        kinds::remove_finalizer(&fenced, &there, "kaas.local/machine").await.unwrap();
        assert_eq!(names(&fenced).await, ["shop-w1", "shop-w3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn list_corrects_the_ledger_after_a_lost_answer() {
        let (api, fenced) = bed();
        assert_eq!(names(&fenced).await, [""; 0]);
        api.fails_at(0, Fault::Done);
        kinds::create(&fenced, &machine("shop-w1")).await.unwrap_err();
        assert_eq!(names(&fenced).await, ["shop-w1"]);
        api.put(&machine("shop-w2"));
        assert_eq!(names(&fenced).await, ["shop-w1"], "another client has made it");
        tokio::time::sleep(VALID).await;
        assert_eq!(names(&fenced).await, ["shop-w1", "shop-w2"]);
        api.is_away(true);
        assert_eq!(names(&fenced).await.len(), 2, "the last list holds");
        tokio::time::sleep(VALID).await;
        assert!(fenced.inventory().await.is_err(), "an old list is no answer");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_during_a_list_is_not_lost() {
        let ledger = UsageLedger::default();
        let of = Collection::of::<Machine>(Some("team-blue"));
        let mut made = serde_json::to_value(machine("shop-w1")).unwrap();
        made["metadata"]["resourceVersion"] = json!("7");
        let list = || async {
            // The list was made before the Machine, and arrives after it.
            ledger.hears(&of, &made);
            Ok(Arc::new(ClusterInventory::default()))
        };
        assert_eq!(ledger.ask(list).await.unwrap().machines.len(), 1);
        let mut older = made.clone();
        (older["metadata"]["resourceVersion"], older["spec"]["processors"]) = (json!("6"), json!(2));
        ledger.hears(&of, &older);
        assert_eq!(ledger.ask(list).await.unwrap().machines[0].spec.processors, worker().processors);
        drop(ledger.awaits(&of));
        assert!(ledger.state().valid().is_none(), "the caller of a write was dropped");
    }
}
