//! The journal of a cluster: what was begun. Kept where holds are, outside the cluster. Each change is a file of its own
//! that says all, and the last whole one of the highest hold counts. A write that is cut damages nothing that was kept
//! before it: who wrote it was told so, and has begun nothing. A command that was overtaken writes where nobody reads any
//! more.

use anyhow::Context;
use contract::deployer::Fingerprint;
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, Lifecycle};
use crate::journals::deployment::{self, Note, file};
use crate::journals::{check_record, record_text};
use crate::lease::{Lease, Store};

/// The open journal of a cluster.
pub struct Records<'a> {
    hold: &'a Lease<'a>,
    kept: DeploymentRecord,
    /// How many files this hold has tried to write.
    written: usize,
    /// Whether one that could not be written may be there all the same.
    unsure: bool,
}

impl<'a> Records<'a> {
    /// Begins with what is wanted now.
    ///
    /// # Errors
    /// When it cannot be written: what the hold before had counts then, or this.
    pub async fn begin(hold: &'a Lease<'a>, kept: DeploymentRecord) -> anyhow::Result<Self> {
        let mut records = Self { hold, kept: kept.clone(), written: 0, unsure: false };
        records.save(kept).await?;
        Ok(records)
    }

    pub fn kept(&self) -> &DeploymentRecord {
        &self.kept
    }

    /// Notes what is begun: it is kept when this returns.
    ///
    /// # Errors
    /// When it cannot be written, or another command has taken over. Nothing may follow from it then; whoever reads the
    /// journal may find it.
    pub async fn save(&mut self, kept: DeploymentRecord) -> anyhow::Result<()> {
        self.hold.confirm().await?;
        self.unsure = true;
        // A write that failed may still land: the next attempt is a file of its own, and counts more.
        self.written += 1;
        let text = record_text(&kept)?;
        let store = self.hold.store();
        store
            .write(self.hold.number(), &file(self.written), &text)
            .await
            .context("writing the deployment's journal")?;
        self.kept = kept;
        self.unsure = false;
        Ok(())
    }

    /// Makes sure that what is kept is what this says, after a write that failed: whoever comes next reads it.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        if self.unsure { self.save(self.kept.clone()).await } else { Ok(()) }
    }
}

/// What is kept of the store's cluster; none if nothing was begun for any.
pub async fn read(store: &dyn Store) -> anyhow::Result<Option<DeploymentRecord>> {
    let Some(Note { hold, file, text }) = deployment::last(store).await? else { return Ok(None) };
    let kept = check_record(&text).and_then(|()| Ok(serde_json::from_str(&text)?));
    kept.map(Some).with_context(|| {
        format!(
            "reading the deployment's journal of hold {hold}: understanding {file} (if a newer version of this program has written \
             it, go on with that one)"
        )
    })
}

/// What was begun for the cluster of a deployment; none if nothing was.
///
/// # Errors
/// [`super::OtherDeployment`] if it is of another one; or the store cannot be read.
pub async fn begun(store: &dyn Store, deployment: Uuid) -> anyhow::Result<Option<DeploymentRecord>> {
    let kept = read(store).await?;
    kept.iter().try_for_each(|kept| kept.is_of(deployment))?;
    Ok(kept)
}

/// The upgrade that has ended with a cluster which was destroyed here, whatever its journal says; none if none has.
pub async fn ended_with_its_cluster(store: &dyn Store) -> anyhow::Result<Option<Uuid>> {
    Ok(read(store).await?.and_then(|kept| kept.upgrade))
}

/// Fingerprint of the authority that the cluster of a deployment has formed with; none if that was not noted, or what was is of a
/// cluster that is gone, or of another deployment: one that was imported by hand since has its own.
pub async fn authority(store: &dyn Store, deployment: Uuid) -> anyhow::Result<Option<Fingerprint>> {
    let kept = read(store).await?.filter(|kept| kept.lifecycle != Lifecycle::Deleted && kept.is_of(deployment).is_ok());
    Ok(kept.and_then(|kept| kept.ca_fingerprint))
}
