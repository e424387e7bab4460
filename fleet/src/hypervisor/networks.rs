//! The networks of a new VM.

use super::Vm;

/// The networks of a VM that replaces no other one.
#[derive(Clone, Copy, Debug)]
pub enum Networks<'a> {
    /// The networks of this VM. If the placement is empty, the new VM is placed with it. It may belong to another
    /// deployment.
    Of(&'a Vm),
    /// The networks of these names, in the order of the image's adapters. The place may be empty.
    Named(&'a [String]),
}

impl<'a> Networks<'a> {
    /// The VM whose place the new VM gets if the placement is empty. `None` if the placement is complete.
    pub fn beside(self) -> Option<&'a Vm> {
        match self {
            Self::Of(vm) => Some(vm),
            Self::Named(_) => None,
        }
    }
}
