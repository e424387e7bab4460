//! Tenant clusters as objects of the control cluster: declared by people, made so by this controller.
//!
//! Rooms, from the ground up; none calls one above it:
//!
//! | Room | What it holds |
//! |---|---|
//! | [`objects`] | the kinds: their fields, rules, columns, conditions and reasons. Types alone; nothing is asked or done here |
//! | [`records`] | what `fleet` keeps of control nodes, workers and upgrades, as fields of these, there and back |
//! | [`decisions`] | pure: which address is next, how large a control plane is, what a pool wants of `fleet`, when a worker is outdated |
//! | [`documents`] | what is made from the kinds: their definitions for an API server, and the reference |
//! | [`reach`] | what lies outside: so far the API server, and over it the store of holds and journals of a cluster's control nodes |
//!
//! What comes: further decisions (a cluster's next Operation), more of what lies outside (a vCenter by its Provider, a tenant's nodes), and
//! rooms above these: *reconcilers*, one for each kind, that look, decide, save and act; *leadership* (a Lease, and the stop of calls
//! that comes before it can be another's); and the program that runs them all.

pub mod decisions;
pub mod documents;
pub mod objects;
pub mod reach;
pub mod records;
