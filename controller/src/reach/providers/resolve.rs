//! Resolves the name of a vCenter. Needs no session: the vCenter need not answer.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::decisions::provider::{host_addresses, host_of};
use crate::objects::VSphere;

/// The limit of a look-up of a name. Clusters keep away from the known addresses meanwhile.
const RESOLVING: Duration = Duration::from_secs(5);

/// The addresses of a vCenter. Empty if its name cannot be resolved now.
pub async fn resolved(described: &VSphere) -> Vec<Ipv4Addr> {
    match tokio::time::timeout(RESOLVING, tokio::net::lookup_host((host_of(&described.server), 0))).await {
        Ok(Ok(found)) => host_addresses(found.map(|it| it.ip())),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}
