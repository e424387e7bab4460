//! The agent is killed, or the power cut, after each write and command of a swap on its node. Afterwards the node works as
//! before, or the swap is prepared. A second request for the same swap completes it. Programs are stand-ins; etcd's members
//! answer over real TLS.

use std::path::PathBuf;
use std::sync::Mutex;

use contract::bios_uuid::BiosUuid;
use contract::swap::VmImage;
use uuid::Uuid;

use super::tests::{claimant, context, evacuation, request, taken};
use super::*;
use crate::cluster::etcd::fake::FakeEtcd;
use crate::cluster::kubernetes::fake_api::FakeApi;
use crate::cluster::records::Cordon;
use crate::host::command::{Command, Error};
use crate::host::disk::Swap;
use crate::host::disk::ownership::{self, Claimant};
use crate::host::files::{self, power};
use crate::intake::config::ControlPlane;
use crate::intake::config::fixture::three_nodes;
use crate::upgrade::swap::context::AnnouncementLock;
use crate::upgrade::swap::evacuate::uncordon_unless;
use crate::upgrade::swap::{adopt, node_record};

/// Configuration and keys of three nodes, etcd, and the first node's API: the same for all runs of one test.
pub(super) struct Cluster {
    config: ControlPlane,
    keys: tempfile::TempDir,
    pub(super) etcd: FakeEtcd,
    pub(super) api: FakeApi,
}

impl Cluster {
    pub(super) fn new() -> Self {
        let (mut config, keys) = (three_nodes(), tempfile::tempdir().unwrap());
        let etcd = FakeEtcd::start(&mut config, keys.path());
        let api = FakeApi::start(config.control_node().unwrap(), keys.path());
        Self { config, keys, etcd, api }
    }

    /// The first node with this swap on its disk, and its agent.
    pub(super) fn started(&self, swap: Option<Swap>) -> (Rig, SwapManager) {
        let rig = Rig::new(self, swap);
        let manager = rig.start();
        (rig, manager)
    }
}

pub(super) struct Rig {
    root: tempfile::TempDir,
    /// The swap on its disk while nothing is prepared.
    before: Option<Swap>,
    pub(super) context: SwapContext,
    etcd: FakeEtcd,
    pub(super) kubernetes: Kubernetes,
}

/// A stand-in for kubectl: whether the node is cordoned, and callbacks while it drains and uncordons.
pub(super) struct Kubernetes {
    cordoned: Mutex<bool>,
    drain: Mutex<Option<Box<dyn Fn() -> bool + Send>>>,
    uncordon: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// The lock that must be held when the node is cordoned or uncordoned.
    turn: AnnouncementLock,
}

impl Kubernetes {
    fn of(turn: &AnnouncementLock) -> Self {
        Self { cordoned: Mutex::default(), drain: Mutex::default(), uncordon: Mutex::default(), turn: turn.clone() }
    }

    fn is_cordoned(&self) -> bool {
        *self.cordoned.lock().unwrap()
    }

    /// From now on a drain calls this, which returns whether the drain succeeds.
    pub(super) fn on_drain(&self, happens: impl Fn() -> bool + Send + 'static) {
        *self.drain.lock().unwrap() = Some(Box::new(happens));
    }

    pub(super) fn on_uncordon(&self, happens: impl Fn() + Send + 'static) {
        *self.uncordon.lock().unwrap() = Some(Box::new(happens));
    }
}

impl Runner for Kubernetes {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        let command = command.to_string();
        power::step().map_err(|source| Error::Start { command: command.clone(), source })?;
        let asked = |word: &str| command.contains(&format!(" {word} "));
        let mut cordoned = self.cordoned.lock().unwrap();
        if asked("uncordon") || asked("cordon") {
            assert!(self.turn.is_taken(), "another task may undo it: {command}");
        }
        if asked("uncordon")
            && let Some(happens) = &*self.uncordon.lock().unwrap()
        {
            happens();
        }
        let drains = || self.drain.lock().unwrap().as_ref().is_none_or(|happens| happens());
        match () {
            () if asked("get") => return Ok(cordoned.then_some("true").unwrap_or_default().into()),
            () if asked("uncordon") => *cordoned = false,
            () if asked("cordon") => *cordoned = true,
            () if asked("drain") && drains() => {}
            () if asked("drain") => {
                let source = std::io::Error::other("timed out");
                return Err(Error::Start { command, source });
            }
            () => panic!("{command}"),
        }
        Ok(Vec::new())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The agent is killed and starts again.
    Agent,
    Power,
}

pub(super) const ID: Uuid = Uuid::from_u128(3);

impl Rig {
    fn new(Cluster { config, keys, etcd, api }: &Cluster, swap: Option<Swap>) -> Self {
        etcd.begin_anew();
        api.has(vec![], None);
        let (root, pki) = (tempfile::tempdir().unwrap(), keys.path().to_owned());
        let mut old = context(root.path(), swap.clone());
        old.image.publisher = swap.as_ref().and_then(|swap| swap.publisher.clone());
        FakeApi::lay_kubeconfig(root.path(), &pki);
        let announcer = node_record::Announcer::new(config, &pki, root.path(), &old.disk, "b").unwrap();
        let context = SwapContext { config: config.clone(), pki, announcer, ..old };
        let kubernetes = Kubernetes::of(&context.announcement_lock);
        Self { root, before: swap, context, etcd: etcd.clone(), kubernetes }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        files::below(self.root.path(), path)
    }

