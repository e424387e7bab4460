//! What can be done for a worker, one thing at a time.

use std::net::Ipv4Addr;

use crate::hypervisor::DiskRef;
use crate::upgrade::Reason;

/// One thing to do. Each looks again before it acts, and may be done again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Notes a further machine, whose number follows the highest.
    Add {
        /// Its address; none by DHCP.
        address: Option<Ipv4Addr>,
    },
    /// Makes the machine's token and its VM with that, powered off.
    Import(String),
    /// Gives its VM, which is off, a new token to join again with.
    Invite(String),
    PowerOn(String),
    /// Notes with which key its VM asks to join, as it said before anything else ran there.
    Hear(String, String),
    /// Notes that somebody else has joined in its place, while it is to join again, and by which key of its VM that was seen.
    Suspect(String, String),
    /// Notes that it has joined.
    Joined(String),
    /// Notes that it did not.
    Fail(String, Reason),
    Leave(String, Reason),
    /// Removes its token: it has joined, or was given up.
    RemoveToken(String),
    /// Lets its node take no new pods, and leave the addresses of services to others.
    Cordon(String),
    /// Notes that other nodes answer for the addresses of services in its place.
    HandOver(String),
    /// Lets its pods move away.
    Drain(String),
    /// Shuts its VM down.
    PowerOff(String),
    DeleteNode(String),
    /// Takes a data disk out of its VM, which stays where it is.
    Detach(String, DiskRef),
    /// Removes its VM.
    Destroy(String),
    /// Takes its VM off a network, by the key of the adapter, now and at later power-ons.
    Disconnect(String, String),
    /// Gives its VM up, under another name: it is kept, and nobody's.
    Release(String, String),
    /// Notes that nothing of it is there any more. Replicas of its VM that stay where they are are named.
    Forget(String, Vec<String>),
}

impl Action {
    /// The machine that it is done for; none for one that is not there yet.
    pub fn machine(&self) -> Option<&String> {
        match self {
            Self::Add { .. } => None,
            Self::Import(name)
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
