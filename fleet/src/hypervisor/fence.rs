//! The permission to change something, for the length of one call.

use std::time::Duration;

use async_trait::async_trait;

use super::Result;

/// Says during a call whether its caller may still change anything.
///
/// Two limits protect a successor. A permitted change is begun within [`crate::lease::WINDOW`]. Each request has
/// arrived or failed within [`crate::lease::MARGIN`] of its beginning, even if its sender ends meanwhile.
/// - A request that takes longer ends with an error. No library sends it a second time, and no proxy or gateway sends
///   it later.
/// - If the sender gives up, the kernel still sends the data in the connection's buffer until the user timeout. The
///   margin includes that time.
/// - The margin is counted by a clock that runs while the sender's machine sleeps. A request that was not written
///   before the sleep is not written after it. For data in the connection's buffer, only the user timeout counts.
/// - An upload counts as many requests: each piece is one.
///
/// After [`crate::lease::REACH`] the successor begins, and [`super::Hypervisor::settle`] waits for the requests that
/// have arrived.
#[async_trait]
pub trait Fence: Send + Sync {
    /// Called before the last look at the objects that a request removes permanently. It writes the notes for that
    /// request, because writing takes time and only [`Fence::still`] may run between the look and the request. It
    /// permits nothing. A call without such a look does not use it.
    ///
    /// # Errors
    /// As [`Fence::still`]: the request is not made.
    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Called right before each request that changes something, and at least every few seconds during a long request
    /// such as an upload. The permitted change must begin at once.
    ///
    /// # Errors
    /// The call ends with this error unchanged. [`super::ErrorKind::Fenced`]: the caller has lost its permission for
    /// good. Otherwise the answer is unknown: [`super::ErrorKind::Transient`] at the first request of a call,
    /// [`super::ErrorKind::InDoubt`] later.
    async fn still(&self) -> Result<()>;

    /// The pause before the next question after an unknown answer: the former question may still be in flight.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    /// Waits this long. Returns false at once if the caller is asked to end.
    async fn rests(&self, rest: Duration) -> bool {
        tokio::time::sleep(rest).await;
        true
    }
}
