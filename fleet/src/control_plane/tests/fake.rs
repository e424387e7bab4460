//! A hypervisor, new nodes and a store in memory. Forbidden calls panic.

mod host;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use contract::deployer::{Digests, Fingerprints};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::control_plane::{
    Deploy, DeployStatus, DesiredState, Goal, Guests, Notice, RunOutcome, UnattachedDisk, Unfinished, WantedNode,
};
use crate::hypervisor::{
    Disk, DiskKind, DiskRef, Error, ErrorKind, Fence, Placement, PowerState, Result, Size, Stamp, Vm, VmRef,
};
use crate::lease::{Store, TakeOver};
use crate::upgrade::DiskCopy;
use crate::workers::Image;

pub const DEPLOYMENT: Uuid = Uuid::from_u128(0xaa);
/// How long a cluster takes to form.
const FORMS: Duration = Duration::from_secs(5);

/// A fault at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error, and nothing happens.
    Fails,
    /// It happens, and the response is lost.
    Lost,
    /// The response is lost, and it happens when the hypervisor settles.
    Late,
    /// The command is killed before.
    KilledBefore,
    /// The command is killed after.
    KilledAfter,
    /// The command is killed, and it happens when the hypervisor settles.
    KilledLate,
    /// Half of a text is written, and the command is killed.
    KilledHalf,
    /// Another command takes over.
    Overtaken,
}

impl Fault {
    pub fn kills(self) -> bool {
        matches!(self, Self::KilledBefore | Self::KilledAfter | Self::KilledLate | Self::KilledHalf)
    }
}

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Looks,
    Changes,
    Writes,
}

impl Does {
    /// All faults that it may have.
    pub fn faults(self) -> &'static [Fault] {
        use Fault::{Fails, KilledAfter, KilledBefore, KilledHalf, KilledLate, Late, Lost};
        match self {
            Self::Looks => &[Fails, KilledBefore],
            Self::Changes => &[Fails, Lost, Late, KilledBefore, KilledAfter, KilledLate],
            Self::Writes => &[Fails, Lost, KilledBefore, KilledAfter, KilledHalf],
        }
    }
}

type Effect = Box<dyn FnOnce(&mut State) + Send>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub vm: Vm,
    pub whole: bool,
    powered: Option<Instant>,
}

