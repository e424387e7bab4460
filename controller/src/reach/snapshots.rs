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
use crate::objects::{Reason, Standing, TenantCluster, TenantClusterReason};

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

/// The names of the directories of clusters whose upgrades have all ended as they were to: nothing goes back to what is kept there by itself.
async fn spare(objects: &dyn Objects) -> anyhow::Result<BTreeSet<String>> {
    let clusters = kinds::list::<TenantCluster>(objects, None, None).await.context("looking for TenantClusters")?;
    let is_settled = |cluster: &&TenantCluster| {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        let mut about = conditions.filter(|it| it.about == TenantClusterReason::Current.condition());
        about.any(|it| it.status == Standing::True)
    };
    Ok(clusters.iter().filter(is_settled).map(kept_as).collect())
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
            let spare = spare(self.providers.objects()).await?;
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
    use super::*;
    use crate::decisions::fixture::{cluster, now};
    use crate::objects::{TenantClusterStatus, set};
    use crate::reach::in_memory::InMemory;

    /// What is in the middle of an upgrade, waits for its commit or for a person keeps what it may go back to.
    #[tokio::test]
    async fn what_gives_way_is_of_clusters_whose_upgrades_have_ended() {
        let api = InMemory::default();
        let of = [
            ("current", Some(TenantClusterReason::Current)),
            ("changing", Some(TenantClusterReason::Changing)),
            ("waiting", Some(TenantClusterReason::AwaitsCommit)),
            ("failed", Some(TenantClusterReason::ChangeFailed)),
            ("new", None),
        ];
        for (name, reason) in of {
            let mut cluster = cluster();
            cluster.metadata.name = Some(name.to_owned());
            cluster.metadata.uid = Some(format!("0a0b0c0d-{name}"));
            let status = cluster.status.insert(TenantClusterStatus::default());
            if let Some(reason) = reason {
                set(&mut status.conditions, reason, "", 1, &now());
            }
            api.put(&cluster);
        }
        assert_eq!(spare(&api).await.unwrap(), BTreeSet::from(["team-blue.current.0a0b0c0d".to_owned()]));
    }
}
