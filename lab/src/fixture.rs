//! Labs for tests: their directories exist, but nothing on the host.

use std::path::Path;

use contract::role::Role;
use uuid::Uuid;

use super::environment::tests::tree_in;
use super::plan::{LabSpec, plan};
use super::records::LabDirectory;
use super::{EngineRecord, Lab, Record, Source};

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