#[derive(Default)]
pub struct State {
    /// Whether the record may be restored.
    pub restorable: bool,
    /// The VMs begun by the process that gives all commands. `None` if each is given by another process.
    pub process: Option<Arc<Unfinished>>,
    /// BIOS UUIDs that the next command's process has drawn itself.
    pub drawn: Vec<Uuid>,
    pub machines: Vec<Machine>,
    /// All data disks, and whether each was ever written to.
    pub disks: BTreeMap<Uuid, bool>,
    /// The places of disks that were moved since they were created.
    pub moved: BTreeMap<Uuid, String>,
    /// The image where VMs are placed, and whether it is complete.
    template: Option<bool>,
    holds: BTreeMap<u64, BTreeMap<String, String>>,
    pub calls: Vec<(&'static str, Does)>,
    fault: Option<(usize, Fault)>,
    late: Vec<Effect>,
    made: u128,
    /// Whether disks that were written to may be removed.
    pub removes_used: bool,
    /// Whether the hypervisor refuses to remove any.
    pub disks_stay: bool,
    /// Whether disks are outside the directories of the cluster's nodes.
    pub disks_elsewhere: bool,
    /// Whether another account's removal of some disk still runs.
    pub others_remove: bool,
    /// Whether this is unknown.
    pub removals_unsaid: bool,
    /// Whether all of them are locked, so that none can be removed now.
    pub disks_locked: bool,
    /// Whether the store no longer reports whether a lease exists.
    pub store_hangs: bool,
    /// Runs once a disk's removal is recorded.
    pub once_removal_is_noted: Option<fn(&mut State)>,
    /// How often that was asked meanwhile.
    pub asked_in_vain: usize,
    /// Whether the list of leases hangs.
    pub listing_hangs: bool,
    /// The call of the hypervisor that only reads, and hangs before it is permitted anything.
    pub hangs: Option<&'static str>,
    /// Whether it was called.
    pub hung: bool,
    /// Whether the list of VMs hangs.
    pub inventory_hangs: bool,
    /// Whether the hypervisor has no room for further VMs.
    pub refuses: bool,
    /// Whether the placement takes no VMs now.
    pub no_place: bool,
    /// Whether each new VM is damaged before it is complete.
    pub spoils: bool,
    /// Whether each new VM is removed with its disk once it is complete.
    pub drops: bool,
    /// How long a VM is copied before it is complete, or is not.
    pub copying: Duration,
    /// The call of the hypervisor that is lost on its way, and how often yet: nothing happens, and no error reports it.
    pub lost: Option<(&'static str, usize)>,
    /// Whether VMs go off again as soon as they are on.
    pub goes_off: bool,
    /// Nodes that never form.
    pub ill: bool,
    /// How often the place was removed.
    pub emptied: usize,
    /// The VM that shows another cluster's CA, by its name.
    pub astray: Option<&'static str>,
    /// The placements of VMs, by their names.
    pub placed: BTreeMap<String, Placement>,
    /// IDs of VMs that were moved out of the searched folders.
    pub away: BTreeSet<String>,
    /// The BIOS UUID of VMs of which one cannot be read.
    pub unreadable: Option<Uuid>,
    /// Settings of VMs that are still on a datastore.
    pub settings: BTreeSet<String>,
    /// Whether a VM without a recorded place is not proved gone.
    pub demands_places: bool,
    /// The error of the proof that a VM is gone, if it fails.
    pub absence_fails: Option<ErrorKind>,
    /// Whether running nodes answer for a formed cluster while others are off.
    pub speaks_alone: bool,
    /// The last kubeconfig that a run has reported before its end.
    pub renewed: Option<String>,
}

#[derive(Clone, Default)]
pub struct World {
    state: Arc<Mutex<State>>,
    died: Arc<Notify>,
}

/// The result of a command.
#[derive(Debug)]
pub enum Given {
    Killed,
    Failed(anyhow::Error),
    Arrived(RunOutcome, Box<DeployStatus>),
}

impl Given {
    pub fn arrived(self) -> (RunOutcome, DeployStatus) {
        match self {
            Self::Arrived(arrived, status) => (arrived, *status),
            other => panic!("{other:?}"),
        }
    }

    pub fn failed(self) -> String {
        match self {
            Self::Failed(error) => format!("{error:#}"),
            other => panic!("{other:?}"),
        }
    }
}

pub fn wanted(nodes: u8) -> DesiredState {
    let node = |number: u8| WantedNode {
        name: format!("cp{number}"),
        address: Ipv4Addr::new(10, 0, 0, 10 + number),
        properties: BTreeMap::from([
            ("node-name".to_owned(), format!("cp{number}")),
            ("deployment-secret".to_owned(), "secret".to_owned()),
        ]),
        drawn: None,
        placement: None,
    };
    DesiredState {
        cluster: "control".to_owned(),
        nodes: (1..=nodes).map(node).collect(),
        size: Size { processors: 2, memory: 2048, data_disk: Some(1 << 30) },
        image: Image { digest: "one".to_owned(), name: "kaas-control-plane 1.0.0".to_owned() },
        ova: "one.ova".into(),
        networks: vec!["Management".to_owned()],
        placement: Placement::default(),
        digests: Digests::of(b"the deployer's key"),
    }
}

pub const DESTROY: Goal<'static> =
    Goal::Destroy { cluster: "control", disks: false, left: &[], doubtful: &[], held: &[], also: &[] };
pub const DESTROY_ALL: Goal<'static> =
    Goal::Destroy { cluster: "control", disks: true, left: &[], doubtful: &[], held: &[], also: &[] };

/// The cluster is removed with its data disks, and with shown ones that its VMs do not hold.
pub fn destroy_shown(left: &[DiskRef]) -> Goal<'_> {
    Goal::Destroy { cluster: "control", disks: true, left, doubtful: &[], held: &[], also: &[] }
}

/// The same, by an operator who was shown all of it.
pub fn destroy_confirmed(shown: &UnattachedDisk) -> Goal<'_> {
    let UnattachedDisk { goes: left, doubtful, held } = shown;
    Goal::Destroy { cluster: "control", disks: true, left, doubtful, held, also: &[] }
}

