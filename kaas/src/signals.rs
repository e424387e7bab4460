//! What ends a command, and what does not. One that may have a node away ends when it is asked to, at a moment at which
//! it can be continued; a terminal or a session that goes away ends nothing.

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::output::warn;

/// What is done when a command is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalPolicy {
    /// It only looks: it ends.
    AtOnce,
    /// It changes something: it ends where it can be continued; asked once more, it ends.
    WhereItCanBeContinued,
}

/// Does something, and ends as the command is asked to: then `give_back` is called, and this does not return.
///
/// # Errors
/// As `act`; or signals cannot be taken.
pub fn until_ended<T>(
    runtime: &Runtime,
    ending: SignalPolicy,
    act: impl AsyncFnOnce(watch::Receiver<bool>) -> anyhow::Result<T>,
    give_back: impl FnOnce(),
) -> anyhow::Result<T> {
    let (cancel, cancelled) = watch::channel(false);
    let ended = runtime.block_on(async {
        let signals = Signals::taken()?;
        anyhow::Ok(tokio::select! {
            // Asked in the same moment in which it is done, a command ends: what it goes on with is not begun.
            biased;
            status = signals.ended(ending, &cancel) => Err(status),
            acted = act(cancelled) => Ok(acted),
        })
    })?;
    ended.unwrap_or_else(|status| {
        give_back();
        // What is being done on other threads is not waited for.
        std::process::exit(status.into())
    })
}

/// The signals that a command is sent.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes them from now on.
    fn taken() -> anyhow::Result<Self> {
        let take = |kind| signal(kind).context("taking signals");
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// Returns when the command is to end now, with its exit status; asks it to end before, if that can be.
    async fn ended(mut self, ending: SignalPolicy, cancel: &watch::Sender<bool>) -> u8 {
        let status = self.asked(ending).await;
        if ending == SignalPolicy::AtOnce {
            return status;
        }
        warn("ending at the next moment at which it can be continued; ask again (Ctrl-C) to end now");
        cancel.send_replace(true);
        self.asked(ending).await
    }

    /// The exit status that shells give to a process which this signal has ended.
    async fn asked(&mut self, ending: SignalPolicy) -> u8 {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return 130,
                _ = self.terminate.recv() => return 143,
                _ = self.hangup.recv() => if ending == SignalPolicy::AtOnce { return 129 },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::signal::Signal;
    use nix::unistd::Pid;

    use super::*;

    /// Sends this process a signal, which it takes.
    fn send(signal: Signal) {
        nix::sys::signal::kill(Pid::this(), signal).unwrap();
    }

    #[test]
    fn a_session_that_goes_away_ends_who_only_looks_and_term_ends_others_where_they_can_be_continued() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (cancel, mut cancelled) = watch::channel(false);
            let signals = Signals::taken().unwrap();
            let ended = signals.ended(SignalPolicy::WhereItCanBeContinued, &cancel);
            let asked = async {
                send(Signal::SIGHUP);
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert!(!*cancelled.borrow(), "the run goes on");
                send(Signal::SIGTERM);
                tokio::time::timeout(Duration::from_secs(5), cancelled.wait_for(|asked| *asked))
                    .await
                    .unwrap()
                    .unwrap();
                send(Signal::SIGTERM);
            };
            let (status, ()) =
                tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(ended, asked) }).await.unwrap();
            assert_eq!(status, 143);
            let ended = Signals::taken().unwrap().ended(SignalPolicy::AtOnce, &cancel);
            let goes = async { send(Signal::SIGHUP) };
            let (status, ()) =
                tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(ended, goes) }).await.unwrap();
            assert_eq!(status, 129);
        });
    }
}
