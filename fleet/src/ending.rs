//! Whoever is asked to end drops what only looks, where it stands. Knows nothing of what is looked at, nor who asks.

use std::time::Duration;

use tokio::sync::watch;

/// The operator has asked the command to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("asked to end; doing it again goes on")]
pub struct Cancelled;

/// Does what only looks, unless the operator asks to end, now or before it is done: it is dropped then.
pub(crate) async fn unless_cancelled<T>(
    cancelled: &watch::Receiver<bool>,
    look: impl Future<Output = T>,
) -> Result<T, Cancelled> {
    let mut cancelled = cancelled.clone();
    let asked = async {
        // Nobody can ask any more.
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    };
    tokio::select! {
        biased;
        () = asked => Err(Cancelled),
        looked = look => Ok(looked),
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
