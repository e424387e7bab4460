//! Upgrades the node to the next minor version of Kubernetes in its image. The steps are those of kubeadm (kubeadm-upgrade(1),
//! and `cmd/kubeadm/app/cmd/phases/upgrade`): preflight, drain, certificates, static pods, kubelet, the configuration in the
//! cluster. One node is upgraded at a time. Meanwhile the other nodes' control planes may be one minor version behind.
//!
//! The request is saved on the data disk before anything changes. Until the configuration has the new minor version, the
//! upgrade can be given up. From then on every start of the agent continues the upgrade.

mod begin;
pub mod command;
mod deprecated;
mod execute;
mod judge;
mod look;

pub use begin::begin;
pub use execute::{finish, resume};
