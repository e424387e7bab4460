//! Upgrades of a cluster that is not there: a strict hypervisor, nodes that keep
//! the rules of the data disk, and every way to break a command off.

mod crash;
mod failing;
pub(super) mod fake;
pub(super) mod package;
mod taking_over;
