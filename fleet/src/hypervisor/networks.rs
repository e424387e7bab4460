//! The networks of a new VM.

use super::Vm;

/// The networks that a VM is on which takes no other one's place.
#[derive(Clone, Copy, Debug)]
pub enum Networks<'a> {
    /// Those of this VM, beside which it is put where the placement says nothing; it may be another deployment's.
    Of(&'a Vm),
    /// Those of these names, in the order of the image's: the place may be empty.
    Named(&'a [String]),
}

impl<'a> Networks<'a> {
    /// The VM beside which a new one is put where the placement says nothing; none where it says everything.
    pub fn beside(self) -> Option<&'a Vm> {
        match self {
            Self::Of(vm) => Some(vm),
            Self::Named(_) => None,
        }
    }
}
