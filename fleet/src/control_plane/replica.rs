//! Copies of nodes' VMs that stay where a cluster goes.

use serde::Serialize;

use crate::hypervisor::VmRef;
use crate::nodes::clean;

/// A copy of a node's VM, as backup software keeps or brings back: it is nobody's here, and stays when the cluster goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftVm {
    pub name: String,
    #[serde(flatten)]
    pub vm: VmRef,
}

/// For people, with what is to be done.
impl std::fmt::Display for LeftVm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, VmRef { uuid, id }) = (clean(&self.name), &self.vm);
        write!(f, "the VM {name} ({uuid}, {id}), a copy of a node's VM: remove it yourself if nobody needs it")
    }
}
