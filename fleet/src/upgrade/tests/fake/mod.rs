//! A hypervisor, a cluster and a store in memory. The hypervisor refuses as a real one must. The guests keep the rules
//! of who may take a data disk. A state that must never be panics.

pub mod fault;
pub mod guest;
mod hypervisor;
mod nodes;
pub mod operator;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::bios_uuid::BiosUuid;
use contract::kubernetes_upgrade;
use contract::swap::{self, Image};
use tempfile::TempDir;
use tokio::sync::Notify;
use uuid::Uuid;

use self::fault::{At, Call, Fault, Faults};
use self::store::Kept;
use crate::hypervisor::{Adapter, DiskKind, DiskRef, Placement, PowerState, Stamp, Vm, VmSize};
pub use crate::testing::data_disk as data;
use crate::testing::vm;
use crate::upgrade::{Inventory, Mode, Nodes as _, OnFailure, Options, Plan, Target, UpgradeStatus, plan};

/// The defect of the new image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ill {
    /// Nothing is wrong with it.
    #[default]
    Well,
    /// It is never healthy.
    NeverGood,
    /// It has no network.
    Silent,
    /// Its endpoint does not answer; all else works.
    NoEndpoint,
    /// Its etcd cannot read the data.
    NoEtcd,
    /// The VM does not start.
    NoStart,
    /// It never shuts down by itself, and is never healthy.
    Hangs,
    /// It comes up as another member.
    OtherMember,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub vm: Vm,
    /// Whether it is the deployment's, whatever its stamp says.
    pub ours: bool,
    /// The node that it is, whatever its stamp says.
    pub node: String,
    /// The folder of the inventory: names are unique in it.
    pub folder: &'static str,
    pub image: Image,
    /// Whether its import was not interrupted.
    pub whole: bool,
    /// Whether its guest has the disk and runs the node.
    pub serves: bool,
    /// Whether it was asked to shut down and did not.
    pub still_on: bool,
    pub version: u64,
}

/// A node's data disk, and what is on it.
#[derive(Clone, Debug)]
pub struct Content {
    pub at: DiskRef,
    pub node: &'static str,
    pub identity: Uuid,
    pub member: String,
    pub holder: Option<BiosUuid>,
    pub generation: u64,
    pub swap: Option<swap::SwapState>,
    pub cordoned: bool,
    pub evacuation: Option<Uuid>,
    pub kubernetes: &'static str,
    pub upgrade: Option<kubernetes_upgrade::UpgradeState>,
}

/// A copy of a node's data disk.
#[derive(Clone, Debug)]
pub struct DiskCopied {
    pub at: DiskRef,
    /// That of its disk when it was made.
    pub generation: u64,
    /// Whether a command has learned that it is whole.
    pub whole: bool,
}

/// An imported template.
#[derive(Clone, Debug)]
pub struct Template {
    pub digest: String,
    pub placement: Placement,
    pub reference: String,
    /// Whether its making was not interrupted.
    pub whole: bool,
}

