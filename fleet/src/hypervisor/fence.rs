//! The permission to change something, for as long as one call lasts.

use std::time::Duration;

use async_trait::async_trait;

use super::Result;

/// Says during a call whether its caller may still change anything.
///
/// A successor is sound by two times. What a permit allows is begun within [`crate::lease::WINDOW`]; and each
/// request has arrived or failed within [`crate::lease::MARGIN`] of its beginning, also when its sender ends
/// meanwhile: a request that lasts longer than that ends with an error, and is never sent a second time by a library
/// or a proxy, nor later by whoever ends connections on the way. Of what was written and given up the kernel sends on what is in the connection's buffer, for as long as its user timeout
/// says: that is a part of the time. It is counted by a clock that runs while the sender's machine sleeps: a request that was not written
/// yet is not written after it. What lies in the connection's buffer then only that user timeout ends. An upload is many requests in that sense: its pieces are. After [`crate::lease::REACH`] the successor
/// begins, and [`super::Hypervisor::settle`] waits for what has arrived.
#[async_trait]
pub trait Fence: Send + Sync {
    /// Asked before the last look at what a request removes for good: what has to be noted of that request is noted by then, for a note
    /// takes its time, and between the look and the request nothing comes but [`Fence::still`]. It permits nothing. Where no such look is
    /// made it is not asked.
    ///
    /// # Errors
    /// As [`Fence::still`]: the request is not made.
    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Asked right before each request that changes something, and at least every few seconds of a request that lasts,
    /// such as an upload; what it permits must be begun at once.
    ///
    /// # Errors
    /// The call ends with this error as it is. [`super::ErrorKind::Fenced`]: the caller may not, nor ever again. Otherwise
    /// nobody can say now: [`super::ErrorKind::Transient`] at the first request of a call, [`super::ErrorKind::InDoubt`] later.
    async fn still(&self) -> Result<()>;

    /// For how long whoever was told that nobody can say now asks no more: what was asked may still be under way.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    /// Waits for so long, unless whoever asked for the call is to end: false then, at once.
    async fn rests(&self, rest: Duration) -> bool {
        tokio::time::sleep(rest).await;
        true
    }
}
