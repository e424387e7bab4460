//! Tenant clusters as objects of the control cluster: users declare them, this controller creates and changes them.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! run          all reconcilers, as long as this process leads
//! reconcilers  one for each kind: reads, decides, saves, acts
//! context      the context of reconcilers, and their errors
//! leadership   election of the leading controller by a Lease, whose renewals make the term
//! reach        the API server; stores of leases and journals in it; the Providers
//! term         how long this process may change anything
//! documents    documents made from the kinds: definitions for an API server, and the reference
//! decisions    pure: addresses, findings, the next step, the desired state for `fleet`
//! records      `fleet`'s records as fields of these objects, and back
//! objects      the kinds: fields, rules, columns, conditions and reasons; no requests
//! ```

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
