//! The journal of a cluster: what was begun. It is next to the leases, outside the cluster.
//!
//! Each change is a separate, complete file. The last complete file of the highest lease counts. An interrupted write damages no
//! earlier file: its writer got an error, and has begun nothing. Files of a command whose lease was taken over are not read.

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
    /// How many files this lease has tried to write.
    written: usize,
    /// Whether a file that could not be written may exist.
    unsure: bool,
}

impl<'a> Records<'a> {
    /// Begins with the present goal.
    ///
    /// # Errors
    /// If it cannot be written. Then the record of the lease before counts, or this one.
    pub async fn begin(hold: &'a Lease<'a>, kept: DeploymentRecord) -> anyhow::Result<Self> {
        let mut records = Self { hold, kept: kept.clone(), written: 0, unsure: false };
        records.save(kept).await?;
        Ok(records)
    }

    pub fn kept(&self) -> &DeploymentRecord {
        &self.kept
    }

    /// Saves what is begun: it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written, or another command has taken over. Nothing may follow from it then. Readers of the journal may
    /// still find it.
    pub async fn save(&mut self, kept: DeploymentRecord) -> anyhow::Result<()> {
        self.hold.confirm().await?;
        self.unsure = true;
        // A write that failed may still land: the next attempt is a separate file, and counts more.
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

    /// After a failed write, saves the present record again, for the next reader.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        if self.unsure { self.save(self.kept.clone()).await } else { Ok(()) }
    }
}

/// The record of the store's cluster. `None` if nothing was begun.
pub async fn read(store: &dyn Store) -> anyhow::Result<Option<DeploymentRecord>> {
    let Some(Note { hold, file, text }) = deployment::last(store).await? else { return Ok(None) };
    let kept = check_record(&text).and_then(|()| Ok(serde_json::from_str(&text)?));
    kept.map(Some).with_context(|| {
        format!(
            "reading the deployment's journal of lease {hold}: understanding {file} (if a newer version of this program has written \
             it, use that version)"
        )
    })
}

/// The record of a deployment's cluster. `None` if nothing was begun.
///
/// # Errors
/// [`super::OtherDeployment`] if it is of another one. Or the store cannot be read.
pub async fn begun(store: &dyn Store, deployment: Uuid) -> anyhow::Result<Option<DeploymentRecord>> {
    let kept = read(store).await?;
    kept.iter().try_for_each(|kept| kept.is_of(deployment))?;
    Ok(kept)
}

/// The upgrade that ended with a cluster that was destroyed here, whatever its journal says. `None` if there is no such upgrade.
pub async fn ended_with_its_cluster(store: &dyn Store) -> anyhow::Result<Option<Uuid>> {
    Ok(read(store).await?.and_then(|kept| kept.upgrade))
}

/// Fingerprint of the CA that a deployment's cluster has formed with. `None` if it was not recorded, or the record is of a
/// removed cluster or another deployment. A cluster that was imported by hand since has another CA.
pub async fn authority(store: &dyn Store, deployment: Uuid) -> anyhow::Result<Option<Fingerprint>> {
    let kept = read(store).await?.filter(|kept| kept.lifecycle != Lifecycle::Deleted && kept.is_of(deployment).is_ok());
    Ok(kept.and_then(|kept| kept.ca_fingerprint))
}
