//! Which VM may take a data disk, and how its identity changes then. Without side effects.
//!
//! | The disk is                              | VMs that may take it                                   |
//! |------------------------------------------|--------------------------------------------------------|
//! | held by a VM                             | that VM                                                |
//! | held, and prepared for an image          | that VM, or one of that image                          |
//! | held, the swap not committed             | that VM, or the one that had the disk before           |
//! | released by a shutdown                   | any VM of the same or a newer image, or the one before |
//! | released, and prepared for an image      | a VM of that image, or the one before                  |
//!
//! A VM that starts again with its image, or gets the disk back with it, is not checked further. For any other VM the
//! image is checked too: see [`Claimant::against`].
//!
//! - An image without the pinned publisher's signature is refused, unless the operator has named its publisher.
//! - An image that may not replace the last one is always refused.
//! - An image that is older than the last one is refused, unless the swap was prepared for it.

mod claimant;
mod record;
mod rules;

pub use claimant::Claimant;
pub use record::{Refusal, own_use};
pub use rules::{may_take, released, taken, taken_over};
