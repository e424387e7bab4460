//! Tenant clusters as objects of the control cluster: users declare them, this controller creates and changes them.
//!
//! Rooms, from the bottom up. No room uses one above it:
//!
//! | Room | Content |
//! |---|---|
//! | [`objects`] | the kinds: fields, rules, columns, conditions and reasons. Types only; no requests |
//! | [`records`] | `fleet`'s records of control-plane nodes, workers and upgrades as fields of these objects, and back. They
//! decide which worker is outdated |
//! | [`decisions`] | pure: the next address, findings against a cluster, its next step, and the desired state for `fleet` of a
//! cluster and its pools |
//! | [`documents`] | documents made from the kinds: definitions for an API server, and the reference |
//! | [`term`] | how long this process may change anything |
//! | [`reach`] | the outside: the API server; stores of leases and journals in it, for control-plane nodes and pools; the
//! Providers |
//! | [`leadership`] | election of the leading controller: a Lease, whose renewals make the term |
//! | [`context`] | the context of reconcilers, and their errors |
//! | [`reconcilers`] | one for each kind: reads, decides, saves, acts |
//! | [`run`] | runs all reconcilers as long as this process leads |

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
