//! Where snapshots of clusters' stores are kept that come before their upgrades: the newest of each, on this node. No tenant has more than
//! his share of the room, and what nobody is in the middle of gives way to what somebody needs.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use async_trait::async_trait;
use fleet::lease::{Budget, LatestSnapshot, Snapshots, SpaceQuota};
use kube::ResourceExt;
use tempfile::TempDir;

use super::kinds;
use super::objects::Objects;
use super::providers::Providers;
use crate::decisions::{CLUSTER_REF, is_done_with, may_go_back};
use crate::objects::{Operation, Reason as _, TenantCluster, TenantClusterReason};

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
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.latest.clear().await
    }
}

/// The names of the directories in one that are of clusters which need nothing of what is there. Of clusters that have nothing there nobody
/// is asked.
async fn spare(objects: &dyn Objects, directory: &Path) -> anyhow::Result<BTreeSet<String>> {
    let clusters = kinds::list::<TenantCluster>(objects, None, None).await.context("looking for TenantClusters")?;
    let mut spare = BTreeSet::new();
    for cluster in &clusters {
        let (kept, namespace, name) = (kept_as(cluster), cluster.namespace(), cluster.name_any());
        // What cannot be read could not be removed either.
        let files = files(&directory.join(&kept)).await.unwrap_or_default();
        if files.is_empty() {
            continue;
        }
        let operations = kinds::list::<Operation>(objects, namespace.as_deref(), Some((CLUSTER_REF, &name))).await;
        let operations = operations.with_context(|| format!("looking for the Operations of {name}"))?;
        if is_needless(cluster, &operations, &files) {
            spare.insert(kept);
        }
    }
    Ok(spare)
}

/// The files of a directory, with the times since when they are there.
async fn files(directory: &Path) -> io::Result<Vec<(String, SystemTime)>> {
    let mut entries = tokio::fs::read_dir(directory).await?;
    let mut files = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        let seen = entry.metadata().await?;
        if seen.is_file() {
            files.push((entry.file_name().to_string_lossy().into_owned(), seen.modified()?));
        }
    }
    Ok(files)
}

/// Whether a cluster with these Operations needs none of these files. Each was made for an Operation that is over, or, where none is known
/// any more that has made it, the cluster has become as its spec says since: a control cluster whose database is older than the file
/// knows neither the Operation nor what it has done.
fn is_needless(cluster: &TenantCluster, operations: &[Operation], files: &[(String, SystemTime)]) -> bool {
    let current = current_since(cluster);
    let is_before = |kept: SystemTime, since: i64| {
        let kept = kept.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |kept| kept.as_secs());
        i64::try_from(kept).is_ok_and(|kept| kept < since)
    };
    let is_over = |file: &str| operations.iter().any(|operation| is_done_with(operation, file));
    let is_kept = |own: &str| files.iter().any(|(file, _)| file == own);
    !may_go_back(operations, is_kept)
        && files.iter().all(|(file, at)| is_over(file) || current.is_some_and(|since| is_before(*at, since)))
}

