//! Shared parts of the tests of several crates. These are the vCenter to test against, small OVAs, a check of JSON
//! against its schema, and the choice of points that a run tries. Only tests depend on this crate. It knows nothing of
//! deployments, nodes and hypervisors, so that their crates can be tested with it.
//!
//! All functions panic on errors, as their callers would.

mod appliance;
mod bed;
mod points;
mod schema;

pub use appliance::{Appliance, few_properties, form};
pub use bed::{ADMINISTRATOR, Bed, Calls, Count, IN_ROLE, LOOKER, Machine, NETWORK, PASSWORD};
pub use points::{drawn, drawn_seldom};
pub use schema::off_schema;
