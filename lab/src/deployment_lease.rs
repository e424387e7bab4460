//! Runs one command at a time on a deployment's control-plane nodes, whichever program runs it.

use std::path::Path;

use anyhow::Context;
use fleet::lease::{DirectoryStore, Lease, TakeOver};
use tokio::runtime::Builder;

use super::Lab;

pub struct LeaseRequest<'a> {
    /// Description of the command, for the errors of other commands.
    pub what: &'a str,
    /// Which holder the lease may be taken over from.
    pub over: TakeOver,
    /// Called with what the request waits for.
    pub say: &'a (dyn Fn(&str) + Sync),
}

impl Lab {
    /// Acquires the lease of this lab's control-plane nodes, runs `act`, and releases it. Upgrades use the same
    /// lease.
    pub(super) fn with_lease<T>(
        &self,
        asking: &LeaseRequest<'_>,
        act: impl AsyncFnOnce(&Lease<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        with_lease_at(&self.upgrades(), asking, act)
    }
}

/// As [`Lab::with_lease`], for a lab that does not exist yet, by the lease's directory.
pub(super) fn with_lease_at<T>(
    upgrades: &Path,
    asking: &LeaseRequest<'_>,
    act: impl AsyncFnOnce(&Lease<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let store = DirectoryStore::at(upgrades.to_owned());
    let runtime = Builder::new_current_thread().enable_all().build().context("starting to wait")?;
    runtime.block_on(async {
        let hold = Lease::acquire(&store, asking.what, asking.over, asking.say).await?;
        let done = act(&hold).await;
        hold.release().await;
        done
    })
}
