//! Connections to a server: the trust in it, and HTTP requests. The module knows nothing of sessions.

mod http;
mod pinned;
mod trust;

pub use http::GONE;
pub(crate) use http::{Answer, Failed, Transport, failed, upload_client};
pub(crate) use pinned::Pin;
pub use trust::{InvalidThumbprint, Thumbprint, Trust};
