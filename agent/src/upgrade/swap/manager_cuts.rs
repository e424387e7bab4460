//! The agent is killed, or the power cut, after each thing that a swap saves on its node. Whatever
//! it was in the midst of: the node goes on as before, or the swap is prepared, and asking for the same once
//! more completes it. Programs are stand-ins; etcd's members answer over real TLS.

use std::path::PathBuf;
use std::sync::Mutex;

use contract::swap::Use;
use uuid::Uuid;

use super::tests::{candidate, context, request, taken};
use super::*;
use crate::cluster::records::Cordon;
use crate::host::command::{Command, Error};
use crate::host::disk::ownership::{self, Candidate};
use crate::host::files::{self, power};
use crate::intake::config::Config;
use crate::intake::config::fixture::three_nodes;
use crate::upgrade::swap::evacuate::uncordon;
use crate::upgrade::swap::fake_etcd::FakeEtcd;
use crate::upgrade::swap::{adopt, node_record};

/// Three nodes' configuration, keys and etcd: the same for all that one test does.
struct Cluster {
    config: Config,
    keys: tempfile::TempDir,
    etcd: FakeEtcd,
}

impl Cluster {
    fn new() -> Self {
        let (mut config, keys) = (three_nodes(), tempfile::tempdir().unwrap());
        let etcd = FakeEtcd::start(&mut config, keys.path());
        Self { config, keys, etcd }
    }

    /// The first node, with this on its disk, and its agent.
    fn started(&self, swap: Option<Swap>) -> (Rig, SwapManager) {
        let rig = Rig::new(self, swap);
        let manager = rig.start();
        (rig, manager)
    }
}

/// The first node.
struct Rig {
    root: tempfile::TempDir,
    context: SwapContext,
    etcd: FakeEtcd,
    kubernetes: Kubernetes,
}

/// What kubectl would change: whether the node is cordoned.
#[derive(Default)]
struct Kubernetes(Mutex<bool>);

impl Runner for Kubernetes {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        let command = command.to_string();
        power::step().map_err(|source| Error::Start { command: command.clone(), source })?;
        let asked = |word: &str| command.contains(&format!(" {word} "));
        let mut cordoned = self.0.lock().unwrap();
        match () {
            () if asked("get") => return Ok(cordoned.then_some("true").unwrap_or_default().into()),
            () if asked("uncordon") => *cordoned = false,
            () if asked("cordon") || asked("drain") => *cordoned = true,
            () => panic!("{command}"),
        }
        Ok(Vec::new())
    }
}

/// What happens to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The agent is killed and starts again.
    Agent,
    /// The VM is.
    Power,
}

const ID: Uuid = Uuid::from_u128(3);

impl Rig {
    fn new(Cluster { config, keys, etcd }: &Cluster, swap: Option<Swap>) -> Self {
        etcd.begin_anew();
        let (root, pki) = (tempfile::tempdir().unwrap(), keys.path().to_owned());
        let mut old = context(root.path(), swap.clone());
        old.image.publisher = swap.and_then(|swap| swap.publisher);
        let announcer = node_record::Announcer::new(config, &pki, root.path(), &old.disk, "b").unwrap();
        let context = SwapContext { config: config.clone(), pki, announcer, ..old };
        Self { root, context, etcd: etcd.clone(), kubernetes: Kubernetes::default() }
    }

    fn path(&self, path: &str) -> PathBuf {
        files::below(self.root.path(), path)
    }

    /// The agent starts and comes to its maintenance.
    fn start(&self) -> SwapManager {
        let manager = SwapManager::default();
        adopt::take(self.root.path(), &self.context.disk, &candidate(&self.context)).unwrap();
        let goes_on = manager.lock().recall(Arc::new(self.context.clone())).unwrap();
        if let Some(request) = goes_on {
            self.carry_out(&manager, &request);
        }
        self.maintain(&manager);
        manager
    }

    fn start_after(&self, cut: Cut) -> SwapManager {
        if cut == Cut::Power {
            std::fs::remove_dir_all(self.path("/run/kaas")).unwrap();
        }
        self.start()
    }

    fn maintain(&self, manager: &SwapManager) {
        self.context.announcer.tell(manager.under_way()).unwrap();
        if manager.under_way().is_none() {
            uncordon(&self.context, &self.kubernetes).unwrap();
        }
    }

    fn carry_out(&self, manager: &SwapManager, request: &Request) {
        let cancelled = Arc::clone(&manager.lock().cancelled);
        manager.carry_out(&self.context, request, &cancelled, &self.kubernetes);
    }

    /// As [`SwapManager::begin`] does, on this thread and without judging first.
    fn prepare(&self, manager: &SwapManager) {
        let request = request(ID.as_u128());
        if judge::repeated(manager.state().as_ref(), &request).unwrap().is_none() {
            manager.lock().begin(&self.context, &request);
            self.carry_out(manager, &request);
        }
    }

    fn goes_on_as_before(&self, manager: &SwapManager, when: &str) {
        assert_eq!(manager.under_way(), None, "{when}");
        assert_eq!(self.context.identity().unwrap().swap, None, "{when}");
        assert!(!self.path("/run/kaas/virtual-address-held-back").exists(), "{when}: the address is held back");
        assert!(!*self.kubernetes.0.lock().unwrap(), "{when}: the node is cordoned");
        assert_eq!(self.context.records().entry::<Cordon>().unwrap(), None, "{when}");
        let told = self.etcd.standing("node1").unwrap();
        assert!(told.get("swap").is_none(), "{when}: {told}");
    }

