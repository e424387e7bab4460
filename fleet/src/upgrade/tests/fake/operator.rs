//! Changes by operators outside the upgrade: other deployments, a lost node and its replacement, a disk that is moved.

use uuid::Uuid;

use super::{DEPLOYMENT, DiskRef, HOME, Machine, State, World, data, disk, index, new, old_vm};
use crate::hypervisor::{PowerState, Stamp, Vm};
use crate::upgrade::Plan;

/// VMs that are not ours and look as if they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranger {
    /// Another deployment's node, with the name and the BIOS UUID of our old VM and a disk with our disk's UUID.
    Twin,
    /// Another deployment's, with the stamp of our swap and the name of our new VM.
    OfOurSwap,
    /// Without a stamp, with a copy of our disk.
    Unstamped,
    /// Another deployment's, with the BIOS UUID that our new VM gets.
    Newborn,
}

pub const STRANGERS: [Stranger; 4] = [Stranger::Twin, Stranger::OfOurSwap, Stranger::Unstamped, Stranger::Newborn];

impl World {
    /// Lets strangers appear.
    pub fn add_stranger(&self, plan: &Plan, node: usize, stranger: Stranger, power: PowerState) {
        let node = &plan.nodes[node];
        let mut state = self.lock();
        let made = state.made;
        let number = index(&node.name) + 1;
        let (name, uuid, swap) = match stranger {
            Stranger::Twin => (&node.old_name, node.old, None),
            Stranger::OfOurSwap => (&node.new_name, Uuid::from_u128(0xf00 + number), Some(node.swap)),
            Stranger::Unstamped => (&node.old_name, Uuid::from_u128(0xf10 + number), None),
            Stranger::Newborn => (&node.new_name, Uuid::from_u128(0xb00 + number), None),
        };
        let mut machine = state.machine_named(name, uuid, new());
        machine.vm.power = power;
        machine.vm.disks.push(data(DiskRef { path: format!("[other] {made}/data.vmdk"), ..node.disk.clone() }));
        let deployment = Uuid::from_u128(0xbad);
        machine.vm.stamp =
            (stranger != Stranger::Unstamped).then(|| Stamp { deployment, node: node.name.clone(), swap });
        // It comes first in every listing.
        state.machines.insert(0, machine.clone());
        state.strangers.push(machine);
    }

    /// Panics when a VM of another deployment is not as it was.
    pub fn strangers_are_untouched(&self) {
        let state = self.lock();
        for stranger in &state.strangers {
            assert!(state.machines.contains(stranger), "{stranger:?} was changed");
        }
    }

    /// Changes the deployment's VM with this BIOS UUID from outside.
    pub fn change_vm(&self, uuid: Uuid, change: impl FnOnce(&mut Machine)) {
        let mut state = self.lock();
        let own = |machine: &&mut Machine| machine.ours && machine.vm.uuid() == uuid;
        let machine = state.machines.iter_mut().find(own).expect("a VM");
        change(machine);
        machine.version += 1;
    }

    pub fn old_vm(&self, node: &str) -> Vm {
        let state = self.lock();
        let old = state.machines.iter().find(|machine| machine.ours && machine.vm.uuid() == old_vm(node));
        state.seen(old.expect("the old VM"))
    }

    /// Another VM of the deployment, off, with this change.
    pub fn add_own(&self, name: &str, uuid: Uuid, change: impl FnOnce(&mut Machine)) {
        let mut state = self.lock();
        let mut machine = state.machine_named(name, uuid, new());
        (machine.ours, machine.folder) = (true, HOME);
        machine.vm.stamp = Some(Stamp { deployment: DEPLOYMENT, node: name.to_owned(), swap: None });
        change(&mut machine);
        state.machines.push(machine);
    }

    /// The data disk of a node is moved to another datastore.
    pub fn move_disk(&self, node: &str) {
        self.move_disk_to(node, "datastore2");
    }

    /// The same, to this one.
    pub fn move_disk_to(&self, node: &str, datastore: &str) {
        let mut state = self.lock();
        let to = DiskRef { path: format!("[{datastore}] {node}/data.vmdk"), ..disk(node) };
        for content in state.contents.iter_mut().filter(|content| content.node == node) {
            content.at = to.clone();
        }
        for machine in state.machines.iter_mut().filter(|machine| machine.ours) {
            for held in machine.vm.disks.iter_mut().filter(|held| held.reference.uuid == disk(node).uuid) {
                held.reference = to.clone();
                machine.version += 1;
            }
        }
    }

    /// The plan that is being carried out.
    pub async fn plan_of_journal(&self) -> Plan {
        let text = crate::upgrade::journal::last(self).await.unwrap().unwrap();
        crate::upgrade::entry::plan_of(&crate::upgrade::entry::parse(&text).unwrap()).unwrap().clone()
    }

    /// Deletes a VM of the deployment; its data disk stays.
    pub fn delete_vm(&self, uuid: Uuid) {
        self.lock().machines.retain(|machine| !machine.ours || machine.vm.uuid() != uuid);
    }

    /// Moves the VMs of a BIOS UUID to a folder that is not searched.
    pub fn move_away(&self, uuid: Uuid) {
        let mut state = self.lock();
        let with = state.machines.iter().filter(|machine| machine.vm.uuid() == uuid);
        let ids: Vec<String> = with.map(|machine| machine.vm.reference.id.clone()).collect();
        state.unlisted.extend(ids);
    }

    /// The VM that was made for a node's swap.
    pub fn new_vm(&self, node: &str) -> Vm {
        let state = self.lock();
        let its = |machine: &&Machine| machine.ours && machine.node == node && machine.image == new();
        state.seen(state.machines.iter().find(its).expect("the new VM"))
    }

    /// A node is lost for good: its VMs, its disk.
    pub fn lose(&self, node: &'static str) {
        let mut state = self.lock();
        let is_its = |machine: &Machine| machine.vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node);
        state.machines.retain(|machine| !machine.ours || !is_its(machine));
        state.contents.retain(|content| content.node != node);
    }

    /// The operator deploys it again, on the existing image: another VM, another disk, another member of etcd.
    pub fn replace(&self, node: &'static str) {
        let at = DiskRef { uuid: Uuid::from_u128(0xdd), path: format!("[datastore1] {node}-again/data.vmdk") };
        let (vm, identity) = (Uuid::from_u128(0xcc), Uuid::from_u128(0x1dd));
        self.lock().make(node, vm, new(), at, identity, "ee".to_owned());
    }
}

impl State {
    /// Another deployment's VM of this name has the BIOS UUID that ours is given.
    pub fn newborn_takes(&mut self, name: &str, uuid: Uuid) {
        let is_it = |machine: &&mut Machine| {
            machine.vm.name == name
                && machine.vm.stamp.as_ref().is_some_and(|it| it.deployment != DEPLOYMENT && it.swap.is_none())
        };
        for machine in self.machines.iter_mut().chain(&mut self.strangers).filter(is_it) {
            machine.vm.reference.uuid = uuid;
        }
    }

    /// Whether a node may get pods.
    pub fn is_cordoned(&self, node: &str) -> bool {
        self.contents.iter().any(|content| content.node == node && content.cordoned)
    }
}
