//! The permission for changes, asked at each request.

use std::error::Error;

use async_trait::async_trait;

///
/// For one request it is asked in the change's slot. It may send requests with the same client, one after the other and
/// in no other task.
#[async_trait]
pub trait Fence: Send + Sync {
    /// # Errors
    /// The call ends with this error ([`crate::Error::Stopped`]).
    async fn still(&self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// For owners that share no objects in vCenter.
pub struct Unguarded;

#[async_trait]
impl Fence for Unguarded {
    async fn still(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}
