//! The context of a step: the deployment behind its lease, and how it waits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::guarded_nodes::GuardedNodes;
use super::notice::Notice;
use super::plan::Plan;
use super::step_error::{StepError, Wait};
use crate::cancel::{unless_cancelled, unless_ended};
use crate::engine::GuardedHypervisor;
use crate::lease::{Lease, Snapshots};

/// The number of looks for which the cluster's API is not asked after it did not answer.
const LOOKS_WHILE_AWAY: u32 = 30;
/// The time limit for a quick operation of a node that answers.
pub(super) const MOMENT: Duration = Duration::from_secs(120);

/// A deployment under a lease. Each change of a step is made under the lease.
pub(super) struct StepContext<'a> {
    pub(super) hypervisor: GuardedHypervisor<'a>,
    pub(super) nodes: GuardedNodes<'a>,
    pub(super) hold: &'a Lease<'a>,
    pub(super) snapshots: &'a dyn Snapshots,
    pub(super) watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    /// The pause between two looks.
    pub(super) pace: Duration,
    /// Where the OVA is, if it is not where the plan says.
    pub(super) ova: Option<PathBuf>,
    /// How long a run waits for what it cannot do now.
    pub(super) pause_limit: Duration,
    pub(super) cancelled: watch::Receiver<bool>,
}

impl StepContext<'_> {
    /// Whether this command still holds the lease, and is not asked to end.
    pub(super) async fn may_go_on(&self) -> Result<(), StepError> {
        unless_cancelled(&self.cancelled, self.hold.renew()).await?.map_err(|lost| StepError::Stop(lost.into()))
    }

    /// Looks, for as long as this command is wanted.
    pub(super) async fn look<T, E>(&self, look: impl Future<Output = Result<T, E>>) -> Result<T, StepError>
    where
        StepError: From<E>,
    {
        Ok(unless_cancelled(&self.cancelled, look).await??)
    }

    /// Waits before the next try: at least so long, and until the store may be asked again that timed out. Ends early
    /// if the command is asked to end.
    pub(super) async fn rest(&self, least: Duration) -> Result<(), StepError> {
        Ok(unless_cancelled(&self.cancelled, tokio::time::sleep(least.max(self.hold.rest()))).await?)
    }

    /// Waits until earlier requests have ended. Ends early if the command is asked to end.
    pub(super) async fn settle(&self) -> Result<(), StepError> {
        let settled = self.hypervisor.settled().await?;
        Ok(settled.map_err(|error| error.context("waiting for what was begun before"))?)
    }

    /// Does long work. Ends early if the lease is lost, or the command is asked to end.
    pub(super) async fn while_wanted<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> Result<T, StepError> {
        Ok(unless_ended(work, self.pace, || self.may_go_on()).await??)
    }

    /// Waits until `look` yields a value, at most `limit`. Each interim reason is reported once.
    pub(super) async fn wait<T, F>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> F + Send,
    ) -> Result<T, StepError>
    where
        T: Send,
        F: Future<Output = Result<T, Wait>> + Send,
    {
        let (mut spent, mut last) = (Duration::ZERO, Instant::now());
        let mut said = None;
        loop {
            self.may_go_on().await?;
            let seen = look().await;
            // A command that was stopped for an hour, or slept with its machine, has not looked for an hour.
            spent += last.elapsed().min(self.most_of_a_look());
            last = Instant::now();
            match seen {
                Ok(found) => return Ok(found),
                Err(Wait::End(trouble)) => return Err(trouble),
                Err(Wait::NotYet(why)) if spent >= limit => {
                    return Err(why.of(format!("waited {} s for {what}", limit.as_secs())).into());
                }
                Err(Wait::NotYet(why)) => {
                    if said.as_ref() != Some(&why) {
                        (self.watch)(&Notice::Waiting { what, why: &why });
                        said = Some(why);
                    }
                }
            }
            tokio::time::sleep(self.pace).await;
        }
    }

    /// As how much time one look counts at most.
    pub(super) fn most_of_a_look(&self) -> Duration {
        self.pace * LOOKS_WHILE_AWAY
    }

    pub(super) fn ova<'p>(&'p self, plan: &'p Plan) -> &'p Path {
        self.ova.as_deref().unwrap_or(&plan.target.ova)
    }
}
