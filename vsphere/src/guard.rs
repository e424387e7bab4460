//! The permission for changes, asked at each request.

use std::error::Error;

use async_trait::async_trait;

/// Permits the changes of its owner. It is asked right before each changing request, also before one that is repeated
/// after a login. It is asked before each file of an upload, and during an upload two seconds after its last answer. It
/// is not asked about looks.
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
