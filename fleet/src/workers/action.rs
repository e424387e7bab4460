//! The actions for a worker, one at a time.

use std::net::Ipv4Addr;

use crate::engine::Reason;
use crate::hypervisor::DiskRef;

/// One action. Each reads the state again before it acts, and may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Records a further worker, whose number follows the highest one.
    Add {
        /// Its address. `None` for DHCP.
        address: Option<Ipv4Addr>,
    },
    /// Creates the worker's token and with it its VM, powered off.
    CloneVm(String),
    /// Sets a new token in its VM, which is off, so that it joins again.
    Invite(String),
    PowerOn(String),
    /// Records the key with which its VM asks to join, reported before anything else ran there.
    Hear(String, String),
    /// Records that another client has joined in its place while it should join again, and the key of its VM that showed this.
    Suspect(String, String),
    /// Records that it has joined.
    Joined(String),
    /// Records that it did not join.
    Fail(String, Reason),
    Leave(String, Reason),
    /// Removes its token: it has joined, or was given up.
    RemoveToken(String),
    /// Cordons its node, and moves the addresses of services to other nodes.
    Cordon(String),
    /// Records that other nodes answer for the addresses of services in its place.
    HandOver(String),
    /// Evicts its pods.
    Drain(String),
    /// Shuts its VM down.
    PowerOff(String),
    DeleteNode(String),
    /// Detaches a data disk from its VM. The disk stays where it is.
    Detach(String, DiskRef),
    /// Removes its VM.
    Destroy(String),
    /// Disconnects its VM from a network, by the key of the adapter, now and at later power-ons.
    Disconnect(String, String),
    /// Disowns its VM, under another name: the VM is kept, and is no longer managed.
    Release(String, String),
    /// Records that nothing of it exists. Names the replicas of its VM that stay.
    Forget(String, Vec<String>),
}

impl Action {
    /// The worker that the action is for. `None` for one that does not exist yet.
    pub fn machine(&self) -> Option<&String> {
        match self {
            Self::Add { .. } => None,
            Self::CloneVm(name)
            | Self::Invite(name)
            | Self::PowerOn(name)
            | Self::Hear(name, _)
            | Self::Suspect(name, _)
            | Self::Joined(name)
            | Self::Fail(name, _)
            | Self::Leave(name, _)
            | Self::RemoveToken(name)
            | Self::Cordon(name)
            | Self::HandOver(name)
            | Self::Drain(name)
            | Self::PowerOff(name)
            | Self::DeleteNode(name)
            | Self::Detach(name, _)
            | Self::Destroy(name)
            | Self::Disconnect(name, _)
            | Self::Release(name, _)
            | Self::Forget(name, _) => Some(name),
        }
    }
}
