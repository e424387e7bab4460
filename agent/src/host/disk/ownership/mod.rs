//! Who may take a data disk, and what its identity becomes then. All of it is pure.
//!
//! | The disk is              | Who may take it                                            |
//! |--------------------------|------------------------------------------------------------|
//! | held by a VM             | that VM                                                    |
//! | held, and prepared for an image | that VM, or one of that image                       |
//! | held, the swap not committed | that VM, or the one that had the disk before           |
//! | released by a shutdown   | any VM of the same or a newer image, or the one before     |
//! | released, and prepared for an image | a VM of that image, or the one before           |
//!
//! A VM that starts again with the image that it had, or gets the disk back with it, is asked nothing more. Of any
//! other one the image is judged, too: see [`Claimant::against`]. One that the pinned publisher has not signed is
//! refused unless somebody has named its publisher, one that may not take the place of the last always, and one
//! that is older than the last unless the swap was prepared for it.

mod claimant;
mod record;
mod rules;

pub use claimant::Claimant;
pub use record::{Refusal, own_use};
pub use rules::{may_take, released, taken, taken_over};
