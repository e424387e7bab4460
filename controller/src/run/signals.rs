//! SIGTERM and SIGINT, which ask this process to end. All threads block them, and they are read from a descriptor. A signal that
//! arrives while the program is executed again, or has just started, stays pending until it is read (signalfd(2), execve(2)).

use std::io;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use tokio::net::unix::pipe::Receiver;

pub struct Signals(SigSet);

impl Signals {
    /// Blocks them in this thread and in those that it starts. Call it before the process has other threads.
    pub fn hold() -> anyhow::Result<Self> {
        let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        signals.thread_block().context("holding back the signals that ask for the end")?;
        Ok(Self(signals))
    }

    /// Opens the descriptor, on a runtime.
    pub(super) fn listen(&self) -> anyhow::Result<Listening> {
        let opened = SignalFd::with_flags(&self.0, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        // It is not a pipe, but can be polled and read as one.
        let listening =
            opened.map_err(io::Error::from).and_then(|opened| Receiver::from_owned_fd_unchecked(opened.into()));
        listening.map(Listening).context("opening the signals that ask for the end")
    }
}

pub(super) struct Listening(Receiver);

impl Listening {
    /// Returns once this process was asked to end. If the future is dropped, the signal stays pending.
    pub(super) async fn asked(&self) -> anyhow::Result<()> {
        // One record of a signal. A shorter read does not occur.
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
