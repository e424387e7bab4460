//! The permission to change something, for as long as one call lasts.

use async_trait::async_trait;

use super::Result;

/// Says during a call whether its caller may still change anything.
#[async_trait]
pub trait Permit: Send + Sync {
    /// Asked right before each request that changes something, and at least every few seconds of a request that lasts,
    /// such as an upload; what it permits must be begun at once.
    ///
    /// # Errors
    /// The call ends with this error as it is. [`super::Kind::Fenced`]: the caller may not, nor ever again. Otherwise
    /// nobody can say now: [`super::Kind::Transient`] at the first request of a call, [`super::Kind::InDoubt`] later.
    async fn still(&self) -> Result<()>;
}