#[derive(Default)]
pub struct State {
    pub machines: Vec<Machine>,
    /// Whether guests of the old image read their BIOS UUID in the hypervisor's order, as on VMware hardware before 13.
    pub in_order_uuids: bool,
    pub templates: Vec<Template>,
    /// The image whose guests cannot be asked to shut down.
    pub unaskable: Option<Image>,
    /// Whether another command has taken over from the one that is at work: it may change nothing more.
    pub overtaken: bool,
    pub contents: Vec<Content>,
    pub copies: Vec<DiskCopied>,
    /// VMs whose data disks are in the directory of another VM.
    pub beside: BTreeSet<Uuid>,
    /// Whether a copy has the UUID of its disk.
    pub copies_keep_uuid: bool,
    /// The control-plane nodes that Kubernetes knows.
    pub nodes: Vec<&'static str>,
    pub leader: &'static str,
    pub address_holder: &'static str,
    pub ill: Ill,
    /// The defect on each node, if not the same on all of them.
    pub ill_nodes: Option<BTreeMap<&'static str, Ill>>,
    /// How long a silent or unhealthy node lets its caller wait.
    pub slow: Duration,
    /// Whether all nodes are swapped at once.
    pub at_once: bool,
    /// The node whose pods do not move away.
    pub stuck: Option<&'static str>,
    /// Each time that a node was asked to renew its certificates, and with which identifier.
    pub renewals: Vec<(&'static str, Uuid)>,
    /// Nodes that do not do their part of the cluster.
    pub sick: BTreeSet<&'static str>,
    /// Identifiers of VMs that the inventory leaves out, and BIOS UUIDs of those that are not found by that either.
    pub unlisted: BTreeSet<String>,
    pub unfound: BTreeSet<Uuid>,
    /// Whether changes of the deployment's own VMs are denied.
    pub own_denied: bool,
    /// Nodes that cannot be reached from where the command is, and those that answer with an error.
    pub unreached: BTreeSet<&'static str>,
    pub refusing: BTreeSet<&'static str>,
    /// So many members etcd's lists have; `None` for all of them.
    pub members_shown: Option<usize>,
    /// Whether the Kubernetes API is away though a majority serves.
    pub api_away: bool,
    pub published: Option<String>,
    /// Whether a snapshot is asked for and never comes.
    pub no_snapshot: bool,
    /// Whether the store does not answer whether a lease exists.
    pub store_hangs: bool,
    /// How often that was asked meanwhile.
    pub asked_in_vain: usize,
    /// The list of leases does not answer.
    pub listing_hangs: bool,
    /// The hypervisor does not say what still goes on.
    pub settling_hangs: bool,
    /// The hypervisor does not say which VMs there are.
    pub inventory_hangs: bool,
    /// The API's name of the cluster.
    pub cluster: Uuid,
    /// The data that a drain deletes for good, on each node.
    pub losses: swap::Losses,
    /// The most nodes that were away at once.
    pub most_away: usize,
    made: u64,
    pub store: Kept,
    pub faults: Faults,
    /// The VMs that are not the deployment's, as they were.
    strangers: Vec<Machine>,
}

pub struct World {
    state: Mutex<State>,
    killed: Notify,
    /// The image to upgrade to, and the directory that its OVA is in.
    pub target: Target,
    _ova: Arc<(TempDir, Target)>,
    /// The signer of the nodes' image, whose key is pinned there.
    pub publisher: Option<String>,
    pub options: Options,
}

pub const NODES: [&str; 3] = ["cp1", "cp2", "cp3"];
pub const DEPLOYMENT: Uuid = Uuid::from_u128(0xde);
/// The adapter that is connected, and the one that is not.
pub const ADAPTERS: [&str; 2] = ["4000", "4001"];
const HOME: &str = "kaas";

pub fn old() -> Image {
    Image { version: "0.1.0".into(), build: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".into() }
}

pub fn new() -> Image {
    Image { version: "0.2.0".into(), build: "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb".into() }
}

pub fn index(node: &str) -> u128 {
    NODES.iter().position(|name| *name == node).expect("a node") as u128
}

pub fn address(node: &str) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 11 + index(node) as u8)
}

pub fn old_vm(node: &str) -> Uuid {
    // Its two orders of bytes differ.
    Uuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_00a0 + index(node))
}

pub fn disk(node: &str) -> DiskRef {
    DiskRef { uuid: Uuid::from_u128(0xd0 + index(node)), path: format!("[datastore1] {node}/data.vmdk") }
}

pub fn member(node: &str) -> String {
    format!("{:x}", 0xe0 + index(node))
}

/// How large VMs are at first.
pub const SMALL: VmSize = VmSize { processors: 2, memory: 4096 };

pub fn stamp(node: &str, swap: Option<Uuid>) -> Option<Stamp> {
    Some(Stamp { deployment: DEPLOYMENT, node: node.to_owned(), swap })
}

pub fn options(mode: Mode) -> Options {
    Options {
        mode,
        gate_seconds: 120,
        drain_seconds: 60,
        on_failure: OnFailure::Node,
        downgrade: false,
        publisher: None,
        described_publisher: None,
        placement: Placement::default(),
        size: None,
        copy_disks: false,
    }
}

