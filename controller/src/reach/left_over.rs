//! What is kept on this node of clusters that are gone: they went while the controller of another node led, which sees its own alone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use kube::ResourceExt;

use super::kinds;
use super::objects::Objects;
use super::providers::Providers;
use super::snapshots::kept_as;
use crate::objects::TenantCluster;

/// Removes it. It is for who begins to lead, before any cluster is looked after: nothing is kept meanwhile.
///
/// # Errors
/// When the clusters cannot be listed: nothing is removed then. Or something cannot be removed.
pub async fn clear_left_over(objects: &dyn Objects, providers: &Providers) -> anyhow::Result<()> {
    let clusters = kinds::list::<TenantCluster>(objects, None, None).await.context("looking for TenantClusters")?;
    let there: BTreeSet<String> =
        clusters.iter().map(|cluster| kept_as(&cluster.namespace().unwrap_or_default(), &cluster.name_any())).collect();
    let directory = providers.keeps().0.to_owned();
    let cleared = tokio::task::spawn_blocking(move || {
        clear(&directory, &there).with_context(|| format!("clearing {}", directory.display()))
    });
    cleared.await.context("the thread that does it has ended")?
}

/// Removes the directories in one but those of these names.
fn clear(directory: &Path, there: &BTreeSet<String>) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let is_there = entry.file_name().to_str().is_some_and(|name| there.contains(name));
        if entry.file_type()?.is_dir() && !is_there {
            log::info!("{} is removed: its cluster is gone", entry.path().display());
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::reach::in_memory::InMemory;
    use crate::term::{Clock, Term};

    #[tokio::test]
    async fn what_is_kept_of_clusters_that_are_gone_goes_with_the_next_leader_of_the_node() {
        let directory = tempfile::tempdir().unwrap();
        let api = InMemory::default();
        let term = Term::unlimited("controller of a test");
        let at = |path: &Path| {
            Providers::keeping(Arc::new(api.clone()), term.clone(), Clock::of_tests(), path.to_owned(), "cp1")
        };
        clear_left_over(&api, &at(&directory.path().join("nothing"))).await.unwrap();
        api.put(&cluster());
        for name in ["team-blue.shop", "team-blue.gone", "team-red.shop"] {
            fs::create_dir(directory.path().join(name)).unwrap();
            fs::write(directory.path().join(name).join("before-1.db"), "a store").unwrap();
        }
        clear_left_over(&api, &at(directory.path())).await.unwrap();
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["team-blue.shop"]);
        assert!(directory.path().join("team-blue.shop/before-1.db").exists());
    }
}