pub fn vm(name: &str, uuid: Uuid, stamp: Option<Stamp>) -> Vm {
    Vm {
        reference: VmRef { uuid, id: format!("vm-{name}-{uuid}") },
        name: name.to_owned(),
        stamp,
        power: PowerState::Off,
        size: None,
        disks: Vec::new(),
        adapters: Vec::new(),
        snapshots: Vec::new(),
        tasks: Vec::new(),
        settings: None,
        version: "0".to_owned(),
    }
}

impl World {
    /// A place with VMs of others. The name of one looks like the first node's.
    pub fn new() -> Self {
        let world = Self::default();
        let stamp = Stamp { deployment: Uuid::from_u128(0xbad), node: "cp1".to_owned(), swap: None };
        let machine = |vm| Machine { vm, whole: true, powered: None };
        let strange = vm("cp1", Uuid::from_u128(0xb01), Some(stamp));
        world.lock().machines = vec![machine(strange), machine(vm("by-hand", Uuid::from_u128(0xb02), None))];
        world
    }

    /// With a formed cluster of so many nodes.
    pub async fn with(nodes: u8) -> Self {
        let world = Self::new();
        let (arrived, _) = world.give(Goal::Deploy(&wanted(nodes))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
        world
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Sets the fault at this call, counted from 1 from now on.
    pub fn set_fault(&self, fault: Option<(usize, Fault)>) {
        let mut state = self.lock();
        state.calls.clear();
        state.fault = fault;
    }

    /// Adds a VM of another client, off, with a data disk.
    pub fn plant(&self, name: &str, node: &str, uuid: u128) -> Machine {
        let stamp = Stamp { deployment: DEPLOYMENT, node: node.to_owned(), swap: None };
        let mut vm = vm(name, Uuid::from_u128(uuid), Some(stamp));
        let reference = DiskRef { uuid: Uuid::from_u128(uuid + 0xd0), path: format!("[ds] {name}.vmdk") };
        vm.disks.push(Disk {
            reference: reference.clone(),
            kind: DiskKind::Data,
            parent: None,
            controller: "c".to_owned(),
        });
        let machine = Machine { vm, whole: true, powered: None };
        let mut state = self.lock();
        state.disks.insert(reference.uuid, false);
        state.machines.push(machine.clone());
        machine
    }

    /// Attaches a disk to the deployment's VM of this name, at the place of `disk`.
    pub fn hang(&self, name: &str, disk: &DiskRef) {
        let mut state = self.lock();
        state.disks.insert(disk.uuid, true);
        state.moved.insert(disk.uuid, disk.path.clone());
        let machine =
            state.machines.iter_mut().find(|machine| machine.vm.name == name && is_ours(&machine.vm)).unwrap();
        let reference = disk.clone();
        machine.vm.disks.push(Disk { reference, kind: DiskKind::Data, parent: None, controller: "c".to_owned() });
    }

    /// Moves a VM out of the searched folders.
    pub fn move_away(&self, vm: &Vm) {
        self.lock().away.insert(vm.reference.id.clone());
    }

    /// Adds a copy of a VM's files to the inventory, where the deployment's VMs are searched. It is off, and has the same stamp
    /// and disks with the same UUIDs.
    pub fn copy(&self, vm: &Vm) -> Vm {
        let mut copy = Machine { vm: vm.clone(), whole: true, powered: None };
        (copy.vm.reference.id, copy.vm.power) = (format!("{}-copy", vm.reference.id), PowerState::Off);
        copy.vm.name.push_str("-copy");
        copy.vm.disks.iter_mut().for_each(|disk| disk.reference.path.push_str("-copy"));
        self.lock().machines.push(copy.clone());
        copy.vm
    }

    /// Adds a replica of a VM by backup software, in another folder. It is off, and has the same stamp and BIOS UUID, and disks
    /// with other UUIDs.
    pub fn replicate(&self, vm: &Vm) -> Machine {
        let copy = self.copy(vm);
        self.move_away(&copy);
        let mut state = self.lock();
        let replica = state.machines.iter_mut().find(|machine| machine.vm.reference == copy.reference).unwrap();
        for disk in &mut replica.vm.disks {
            disk.reference.uuid = Uuid::from_u128(disk.reference.uuid.as_u128() + 0x1000);
        }
        replica.clone()
    }

    /// The names of the deployment's VMs.
    pub fn own(&self) -> Vec<String> {
        let state = self.lock();
        let own = state.machines.iter().filter(|machine| is_ours(&machine.vm));
        let mut names: Vec<String> = own.map(|machine| machine.vm.name.clone()).collect();
        names.sort();
        names
    }

    /// Removes the deployment's VMs, with their disks.
    pub fn remove_own(&self) {
        let mut state = self.lock();
        let (own, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.machines).into_iter().partition(|it| is_ours(&it.vm));
        state.machines = others;
        for disk in own.iter().flat_map(|machine| &machine.vm.disks) {
            state.disks.remove(&disk.reference.uuid);
        }
    }

    /// Disks that no VM holds.
    pub fn free_disks(&self) -> BTreeSet<Uuid> {
        let state = self.lock();
        let held = |disk: &Uuid| state.machines.iter().any(|machine| machine.vm.disk(*disk).is_some());
        state.disks.keys().filter(|disk| !held(disk)).copied().collect()
    }

    /// Writes a file of a lease.
    pub fn put(&self, hold: u64, name: &str, text: &str) {
        let is_bare = name == crate::journals::File::UPGRADE && !text.starts_with("{\"form\":");
        let text = if is_bare { crate::journals::beginning(text).unwrap() } else { text.to_owned() };
        self.lock().holds.entry(hold).or_default().insert(name.to_owned(), text);
    }

    /// Changes the cluster's journals.
    pub fn rewrite(&self, to: impl Fn(&str) -> String) {
        let mut state = self.lock();
        let files = state.holds.values_mut().flat_map(BTreeMap::iter_mut);
        files.filter(|(name, _)| name.starts_with("deploy-")).for_each(|(_, text)| *text = to(text));
    }

    /// Loses the journals.
    pub fn forget(&self) {
        for files in self.lock().holds.values_mut() {
            files.retain(|name, _| !name.starts_with("deploy-"));
        }
    }

    pub async fn status(&self) -> Option<DeployStatus> {
        self.acting(async |deploy| deploy.status().await).await.unwrap()
    }

    /// The disks that are shown before a cluster is removed with its data disks.
    pub async fn shown(&self) -> UnattachedDisk {
        self.acting(async |deploy| deploy.unheld().await).await.unwrap()
    }

    /// The disks among them that are removed as well.
    pub async fn unheld(&self) -> Vec<DiskRef> {
        self.shown().await.goes
    }

    /// The copies of data disks that are shown before a cluster is removed.
    pub async fn copies(&self) -> Vec<DiskCopy> {
        self.acting(async |deploy| deploy.copies().await).await.unwrap()
    }

    pub async fn remove_empty(&self) -> anyhow::Result<bool> {
        self.acting(async |deploy| deploy.remove_empty(TakeOver::FromTheDead).await).await
    }

    pub async fn give(&self, wish: Goal<'_>) -> Given {
        self.give_with(wish, TakeOver::FromTheDead).await
    }

    /// By an operator who sees that no other command is at work.
    pub async fn give_over(&self, wish: Goal<'_>) -> Given {
        self.give_with(wish, TakeOver::FromAnyone).await
    }

    async fn give_with(&self, wish: Goal<'_>, over: TakeOver) -> Given {
        let gone = self.acting(async |deploy| deploy.go(wish, over).await);
        tokio::select! {
            biased;
            () = self.died.notified() => Given::Killed,
            gone = gone => match gone {
                Ok((arrived, status)) => Given::Arrived(arrived, Box::new(status)),
                Err(error) => Given::Failed(error),
            },
        }
    }

    async fn acting<T>(&self, act: impl AsyncFnOnce(&Deploy<'_>) -> T) -> T {
        let told = |notice: &Notice<'_>| log::trace!("{notice:?}");
        self.acting_until(watch::channel(false).1, &told, act).await
    }

    /// The same for a command that may be cancelled, and reports what happens.
    pub async fn acting_until<T>(
        &self,
        cancelled: watch::Receiver<bool>,
        told: &(dyn Fn(&Notice<'_>) + Sync),
        act: impl AsyncFnOnce(&Deploy<'_>) -> T,
    ) -> T {
        let world = self.clone();
        let is_restorable = self.lock().restorable;
        let unfinished = self.lock().process.clone().unwrap_or_default();
        self.lock().drawn.iter().for_each(|uuid| unfinished.begins(*uuid));
        let deploy = Deploy {
            hypervisor: &world,
            guests: &world,
            store: &world,
            placement: Placement::default(),
            what: "a test",
            watch: told,
            pace: Duration::from_secs(1),
            pause_limit: Duration::from_secs(120),
            empties: &|| {
                let mut state = world.lock();
                let taken = state.holds.values().next_back();
                assert!(taken.is_some_and(|files| !files.contains_key("released")), "the place is not held");
                state.emptied += 1;
                Ok(())
            },
            renewed: &|kubeconfig: &str| world.lock().renewed = Some(kubeconfig.to_owned()),
            restorable: is_restorable.then_some(&*unfinished),
            cancelled,
        };
        act(&deploy).await
    }

    async fn die(&self) -> ! {
        self.died.notify_one();
        std::future::pending().await
    }

    /// Counts a call, and applies its fault to the call's effect.
    async fn call<T: Send>(
        &self,
        name: &'static str,
        does: Does,
        act: impl FnOnce(&mut State) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let fault = {
            let mut state = self.lock();
            state.calls.push((name, does));
            state.fault.filter(|(at, _)| *at == state.calls.len()).map(|(_, fault)| fault)
        };
        match fault {
            Some(Fault::Fails) => bail!("it fails ({name})"),
            Some(Fault::KilledBefore | Fault::KilledHalf) => self.die().await,
            Some(fault @ (Fault::Late | Fault::KilledLate)) => {
                self.lock().late.push(Box::new(|state| drop(act(state))));
                if fault.kills() {
                    self.die().await
                }
                bail!(Lost)
            }
            Some(Fault::Overtaken) => {
                let mut state = self.lock();
                let next = state.holds.keys().next_back().map_or(1, |last| last + 1);
                state.holds.entry(next).or_default().insert("released".to_owned(), String::new());
            }
            Some(Fault::Lost | Fault::KilledAfter) | None => {}
        }
        let done = act(&mut self.lock());
        match fault {
            Some(Fault::KilledAfter) => self.die().await,
            Some(Fault::Lost) => bail!(Lost),
            _ => done,
        }
    }

    /// The reads of a hypervisor's call before it is permitted anything.
    async fn looks_first(&self, name: &str) {
        while self.lock().hangs == Some(name) {
            self.lock().hung = true;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The same for a hypervisor's call that changes something.
    async fn change<T: Send>(
        &self,
        name: &'static str,
        permit: &dyn Fence,
        act: impl FnOnce(&mut State) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.looks_first(name).await;
        permit.still().await?;
        if self.lock().loses(name) {
            return Err(Error::new(ErrorKind::InDoubt, Lost));
        }
        self.call(name, Does::Changes, act).await.map_err(|error| {
            let kind = if error.is::<Lost>() { ErrorKind::InDoubt } else { ErrorKind::Transient };
            match error.downcast::<Error>() {
                Ok(told) => told,
                Err(error) => Error::new(kind, error),
            }
        })
    }

    async fn look<T: Send>(&self, name: &'static str, act: impl FnOnce(&mut State) -> T + Send + 'static) -> Result<T> {
        self.looks_first(name).await;
        self.call(name, Does::Looks, |state| Ok(act(state))).await.map_err(Error::transient)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the answer is lost")]
struct Lost;

fn is_ours(vm: &Vm) -> bool {
    vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == DEPLOYMENT)
}

impl State {
    /// The files of all leases.
    pub fn holds(&self) -> &BTreeMap<u64, BTreeMap<String, String>> {
        &self.holds
    }

    /// A VM of the deployment that is unchanged since it was seen.
    fn own(&mut self, seen: &Vm) -> anyhow::Result<&mut Machine> {
        assert!(is_ours(seen), "{seen} is not the deployment's and was to be changed");
        let found = self.machines.iter_mut().find(|machine| machine.vm.reference == seen.reference);
        let machine = found.context(Error::not_found("no such VM"))?;
        if machine.vm != *seen {
            bail!(Error::new(ErrorKind::Changed, anyhow::anyhow!("it has changed")));
        }
        Ok(machine)
    }

    /// Whether a call is lost on its way.
    fn loses(&mut self, name: &str) -> bool {
        let Some((_, times)) = self.lost.as_mut().filter(|(lost, times)| *lost == name && *times > 0) else {
            return false;
        };
        *times -= 1;
        true
    }

    /// Whether a disk is at this place.
    fn has(&self, disk: &DiskRef) -> bool {
        self.disks.contains_key(&disk.uuid) && self.moved.get(&disk.uuid).is_none_or(|path| *path == disk.path)
    }

    /// Whether the VMs have been on long enough, all together.
    fn has_formed(&self, now: Instant) -> bool {
        let counts = |vm: &Vm| is_ours(vm) && (!self.speaks_alone || vm.power == PowerState::On);
        let mut own = self.machines.iter().filter(|machine| counts(&machine.vm)).peekable();
        own.peek().is_some()
            && !self.ill
            && own.all(|machine| {
                machine.powered.is_some_and(|at| at + FORMS <= now) && machine.vm.power == PowerState::On
            })
    }
}

#[async_trait]
impl Guests for World {
    async fn kubeconfig(&self, node: Ipv4Addr, _: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        self.call("kubeconfig", Does::Looks, move |_| Ok(Zeroizing::new(format!("from {node}")))).await
    }

    async fn ready(&self, _: &str) -> anyhow::Result<BTreeSet<String>> {
        let ready = |state: &mut State| {
            let on = state.machines.iter().filter(|machine| is_ours(&machine.vm) && machine.vm.power == PowerState::On);
            on.filter_map(|machine| Some(machine.vm.stamp.as_ref()?.node.clone())).collect()
        };
        self.call("ready", Does::Looks, move |state| Ok(ready(state))).await
    }
}

#[async_trait]
impl Store for World {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        while self.lock().listing_hangs {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.call("store.numbers", Does::Looks, |state| Ok(state.holds.keys().copied().collect())).await
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        if self.lock().store_hangs {
            self.lock().asked_in_vain += 1;
            return std::future::pending().await;
        }
        self.call("store.exists", Does::Looks, move |state| Ok(state.holds.contains_key(&number))).await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        self.call("store.make", Does::Writes, move |state| {
            let new = !state.holds.contains_key(&number);
            state.holds.entry(number).or_default();
            Ok(new)
        })
        .await
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.call("store.remove", Does::Writes, move |state| state.holds.remove(&number).map(drop).context("no hold"))
            .await
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        let file = file.to_owned();
        self.call("store.read", Does::Looks, move |state| {
            Ok(state.holds.get(&number).and_then(|files| files.get(&file)).cloned())
        })
        .await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        let (file, text) = (file.to_owned(), text.to_owned());
        {
            let mut state = self.lock();
            let at = state.calls.len() + 1;
            if state.fault == Some((at, Fault::KilledHalf)) {
                let half = text[..text.len() / 2].to_owned();
                state.holds.entry(number).or_default().insert(file.clone(), half);
            }
        }
        self.call("store.write", Does::Writes, move |state| {
            let then = state.once_removal_is_noted.filter(|_| text.contains("\"requestedDiskDeletions\":"));
            state.holds.get_mut(&number).context("no hold")?.insert(file, text);
            if let Some(then) = then {
                then(state);
            }
            Ok(())
        })
        .await
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        self.call("store.files", Does::Looks, move |state| {
            Ok(state.holds.get(&number).into_iter().flat_map(|files| files.keys().cloned()).collect())
        })
        .await
    }
}
