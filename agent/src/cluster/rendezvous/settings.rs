use std::time::Duration;

use contract::ports;

use super::channel::Proof;
use super::record::RendezvousRecord;
use crate::intake::config::ControlPlane;

/// How long to wait between two rounds.
const PACE: Duration = Duration::from_secs(2);

/// Saves a record on the data disk so that it survives a power cut. Until it returns, the changes in the record have
/// not happened.
pub type SaveRecord = Box<dyn FnMut(&RendezvousRecord) -> anyhow::Result<()> + Send>;

/// Whether the node of this name may get its bundle now. The limit exists because the bundle has the CAs' keys. The
/// deployment secret is in the VM's properties for as long as the VM exists.
pub type JoinWindow = Box<dyn Fn(&str) -> anyhow::Result<bool> + Send + Sync>;

#[derive(Clone, Debug)]
pub struct Settings {
    pub config: ControlPlane,
    /// Made from the deployment secret, or from a one-time code in its place.
    pub proof: Proof,
    /// Names the appliance image and its Kubernetes version: the same on all nodes.
    pub image: String,
    /// The port of every node's rendezvous.
    pub port: u16,
    pub api_port: u16,
    /// The pause between two rounds.
    pub pace: Duration,
}

impl Settings {
    pub fn new(config: ControlPlane, proof: Proof, image: impl Into<String>) -> Self {
        Self { config, proof, image: image.into(), port: ports::RENDEZVOUS, api_port: ports::API, pace: PACE }
    }
}
