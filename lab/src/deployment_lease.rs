//! One command at a time on a deployment's control nodes, whatever program gives it.

use std::path::Path;

use anyhow::Context;
use fleet::lease::{DirectoryStore, Lease, TakeOver};
use tokio::runtime::Builder;

use super::Lab;

/// Who asks to change a deployment, and how it is told of waits.
pub struct LeaseRequest<'a> {
    /// What it does: others are told so meanwhile.
    pub what: &'a str,
    /// From whom the deployment may be taken.
    pub over: TakeOver,
    /// Is told what is waited for.
    pub say: &'a (dyn Fn(&str) + Sync),
}

impl Lab {
    /// Does something while no other command changes the control nodes of this lab: an upgrade's neither.
    ///
    /// # Errors
    /// Somebody is at work on them; or what `act` says.
    pub(super) fn with_lease<T>(
        &self,
        asking: &LeaseRequest<'_>,
        act: impl AsyncFnOnce(&Lease<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        with_lease_at(&self.upgrades(), asking, act)
    }
}

/// The same of a lab that is yet to be made, by where it will keep who is at work.
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
