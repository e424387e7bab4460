//! Scenarios that drive built artifacts in the lab. This library is what they
//! share; the stories themselves are the files in `tests/lab/`.
//!
//! `KAAS_OVA` names the OVA, or the directory with it (`build` without it).
//! `KAAS_ROOT_TREE` names a root tree to run in containers in its place, for
//! work on the agent. `KAAS_COMMAND` names the operator's command, otherwise the one that Cargo has built. `kaas-dev` is in
//! the same directory.
//!
//! Functions without a result for errors panic on them, as a scenario does.

pub mod api_server;
pub mod bare;
pub mod built_ova;
pub mod by_hand;
pub mod certificates;
#[cfg(test)]
mod circles;
#[cfg(test)]
mod deny;
#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod deployer;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod earlier_commit;
pub mod earlier_ova;
pub mod endpoint;
pub mod file_cluster;
#[cfg(test)]
mod finding_codes;
pub mod guest_cuts;
pub mod joining;
pub mod lab_command;
mod lab_names;
pub mod lost_node;
#[cfg(test)]
mod modules;
pub mod network_outsider;
pub mod node_swap;
pub mod objects;
pub mod other_image;
pub mod places;
pub mod publisher;
pub mod put_server;
pub mod requests;
#[cfg(test)]
mod rooms;
pub mod runner;
mod running;
pub mod scenario;
#[cfg(test)]
mod schemas;
pub mod server;
#[cfg(test)]
mod set_up;
#[cfg(test)]
mod shared_target;
pub mod store;
pub mod tenant;
pub mod tenant_command;
pub mod terminal;
#[cfg(test)]
mod units;
pub mod upgrade;
pub mod vcenter;
#[cfg(test)]
mod versions_meet;
#[cfg(test)]
mod words;
pub mod workload;
pub mod writer;
