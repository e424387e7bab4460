//! The API of a cluster that is being deleted, for its workers: it is not called, and pods are not evicted. Pods, tokens and
//! nodes end with the cluster.

use std::collections::BTreeMap;

use fleet::workers::{Cluster, ClusterChange, Evicted, NodeSeen, PodSeen};

/// A cluster that is deleted as a whole.
pub(super) struct DeletedCluster;

impl DeletedCluster {
    fn nothing<T: Default>(&self) -> anyhow::Result<T> {
        Ok(T::default())
    }
}

fleet::delegate! {
    impl Cluster for DeletedCluster = nothing {
        nodes() -> anyhow::Result<Vec<NodeSeen>>;
        pods(&str) -> anyhow::Result<Vec<PodSeen>>;
        local_claims(&[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>>;
        announced(&str) -> anyhow::Result<Vec<String>>;
        let_in(&[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>>;
    }

    async fn change(&self, change: ClusterChange<'_>) -> anyhow::Result<()> {
        match change {
            ClusterChange::AddToken(_) => anyhow::bail!("the cluster is being deleted: no worker can join it"),
            ClusterChange::RemoveToken(_)
            | ClusterChange::Cordon(_)
            | ClusterChange::DeleteNode(_)
            | ClusterChange::ReleaseName(_) => Ok(()),
        }
    }

    async fn evict(&self, _: &PodSeen) -> anyhow::Result<Evicted> {
        Ok(Evicted::Going)
    }
}
