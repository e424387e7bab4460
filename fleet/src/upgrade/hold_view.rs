//! How a plan regards the lease of its deployment.

use crate::lease::{Lease, TakeOver};

/// How a plan looks at the lease.
#[derive(Clone, Copy)]
pub(super) enum HoldView<'a> {
    /// A holder blocks the plan.
    AsItIs,
    /// The lease will be taken over from its holder.
    TakenOver,
    Own(&'a Lease<'a>),
}

impl<'a> HoldView<'a> {
    /// The caller's hold, if it has it.
    pub(super) fn own(self) -> Option<&'a Lease<'a>> {
        if let Self::Own(hold) = self { Some(hold) } else { None }
    }

    pub(super) fn before(over: TakeOver) -> Self {
        match over {
            TakeOver::FromTheDead => Self::AsItIs,
            TakeOver::FromAnyone => Self::TakenOver,
        }
    }
}