    fn is_prepared(&self, manager: &SwapManager, when: &str) {
        let state = manager.state().unwrap_or_else(|| panic!("{when}: there is no swap"));
        assert_eq!((state.id, state.stage, state.error), (ID, Stage::Prepared, None), "{when}");
        assert!(self.path("/run/kaas/virtual-address-held-back").exists(), "{when}: the address is here");
        assert!(*self.kubernetes.0.lock().unwrap(), "{when}: the node is not cordoned");
        assert!(self.context.records().entry::<Cordon>().unwrap().is_some(), "{when}: nobody will uncordon it");
        assert_ne!(self.etcd.leader(), 1, "{when}: it leads etcd");
        assert_eq!(self.etcd.standing("node1").unwrap()["swap"], ID.to_string(), "{when}");
        // Cut off or shut down, the named image may take the disk, and this VM have it back.
        let held = self.context.identity().unwrap();
        let off = ownership::released(&held, &self.context.own, ID).unwrap();
        let to = request(0).to;
        let new = Use { vm: Some(Uuid::from_u128(99)), version: to.version, build: to.build };
        for identity in [held, off] {
            for own in [&new, &self.context.own] {
                let candidate = Candidate { own: own.clone(), ..candidate(&self.context) };
                assert_eq!(ownership::may_take(&identity, &candidate), Ok(()), "{when}: {own:?}");
            }
        }
    }
}

/// Does something until it is cut off after so many things, and then what `then` says, for each number of things.
fn cut_everywhere(
    before: &dyn Fn() -> (Rig, SwapManager),
    work: &dyn Fn(&Rig, &SwapManager),
    then: &dyn Fn(&Rig, Cut, &str),
) -> u32 {
    for things in 0.. {
        let mut whole = false;
        for cut in [Cut::Agent, Cut::Power] {
            let (rig, manager) = before();
            let ((), was_cut) = power::with(things, || work(&rig, &manager));
            whole |= !was_cut;
            then(&rig, cut, &format!("{cut:?} after {things} things"));
        }
        if whole {
            return things;
        }
    }
    unreachable!("it ends")
}

#[test]
fn a_preparation_that_is_cut_off_anywhere_goes_on_or_leaves_the_node_as_before() {
    let cluster = Cluster::new();
    let things = cut_everywhere(&|| cluster.started(None), &|rig, manager| rig.prepare(manager), &|rig, cut, when| {
        let manager = rig.start_after(cut);
        if cut == Cut::Agent && manager.under_way().is_some() {
            rig.is_prepared(&manager, when);
        } else {
            rig.goes_on_as_before(&manager, when);
        }
        rig.prepare(&manager);
        rig.is_prepared(&manager, when);
    });
    assert!(things > 10, "only {things} things were saved");
}

#[test]
fn a_withdrawal_that_is_cut_off_anywhere_is_completed() {
    let cluster = Cluster::new();
    let prepared = || {
        let (rig, manager) = cluster.started(None);
        rig.prepare(&manager);
        (rig, manager)
    };
    let cancel = |rig: &Rig, manager: &SwapManager| _ = manager.cancel(ID, &rig.kubernetes);
    let things = cut_everywhere(&prepared, &cancel, &|rig, cut, when| {
        let manager = rig.start_after(cut);
        match manager.under_way() {
            // It was cut off before it was remembered.
            Some(_) => rig.is_prepared(&manager, when),
            None => rig.goes_on_as_before(&manager, when),
        }
        assert_eq!(manager.cancel(ID, &rig.kubernetes), Ok(true), "{when}");
        rig.goes_on_as_before(&manager, when);
    });
    assert!(things > 8, "only {things} things were saved");
}

#[test]
fn a_withdrawal_is_not_forgotten_by_an_agent_that_starts_again() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    rig.is_prepared(&manager, "at first");
    // The agent was killed in the midst of the draining, after it had said that it would stop.
    let request = request(ID.as_u128());
    Saved { request, stage: Stage::Draining, error: None, cancelled: true }.save(rig.root.path()).unwrap();
    rig.goes_on_as_before(&rig.start(), "withdrawn");
}

#[test]
fn what_cannot_be_understood_any_more_holds_nothing_back() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    std::fs::write(rig.path("/run/kaas/swap.json"), "{").unwrap();
    rig.goes_on_as_before(&rig.start(), "damaged");
}

#[test]
fn a_commit_that_is_cut_off_anywhere_is_completed() {
    let commit = |rig: &Rig, manager: &SwapManager| {
        let good = contract::node::Good { since: 1 };
        std::fs::write(rig.path(good::GOOD), serde_json::to_vec(&good).unwrap()).unwrap();
        _ = manager.commit();
    };
    let cluster = Cluster::new();
    for key in [None, Some("SHA256:named".to_owned())] {
        let before = || cluster.started(taken().map(|swap| Swap { publisher: key.clone(), ..swap }));
        cut_everywhere(&before, &commit, &|rig, cut, when| {
            let on_disk = rig.context.identity().unwrap().publisher;
            let pinned = || publisher::pinned(&rig.context.etcd().unwrap()).unwrap();
            assert!(on_disk.is_none() || on_disk == pinned(), "{when}: the disk is ahead of the cluster");
            let manager = rig.start_after(cut);
            commit(rig, &manager);
            rig.goes_on_as_before(&manager, when);
            assert_eq!(manager.state(), None, "{when}");
            assert_eq!(manager.commit(), Ok(false), "{when}");
            assert_eq!((&rig.context.identity().unwrap().publisher, &pinned()), (&key, &key), "{when}");
        });
    }
}
