//! Ends a look when the operator asks the command to end. Knows nothing of the looks, nor of the caller.

use std::time::Duration;

use tokio::sync::watch;

/// How long the last look of a command that ends may take.
pub(crate) const LAST_LOOK: Duration = Duration::from_secs(15);

/// The operator has asked the command to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted; run the command again to continue")]
pub struct Cancelled;

/// Runs a look, and drops it when the operator asks to end, before or during it.
pub(crate) async fn unless_cancelled<T>(
    cancelled: &watch::Receiver<bool>,
    look: impl Future<Output = T>,
) -> Result<T, Cancelled> {
    tokio::select! {
        biased;
        () = asked(cancelled) => Err(Cancelled),
        looked = look => Ok(looked),
    }
}

/// Looks a last time, for the final report. Once the operator asks the command to end, the look takes at most
/// [`LAST_LOOK`].
pub(crate) async fn last_look<T>(
    cancelled: &watch::Receiver<bool>,
    look: impl Future<Output = T>,
) -> Result<T, Cancelled> {
    let too_late = async {
        asked(cancelled).await;
        tokio::time::sleep(LAST_LOOK).await;
    };
    tokio::select! {
        biased;
        looked = look => Ok(looked),
        () = too_late => Err(Cancelled),
    }
}

/// Ends when the operator asks to end.
async fn asked(cancelled: &watch::Receiver<bool>) {
    let mut cancelled = cancelled.clone();
    // The sender is dropped, so no request to end can come.
    if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
        std::future::pending().await
    }
}

/// Does long work, and asks meanwhile whether it may go on. If it may not, the work is dropped. For looks, and for
/// requests to nodes, which the next command repeats. Not for changes on a hypervisor: a dropped one goes on, and no
/// command would wait for it.
pub(crate) async fn unless_ended<T, E, F: Future<Output = Result<(), E>>>(
    work: impl Future<Output = T>,
    pace: Duration,
    may_go_on: impl Fn() -> F,
) -> Result<T, E> {
    let ended = async {
        loop {
            if let Err(ended) = may_go_on().await {
                return ended;
            }
            tokio::time::sleep(pace).await;
        }
    };
    tokio::select! {
        done = work => Ok(done),
        ended = ended => Err(ended),
    }
}
