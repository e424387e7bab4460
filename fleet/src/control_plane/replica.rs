//! Copies of nodes' VMs that stay when a cluster is removed.

use schemars::JsonSchema;
use serde::Serialize;

use crate::hypervisor::VmRef;
use crate::nodes::clean;

/// A copy of a node's VM, as backup software keeps or restores it. It stays when the cluster is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftVm {
    pub name: String,
    #[serde(flatten)]
    pub vm: VmRef,
}

/// For messages, with the remedy.
impl std::fmt::Display for LeftVm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, VmRef { uuid, id }) = (clean(&self.name), &self.vm);
        write!(f, "the VM {name} ({uuid}, {id}), a copy of a node's VM: remove it yourself if it is not needed")
    }
}
