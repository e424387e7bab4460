//! Control-plane nodes in the world of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use contract::deployer::{Digests, Fingerprint, Fingerprints};
use contract::replacement::ReplacementGrant;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::control_plane::{
    Deploy, DeployStatus, DesiredState, Goal, Guests, Notice, RunOutcome, UnattachedDisk, Unfinished, Wait, WantedNode,
};
use crate::hypervisor::{
    Absence, CloneRequest, CloneSettings, DiskRef, Error, ErrorKind, Fence, LastSeen, Networks, Placement, PowerState,
    Result, Size, Stamp, Vm, VmRef,
};
use crate::lease::TakeOver;
pub use crate::testing::{DEPLOYMENT, Does, Fault, Machine, vm};
use crate::testing::{Part, data_disk, doubtful, is_ours};
use crate::upgrade::DiskCopy;
use crate::workers::Image;

pub type World = crate::testing::World<ControlPlane>;
pub type State = crate::testing::State<ControlPlane>;
pub type Given = crate::testing::Given<RunOutcome, DeployStatus>;

impl Given {
    /// The status of a cluster that is up.
    pub fn up(self) -> DeployStatus {
        match self.arrived() {
            (RunOutcome::Up(_), status) => status,
            other => panic!("{other:?}"),
        }
    }

    /// The status of a cluster that is gone.
    pub fn gone(self) -> DeployStatus {
        let (arrived, status) = self.arrived();
        assert_eq!(arrived, RunOutcome::Gone, "{status:?}");
        status
    }

    pub fn paused(self) -> Vec<Wait> {
        match self.arrived() {
            (RunOutcome::Paused(waits), _) => waits,
            other => panic!("{other:?}"),
        }
    }

    pub fn stopped(self) -> Vec<Wait> {
        match self.arrived() {
            (RunOutcome::Stopped(waits), _) => waits,
            other => panic!("{other:?}"),
        }
    }
}

