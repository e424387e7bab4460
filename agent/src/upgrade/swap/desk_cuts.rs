//! The agent is killed, or the power cut, after each thing that a swap saves on its node. Whatever
//! it was in the midst of: the node goes on as before, or the swap is prepared, and asking for the same once
//! more completes it. Programs are stand-ins; etcd's members answer over real TLS.

use std::path::PathBuf;
use std::sync::Mutex;

use contract::swap::Use;
use uuid::Uuid;

use super::tests::{candidate, request, site, taken};
use super::*;
use crate::cluster::records::Cordon;
use crate::host::command::{Command, Error};
use crate::host::disk::ownership::{self, Candidate};
use crate::host::files::{self, power};
use crate::intake::config::Config;
use crate::intake::config::fixture::three_nodes;
use crate::upgrade::swap::fake_etcd::FakeEtcd;
use crate::upgrade::swap::leave::uncordon;
use crate::upgrade::swap::{standing, taking};

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
    fn started(&self, swap: Option<Swap>) -> (Rig, Desk) {
        let rig = Rig::new(self, swap);
        let desk = rig.start();
        (rig, desk)
    }
}

/// The first node.
struct Rig {
    root: tempfile::TempDir,
    site: Site,
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
        let mut old = site(root.path(), swap.clone());
        old.image.publisher = swap.and_then(|swap| swap.publisher);
        let teller = standing::Teller::new(config, &pki, root.path(), &old.disk, "b").unwrap();
        let site = Site { config: config.clone(), pki, teller, ..old };
        Self { root, site, etcd: etcd.clone(), kubernetes: Kubernetes::default() }
    }

    fn path(&self, path: &str) -> PathBuf {
        files::below(self.root.path(), path)
    }

    /// The agent starts and comes to its maintenance.
    fn start(&self) -> Desk {
        let desk = Desk::default();
        taking::take(self.root.path(), &self.site.disk, &candidate(&self.site)).unwrap();
        let goes_on = desk.lock().recall(Arc::new(self.site.clone())).unwrap();
        if let Some(request) = goes_on {
            self.carry_out(&desk, &request);
        }
        self.maintain(&desk);
        desk
    }

    fn start_after(&self, cut: Cut) -> Desk {
        if cut == Cut::Power {
            std::fs::remove_dir_all(self.path("/run/kaas")).unwrap();
        }
        self.start()
    }

    fn maintain(&self, desk: &Desk) {
        self.site.teller.tell(desk.under_way()).unwrap();
        if desk.under_way().is_none() {
            uncordon(&self.site, &self.kubernetes).unwrap();
        }
    }

    fn carry_out(&self, desk: &Desk, request: &Request) {
        let cancelled = Arc::clone(&desk.lock().cancelled);
        desk.carry_out(&self.site, request, &cancelled, &self.kubernetes);
    }

    /// As [`Desk::begin`] does, on this thread and without judging first.
    fn prepare(&self, desk: &Desk) {
        let request = request(ID.as_u128());
        if judge::repeated(desk.state().as_ref(), &request).unwrap().is_none() {
            desk.lock().begin(&self.site, &request);
            self.carry_out(desk, &request);
        }
    }

    fn goes_on_as_before(&self, desk: &Desk, when: &str) {
        assert_eq!(desk.under_way(), None, "{when}");
        assert_eq!(self.site.identity().unwrap().swap, None, "{when}");
        assert!(!self.path("/run/kaas/virtual-address-held-back").exists(), "{when}: the address is held back");
        assert!(!*self.kubernetes.0.lock().unwrap(), "{when}: the node is cordoned");
        assert_eq!(self.site.records().entry::<Cordon>().unwrap(), None, "{when}");
        let told = self.etcd.standing("node1").unwrap();
        assert!(told.get("swap").is_none(), "{when}: {told}");
    }

    fn is_prepared(&self, desk: &Desk, when: &str) {
        let state = desk.state().unwrap_or_else(|| panic!("{when}: there is no swap"));
        assert_eq!((state.id, state.stage, state.error), (ID, Stage::Prepared, None), "{when}");
        assert!(self.path("/run/kaas/virtual-address-held-back").exists(), "{when}: the address is here");
        assert!(*self.kubernetes.0.lock().unwrap(), "{when}: the node is not cordoned");
        assert!(self.site.records().entry::<Cordon>().unwrap().is_some(), "{when}: nobody will uncordon it");
        assert_ne!(self.etcd.leader(), 1, "{when}: it leads etcd");
        assert_eq!(self.etcd.standing("node1").unwrap()["swap"], ID.to_string(), "{when}");
        // Cut off or shut down, the named image may take the disk, and this VM have it back.
        let held = self.site.identity().unwrap();
        let off = ownership::released(&held, &self.site.own, ID).unwrap();
        let to = request(0).to;
        let new = Use { vm: Some(Uuid::from_u128(99)), version: to.version, build: to.build };
        for identity in [held, off] {
            for own in [&new, &self.site.own] {
                let candidate = Candidate { own: own.clone(), ..candidate(&self.site) };
                assert_eq!(ownership::may_take(&identity, &candidate), Ok(()), "{when}: {own:?}");
            }
        }
    }
}

