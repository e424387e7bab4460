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
mod judge;
mod look;
mod work;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::records::Entry;

pub use begin::{begin, state};
pub use work::{finish, go_on};

/// An upgrade that was begun, as the data disk keeps it until its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// What the other nodes know it by.
    pub id: Uuid,
    /// The minor before.
    pub from: String,
    /// The minor that the node is taken to.
    pub to: String,
    /// How long pods may take to move away, in seconds.
    pub drain_seconds: u64,
    /// Why it was given up before anything changed, if it was.
    pub error: Option<String>,
}

impl Entry for Begun {
    const FILE: &'static str = "kubernetes-upgrade.json";
    const WHAT: &'static str = "the upgrade of Kubernetes";
}

impl Begun {
    /// Whether it is still to be done.
    pub fn is_under_way(&self) -> bool {
        self.error.is_none()
    }
}