/// How long a cluster takes to form.
const FORMS: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct ControlPlane {
    /// The VMs begun by the process that gives all commands. `None` if each is given by another process.
    pub process: Option<Arc<Unfinished>>,
    /// BIOS UUIDs that the next command's process has drawn itself.
    pub drawn: Vec<Uuid>,
    /// Runs once a disk's removal is recorded.
    pub once_removal_is_noted: Option<fn(&mut State)>,
    /// Whether the hypervisor has no room for further VMs.
    pub refuses: bool,
    /// Whether each new VM is damaged before it is complete.
    pub spoils: bool,
    /// Whether each new VM is removed with its disk once it is complete.
    pub drops: bool,
    /// How long a VM is copied before it is complete, or is not.
    pub copying: Duration,
    /// Nodes that never form.
    pub ill: bool,
    /// How often the place was removed.
    pub emptied: usize,
    /// Fingerprint of the deployer key that all commands use.
    pub deployer: Option<Fingerprint>,
    /// The VM that shows another cluster's CA, by its name.
    pub astray: Option<&'static str>,
    /// The placements of VMs, by their names.
    pub placed: BTreeMap<String, Placement>,
    /// Settings of VMs that are still on a datastore.
    pub settings: BTreeSet<String>,
    /// Whether a VM without a recorded place is not proved gone.
    pub demands_places: bool,
    /// The error of the proof that a VM is gone, if it fails.
    pub absence_fails: Option<ErrorKind>,
    /// Whether running nodes answer for a formed cluster while others are off.
    pub speaks_alone: bool,
    /// The codes with which nodes admitted a new VM. Only the last one is valid.
    pub codes: Vec<String>,
    /// Whether new VMs of lost nodes never join.
    pub never_joins: bool,
    /// The last kubeconfig that a run has reported before its end.
    pub renewed: Option<String>,
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
        image: Image { digest: "0a".repeat(32), name: "kaas-control-plane 1.0.0".to_owned() },
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

impl World {
    /// A place with VMs of others. The name of one looks like the first node's.
    pub fn new() -> Self {
        Self::with_strangers("cp1")
    }

    /// With a formed cluster of so many nodes.
    pub async fn with(nodes: u8) -> Self {
        let world = Self::new();
        world.deploy(nodes).await.up();
        world
    }

    /// The same, and used disks may be removed.
    pub async fn removing(nodes: u8) -> Self {
        let world = Self::with(nodes).await;
        world.lock().removes_used = true;
        world
    }

    /// A place where nodes never form a cluster.
    pub fn unhealthy() -> Self {
        let world = Self::new();
        world.lock().ill = true;
        world
    }

    /// Adds a VM of another client, off, with a data disk.
    pub fn plant(&self, name: &str, node: &str, uuid: u128) -> Machine {
        let stamp = Stamp { deployment: DEPLOYMENT, node: node.to_owned(), swap: None };
        let mut vm = vm(name, Uuid::from_u128(uuid), Some(stamp));
        let reference = DiskRef { uuid: Uuid::from_u128(uuid + 0xd0), path: format!("[ds] {name}.vmdk") };
        vm.disks.push(data_disk(reference.clone()));
        let machine = Machine::of(vm);
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
        state.named(name).vm.disks.push(data_disk(disk.clone()));
    }

    /// Moves a VM out of the searched folders.
    pub fn move_away(&self, vm: &Vm) {
        self.lock().away.insert(vm.reference.id.clone());
    }

    /// Adds a copy of a VM's files to the inventory, where the deployment's VMs are searched. It is off, and has the same stamp
    /// and disks with the same UUIDs.
    pub fn copy(&self, vm: &Vm) -> Vm {
        let mut copy = Machine::of(vm.clone());
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
        self.lock().holds_mut().entry(hold).or_default().insert(name.to_owned(), text);
    }

    /// Changes the cluster's journals.
    pub fn rewrite(&self, to: impl Fn(&str) -> String) {
        let mut state = self.lock();
        let files = state.holds_mut().values_mut().flat_map(BTreeMap::iter_mut);
        files.filter(|(name, _)| name.starts_with("deploy-")).for_each(|(_, text)| *text = to(text));
    }

    /// Loses the journals.
    pub fn forget(&self) {
        for files in self.lock().holds_mut().values_mut() {
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

    /// Creates a cluster of so many nodes, or completes it.
    pub async fn deploy(&self, nodes: u8) -> Given {
        self.give(Goal::Deploy(&wanted(nodes))).await
    }

    pub async fn give(&self, wish: Goal<'_>) -> Given {
        self.give_with(wish, TakeOver::FromTheDead).await
    }

    /// By an operator who sees that no other command is at work.
    pub async fn give_over(&self, wish: Goal<'_>) -> Given {
        self.give_with(wish, TakeOver::FromAnyone).await
    }

    async fn give_with(&self, wish: Goal<'_>, over: TakeOver) -> Given {
        self.run(self.acting(async |deploy| deploy.go(wish, over).await)).await
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
                let taken = state.holds().values().next_back();
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
}

impl State {
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
    fn deployer_fingerprint(&self) -> Option<Fingerprint> {
        self.lock().deployer
    }

    async fn kubeconfig(&self, node: Ipv4Addr, _: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        self.call("kubeconfig", Does::Looks, move |_| Ok(Zeroizing::new(format!("from {node}")))).await
    }

    async fn renew(&self, node: Ipv4Addr, _: &str) -> anyhow::Result<Zeroizing<String>> {
        self.call("renew", Does::Looks, move |_| Ok(Zeroizing::new(format!("from {node}")))).await
    }

    async fn accepts(&self, _: Ipv4Addr, _: &str) -> anyhow::Result<bool> {
        self.call("accepts", Does::Looks, |_| Ok(true)).await
    }

    async fn admit(&self, _: Ipv4Addr, _: &Fingerprints, lost: &str) -> anyhow::Result<ReplacementGrant> {
        let node = lost.to_owned();
        self.call("admit", Does::ChangesCluster, move |state| {
            let code = format!("code {}", state.codes.len());
            state.codes.push(code.clone());
            let properties = BTreeMap::from([("kubernetes-version".to_owned(), "1.36".to_owned())]);
            Ok(ReplacementGrant { node, code, expires: String::new(), properties })
        })
        .await
    }

    async fn ready(&self, _: &str) -> anyhow::Result<BTreeSet<String>> {
        let ready = |state: &mut State| {
            let is_out = |vm: &Vm| state.never_joins && vm.stamp.as_ref().is_some_and(|stamp| stamp.swap.is_some());
            let is_on = |vm: &Vm| is_ours(vm) && vm.power == PowerState::On && !is_out(vm);
            let on = state.machines.iter().filter(|machine| is_on(&machine.vm));
            on.filter_map(|machine| Some(machine.vm.stamp.as_ref()?.node.clone())).collect()
        };
        self.call("ready", Does::Looks, move |state| Ok(ready(state))).await
    }
}

#[async_trait]
impl Part for ControlPlane {
    const IS_FIRST: bool = true;

    fn written(state: &mut State, text: &str) {
        if let Some(then) = state.once_removal_is_noted.filter(|_| text.contains("\"requestedDiskDeletions\":")) {
            then(state);
        }
    }

    fn receives_shut_down(state: &State, _: &Vm, _: u64) -> bool {
        !state.ill
    }

    async fn absence(world: &World, _: Uuid, seen: LastSeen<'_>) -> Result<Absence> {
        if let Some(kind) = world.lock().absence_fails {
            return Err(Error::new(kind, anyhow::anyhow!("the datastore cannot be searched")));
        }
        Ok(match seen {
            LastSeen::At(settings, _) if world.lock().settings.contains(settings) => {
                Absence::Unknown(format!("{settings} is still there"))
            }
            LastSeen::Unnoted if world.lock().demands_places => Absence::Unknown("no place was noted".to_owned()),
            _ => Absence::Gone,
        })
    }

    async fn fingerprints(world: &World, vm: &VmRef) -> Result<Option<Fingerprints>> {
        let now = Instant::now();
        let asked = vm.clone();
        world
            .look("fingerprints", move |state| {
                let is_astray =
                    |name: &str| state.machines.iter().any(|it| it.vm.reference == asked && it.vm.name == name);
                let authority = Fingerprint::of(if state.astray.is_some_and(is_astray) { b"b" } else { b"a" });
                state.has_formed(now).then_some(Fingerprints { ca: authority, endpoint: Fingerprint::of(b"e") })
            })
            .await
    }

    /// Three requests: the VM is created, it gets its disk, and it is completed.
    async fn clone_vm(world: &World, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        let CloneSettings::Given { networks, size, properties } = request.settings else {
            panic!("a first VM replaces no other one")
        };
        let (name, stamp, drawn) = (request.name.to_owned(), request.stamp.clone(), request.uuid);
        assert!(matches!(networks, Networks::Named([network]) if network == "Management"));
        assert_eq!(properties["node-name"], stamp.node);
        assert!(size.data_disk.is_some());
        match stamp.swap {
            None => assert_eq!(name, stamp.node),
            // In place of a lost node.
            Some(swap) => {
                assert_eq!((swap, world.lock().codes.last()), (drawn, properties.get("deployment-secret")));
                assert_eq!(properties["kubernetes-version"], "1.36");
            }
        }
        let noted =
            world.lock().holds().values().flat_map(BTreeMap::values).any(|text| text.contains(&drawn.to_string()));
        assert!(noted, "{name} is made before its UUID is noted");
        let placement = request.placement.clone();
        let begun = world.change("add", permit, move |state| {
            let times = state.calls.iter().filter(|(name, _)| *name == "add").count();
            assert!(times < 1000, "VMs are made without an end");
            if state.refuses {
                bail!(Error::refused("there is no such host"));
            }
            assert_eq!(state.template, Some(true), "{name} is made from half an image");
            let mut own = state.machines.iter().filter(|machine| is_ours(&machine.vm));
            let twice = own.any(|machine| machine.vm.name == name || machine.vm.stamp.as_ref() == Some(&stamp));
            assert!(!twice, "{name} is made twice");
            let vm = vm(&name, drawn, Some(stamp));
            state.placed.insert(name, placement);
            let uuid = vm.uuid();
            state.machines.push(Machine { whole: false, ..Machine::of(vm) });
            Ok(uuid)
        });
        let uuid = begun.await?;
        let with_disk = world.change("add.disk", permit, move |state| {
            state.made += 1;
            let disk = Uuid::from_u128(0xd00 + state.made);
            state.disks.insert(disk, false);
            let reference = DiskRef { uuid: disk, path: format!("[ds] {disk}.vmdk") };
            let machine = state.machines.iter_mut().find(|machine| machine.vm.uuid() == uuid).context("no such VM")?;
            machine.vm.disks.push(data_disk(reference));
            Ok(())
        });
        with_disk.await.map_err(doubtful)?;
        let copying = world.lock().copying;
        if !copying.is_zero() {
            tokio::time::sleep(copying).await;
        }
        let whole = world.change("add.end", permit, move |state| {
            if state.spoils {
                bail!("another client has changed it");
            }
            let drops = state.drops;
            let machine = state.machines.iter_mut().find(|machine| machine.vm.uuid() == uuid).context("no such VM")?;
            machine.whole = true;
            if drops {
                let gone: Vec<Uuid> = machine.vm.disks.iter().map(|disk| disk.reference.uuid).collect();
                state.machines.retain(|machine| machine.vm.uuid() != uuid);
                state.disks.retain(|disk, _| !gone.contains(disk));
            }
            Ok(uuid)
        });
        whole.await.map_err(doubtful)
    }
}
