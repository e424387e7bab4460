//! Waiting for what was asked for before, by whomever, and has arrived.

use std::collections::BTreeSet;
use std::time::Instant;

use vsphere::MoRef;

use super::VcenterHypervisor;
use super::stamp::{IMAGE, LAID_BY, STAMP};
use super::trouble::not_now;
use crate::hypervisor::{Error, Result};

impl VcenterHypervisor {
    /// Waits until no task works on a VM of the deployment. A clone's task is its template's, whoever clones: of those that go
    /// on at the beginning the end is waited for, and not of those that others begin meanwhile.
    pub(super) async fn settled(&self) -> Result<()> {
        let begin = Instant::now();
        self.wait_for(&self.tasks_of_templates().await?, begin).await?;
        loop {
            let own: Vec<MoRef> = self.all_own().await?.iter().flat_map(|vm| vm.tasks.clone()).collect();
            if self.client.running(&own).await?.is_empty() {
                return Ok(());
            }
            self.wait_for(&own, begin).await?;
        }
    }

    async fn tasks_of_templates(&self) -> Result<Vec<MoRef>> {
        let all = self.client.entries_in(&self.places.templates, false, &[LAID_BY, IMAGE, STAMP]).await?;
        let is_template = |vm: &vsphere::Entries| vm.extra.get(LAID_BY).or(vm.extra.get(IMAGE)).is_some();
        let templates = all.into_iter().filter(|vm| vm.extra.get(STAMP).is_none() && is_template(vm));
        let mut tasks = BTreeSet::new();
        for template in templates {
            match self.client.look(&template.reference, &["recentTask"]).await {
                Ok(seen) => tasks.extend(seen.references_at("recentTask")),
                Err(error) if error.outcome() == vsphere::Outcome::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(tasks.into_iter().collect())
    }

    async fn wait_for(&self, tasks: &[MoRef], begin: Instant) -> Result<()> {
        for running in self.client.running(tasks).await? {
            let left = self.settling.saturating_sub(begin.elapsed());
            match self.client.ended(&running.task, left).await {
                Ok(()) => {}
                Err(vsphere::Error::Late { .. }) => {
                    let limit = self.settling.as_secs();
                    return Err(not_now(format!("{} still goes on after {limit} s", running.what)));
                }
                Err(error) => return Err(Error::from(error)),
            }
        }
        Ok(())
    }
}
