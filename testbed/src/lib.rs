//! What tests of several crates stand on: the vCenter to test against, started for one test, small OVAs, and which of many points
//! a run tries. Only tests depend on it.
//! Knows nothing of deployments, nodes and hypervisors, so that the crates of these can be tested with it.
//!
//! All of it panics where something fails: that is what its callers would do.

mod appliance;
mod bed;
mod points;

pub use appliance::{Appliance, few_properties, form};
pub use bed::{ADMINISTRATOR, Bed, Calls, Count, IN_ROLE, LOOKER, Machine, NETWORK, PASSWORD};
pub use points::{drawn, drawn_seldom};
