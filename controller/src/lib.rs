//! Tenant clusters as objects of the control cluster: declared by people, made so by this controller.
//!
//! Rooms, from the ground up; none calls one above it:
//!
//! | Room | What it holds |
//! |---|---|
//! | [`objects`] | the kinds: their fields, rules, columns, conditions and reasons. Types alone; nothing is asked or done here |
//! | [`records`] | what `fleet` keeps of control nodes, workers and upgrades, as fields of these, there and back; by that it judges which worker is outdated |
//! | [`decisions`] | pure: which address is next, what is in the way of a cluster, what comes next for it, what it and its pools want of `fleet` |
//! | [`documents`] | what is made from the kinds: their definitions for an API server, and the reference |
//! | [`term`] | for how long this process may change anything |
//! | [`reach`] | what lies outside: the API server, over it the stores of holds and journals of a cluster's control nodes and of a pool's workers, and what runs VMs by its Provider |
//! | [`leadership`] | who of several controllers leads: a Lease, whose renewals are the term |
//! | [`context`] | what reconcilers are given, and what they end with |
//! | [`reconcilers`] | one for each kind: looks, decides, saves, acts |
//! | [`run`] | all of them at work, for as long as this process leads |

pub mod context;
pub mod decisions;
pub mod documents;
pub mod leadership;
pub mod objects;
pub mod reach;
pub mod reconcilers;
pub mod records;
pub mod run;
pub mod term;