    /// Starts the agent until its first maintenance.
    fn start(&self) -> SwapManager {
        let manager = SwapManager::default();
        adopt::take(self.root.path(), &self.context.disk, &claimant(&self.context)).unwrap();
        let goes_on = manager.lock().recall(Arc::new(self.context.clone())).unwrap();
        if let Some(purpose) = goes_on {
            self.carry_out(&manager, &purpose);
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

    pub(super) fn maintain(&self, manager: &SwapManager) {
        self.context.announce(|| manager.under_way()).unwrap();
        uncordon_unless(&self.context, &self.kubernetes, || manager.under_way().is_some()).unwrap();
    }

    fn carry_out(&self, manager: &SwapManager, purpose: &Purpose) {
        let cancelled = Arc::clone(&manager.lock().cancelled);
        manager.carry_out(&self.context, purpose, &cancelled, &self.kubernetes);
    }

    /// As [`SwapManager::begin`], on this thread and without checks before.
    pub(super) fn prepare(&self, manager: &SwapManager) {
        self.leave(manager, Purpose::Swap(request(ID.as_u128())));
    }

    /// As [`SwapManager::evacuate`], on this thread and without checks before.
    pub(super) fn evacuate(&self, manager: &SwapManager) {
        self.leave(manager, Purpose::Evacuation(evacuation(ID.as_u128())));
    }

    pub(super) fn leave(&self, manager: &SwapManager, purpose: Purpose) {
        let begins = manager.lock().repeated(&purpose).unwrap().is_none();
        if begins {
            manager.lock().begin(purpose.clone());
            self.carry_out(manager, &purpose);
        }
    }

    pub(super) fn goes_on_as_before(&self, manager: &SwapManager, when: &str) {
        assert_eq!(manager.under_way(), None, "{when}");
        let taken = manager.state().and_then(|_| self.before.clone());
        assert_eq!(self.context.identity().unwrap().swap, taken, "{when}");
        assert!(!self.path("/run/kaas/virtual-address-held-back").exists(), "{when}: the address is held back");
        assert!(!self.kubernetes.is_cordoned(), "{when}: the node is cordoned");
        assert_eq!(self.context.records().entry::<Cordon>().unwrap(), None, "{when}");
        let told = self.etcd.standing("node1").unwrap();
        assert!(told.get("swap").is_none(), "{when}: {told}");
    }

    pub(super) fn is_prepared(&self, manager: &SwapManager, when: &str) {
        let state = manager.state().unwrap_or_else(|| panic!("{when}: there is no swap"));
        assert_eq!((state.id, state.stage, state.error), (ID, Stage::Prepared, None), "{when}");
        self.has_left(when);
        // After a power cut or a shutdown the named image may take the disk, and this VM may take it again.
        let held = self.context.identity().unwrap();
        let off = ownership::released(&held, &self.context.own, ID).unwrap();
        let to = request(0).to;
        let new = VmImage { vm: Some(BiosUuid::from_u128(99)), version: to.version, build: to.build };
        for identity in [held, off] {
            for own in [&new, &self.context.own] {
                let claimant = Claimant { own: own.clone(), ..claimant(&self.context) };
                assert_eq!(ownership::may_take(&identity, &claimant), Ok(()), "{when}: {own:?}");
            }
        }
    }
}

impl Rig {
    /// The VM may be shut down.
    fn has_left(&self, when: &str) {
        assert!(self.path("/run/kaas/virtual-address-held-back").exists(), "{when}: the address is here");
        assert!(self.kubernetes.is_cordoned(), "{when}: the node is not cordoned");
        assert!(self.context.records().entry::<Cordon>().unwrap().is_some(), "{when}: it will stay cordoned");
        assert_ne!(self.etcd.leader(), 1, "{when}: it leads etcd");
        assert_eq!(self.etcd.standing("node1").unwrap()["swap"], ID.to_string(), "{when}");
    }

    /// The VM may be shut down, and the right to take the disk is as before.
    fn is_evacuated(&self, manager: &SwapManager, when: &str) {
        let state = manager.evacuation().unwrap_or_else(|| panic!("{when}: there is no evacuation"));
        assert_eq!((state.id, state.stage, state.error), (ID, Stage::Prepared, None), "{when}");
        assert_eq!(manager.state().map(|swap| swap.stage), self.before.as_ref().map(|_| Stage::Taken), "{when}");
        assert_eq!(self.context.identity().unwrap().swap, self.before, "{when}");
        self.has_left(when);
    }
}

/// Interrupts `work` after each number of writes and commands, and calls `then` each time. Returns that number for a whole run.
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
fn interrupted_preparation_continues_or_is_undone() {
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
fn swap_cordons_after_a_running_uncordon() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    // The power is cut, and the same swap is requested again while maintenance undoes the first one's cordon.
    std::fs::remove_dir_all(rig.path("/run/kaas")).unwrap();
    let begins = SwapManager::default();
    let asked = begins.clone();
    rig.kubernetes.on_uncordon(move || {
        if asked.lock().leaving().is_none() {
            asked.lock().begin(Purpose::Swap(request(ID.as_u128())));
        }
    });
    adopt::take(rig.root.path(), &rig.context.disk, &claimant(&rig.context)).unwrap();
    assert!(begins.lock().recall(Arc::new(rig.context.clone())).unwrap().is_none());
    rig.maintain(&begins);
    rig.carry_out(&begins, &Purpose::Swap(request(ID.as_u128())));
    rig.is_prepared(&begins, "asked for again");
    // Once it leaves its work, maintenance does not uncordon it.
    rig.maintain(&begins);
    rig.is_prepared(&begins, "maintained");
}

#[test]
fn interrupted_withdrawal_is_completed() {
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
            // It was cut off before the cancellation was saved.
            Some(_) => rig.is_prepared(&manager, when),
            None => rig.goes_on_as_before(&manager, when),
        }
        assert_eq!(manager.cancel(ID, &rig.kubernetes), Ok(true), "{when}");
        rig.goes_on_as_before(&manager, when);
    });
    assert!(things > 8, "only {things} things were saved");
}

