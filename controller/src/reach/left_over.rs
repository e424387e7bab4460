//! Files on this node of clusters that do not exist. Such a cluster was deleted while the controller of another node led, which
//! clears its own node only. Or the database of the control cluster was restored, and the cluster is going to be adopted. The
//! controller cannot tell the two apart, so it keeps the files for [`STAYS`].

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use fleet::lease::clear_spools;

use super::kinds;
use super::objects::Objects;
use super::providers::Providers;
use super::snapshots::{is_of_cluster, kept_as};
use crate::objects::TenantCluster;

/// How long the files of a cluster are kept after the controller found that it does not exist.
const STAYS: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A file in the cluster's directory. Its modification time is the time of that finding.
const SINCE: &str = "unknown-since";

/// Removes files of clusters that have been missing for [`STAYS`]. Call it at the begin of a term, before clusters are
/// reconciled: it must not run while snapshots are written.
///
/// # Errors
/// The clusters, or the directory, cannot be listed. A directory that cannot be removed is logged.
pub async fn clear_left_over(objects: &dyn Objects, providers: &Providers) -> anyhow::Result<()> {
    let clusters = kinds::list_tolerant::<TenantCluster>(objects, None, None).await;
    let clusters = clusters.context("looking for TenantClusters")?.all();
    let there: BTreeSet<String> = clusters.iter().map(kept_as).collect();
    let directory = providers.keeps().0.to_owned();
    let cleared = tokio::task::spawn_blocking(move || {
        clear(&directory, &there).with_context(|| format!("clearing {}", directory.display()))
    });
    cleared.await.context("the thread that does it has ended")?
}

/// Removes directories of clusters that are not in `there` and have been missing for [`STAYS`]. A directory that cannot be read
/// or removed, such as one of root, does not stop the others.
fn clear(directory: &Path, there: &BTreeSet<String>) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_of_cluster(name)) else { continue };
        if entry.file_type()?.is_dir()
            && let Err(error) = clear_one(&entry.path(), there.contains(name))
        {
            log::warn!("{} stays as it is: {error}", entry.path().display());
        }
    }
    Ok(())
}

/// As [`clear`], for the directory of one cluster.
fn clear_one(path: &Path, is_there: bool) -> io::Result<()> {
    let since = path.join(SINCE);
    // A controller that was killed leaves spools, which count as used space.
    clear_spools(path)?;
    let seen = match fs::symlink_metadata(&since) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        seen => Some(seen?.modified()?),
    };
    match (is_there, seen) {
        (true, None) => {}
        (true, Some(_)) => fs::remove_file(&since)?,
        (false, None) => {
            log::warn!("{} belongs to a cluster that does not exist: it is removed in 30 days", path.display());
            fs::write(&since, "")?;
        }
        // If the clock was set back, the mark is in the future: the age is unknown, and the directory stays.
        (false, Some(since)) if since.elapsed().is_ok_and(|age| age >= STAYS) => {
            log::info!("{} is removed: its cluster has been missing for 30 days", path.display());
            fs::remove_dir_all(path)?;
        }
        (false, Some(_)) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::reach::Infrastructure as _;
    use crate::reach::in_memory::InMemory;
    use crate::term::{Clock, Term};

    fn at(api: &InMemory, path: &Path) -> Providers {
        let term = Term::unlimited("controller of a test");
        Providers::keeping(Arc::new(api.clone()), term, Clock::of_tests(), path.to_owned(), "cp1")
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn directories_of_missing_clusters_go_after_30_days() {
        let (directory, api) = (tempfile::tempdir().unwrap(), InMemory::default());
        clear_left_over(&api, &at(&api, &directory.path().join("nothing"))).await.unwrap();
        let mut shop = cluster();
        shop.metadata.uid = Some("0a0b0c0d-0000-4000-8000-000000000001".to_owned());
        api.put(&shop);
        let there = ["team-blue.shop.0a0b0c0d", "team-blue.shop.ffffffff", "team-red.gone.01020304"];
        let others = ["notes", "team-blue.shop", "team-blue.shop.0a0b0c0d.keep", "team-blue.shop.kept-on1"];
        for name in there.iter().chain(&others) {
            fs::create_dir(directory.path().join(name)).unwrap();
            fs::write(directory.path().join(name).join("before-1.db"), "a store").unwrap();
        }
        // A controller was killed while it received a snapshot.
        let half = directory.path().join(there[0]).join("spool-x");
        fs::create_dir(&half).unwrap();
        fs::write(half.join("half.db"), "half").unwrap();
        let all = names(directory.path());
        for _ in 0..2 {
            clear_left_over(&api, &at(&api, directory.path())).await.unwrap();
            assert_eq!(names(directory.path()), all, "the database may be an older one");
        }
        assert!(!half.exists());
        let is_marked = |name: &str| directory.path().join(name).join(SINCE).exists();
        assert_eq!(there.map(is_marked), [false, true, true]);
        assert!(!others.iter().any(|name| is_marked(name)));
        for (name, days) in [(there[1], 31), (there[2], 29)] {
            let mark = fs::File::options().write(true).open(directory.path().join(name).join(SINCE)).unwrap();
            mark.set_modified(SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60)).unwrap();
        }
        // This cluster exists again.
        let mut gone = cluster();
        gone.metadata.namespace = Some("team-red".to_owned());
        (gone.metadata.name, gone.metadata.uid) = (Some("gone".to_owned()), Some("01020304-x".to_owned()));
        api.put(&gone);
        clear_left_over(&api, &at(&api, directory.path())).await.unwrap();
        assert!(!names(directory.path()).contains(there[1]) && !is_marked(there[2]));
        assert_eq!(names(directory.path()).len(), all.len() - 1);
        assert!(directory.path().join(there[2]).join("before-1.db").exists());
    }

    /// The order of the directory's entries does not matter.
    #[test]
    fn an_unreadable_directory_does_not_stop_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["team-blue.shop.0a0b0c0d", "team-blue.bank.0a0b0c0e"].map(str::to_owned);
        let spools = names.each_ref().map(|name| directory.path().join(name).join("spool-x"));
        for (name, spool) in names.iter().zip(&spools) {
            fs::create_dir_all(spool).unwrap();
            // A directory cannot be removed as a file.
            fs::create_dir(directory.path().join(name).join(SINCE)).unwrap();
        }
        clear(directory.path(), &names.into()).unwrap();
        assert!(spools.iter().all(|spool| !spool.exists()), "{spools:?}");
    }

    /// A former cluster of the same name has its own directory.
    #[tokio::test]
    async fn snapshots_belong_to_a_cluster_by_uid() {
        let (directory, api) = (tempfile::tempdir().unwrap(), InMemory::default());
        let providers = at(&api, directory.path());
        let (mut before, mut now) = (cluster(), cluster());
        before.metadata.uid = Some("0a0b0c0d-0000-4000-8000-000000000001".to_owned());
        now.metadata.uid = Some("0a0b0c0e-0000-4000-8000-000000000001".to_owned());
        let spool = providers.snapshots(&before).spool().await.unwrap();
        let pulled = spool.path().join("before-kubernetes-1.36.db");
        fs::write(&pulled, "a store").unwrap();
        let name = "before-kubernetes-1.36.db";
        providers.snapshots(&before).keep(name, &pulled).await.unwrap();
        assert!(providers.snapshots(&before).kept(name).await.unwrap().is_some());
        assert_eq!(providers.snapshots(&now).kept(name).await.unwrap(), None);
        providers.clears(&now).await.unwrap();
        assert!(providers.snapshots(&before).kept(name).await.unwrap().is_some());
    }
}
