//! Signals that end a command. A command that may have a node powered off ends at a point from which it can be continued. A
//! lost terminal or session does not end it.

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::output::warn;

/// How a command reacts to a request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalPolicy {
    /// The command only reads: it ends at once.
    AtOnce,
    /// The command changes something: it ends where it can be continued. A second request ends it at once.
    WhereItCanBeContinued,
    /// The command only reads: it ends with the parts that it has read. A second request ends it at once.
    WithPartsRead,
}

/// Runs `act`, and ends as signals demand. On a request to end now, `give_back` is called and the process exits.
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
            // If a signal and the end of `act` coincide, the signal wins: the command must not start the next part.
            biased;
            status = signals.ended(ending, &cancel) => Err(status),
            acted = act(cancelled) => Ok(acted),
        })
    })?;
    ended.unwrap_or_else(|status| {
        give_back();
        // The exit does not wait for other threads.
        std::process::exit(status.into())
    })
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers.
    fn taken() -> anyhow::Result<Self> {
        let take = |kind| signal(kind).context("taking signals");
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// Returns the exit status once the command must end now. Before that, unless the policy is [`SignalPolicy::AtOnce`], it
    /// requests an end through `cancel`.
    async fn ended(mut self, ending: SignalPolicy, cancel: &watch::Sender<bool>) -> u8 {
        let status = self.asked(ending).await;
        warn(match ending {
            SignalPolicy::AtOnce => return status,
            SignalPolicy::WhereItCanBeContinued => {
                "ending at the next moment at which it can be continued; ask again (Ctrl-C) to end now"
            }
            SignalPolicy::WithPartsRead => {
                "ending with the parts that were read; ask again (Ctrl-C) to end without them"
            }
        });
        cancel.send_replace(true);
        self.asked(ending).await
    }

    /// Waits for a signal. Returns the exit status that shells report for a process which this signal has ended.
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

    /// Sends a signal to this process. The process has a handler for it.
    fn send(signal: Signal) {
        nix::sys::signal::kill(Pid::this(), signal).unwrap();
    }

    #[test]
    fn hangup_ends_only_commands_that_just_look() {
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
            cancel.send_replace(false);
            let ended = Signals::taken().unwrap().ended(SignalPolicy::WithPartsRead, &cancel);
            let asked = async {
                send(Signal::SIGINT);
                tokio::time::timeout(Duration::from_secs(5), cancelled.wait_for(|asked| *asked))
                    .await
                    .unwrap()
                    .unwrap();
                send(Signal::SIGINT);
            };
            let (status, ()) =
                tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(ended, asked) }).await.unwrap();
            assert_eq!(status, 130);
            let ended = Signals::taken().unwrap().ended(SignalPolicy::AtOnce, &cancel);
            let goes = async { send(Signal::SIGHUP) };
            let (status, ()) =
                tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(ended, goes) }).await.unwrap();
            assert_eq!(status, 129);
        });
    }
}
