//! VMs of control-plane nodes that are newer than the control cluster's database, as after its restore. `drift.rs` finds and
//! reports them, and `adopt.rs` adopts them at the operator's request, from the reports of the nodes. `nodes.rs` calls the nodes,
//! and ends their open swaps. `words.rs` has the messages. The decisions are in [`crate::decisions`]. Workers are adopted by
//! their pools.

mod adopt;
mod drift;
mod nodes;
mod words;

pub(super) use self::drift::Drift;
pub(super) use self::words::{after_word, waits_for, waits_for_a_look};
