//! Labs for tests: their directories exist, but nothing on the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use contract::role::Role;
use fleet::hypervisor::Stamp;
use uuid::Uuid;

use super::environment::tests::tree_in;
use super::plan::{LabSpec, plan};
use super::records::LabDirectory;
use super::{EngineRecord, Lab, NewVm, Record, Source};

/// The record of a lab with this spec, in the container engine and from this source.
pub fn record(state: &Path, wishes: &LabSpec, source: Source) -> Record {
    Record {
        engine: EngineRecord::Container,
        replacements: None,
        workers: None,
        source,
        tools: state.join("tools"),
        plan: plan(wishes, &"5ec4e7".repeat(6)).unwrap(),
        name_on_host: wishes.name.clone(),
        deployment: Uuid::from_u128(9),
        beside: None,
    }
}

/// The lab `x` of `nodes` planned control-plane nodes, without VMs.
pub fn lab(state: &Path, nodes: usize, source: Source) -> Lab {
    let wishes = LabSpec { name: "x".to_owned(), nodes, timeout_factor: 1, ..LabSpec::default() };
    Lab::assemble(LabDirectory::of(state, "x").unwrap(), record(state, &wishes, source)).unwrap()
}

/// An unpacked OVA of a control cluster, in a directory.
pub fn source(directory: &Path) -> Source {
    tree_in(directory, Role::ControlPlane.into())
}

/// A small VM in the container engine, without properties and without a data disk.
pub fn vm(name: &str, stamp: Option<Stamp>) -> NewVm {
    NewVm {
        name: name.to_owned(),
        memory: 1,
        processors: 1,
        data_disk: None,
        network_interface: true,
        properties: BTreeMap::new(),
        source: None,
        engine: EngineRecord::Container,
        stamp,
        in_order_uuid: false,
    }
}

/// Creates the data disk of a VM.
pub fn add_disk(lab: &Lab, vm: &str) {
    fs::create_dir_all(lab.directory.path().join("disks")).unwrap();
    let mut record = lab.directory.load_vm(vm).unwrap();
    record.disks.push(lab.create_disk(1 << 20).unwrap());
    lab.directory.save_vm(&record).unwrap();
}