/// Does something until it is cut off after so many things, and then what `then` says, for each number of things.
fn cut_everywhere(before: &dyn Fn() -> (Rig, Desk), work: &dyn Fn(&Rig, &Desk), then: &dyn Fn(&Rig, Cut, &str)) -> u32 {
    for things in 0.. {
        let mut whole = false;
        for cut in [Cut::Agent, Cut::Power] {
            let (rig, desk) = before();
            let ((), was_cut) = power::with(things, || work(&rig, &desk));
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
    let things = cut_everywhere(&|| cluster.started(None), &|rig, desk| rig.prepare(desk), &|rig, cut, when| {
        let desk = rig.start_after(cut);
        if cut == Cut::Agent && desk.under_way().is_some() {
            rig.is_prepared(&desk, when);
        } else {
            rig.goes_on_as_before(&desk, when);
        }
        rig.prepare(&desk);
        rig.is_prepared(&desk, when);
    });
    assert!(things > 10, "only {things} things were saved");
}

#[test]
fn a_withdrawal_that_is_cut_off_anywhere_is_completed() {
    let cluster = Cluster::new();
    let prepared = || {
        let (rig, desk) = cluster.started(None);
        rig.prepare(&desk);
        (rig, desk)
    };
    let cancel = |rig: &Rig, desk: &Desk| _ = desk.cancel(ID, &rig.kubernetes);
    let things = cut_everywhere(&prepared, &cancel, &|rig, cut, when| {
        let desk = rig.start_after(cut);
        match desk.under_way() {
            // It was cut off before it was remembered.
            Some(_) => rig.is_prepared(&desk, when),
            None => rig.goes_on_as_before(&desk, when),
        }
        assert_eq!(desk.cancel(ID, &rig.kubernetes), Ok(true), "{when}");
        rig.goes_on_as_before(&desk, when);
    });
    assert!(things > 8, "only {things} things were saved");
}

#[test]
fn a_withdrawal_is_not_forgotten_by_an_agent_that_starts_again() {
    let cluster = Cluster::new();
    let (rig, desk) = cluster.started(None);
    rig.prepare(&desk);
    rig.is_prepared(&desk, "at first");
    // The agent was killed in the midst of the draining, after it had said that it would stop.
    let request = request(ID.as_u128());
    Saved { request, stage: Stage::Draining, error: None, cancelled: true }.save(rig.root.path()).unwrap();
    rig.goes_on_as_before(&rig.start(), "withdrawn");
}

#[test]
fn what_cannot_be_understood_any_more_holds_nothing_back() {
    let cluster = Cluster::new();
    let (rig, desk) = cluster.started(None);
    rig.prepare(&desk);
    std::fs::write(rig.path("/run/kaas/swap.json"), "{").unwrap();
    rig.goes_on_as_before(&rig.start(), "damaged");
}

#[test]
fn a_commit_that_is_cut_off_anywhere_is_completed() {
    let commit = |rig: &Rig, desk: &Desk| {
        let good = contract::node::Good { since: 1 };
        std::fs::write(rig.path(good::GOOD), serde_json::to_vec(&good).unwrap()).unwrap();
        _ = desk.commit();
    };
    let cluster = Cluster::new();
    for key in [None, Some("SHA256:named".to_owned())] {
        let before = || cluster.started(taken().map(|swap| Swap { publisher: key.clone(), ..swap }));
        cut_everywhere(&before, &commit, &|rig, cut, when| {
            let on_disk = rig.site.identity().unwrap().publisher;
            let pinned = || publisher::pinned(&rig.site.etcd().unwrap()).unwrap();
            assert!(on_disk.is_none() || on_disk == pinned(), "{when}: the disk is ahead of the cluster");
            let desk = rig.start_after(cut);
            commit(rig, &desk);
            rig.goes_on_as_before(&desk, when);
            assert_eq!(desk.state(), None, "{when}");
            assert_eq!(desk.commit(), Ok(false), "{when}");
            assert_eq!((&rig.site.identity().unwrap().publisher, &pinned()), (&key, &key), "{when}");
        });
    }
}
