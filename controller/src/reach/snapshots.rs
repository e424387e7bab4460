//! Where snapshots of clusters' stores are kept that come before their upgrades: the newest of each, on this node. No tenant has more than
//! his share of the room, and what nobody is in the middle of gives way to what somebody needs.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use async_trait::async_trait;
use fleet::authority::{Budget, LatestSnapshot, Room, Snapshots};
use kube::ResourceExt;
use tempfile::TempDir;

use super::kinds;
use super::objects::Objects;
use super::providers::Providers;
use crate::decisions::{CLUSTER_REF, is_under_way};
use crate::objects::{Operation, TenantCluster};

/// What snapshots of all clusters may have on one node: a quarter of its disk, and those of one namespace half of that. As much stays free:
/// etcd is there as well, which does not survive a full one, and its own snapshots go once a tenth is left.
const BUDGET: Budget = Budget { most: 64 << 30, part: 25, share: 50, reserve: 25 };

/// So many characters of a cluster's UID tell its directory apart from that of another one that has had its name.
const UID: usize = 8;

/// What the directory of a cluster is called: neither name has a dot. What is before the first one has a share.
pub(super) fn kept_as(cluster: &TenantCluster) -> String {
    let uid = cluster.uid().unwrap_or_default();
    format!("{}.{}.{}", cluster.namespace().unwrap_or_default(), cluster.name_any(), uid.get(..UID).unwrap_or(&uid))
}

/// Whether a directory can be a cluster's by its name: what else lies there is for others to remove.
pub(super) fn is_of_cluster(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    let is_uid = |text: &str| text.len() == UID && text.chars().all(|digit| digit.is_ascii_hexdigit());
    matches!(parts[..], [_, _, uid] if is_uid(uid))
}

/// The snapshots of one cluster.
pub(super) struct TenantSnapshots {
    latest: LatestSnapshot,
    providers: Providers,
}

impl TenantSnapshots {
    pub(super) fn of(providers: &Providers, cluster: &TenantCluster) -> Self {
        let (directory, node) = providers.keeps();
        let directory = directory.join(kept_as(cluster));
        let latest = LatestSnapshot::at(directory, BUDGET, providers.promised().clone(), node);
        Self { latest, providers: providers.clone() }
    }

    /// Removes all of it that is on this node.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.latest.clear().await
    }
}

/// The names of the directories in one that are of clusters without an Operation that is under way or may still be taken back: that is what
/// a snapshot is kept for, whatever else is said of its cluster. Of clusters that have nothing there nobody is asked.
async fn spare(objects: &dyn Objects, directory: &Path) -> anyhow::Result<BTreeSet<String>> {
    let clusters = kinds::list::<TenantCluster>(objects, None, None).await.context("looking for TenantClusters")?;
    let mut spare = BTreeSet::new();
    for cluster in &clusters {
        let (kept, namespace, name) = (kept_as(cluster), cluster.namespace(), cluster.name_any());
        if !tokio::fs::try_exists(directory.join(&kept)).await.unwrap_or_default() {
            continue;
        }
        let operations = kinds::list::<Operation>(objects, namespace.as_deref(), Some((CLUSTER_REF, &name))).await;
        let operations = operations.with_context(|| format!("looking for the Operations of {name}"))?;
        if !operations.iter().any(is_under_way) {
            spare.insert(kept);
        }
    }
    Ok(spare)
}

#[async_trait]
impl Snapshots for TenantSnapshots {
    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>> {
        self.latest.kept(name).await
    }

    /// Where there was no room the last time, it is made.
    async fn spool(&self) -> anyhow::Result<TempDir> {
        let spool = self.latest.spool().await?;
        if let Some(bytes) = self.latest.lacked() {
            let spare = spare(self.providers.objects(), self.providers.keeps().0).await?;
            self.latest.makes_room(bytes, spare).await.context("making room for it by what nobody needs")?;
        }
        Ok(spool)
    }

    fn room(&self) -> Room {
        self.latest.room()
    }

    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String> {
        self.latest.keep(name, file).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decisions::fixture::{cluster, now};
    use crate::objects::{TenantClusterReason, TenantClusterStatus, set};
    use crate::reach::in_memory::InMemory;
    use crate::records::fixture;

    /// An Operation of a cluster.
    fn operation(cluster: &str, kind: &str, status: Value) -> Operation {
        let spec = json!({
            "clusterRef": {"name": cluster}, "type": kind, "clusterGeneration": 1, "steps": [], "plan": fixture::plan(),
        });
        let name = format!("{cluster}-1");
        let mut operation = Operation::new(&name, serde_json::from_value(spec).unwrap());
        operation.metadata.namespace = Some("team-blue".to_owned());
        operation.status = Some(serde_json::from_value(status).unwrap());
        operation
    }

    /// A journal of a swap with these ends.
    fn journal(ends: &[&str]) -> Value {
        let end = |outcome: &&str| json!({"at": 2, "hold": 1, "event": "ended", "outcome": outcome});
        let begun = json!({"at": 1, "hold": 1, "event": "planned"});
        let entries: Vec<Value> = std::iter::once(begun).chain(ends.iter().map(end)).collect();
        json!({"hold": 1, "entries": entries})
    }

    /// What a cluster says of itself counts for nothing: some are never as their specs say, and some are so beside an open Operation.
    #[tokio::test]
    async fn what_gives_way_is_of_clusters_without_an_operation_that_is_under_way_or_may_be_taken_back() {
        use TenantClusterReason::{AwaitsCommit, ChangeFailed, ChangeNotSupported, Changing, Current};
        let (api, directory) = (InMemory::default(), tempfile::tempdir().unwrap());
        let of = [
            ("never", Current, None),
            ("current", Current, Some(("Swap", journal(&["upgraded", "committed"])))),
            ("told", ChangeNotSupported, Some(("Swap", journal(&["upgraded", "committed"])))),
            ("back", ChangeFailed, Some(("Swap", journal(&["rolled-back"])))),
            ("raised", ChangeNotSupported, Some(("RaiseKubernetes", json!({"outcome": "done"})))),
            ("changing", Changing, Some(("Swap", journal(&[])))),
            ("waiting", AwaitsCommit, Some(("Swap", journal(&["upgraded"])))),
            ("odd", Current, Some(("Swap", journal(&["upgraded"])))),
            ("raising", Changing, Some(("RaiseKubernetes", json!({})))),
            ("elsewhere", Current, None),
        ];
        for (name, reason, begun) in of {
            let mut cluster = cluster();
            cluster.metadata.name = Some(name.to_owned());
            cluster.metadata.uid = Some(format!("0a0b0c0d-{name}"));
            let status = cluster.status.insert(TenantClusterStatus::default());
            set(&mut status.conditions, reason, "", 1, &now());
            api.put(&cluster);
            if let Some((kind, status)) = begun {
                api.put(&operation(name, kind, status));
            }
            if name != "elsewhere" {
                std::fs::create_dir(directory.path().join(kept_as(&cluster))).unwrap();
            }
        }
        let gives_way = ["never", "current", "told", "back", "raised"].map(|name| format!("team-blue.{name}.0a0b0c0d"));
        assert_eq!(spare(&api, directory.path()).await.unwrap(), BTreeSet::from(gives_way));
    }
}
