//! A cluster that cannot be asked: the records of its workers are still reported.

use std::collections::BTreeMap;

use super::cluster::{Cluster, ClusterChange, Evicted, NodeSeen, PodSeen};

/// Why it cannot be asked: the error of each request.
#[derive(Clone, Debug)]
pub struct UnreachableCluster(pub String);

impl UnreachableCluster {
    fn answer<T>(&self) -> anyhow::Result<T> {
        Err(anyhow::anyhow!("{}", self.0))
    }
}

delegate! {
    impl Cluster for UnreachableCluster = answer {
        nodes() -> anyhow::Result<Vec<NodeSeen>>;
        pods(&str) -> anyhow::Result<Vec<PodSeen>>;
        local_claims(&[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>>;
        announced(&str) -> anyhow::Result<Vec<String>>;
        let_in(&[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>>;
        change(ClusterChange<'_>) -> anyhow::Result<()>;
        evict(&PodSeen) -> anyhow::Result<Evicted>;
    }
}
