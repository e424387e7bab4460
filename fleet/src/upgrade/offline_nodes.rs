//! The nodes of a cluster that is not asked: an upgrade may have been planned for another one, or no access to it is
//! known.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::bail;
use contract::node::Node;
use uuid::Uuid;

use super::nodes::{Asked, NodeRequest, Nodes};
use crate::lease::SpaceQuota;

/// Nodes that are not asked, and why.
pub struct OfflineNodes(String);

impl OfflineNodes {
    /// The nodes of a cluster that is not asked, `because` of something.
    pub fn because(because: impl Into<String>) -> Self {
        Self(because.into())
    }

    /// Those of a cluster that may not be the one that an upgrade was planned for.
    pub(super) fn of_another_cluster() -> Self {
        Self::because("its cluster calls itself otherwise than when the upgrade was planned")
    }

    fn is_not_asked<T>(&self) -> anyhow::Result<T> {
        bail!("it is not asked: {}", self.0)
    }
}

delegate! {
    impl Nodes for OfflineNodes = is_not_asked {
        cluster() -> anyhow::Result<Uuid>;
        control_nodes() -> anyhow::Result<Vec<(String, Ipv4Addr)>>;
        facts(Ipv4Addr) -> anyhow::Result<Node>;
        request(Ipv4Addr, NodeRequest<'_>) -> anyhow::Result<Asked>;
        snapshot(Ipv4Addr, &Path, &SpaceQuota) -> anyhow::Result<u64>;
        publish(&str) -> anyhow::Result<()>;
    }
}