#[test]
fn withdrawal_survives_a_restart_of_the_agent() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    rig.is_prepared(&manager, "at first");
    // The agent was killed during the drain, after it had accepted the cancellation.
    let purpose = Purpose::Swap(request(ID.as_u128()));
    PreparationRecord { stage: Stage::Draining, cancelled: true, ..PreparationRecord::begun(purpose) }
        .save(rig.root.path())
        .unwrap();
    rig.goes_on_as_before(&rig.start(), "withdrawn");
}

#[test]
fn damaged_record_blocks_nothing() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    std::fs::write(rig.path("/run/kaas/swap.json"), "{").unwrap();
    rig.goes_on_as_before(&rig.start(), "damaged");
}

#[test]
fn interrupted_evacuation_continues_or_is_undone() {
    let cluster = Cluster::new();
    for swap in [taken(), None] {
        let before = || cluster.started(swap.clone());
        let things = cut_everywhere(&before, &|rig, manager| rig.evacuate(manager), &|rig, cut, when| {
            let manager = rig.start_after(cut);
            if cut == Cut::Agent && manager.under_way().is_some() {
                rig.is_evacuated(&manager, when);
            } else {
                rig.goes_on_as_before(&manager, when);
            }
            rig.evacuate(&manager);
            rig.is_evacuated(&manager, when);
        });
        assert!(things > 10, "only {things} things were saved");
    }
}

#[test]
fn evacuation_ends_by_withdrawal_or_boot() {
    let cluster = Cluster::new();
    let evacuated = || {
        let (rig, manager) = cluster.started(taken());
        rig.evacuate(&manager);
        rig.is_evacuated(&manager, "at first");
        (rig, manager)
    };
    let cancel = |rig: &Rig, manager: &SwapManager| _ = manager.cancel(ID, &rig.kubernetes);
    cut_everywhere(&evacuated, &cancel, &|rig, cut, when| {
        let manager = rig.start_after(cut);
        match manager.under_way() {
            // It was cut off before the cancellation was saved.
            Some(_) => rig.is_evacuated(&manager, when),
            None => rig.goes_on_as_before(&manager, when),
        }
        assert_eq!(manager.cancel(ID, &rig.kubernetes), Ok(true), "{when}");
        rig.goes_on_as_before(&manager, when);
        assert_eq!(
            (manager.evacuation(), manager.state().map(|swap| swap.stage)),
            (None, Some(Stage::Taken)),
            "{when}"
        );
    });
    let (rig, _) = evacuated();
    rig.goes_on_as_before(&rig.start_after(Cut::Power), "the VM is started again");
    // The former VM has the disk again. The record of the cordon on the disk is enough.
    let (mut rig, _) = evacuated();
    let from = rig.before.take().unwrap().from;
    rig.context.own = from;
    let identity = rig.context.identity().unwrap();
    rig.context.write(&ownership::taken(&identity, &rig.context.own)).unwrap();
    rig.goes_on_as_before(&rig.start_after(Cut::Power), "the former VM is started");
}

#[test]
fn interrupted_commit_is_completed() {
    let commit = |rig: &Rig, manager: &SwapManager| {
        let good = contract::node::HealthySince { since: 1 };
        std::fs::write(rig.path(boot_health::HEALTHY_FILE), serde_json::to_vec(&good).unwrap()).unwrap();
        _ = manager.commit(None);
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
            assert_eq!(manager.commit(None), Ok(false), "{when}");
            assert_eq!((&rig.context.identity().unwrap().publisher, &pinned()), (&key, &key), "{when}");
        });
    }
}