impl World {
    /// A cluster of so many nodes on the old image.
    pub fn of(nodes: usize, mode: Mode, ill: Ill) -> Self {
        let names = &NODES[..nodes];
        let mut state = State {
            nodes: names.to_vec(),
            leader: "cp1",
            address_holder: "cp1",
            ill,
            at_once: mode == Mode::AllAtOnce,
            cluster: Uuid::from_u128(0xc0),
            ..State::default()
        };
        for node in names {
            state.make(node, old_vm(node), old(), disk(node), Uuid::from_u128(0x1d0 + index(node)), member(node));
        }
        let ova = super::package::shared();
        let target = ova.1.clone();
        Self {
            state: Mutex::new(state),
            killed: Notify::new(),
            publisher: target.signer.clone(),
            target,
            _ova: ova,
            options: options(mode),
        }
    }

    pub async fn inventory(&self) -> Inventory {
        Inventory::take(self, self, self, &self.options.placement, None).await.unwrap()
    }

    pub async fn plan(&self) -> Plan {
        let inventory = self.inventory().await;
        plan(&inventory, &self.target, &self.options, Uuid::from_u128(0x1d))
            .unwrap_or_else(|refusals| panic!("{refusals}"))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the next fault, or none. Calls are counted from 0 again.
    pub fn fault(&self, at: Option<At>) {
        let mut state = self.lock();
        state.faults.set(at);
        state.overtaken = false;
    }

    /// The calls since the last fault was set.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().faults.calls.clone()
    }

    pub fn called(&self, name: &str) -> usize {
        self.calls().iter().filter(|call| call.name == name).count()
    }

    /// Returns when the command was killed.
    pub async fn killed(&self) {
        self.killed.notified().await;
    }

    /// The command is killed: it never returns.
    async fn die<T>(&self, _fault: Fault) -> T {
        self.killed.notify_one();
        std::future::pending().await
    }

    /// Panics unless each existing copy is named, as whole only if it is, and each that is named as whole exists.
    pub fn copies_are_named(&self, status: &UpgradeStatus) {
        let mut state = self.lock();
        state.settle();
        for at in &state.copies {
            let named = status.copies.iter().find(|named| named.copy.path == at.at.path);
            let uuid = named.unwrap_or_else(|| panic!("nobody names {at:?}: {:?}", status.copies)).copy.uuid;
            assert!(uuid.is_none_or(|uuid| at.whole && uuid == at.at.uuid), "{at:?} is named as {uuid:?}");
        }
        for named in status.copies.iter().filter(|named| named.copy.uuid.is_some()) {
            assert!(state.copies.iter().any(|copy| copy.at.path == named.copy.path), "{named:?} is not there");
        }
    }

    /// The most nodes that were away at once.
    pub fn most_away(&self) -> usize {
        self.lock().most_away
    }

    /// Panics unless all nodes are healthy on this image, in VMs as they should then be, and no foreign VM was touched.
    pub async fn all_run(&self, image: &Image, committed: bool) {
        self.fault(None);
        let nodes = self.lock().nodes.clone();
        for node in &nodes {
            let facts = self.facts(address(node)).await.unwrap_or_else(|error| panic!("{node}: {error:#}"));
            assert_eq!((&facts.image.version, &facts.image.build), (&image.version, &image.build), "{node}");
            assert!(facts.ready && facts.healthy.is_some(), "{node}");
            assert_eq!(facts.etcd.unwrap().member, member(node), "{node}");
        }
        self.lock().settle();
        let state = self.lock();
        let own: Vec<&Machine> = state.machines.iter().filter(|machine| machine.ours).collect();
        for machine in &own {
            let runs = machine.vm.power == PowerState::On;
            assert_eq!(runs, machine.image == *image, "{machine:?}");
            assert_eq!(machine.vm.data_disks().count(), usize::from(runs), "{machine:?}");
            let connected: Vec<&str> = connected(&machine.vm).collect();
            assert_eq!(connected, &ADAPTERS[..usize::from(runs)], "{machine:?}");
        }
        let open = *image == new() && !committed;
        assert_eq!(own.len(), nodes.len() * if open { 2 } else { 1 }, "{own:?}");
        for content in &state.contents {
            assert_eq!(content.swap.is_some(), open, "{content:?}");
            assert!(!content.cordoned, "{content:?}");
        }
        drop(state);
        self.strangers_are_untouched();
    }
}

