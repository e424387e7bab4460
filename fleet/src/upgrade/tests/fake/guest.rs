//! Guests: they serve their node with the data disk that they have, and keep the rules of who may have it.

use contract::bios_uuid::BiosUuid;
use contract::swap::{self, Image, Stage, VmImage};
use uuid::Uuid;

use super::{Content, Ill, Machine, State, new, old};
use crate::hypervisor::PowerState;

/// The BIOS UUID that a guest of this image reads. Released images read `product_uuid`, whose bytes VMware swaps from
/// hardware 13 on, unless the hypervisor shows it `in_order`.
pub fn reading(vm: Uuid, image: &Image, in_order: bool) -> BiosUuid {
    let vm = BiosUuid::from(vm);
    if *image == old() && !in_order { vm.swapped() } else { vm }
}

impl State {
    pub fn machine(&self, id: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.vm.reference.id == id)
    }

    /// The BIOS UUID that a machine's guest reads.
    pub fn read_by(&self, machine: &Machine) -> BiosUuid {
        reading(machine.vm.uuid(), &machine.image, self.in_order_uuids)
    }

    pub fn machine_mut(&mut self, id: &str) -> Option<&mut Machine> {
        self.machines.iter_mut().find(|machine| machine.vm.reference.id == id)
    }

    /// The content of the data disk that a VM holds.
    pub fn content_of(&self, machine: &Machine) -> Option<&Content> {
        let held = machine.vm.data_disks().next()?;
        self.contents.iter().find(|content| content.at == held.reference)
    }

    /// The defect of a VM's image.
    pub fn ill_of(&self, machine: &Machine) -> Ill {
        match &self.ill_nodes {
            _ if machine.image != new() => Ill::Well,
            Some(nodes) => nodes.get(machine.node.as_str()).copied().unwrap_or(Ill::Well),
            None => self.ill,
        }
    }

    /// Whether a VM does its node's part of the cluster.
    pub fn serves(&self, machine: &Machine) -> bool {
        machine.serves
            && machine.vm.power == PowerState::On
            && !matches!(self.ill_of(machine), Ill::Silent | Ill::NoEtcd)
            && self.content_of(machine).is_some_and(|content| !self.sick.contains(content.node))
    }

    pub fn is_served(&self, node: &str) -> bool {
        let of = |machine: &&Machine| self.content_of(machine).is_some_and(|content| content.node == node);
        self.machines.iter().filter(of).any(|machine| self.serves(machine))
    }

    pub fn quorum(&self) -> bool {
        2 * self.nodes.iter().filter(|node| self.is_served(node)).count() > self.nodes.len()
    }

    /// Panics when stopping a VM would take a second node away. Without a quorum it takes nothing away.
    pub fn may_stop(&self, id: &str) {
        let Some(machine) = self.machine(id) else { return };
        if self.at_once || !self.serves(machine) || !self.quorum() {
            return;
        }
        let own = self.content_of(machine).map(|content| content.node);
        let away: Vec<_> = self.nodes.iter().filter(|node| Some(**node) != own && !self.is_served(node)).collect();
        assert!(away.is_empty(), "{} is stopped while {away:?} are away", machine.vm.name);
    }

    /// A guest shuts down cleanly, if it does: it releases its disk.
    pub fn shut_down(&mut self, id: &str) -> bool {
        let Some(machine) = self.machine(id).cloned().filter(|machine| machine.vm.power == PowerState::On) else {
            return true;
        };
        if self.ill_of(&machine) == Ill::Hangs {
            self.machine_mut(id).expect("a VM").still_on = true;
            return false;
        }
        let served = self.serves(&machine);
        self.power_off(id);
        let at = machine.vm.data_disks().next().map(|disk| disk.reference.clone());
        let vm = Some(self.read_by(&machine));
        let disk = self.contents.iter_mut().find(|content| Some(&content.at) == at.as_ref());
        if let Some(disk) = disk.filter(|_| served) {
            disk.holder = None;
            disk.swap.get_or_insert_with(|| swap::SwapState {
                id: Uuid::from_u128(0xff),
                stage: Stage::Prepared,
                error: None,
                code: None,
                losses: swap::Losses::default(),
                from: VmImage { vm, version: machine.image.version.clone(), build: machine.image.build.clone() },
                to: None,
            });
        }
        true
    }

    pub fn power_off(&mut self, id: &str) {
        if let Some(machine) = self.machine_mut(id) {
            machine.vm.power = PowerState::Off;
            (machine.serves, machine.still_on) = (false, false);
        }
    }

    /// A guest comes up: the disk decides whether the guest may have it.
    pub fn boot(&mut self, id: &str) {
        let machine = self.machine(id).expect("a VM").clone();
        assert!(machine.whole, "half a VM is powered on: {machine:?}");
        let node = machine.vm.stamp.as_ref().map(|stamp| stamp.node.clone());
        for other in &self.machines {
            let is_its = other.ours && other.vm.stamp.as_ref().map(|stamp| stamp.node.clone()) == node;
            let is_other = is_its && other.vm.reference != machine.vm.reference;
            assert!(!is_other || other.vm.power == PowerState::Off, "two VMs of {node:?} are on: {other:?}");
        }
        let at = machine.vm.data_disks().next().expect("a VM with a data disk").reference.clone();
        let vm = self.read_by(&machine);
        let disk = self.contents.iter_mut().find(|content| content.at == at).expect("a disk");
        assert_eq!(Some(disk.node), node.as_deref(), "another node's disk");
        // A released image knows one order of its UUID.
        let is_own = |noted: Option<BiosUuid>| noted.is_some_and(|noted| noted.as_bytes() == vm.as_bytes());
        let from = disk.swap.as_ref().and_then(|swap| swap.from.vm);
        let to = disk.swap.as_ref().and_then(|swap| swap.to.clone());
        let named = to.as_ref().is_some_and(|to| *to == machine.image);
        let may = match disk.holder {
            Some(_) => is_own(disk.holder) || named || is_own(from),
            None => to.is_none() || named || is_own(from),
        };
        assert!(may, "{node:?}: {vm} may not take the disk {disk:?}");
        if !is_own(disk.holder) {
            disk.generation += 1;
        }
        disk.holder = Some(vm);
        (disk.cordoned, disk.evacuation) = (false, None);
        if let Some(swap) = &mut disk.swap {
            swap.stage = Stage::Taken;
        }
        if is_own(from) {
            disk.swap = None;
        }
        let machine = self.machine_mut(id).expect("a VM");
        machine.vm.power = PowerState::On;
        machine.serves = true;
    }
}
