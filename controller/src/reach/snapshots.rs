//! The store for snapshots of etcd that are taken before upgrades: the newest of each cluster, on this node. A namespace has a
//! limited share of the disk. Snapshots that no Operation needs are removed if there is no room for another one.

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

/// The limits for snapshots of all clusters on one node: a quarter of its disk, and half of that for one namespace. A quarter
/// stays free: etcd is on the same disk and fails if it is full. It removes its own snapshots once a tenth is left.
const BUDGET: Budget = Budget { most: 64 << 30, part: 25, share: 50, reserve: 25 };

/// The number of characters of a cluster's UID in the name of its directory. They distinguish it from a former cluster of the
/// same name.
const UID: usize = 8;

/// The name of a cluster's directory. Names of namespaces and clusters have no dots. The part before the first dot shares the
/// limit.
pub(super) fn kept_as(cluster: &TenantCluster) -> String {
    let uid = cluster.uid().unwrap_or_default();
    format!("{}.{}.{}", cluster.namespace().unwrap_or_default(), cluster.name_any(), uid.get(..UID).unwrap_or(&uid))
}

/// Whether a name can be that of a cluster's directory. Other directories belong to other programs.
pub(super) fn is_of_cluster(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    let is_uid = |text: &str| text.len() == UID && text.chars().all(|digit| digit.is_ascii_hexdigit());
    matches!(parts[..], [_, _, uid] if is_uid(uid))
}

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

    /// Removes all snapshots of the cluster on this node.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.latest.clear().await
    }
}

/// The names of directories whose clusters need none of their files. Operations are listed for clusters with files only. If a
/// cluster or one of its Operations cannot be read, its files may be needed.
async fn spare(objects: &dyn Objects, directory: &Path) -> anyhow::Result<BTreeSet<String>> {
    let clusters =
        kinds::list_tolerant::<TenantCluster>(objects, None, None).await.context("looking for TenantClusters")?;
    let mut spare = BTreeSet::new();
    for cluster in &clusters.whole {
        let (kept, namespace, name) = (kept_as(cluster), cluster.namespace(), cluster.name_any());
        // A directory that cannot be read could not be removed.
        let files = files(&directory.join(&kept)).await.unwrap_or_default();
        if files.is_empty() {
            continue;
        }
        let of_cluster = Some((CLUSTER_REF, name.as_str()));
        let operations = kinds::list_tolerant::<Operation>(objects, namespace.as_deref(), of_cluster).await;
        let operations = operations.with_context(|| format!("looking for the Operations of {name}"))?;
        if operations.unread.is_empty() && is_needless(cluster, &operations.whole, &files) {
            spare.insert(kept);
        }
    }
    Ok(spare)
}

/// The files of a directory with their modification times.
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

/// Whether a cluster with these Operations needs none of these files. A file is not needed once its Operation is over. If its
/// Operation is unknown, it is not needed once the cluster became current after the file was made. A restored database of the
/// control cluster lacks newer Operations.
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

/// The time since which all of a cluster is as its spec says, in seconds of Unix time. `None` if it is not, or if its objects are
/// older than its VMs. Also `None` if its control-plane nodes run several versions of Kubernetes: an upgrade of Kubernetes is
/// incomplete then.
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

    /// If there was no room the last time, this first removes files that are not needed.
    async fn spool(&self) -> anyhow::Result<TempDir> {
        let spool = self.latest.spool().await?;
        if let Some(bytes) = self.latest.lacked() {
            let spare = spare(self.providers.objects(), self.providers.keeps().0).await?;
            self.latest
                .makes_room(bytes, spare)
                .await
                .context("making room by removing snapshots that are not needed")?;
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
    use crate::reach::Collection;
    use crate::reach::in_memory::InMemory;
    use crate::records::fixture;

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

    /// The journal of an image swap with these results.
    fn journal(ends: &[&str]) -> Value {
        let end = |outcome: &&str| json!({"at": 2, "lease": 1, "event": "ended", "outcome": outcome});
        let begun = json!({"at": 1, "lease": 1, "event": "planned"});
        let entries: Vec<Value> = std::iter::once(begun).chain(ends.iter().map(end)).collect();
        json!({"lease": 1, "entries": entries})
    }

    /// A cluster with this reason in its conditions since [`now`]. All its nodes run one version of Kubernetes.
    fn saying(name: &str, reason: TenantClusterReason) -> TenantCluster {
        let mut cluster = cluster();
        cluster.metadata.name = Some(name.to_owned());
        cluster.metadata.uid = Some(format!("0a0b0c0d-{name}"));
        let known = TenantClusterStatus { version: Some("1.37.1".to_owned()), ..TenantClusterStatus::default() };
        let status = cluster.status.insert(known);
        set(&mut status.conditions, reason, "", 1, &now());
        cluster
    }

    /// Makes a file of a cluster. `ago` is in seconds before [`now`].
    fn keeps(directory: &Path, cluster: &TenantCluster, file: &str, ago: u64) {
        let directory = directory.join(kept_as(cluster));
        std::fs::create_dir_all(&directory).unwrap();
        let at = u64::try_from(now().0.as_second()).unwrap() - ago;
        let made = std::fs::File::create(directory.join(file)).unwrap();
        made.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).unwrap();
    }

    /// The names of clusters that need none of their files.
    async fn needless(api: &InMemory, directory: &Path) -> Vec<String> {
        let spare = spare(api, directory).await.unwrap();
        spare.iter().map(|kept| kept.split('.').nth(1).unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn clusters_without_a_resumable_operation_need_no_snapshots() {
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
            // Nodes may differ whatever the condition says: the operator can resume.
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

    #[tokio::test]
    async fn unreadable_objects_keep_their_snapshots() {
        let (api, directory) = (InMemory::default(), tempfile::tempdir().unwrap());
        for name in ["shop", "bank", "other"] {
            let cluster = saying(name, TenantClusterReason::Current);
            api.put(&cluster);
            api.put(&operation(name, "ImageSwap", journal(&["upgraded", "committed"])));
            keeps(directory.path(), &cluster, &before_swap(Uuid::from_u128(5)), 3600);
        }
        let namespace = Some("team-blue");
        for (of, name) in
            [(Collection::of::<TenantCluster>(namespace), "shop"), (Collection::of::<Operation>(namespace), "bank-1")]
        {
            let mut object = api.named(&of.plural, name).unwrap();
            object["status"] = json!({"conditions": "none"});
            api.put_value(&of, object);
        }
        assert_eq!(needless(&api, directory.path()).await, ["other"]);
    }

    /// Only the newest file of a cluster is kept: the file of an upgrade of Kubernetes is removed once an image swap has its own.
    #[tokio::test]
    async fn an_abandoned_raise_keeps_only_its_own_file() {
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

    /// A restored database of the control cluster lacks the Operation of the file.
    #[tokio::test]
    async fn unknown_files_stay_until_the_cluster_is_current() {
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
        // The only known Operation is an earlier one, which is over.
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
        // A file that is needed keeps the other files of its directory.
        let outlived = saying("outlived", Current);
        keeps(directory.path(), &outlived, "before-kubernetes-1.37.db", 0);
        assert!(needless(&api, directory.path()).await.is_empty());
    }
}
