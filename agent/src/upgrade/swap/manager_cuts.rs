//! The agent is killed, or the power cut, after each thing that a swap saves on its node. Whatever
//! it was in the midst of: the node goes on as before, or the swap is prepared, and asking for the same once
//! more completes it. Programs are stand-ins; etcd's members answer over real TLS.

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

/// Three nodes' configuration, keys, etcd and the first one's API: the same for all that one test does.
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

    /// The first node, with this on its disk, and its agent.
    pub(super) fn started(&self, swap: Option<Swap>) -> (Rig, SwapManager) {
        let rig = Rig::new(self, swap);
        let manager = rig.start();
        (rig, manager)
    }
}

/// The first node.
pub(super) struct Rig {
    root: tempfile::TempDir,
    /// What is on its disk while nothing is prepared.
    before: Option<Swap>,
    pub(super) context: SwapContext,
    etcd: FakeEtcd,
    pub(super) kubernetes: Kubernetes,
}

/// What kubectl would change: whether the node is cordoned. And what happens while it drains.
pub(super) struct Kubernetes {
    cordoned: Mutex<bool>,
    drain: Mutex<Option<Box<dyn Fn() -> bool + Send>>>,
    uncordon: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// Whose turn it has to be when the node is cordoned, or uncordoned.
    turn: AnnouncementLock,
}

impl Kubernetes {
    fn of(turn: &AnnouncementLock) -> Self {
        Self { cordoned: Mutex::default(), drain: Mutex::default(), uncordon: Mutex::default(), turn: turn.clone() }
    }

    fn is_cordoned(&self) -> bool {
        *self.cordoned.lock().unwrap()
    }

    /// From now on a drain does this, and says whether it succeeds.
    pub(super) fn on_drain(&self, happens: impl Fn() -> bool + Send + 'static) {
        *self.drain.lock().unwrap() = Some(Box::new(happens));
    }

    /// This happens while the node is uncordoned.
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
            assert!(self.turn.is_taken(), "somebody else may undo it: {command}");
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

    /// The agent starts and comes to its maintenance.
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

    /// As [`SwapManager::begin`] does, on this thread and without judging first.
    pub(super) fn prepare(&self, manager: &SwapManager) {
        self.leave(manager, Purpose::Swap(request(ID.as_u128())));
    }

    /// As [`SwapManager::evacuate`] does, on this thread and without judging first.
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
        // Cut off or shut down, the named image may take the disk, and this VM have it back.
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
        assert!(self.context.records().entry::<Cordon>().unwrap().is_some(), "{when}: nobody will uncordon it");
        assert_ne!(self.etcd.leader(), 1, "{when}: it leads etcd");
        assert_eq!(self.etcd.standing("node1").unwrap()["swap"], ID.to_string(), "{when}");
    }

    /// The VM may be shut down, and who may take the disk is as before.
    fn is_evacuated(&self, manager: &SwapManager, when: &str) {
        let state = manager.evacuation().unwrap_or_else(|| panic!("{when}: there is no evacuation"));
        assert_eq!((state.id, state.stage, state.error), (ID, Stage::Prepared, None), "{when}");
        assert_eq!(manager.state().map(|swap| swap.stage), self.before.as_ref().map(|_| Stage::Taken), "{when}");
        assert_eq!(self.context.identity().unwrap().swap, self.before, "{when}");
        self.has_left(when);
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
fn a_swap_that_begins_while_maintenance_lets_pods_come_back_cordons_the_node_after_that() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    // The VM's power is cut; the same swap is asked for again in the midst of what undoes the first one's cordon.
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
    // Once it leaves, nothing of maintenance lets pods come back.
    rig.maintain(&begins);
    rig.is_prepared(&begins, "maintained");
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
    let purpose = Purpose::Swap(request(ID.as_u128()));
    PreparationRecord { stage: Stage::Draining, cancelled: true, ..PreparationRecord::begun(purpose) }
        .save(rig.root.path())
        .unwrap();
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
fn an_evacuation_that_is_cut_off_anywhere_goes_on_or_leaves_the_node_as_before() {
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
fn an_evacuation_is_withdrawn_or_ends_with_the_next_boot_of_either_vm() {
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
            // It was cut off before it was remembered.
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
    // The former VM has the disk back: what the record on the disk says of the cordon is enough.
    let (mut rig, _) = evacuated();
    let from = rig.before.take().unwrap().from;
    rig.context.own = from;
    let identity = rig.context.identity().unwrap();
    rig.context.write(&ownership::taken(&identity, &rig.context.own)).unwrap();
    rig.goes_on_as_before(&rig.start_after(Cut::Power), "the former VM is started");
}

#[test]
fn a_commit_that_is_cut_off_anywhere_is_completed() {
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
