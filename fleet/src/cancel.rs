//! Whoever is asked to end drops what only looks, where it stands. Knows nothing of what is looked at, nor who asks.

use std::time::Duration;

use tokio::sync::watch;

/// How long what is told last may take of a command that is to end.
pub(crate) const LAST_LOOK: Duration = Duration::from_secs(15);

/// The operator has asked the command to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("asked to end; doing it again goes on")]
pub struct Cancelled;

/// Does what only looks, unless the operator asks to end, now or before it is done: it is dropped then.
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

/// Looks a last time, for what is told in the end: once the operator has asked to end, now or before it is done, for [`LAST_LOOK`] at
/// most.
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
    // Nobody can ask any more.
    if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
        std::future::pending().await
    }
}

/// Does what takes long, and asks meanwhile whether it may go on: what it may not is dropped where it stands. So it is for looks, and
/// for requests to nodes, of which the next command asks; what changes something on a hypervisor goes on when it is dropped, and
/// nobody would wait for it.
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
