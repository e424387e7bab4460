//! A hypervisor and a cluster in memory. The hypervisor refuses what a real one
//! must refuse; the guests keep the rules of who may take a data disk; what must never happen panics.

mod hypervisor;
mod nodes;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{anyhow, ensure};
use contract::kubernetes_upgrade;
use contract::node::Kubernetes;
use contract::swap::{self, Image, Stage, Use};
use uuid::Uuid;

use crate::upgrade::PowerState;
use crate::upgrade::{Inventory, Lease, Mode, Nodes, Options, Plan, Target, Vm, plan};

/// What is wrong with the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// Nothing is wrong with it.
    Well,
    /// It is never found good.
    NeverGood,
    /// It has no network.
    Silent,
    /// Its etcd cannot read the data.
    NoEtcd,
    /// The VM does not start.
    NoStart,
    /// It never shuts down by itself, and is never found good.
    Hangs,
    /// It comes up as another member.
    OtherMember,
}

/// Where a command is interrupted: at the n-th call, before or after its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutAt {
    pub call: usize,
    pub after: bool,
}

/// What a broken-off command unwinds with.
pub struct Broken;

#[derive(Clone, Debug)]
struct Machine {
    vm: Vm,
    node: String,
    image: Image,
    /// Whether its import was not interrupted.
    whole: bool,
    /// Whether its guest has the disk and runs the node.
    serves: bool,
}

#[derive(Clone, Debug)]
struct Disk {
    node: String,
    holder: Option<Uuid>,
    generation: u64,
    swap: Option<swap::SwapState>,
    kubernetes: &'static str,
    upgrade: Option<kubernetes_upgrade::UpgradeState>,
}

struct State {
    machines: Vec<Machine>,
    disks: BTreeMap<Uuid, Disk>,
    leader: String,
    address_holder: String,
    lease: Option<Lease>,
    journal: Option<String>,
    /// The node whose pods do not move away.
    stuck: Option<&'static str>,
    calls: usize,
    cut: Option<CutAt>,
    /// The most nodes that were away at once.
    most_away: usize,
    imported: u128,
    /// A guest that was asked to shut down by a command that was interrupted, and the calls until it is off.
    going_down: Option<(Uuid, u32)>,
}

pub struct World {
    state: Mutex<State>,
    pub ill: Ill,
    pub mode: Mode,
    /// The image to upgrade to.
    pub target: Target,
    /// Where its OVA is.
    _ova: tempfile::TempDir,
    /// Who signed what the nodes run, and whose key is pinned there.
    pub publisher: Option<String>,
}

pub const NODES: [&str; 3] = ["cp1", "cp2", "cp3"];

pub fn old() -> Image {
    Image { version: "0.1.0".into(), build: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".into() }
}

pub fn new() -> Image {
    Image { version: "0.2.0".into(), build: "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb".into() }
}

fn index(node: &str) -> u128 {
    NODES.iter().position(|name| *name == node).expect("a node") as u128
}

pub fn address(node: &str) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 11 + index(node) as u8)
}

pub fn old_vm(node: &str) -> Uuid {
    Uuid::from_u128(0xa0 + index(node))
}

pub fn disk(node: &str) -> Uuid {
    Uuid::from_u128(0xd0 + index(node))
}

pub fn options(mode: Mode) -> Options {
    Options { mode, gate_seconds: 0, drain_seconds: 60, downgrade: false, publisher: None }
}

impl State {
    /// Kubernetes on a node; each look finds an upgrade further on.
    fn kubernetes(&mut self, node: &str) -> Kubernetes {
        let stuck = self.stuck == Some(node);
        let disk = self.disks.values_mut().find(|disk| disk.node == node).expect("a node");
        let upgrade = disk.upgrade.clone();
        match &mut disk.upgrade {
            Some(upgrade) if stuck => upgrade.error = Some("draining it took too long".into()),
            Some(upgrade) if upgrade.error.is_none() => {
                disk.kubernetes = "1.36.3";
                disk.upgrade = None;
            }
            _ => {}
        }
        let carried = vec!["1.36.3".into(), "1.35.4".into()];
        Kubernetes { version: disk.kubernetes.into(), carried, upgrade }
    }
}

impl World {
    /// From now on the pods of this node do not move away.
    pub fn refuse_kubernetes(&self, node: Option<&'static str>) {
        self.lock().stuck = node;
    }

