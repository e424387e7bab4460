//! The actions of an operator who has only the hypervisor's client: the swap of an image, a CD-ROM.

use std::collections::BTreeMap;

use fleet::hypervisor::SHUTTING_DOWN;
use lab::{NewVm, Source};

use crate::scenario::{MOMENT, Scenario};

/// Creates a VM without a data disk that is to take over a node's. Its form keeps its defaults: the node's
/// configuration is on the disk.
pub fn import(scenario: &Scenario, name: &str, source: Option<Source>) {
    import_with(scenario, name, BTreeMap::new(), source);
}

/// The same with the form filled in as for a node: a new one, or one that the lab reaches by its address.
pub fn import_filled_in(scenario: &Scenario, name: &str, node: &str, source: Option<Source>) {
    import_with(scenario, name, scenario.properties(node), source);
}

fn import_with(scenario: &Scenario, name: &str, properties: BTreeMap<String, String>, source: Option<Source>) {
    // Some VMs that were imported by hand show their UUID in vCenter's order (kubernetes-archived/#450).
    let vm = NewVm { data_disk: None, source, in_order_uuid: true, ..scenario.vm(name, properties) };
    scenario.lab().import(&vm).unwrap_or_else(|error| panic!("{error:#}"));
}

/// Puts a CD-ROM with a handwritten OVF environment into a VM's drive. It can have values that vCenter's form refuses.
pub fn insert_cdrom(scenario: &Scenario, vm: &str, environment: &str) {
    scenario.lab().insert_environment(vm, environment.as_bytes()).unwrap_or_else(|error| panic!("{error:#}"));
}

/// Moves the data disk of a VM that is off to another VM that is off.
pub fn move_disk(scenario: &Scenario, from: &str, to: &str) {
    let lab = scenario.lab();
    for disk in lab.disks(from).unwrap() {
        lab.detach_disk(from, disk).unwrap();
        lab.attach_disk(to, disk).unwrap();
    }
}

/// Shuts a VM down as its console or the hypervisor's client does.
pub fn shut_down(scenario: &Scenario, vm: &str) {
    scenario.lab().shut_down(vm, SHUTTING_DOWN).unwrap_or_else(|error| panic!("{error:#}"));
    scenario.reached(&format!("{vm} is off"));
}

/// Waits until a VM shows on its console that it refuses the disk with this code, and does not run etcd.
pub fn refuses(scenario: &Scenario, vm: &str, code: &str) {
    scenario.says(vm, code, MOMENT);
    scenario.has_no_etcd(vm);
}
