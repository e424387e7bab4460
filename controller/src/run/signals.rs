//! What asks this process to end: SIGTERM and SIGINT. All threads hold them back, and they are read from a descriptor: one that comes
//! while the program is begun anew, or has just started, waits until it is read (signalfd(2), execve(2)).

use std::io;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use tokio::net::unix::pipe::Receiver;

/// The signals that ask for the end, held back.
pub struct Signals(SigSet);

impl Signals {
    /// Holds them back in this thread and in those that it starts: it is for a process that has no other ones yet.
    pub fn hold() -> anyhow::Result<Self> {
        let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        signals.thread_block().context("holding back the signals that ask for the end")?;
        Ok(Self(signals))
    }

    /// Opens what they are read from, on a runtime.
    pub(super) fn listen(&self) -> anyhow::Result<Listening> {
        let opened = SignalFd::with_flags(&self.0, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        // It is no pipe, but is waited for and read as one.
        let listening =
            opened.map_err(io::Error::from).and_then(|opened| Receiver::from_owned_fd_unchecked(opened.into()));
        listening.map(Listening).context("opening the signals that ask for the end")
    }
}

pub(super) struct Listening(Receiver);

impl Listening {
    /// Returns once this process was asked to end. Where nobody waits for that the signal stays.
    pub(super) async fn asked(&self) -> anyhow::Result<()> {
        // One signal's description at a time: less than that is not given.
        let mut description = [0; size_of::<siginfo>()];
        loop {
            self.0.readable().await.context("waiting to be asked to end")?;
            match self.0.try_read(&mut description) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(drop).context("reading what asks for the end"),
            }
        }
    }
}
