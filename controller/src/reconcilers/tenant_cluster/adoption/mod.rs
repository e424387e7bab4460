//! VMs of control nodes that are newer than the control cluster's database, as where that was restored from a snapshot: they are found and
//! told (`drift.rs`), and taken as they are by a person's word (`adopt.rs`), by what the nodes themselves say, whose open swaps are ended
//! then (`nodes.rs`); `words.rs` has what is said meanwhile. What it is judged by is [`crate::decisions`]' own. Workers are their pools' to
//! adopt.

mod adopt;
mod drift;
mod nodes;
mod words;

pub(super) use self::drift::Drift;
pub(super) use self::words::{after_word, waits_for, waits_for_a_look};