/// Since when all of a cluster is as its spec says, in seconds of Unix time; none where it is not, or older objects say so. Nor where its
/// control nodes run several versions of Kubernetes: a raise stands half-way then, whatever is said of the rest.
fn current_since(cluster: &TenantCluster) -> Option<i64> {
    let status = cluster.status.as_ref().filter(|status| status.version.is_some())?;
    let conditions = &status.conditions;
    let of = |reason: TenantClusterReason| {
        conditions.iter().find(|it| it.about == reason.condition() && it.reason == reason.word())
    };
    let current = of(TenantClusterReason::Current).filter(|_| of(TenantClusterReason::AdoptionRequired).is_none());
    current.map(|current| current.last_transition_time.0.as_second())
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

    fn room(&self) -> SpaceQuota {
        self.latest.room()
    }

    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String> {
        self.latest.keep(name, file).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet::upgrade::before_swap;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::decisions::fixture::{cluster, now};
    use crate::objects::{TenantClusterStatus, set};
    use crate::reach::in_memory::InMemory;
    use crate::records::fixture;

    /// An Operation of a cluster.
    fn operation(cluster: &str, kind: &str, status: Value) -> Operation {
        let spec = json!({
            "clusterRef": {"name": cluster}, "type": kind, "toVersion": "1.37", "clusterGeneration": 1, "steps": [],
            "plan": fixture::plan(),
        });
        let name = format!("{cluster}-1");
        let mut operation = Operation::new(&name, serde_json::from_value(spec).unwrap());
        operation.metadata.namespace = Some("team-blue".to_owned());
        operation.status = Some(serde_json::from_value(status).unwrap());
        operation
    }

    /// A journal of a swap with these ends.
    fn journal(ends: &[&str]) -> Value {
        let end = |outcome: &&str| json!({"at": 2, "lease": 1, "event": "ended", "outcome": outcome});
        let begun = json!({"at": 1, "lease": 1, "event": "planned"});
        let entries: Vec<Value> = std::iter::once(begun).chain(ends.iter().map(end)).collect();
        json!({"lease": 1, "entries": entries})
    }

    /// A cluster of this name that says why it is up to date or not, since [`now`], on one version of Kubernetes.
    fn saying(name: &str, reason: TenantClusterReason) -> TenantCluster {
        let mut cluster = cluster();
        cluster.metadata.name = Some(name.to_owned());
        cluster.metadata.uid = Some(format!("0a0b0c0d-{name}"));
        let known = TenantClusterStatus { version: Some("1.37.1".to_owned()), ..TenantClusterStatus::default() };
        let status = cluster.status.insert(known);
        set(&mut status.conditions, reason, "", 1, &now());
        cluster
    }

    /// Keeps a file of a cluster, so many seconds before [`now`].
    fn keeps(directory: &Path, cluster: &TenantCluster, file: &str, ago: u64) {
        let directory = directory.join(kept_as(cluster));
        std::fs::create_dir_all(&directory).unwrap();
        let at = u64::try_from(now().0.as_second()).unwrap() - ago;
        let made = std::fs::File::create(directory.join(file)).unwrap();
        made.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).unwrap();
    }

    /// The names of clusters that need nothing of what is kept.
    async fn needless(api: &InMemory, directory: &Path) -> Vec<String> {
        let spare = spare(api, directory).await.unwrap();
        spare.iter().map(|kept| kept.split('.').nth(1).unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn what_gives_way_is_of_clusters_without_an_operation_that_is_under_way_or_may_be_gone_on_with() {
        use TenantClusterReason::{AwaitingCommit, ChangeFailed, ChangeNotSupported, Changing, Current};
        let (api, directory) = (InMemory::default(), tempfile::tempdir().unwrap());
        let mut settled = journal(&["abandoned"]);
        settled["resolvedUpdated"] = true.into();
        let raise = |outcome: &str| ("KubernetesUpgrade", json!({"outcome": outcome}));
        let of = [
            ("back", ChangeFailed, ("ImageSwap", journal(&["rolled-back"]))),
            ("current", Current, ("ImageSwap", journal(&["upgraded", "committed"]))),
            ("raised", ChangeNotSupported, raise("done")),
            ("settled", Current, ("ImageSwap", settled)),
            ("told", ChangeNotSupported, ("ImageSwap", journal(&["upgraded", "committed"]))),
            ("changing", Changing, ("ImageSwap", journal(&[]))),
            ("waiting", AwaitingCommit, ("ImageSwap", journal(&["upgraded"]))),
            ("odd", Current, ("ImageSwap", journal(&["upgraded"]))),
            ("raising", Changing, ("KubernetesUpgrade", json!({}))),
            // Nodes may differ, whatever is said of them: a person may go on.
            ("left", Current, ("ImageSwap", journal(&["abandoned"]))),
            ("half-raised", ChangeFailed, raise("abandoned")),
            ("taken-out", Current, raise("abandoned")),
        ];
        for (name, reason, (kind, status)) in of {
            let cluster = saying(name, reason);
            api.put(&cluster);
            api.put(&operation(name, kind, status));
            let swapped = before_swap(Uuid::from_u128(5));
            let file = if kind == "ImageSwap" { swapped.as_str() } else { "before-kubernetes-1.37.db" };
            keeps(directory.path(), &cluster, file, 3600);
        }
        api.put(&saying("elsewhere", Current));
        assert_eq!(needless(&api, directory.path()).await, ["back", "current", "raised", "settled", "told"]);
    }

    /// Of a cluster the newest file is there alone: that of a raise goes once a swap has its own.
    #[tokio::test]
    async fn a_raise_that_was_abandoned_keeps_its_own_file_and_no_later_one() {
        let (api, directory) = (InMemory::default(), tempfile::tempdir().unwrap());
        let cluster = saying("shop", TenantClusterReason::ChangeFailed);
        api.put(&cluster);
        api.put(&operation("shop", "KubernetesUpgrade", json!({"outcome": "abandoned"})));
        let mut swap = operation("shop", "ImageSwap", journal(&["upgraded", "committed"]));
        swap.metadata.name = Some("shop-2".to_owned());
        api.put(&swap);
        keeps(directory.path(), &cluster, &before_swap(Uuid::from_u128(5)), 3600);
        assert_eq!(needless(&api, directory.path()).await, ["shop"]);
        keeps(directory.path(), &cluster, "before-kubernetes-1.37.db", 3600);
        assert!(needless(&api, directory.path()).await.is_empty());
    }

    /// As where the control cluster's database was restored, and knows less than the file was kept for.
    #[tokio::test]
    async fn a_file_whose_operation_is_not_known_stays_until_its_cluster_is_current_again() {
        use TenantClusterReason::{AdoptionRequired, ChangeBlocked, Current};
        let (api, directory) = (InMemory::default(), tempfile::tempdir().unwrap());
        let file = before_swap(Uuid::from_u128(6));
        for (name, reason, ago) in
            [("blocked", ChangeBlocked, 3600), ("outlived", Current, 3600), ("not-seen", Current, 0)]
        {
            let cluster = saying(name, reason);
            api.put(&cluster);
            keeps(directory.path(), &cluster, &file, ago);
        }
        // What it knows of is one before, which is over.
        let earlier = saying("earlier", ChangeBlocked);
        api.put(&earlier);
        api.put(&operation("earlier", "ImageSwap", journal(&["upgraded", "committed"])));
        keeps(directory.path(), &earlier, &file, 3600);
        let mut drifted = saying("drifted", Current);
        set(&mut drifted.status.as_mut().unwrap().conditions, AdoptionRequired, "", 1, &now());
        api.put(&drifted);
        keeps(directory.path(), &drifted, &file, 3600);
        let mut half_raised = saying("half-raised", Current);
        half_raised.status.as_mut().unwrap().version = None;
        api.put(&half_raised);
        keeps(directory.path(), &half_raised, &file, 3600);
        assert_eq!(needless(&api, directory.path()).await, ["outlived"]);
        // What is needed keeps what lies beside it.
        let outlived = saying("outlived", Current);
        keeps(directory.path(), &outlived, "before-kubernetes-1.37.db", 0);
        assert!(needless(&api, directory.path()).await.is_empty());
    }
}
