//! The permission to change something, asked at each request.

use std::error::Error;

use async_trait::async_trait;

/// Says whether its owner may still change anything. It is asked right before each request that changes something, also
/// before one that is sent again after a login; before each file of an upload, and two seconds after its last answer as long as one
/// lasts. What only looks is never asked for.
/// Of one request it is asked in the change's place among the requests of its client, and may make requests by that client itself, one after the
/// other and in no other task.
#[async_trait]
pub trait Fence: Send + Sync {
    /// # Errors
    /// The call ends, and hands this error on as it is ([`crate::Error::Stopped`]).
    async fn still(&self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// For whoever shares vCenter's objects with nobody.
pub struct Unguarded;

#[async_trait]
impl Fence for Unguarded {
    async fn still(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}