pub fn connected(vm: &Vm) -> impl Iterator<Item = &str> {
    vm.adapters.iter().filter(|adapter| adapter.connected).map(|adapter| &*adapter.key)
}

impl State {
    /// Makes a VM of the deployment that runs a node.
    fn make(&mut self, node: &'static str, uuid: Uuid, image: Image, at: DiskRef, identity: Uuid, member: String) {
        let mut machine = self.machine_named(node, uuid, image);
        machine.vm.power = PowerState::On;
        machine.vm.stamp = stamp(node, None);
        machine.vm.disks.push(data(at.clone()));
        machine.serves = true;
        (machine.ours, machine.folder, machine.node) = (true, HOME, (*node).to_owned());
        let holder = self.read_by(&machine);
        self.machines.push(machine);
        self.contents.push(Content {
            at,
            node,
            identity,
            member,
            holder: Some(holder),
            generation: 1,
            swap: None,
            cordoned: false,
            evacuation: None,
            kubernetes: "1.35.4",
            upgrade: None,
        });
    }

    /// A VM that is off, with nothing but its system disk; not stamped yet.
    fn machine_named(&mut self, name: &str, uuid: Uuid, image: Image) -> Machine {
        self.made += 1;
        let id = format!("vm-{}", self.made);
        let adapter = |(number, key): (usize, &&str)| Adapter {
            key: (*key).to_owned(),
            network: "Management".to_owned(),
            mac: format!("00:50:56:00:{:02x}:0{number}", self.made),
            connected: number == 0,
        };
        let at = DiskRef {
            uuid: Uuid::from_u128(0x5000 + u128::from(self.made)),
            path: format!("[datastore1] {id}/system.vmdk"),
        };
        let system = crate::hypervisor::Disk { kind: DiskKind::System, ..data(at) };
        let mut vm = vm(name, uuid, None);
        (vm.reference.id, vm.version) = (id, String::new());
        (vm.size, vm.disks) = (Some(SMALL), vec![system]);
        vm.adapters = ADAPTERS.iter().enumerate().map(adapter).collect();
        let node = name.to_owned();
        Machine {
            vm,
            ours: false,
            node,
            folder: "elsewhere",
            image,
            whole: true,
            serves: false,
            still_on: false,
            version: 1,
        }
    }

    /// A VM as the inventory shows it.
    fn seen(&self, machine: &Machine) -> Vm {
        let mut vm = machine.vm.clone();
        vm.version = machine.version.to_string();
        let tasks = self.faults.late.iter().filter_map(|late| late.task.as_ref());
        vm.tasks.extend(tasks.filter(|(id, _)| *id == vm.reference.id).map(|(_, words)| (*words).to_owned()));
        vm
    }

    /// Panics in a state that must never be.
    fn check(&mut self) {
        for node in NODES {
            let of = |machine: &&Machine| machine.ours && machine.node == node;
            let on = self.machines.iter().filter(of).filter(|machine| machine.vm.power != PowerState::Off);
            let up: Vec<&Machine> = on.filter(|machine| connected(&machine.vm).next().is_some()).collect();
            assert!(up.len() <= 1, "two VMs of {node} are on and connected: {up:?}");
        }
        let mut held: Vec<&str> = self
            .machines
            .iter()
            .flat_map(|machine| machine.vm.data_disks().map(|disk| &*disk.reference.path))
            .collect();
        held.sort_unstable();
        assert!(held.windows(2).all(|pair| pair[0] != pair[1]), "a disk is held twice: {held:?}");
        let away = self.nodes.iter().filter(|node| !self.is_served(node)).count();
        self.most_away = self.most_away.max(away);
    }
}