    /// A cluster of so many nodes on the old image.
    pub fn of(nodes: usize, mode: Mode, ill: Ill) -> Self {
        let machine = |node: &&str| Machine {
            vm: Vm {
                name: (*node).to_owned(),
                uuid: old_vm(node),
                power: PowerState::On,
                disks: vec![disk(node)],
                nic_connected: true,
            },
            node: (*node).to_owned(),
            image: old(),
            whole: true,
            serves: true,
        };
        let content = |node: &&str| {
            let content = Disk {
                node: (*node).to_owned(),
                holder: Some(old_vm(node)),
                generation: 1,
                swap: None,
                kubernetes: "1.35.4",
                upgrade: None,
            };
            (disk(node), content)
        };
        let names = &NODES[..nodes];
        let state = State {
            machines: names.iter().map(machine).collect(),
            disks: names.iter().map(content).collect(),
            leader: "cp1".into(),
            address_holder: "cp1".into(),
            lease: None,
            journal: None,
            stuck: None,
            calls: 0,
            cut: None,
            most_away: 0,
            imported: 0,
            going_down: None,
        };
        let (ova, target) = super::package::target();
        let publisher = target.signer.clone();
        Self { state: Mutex::new(state), ill, mode, target, _ova: ova, publisher }
    }

    pub fn plan(&self) -> Plan {
        let inventory = Inventory::take(self, self).unwrap();
        let options = options(self.mode);
        plan(&inventory, &self.target, &options, Uuid::from_u128(0x1d)).unwrap_or_else(|refusals| panic!("{refusals}"))
    }

    /// Breaks the command off at a call from now.
    pub fn cut_at(&self, cut: Option<CutAt>) {
        let mut state = self.lock();
        state.calls = 0;
        state.cut = cut;
    }

    /// The most nodes that were away at once.
    pub fn most_away(&self) -> usize {
        self.lock().most_away
    }

