//! Takes the node to the next Kubernetes minor that its image carries, as kubeadm's own
//! workflow does it (kubeadm-upgrade(1), and `cmd/kubeadm/app/cmd/phases/upgrade`): preflight, drain,
//! certificates, static pods, kubelet, the configuration in the cluster. One node at a time,
//! and the other nodes' control planes may be one minor behind meanwhile.
//!
//! What is to be done is saved on the data disk before anything changes. Until the
//! new minor stands in the configuration the node can stay what it was; from then on every start of
//! the agent goes on towards the new one.

mod begin;
pub mod command;
mod deprecated;
mod execute;
mod judge;
mod look;

pub use begin::begin;
pub use execute::{finish, resume};
