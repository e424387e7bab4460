//! What names an object of vCenter.

use std::fmt;

/// A managed object reference: the kind of an object and its identifier, which one vCenter gives once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoRef {
    /// Such as `VirtualMachine`.
    pub kind: String,
    /// Such as `vm-12`.
    pub id: String,
}

impl MoRef {
    /// A reference of this kind and identifier.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }

    /// A virtual machine.
    pub fn vm(id: impl Into<String>) -> Self {
        Self::new("VirtualMachine", id)
    }
}

impl fmt::Display for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}
