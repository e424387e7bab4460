//! What asks this process to end: SIGTERM and SIGINT. All threads hold them back, and they are read from a descriptor: one that comes
//! while the program is begun anew, or has just started, waits until it is read (signalfd(2), execve(2)).

use std::io;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The signals that ask for the end, held back.
pub struct Signals(SigSet);

impl Signals {
    /// Holds them back in this thread and in those that it starts: it is for a process that has no other ones yet.
    ///
    /// # Errors
    /// The system refuses.
    pub fn hold() -> anyhow::Result<Self> {
        let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        signals.thread_block().context("holding back the signals that ask for the end")?;
        Ok(Self(signals))
    }

    /// Opens what they are read from, on a runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn listen(&self) -> anyhow::Result<Listening> {
        let opened = SignalFd::with_flags(&self.0, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        let listening =
            opened.map_err(io::Error::from).and_then(|opened| AsyncFd::with_interest(opened, Interest::READABLE));
        listening.map(Listening).context("opening the signals that ask for the end")
    }
}

/// Reads them.
pub(super) struct Listening(AsyncFd<SignalFd>);

impl Listening {
    /// Returns once this process was asked to end. Where nobody waits for that the signal stays.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn asked(&self) -> anyhow::Result<()> {
        let read = |signals: &SignalFd| -> io::Result<()> {
            match signals.read_signal()? {
                Some(_) => Ok(()),
                None => Err(io::ErrorKind::WouldBlock.into()),
            }
        };
        self.0.async_io(Interest::READABLE, read).await.context("waiting to be asked to end")
    }
}