    /// Panics unless all nodes run this image well, in VMs as they should then be.
    pub fn all_run(&self, image: &Image, committed: bool) {
        let names: Vec<String> = self.control_nodes().unwrap().into_iter().map(|(name, _)| name).collect();
        for node in &names {
            let facts = self.facts(address(node)).unwrap_or_else(|error| panic!("{node}: {error:#}"));
            assert_eq!((&facts.image.version, &facts.image.build), (&image.version, &image.build), "{node}");
            assert!(facts.ready && facts.good.is_some(), "{node}");
            assert_eq!(facts.etcd.unwrap().member, member(node), "{node}");
        }
        let state = self.lock();
        for machine in &state.machines {
            let runs = machine.vm.power == PowerState::On;
            assert_eq!(runs, machine.image == *image, "{machine:?}");
            assert_eq!(machine.vm.disks.len(), usize::from(runs), "{machine:?}");
            assert_eq!(machine.vm.nic_connected, runs, "{machine:?}");
        }
        let expected = if *image == new() && !committed { 2 * names.len() } else { names.len() };
        assert_eq!(state.machines.len(), expected, "{:?}", state.machines);
        if committed {
            assert!(state.disks.values().all(|disk| disk.swap.is_none()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call: `act` has its effect, and the command may be interrupted around it.
    fn call<T>(&self, act: impl FnOnce(&mut State) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let mut state = self.lock();
        state.calls += 1;
        let ill = self.ill;
        state.go_down(ill);
        let cut = state.cut.filter(|cut| cut.call == state.calls);
        if cut.is_some_and(|cut| !cut.after) {
            drop(state);
            std::panic::resume_unwind(Box::new(Broken));
        }
        let result = act(&mut state);
        state.check(self.mode);
        if cut.is_some() {
            drop(state);
            std::panic::resume_unwind(Box::new(Broken));
        }
        result
    }
}

fn member(node: &str) -> String {
    format!("{:x}", 0xe0 + index(node))
}

impl State {
    fn machine(&mut self, vm: Uuid) -> anyhow::Result<&mut Machine> {
        self.machines.iter_mut().find(|machine| machine.vm.uuid == vm).ok_or_else(|| anyhow!("there is no VM {vm}"))
    }

    fn off(&mut self, vm: Uuid) -> anyhow::Result<&mut Machine> {
        let machine = self.machine(vm)?;
        ensure!(machine.vm.power == PowerState::Off, "{} is on", machine.vm.name);
        Ok(machine)
    }

    /// A guest shuts down cleanly: it releases its disk.
    fn shut_down(&mut self, vm: Uuid) -> anyhow::Result<()> {
        self.going_down = None;
        let machine = self.machine(vm)?;
        machine.vm.power = PowerState::Off;
        let served = std::mem::take(&mut machine.serves);
        let (disks, image) = (machine.vm.disks.clone(), machine.image.clone());
        for disk in disks.iter().filter(|_| served) {
            let disk = self.disks.get_mut(disk).expect("a disk");
            disk.holder = None;
            disk.swap.get_or_insert_with(|| swap::SwapState {
                id: Uuid::from_u128(0xff),
                stage: Stage::Prepared,
                error: None,
                code: None,
                losses: swap::Losses::default(),
                from: Use { vm: Some(vm), version: image.version.clone(), build: image.build.clone() },
                to: None,
            });
        }
        Ok(())
    }

    fn go_down(&mut self, ill: Ill) {
        let Some((vm, left)) = self.going_down else { return };
        self.going_down = Some((vm, left.saturating_sub(1)));
        let hangs = |machine: &Machine| machine.image == new() && ill == Ill::Hangs;
        if left == 0 && self.machine(vm).is_ok_and(|machine| machine.vm.power == PowerState::On && !hangs(machine)) {
            self.shut_down(vm).expect("a VM");
        }
    }

    fn serving(&self, node: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.node == node && machine.serves)
    }

    fn quorum(&self) -> bool {
        let serving = self.machines.iter().filter(|machine| machine.serves).count();
        serving > self.disks.len() / 2
    }

    /// What must never be.
    fn check(&mut self, mode: Mode) {
        for node in NODES {
            let on = |machine: &&Machine| machine.node == node && machine.vm.power == PowerState::On;
            let on: Vec<&Machine> = self.machines.iter().filter(on).collect();
            assert!(on.iter().filter(|machine| machine.vm.nic_connected).count() <= 1, "two VMs of {node}: {on:?}");
        }
        let mut held: Vec<Uuid> = self.machines.iter().flat_map(|machine| machine.vm.disks.clone()).collect();
        held.sort();
        held.dedup();
        let holds: usize = self.machines.iter().map(|machine| machine.vm.disks.len()).sum();
        assert_eq!(held.len(), holds, "a disk is held twice");
        let away = self.disks.values().filter(|disk| self.serving(&disk.node).is_none()).count();
        self.most_away = self.most_away.max(away);
        assert!(mode == Mode::AllAtOnce || away <= 1, "{away} nodes are away at once");
    }

    /// A guest comes up: whether it may have the disk is the disk's to say.
    fn boot(&mut self, vm: Uuid, ill: Ill) -> anyhow::Result<()> {
        let machine = self.machine(vm)?;
        assert!(machine.whole, "half a VM is powered on: {machine:?}");
        let (image, node, disks) = (machine.image.clone(), machine.node.clone(), machine.vm.disks.clone());
        let [disk] = disks.as_slice() else { return Ok(()) };
        let disk = self.disks.get_mut(disk).expect("a disk");
        assert_eq!(disk.node, node, "{node} has another node's disk");
        let from = disk.swap.as_ref().and_then(|swap| swap.from.vm);
        let to = disk.swap.as_ref().and_then(|swap| swap.to.clone());
        let named = to.as_ref().is_some_and(|to| *to == image);
        let may = match disk.holder {
            Some(holder) => holder == vm || named || from == Some(vm),
            None => to.is_none() || named || from == Some(vm),
        };
        assert!(may, "{node}: {vm} may not take the disk {disk:?}");
        if disk.holder != Some(vm) {
            disk.generation += 1;
        }
        disk.holder = Some(vm);
        if let Some(swap) = &mut disk.swap {
            swap.stage = Stage::Taken;
        }
        if from == Some(vm) {
            disk.swap = None;
        }
        let serves = image == old() || !matches!(ill, Ill::Silent | Ill::NoEtcd);
        self.machine(vm)?.serves = serves;
        Ok(())
    }
}

impl World {
    /// Lets somebody hold the lock, or have held it until a while ago.
    pub fn put_lease(&self, lease: Lease) {
        self.lock().lease = Some(lease);
    }
}

/// A lock that somebody holds, or held until a while ago.
pub fn lease_of(holder: &str, ago: Duration) -> Lease {
    Lease {
        holder: Some(holder.to_owned()),
        duration: Duration::from_secs(60),
        renewed: SystemTime::now() - ago,
        version: Some("1".into()),
    }
}
