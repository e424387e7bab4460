//! References of objects in vCenter.

use std::fmt;

/// A managed object reference: the kind of an object and its identifier, which a vCenter assigns once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoRef {
    /// The kind, such as `VirtualMachine`.
    pub kind: String,
    /// The identifier, such as `vm-12`.
    pub id: String,
}

impl MoRef {
    /// A reference with this kind and identifier.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }

    /// The reference of a virtual machine.
    pub fn vm(id: impl Into<String>) -> Self {
        Self::new("VirtualMachine", id)
    }
}

impl fmt::Display for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}
