//! What lies outside of this program: so far the API server of the control cluster, and over it the store in which `fleet` keeps
//! holds and journals. Knows nothing of what is to be done.

mod api;
mod objects;
mod store;

pub use self::api::Api;
pub use self::objects::{Collection, Failure, Objects};
pub use self::store::{ClusterStore, Swap};
