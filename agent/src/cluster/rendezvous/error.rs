//! Errors of the rendezvous.

use uuid::Uuid;

use crate::cluster::pki;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port could not be opened: the address is not set, or the port is in use.
    #[error("opening the rendezvous at {address}: {source}")]
    Listen { address: String, source: std::io::Error },
    /// This node is not in its own list of control-plane nodes.
    #[error("this node is not in the list of control-plane nodes")]
    NotListed,
    /// A thread, a runtime or the TLS library could not be set up.
    #[error("setting up the rendezvous: {0}")]
    Setup(String),
    /// Keys or certificates could not be made, or the received ones are wrong.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// The record could not be saved. Its changes have not happened.
    #[error("saving the record of the rendezvous: {0:#}")]
    Keep(anyhow::Error),
    /// The watcher ended the waiting.
    #[error("stopped while waiting for the other control-plane nodes")]
    Stopped,
    #[error("the rendezvous of cluster {0} has closed")]
    Closed(Uuid),
    /// The call needs a decision or a bundle that this node does not have yet.
    #[error("this node belongs to no cluster yet")]
    NotFormed,
}
