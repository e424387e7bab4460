//! Runs `fleet`'s upgrade for an Operation of one cluster. A run ends where it can be resumed, when the desired state changes.
//! While changes are paused it ends at a step at which no node is away.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use fleet::upgrade::{GaveUp, KubernetesOptions, Notice, Options, Request, RunOutcome, Target};
use kube::ResourceExt;
use serde_json::Value;
use tokio::sync::watch;
use uuid::Uuid;

use super::super::fleet_run::{RunResult, TELLING};
use super::super::{POLL_INTERVAL, Reconciler};
use super::run_progress::{RunProgress, rests};
use super::upgrade_context::{OVER, UpgradeContext};
use crate::context::ReconcileError;
use crate::decisions::{asked, is_open_swap, last_swap};
use crate::objects::{JournalEntry, TenantCluster, TenantClusterReason};

#[derive(Clone, Copy)]
pub(super) enum Task<'t> {
    Swap(&'t Target, &'t Options),
    Go(Request, Uuid),
    Raise(&'t KubernetesOptions),
}

pub(super) enum UpgradeResult {
    /// The end of a run of a swap.
    Arrived(RunOutcome),
    /// All control-plane nodes have the minor version.
    Raised,
    /// It was asked to end.
    Cancelled,
    /// A node rejects the request, or gave up. It is not asked again until the operator requests it.
    GaveUp(String),
    /// It cannot be done now, and is tried again.
    Failed(String),
}

impl Reconciler<'_> {
    /// Runs `fleet` for the operator's request `word` on an Operation. The run ends with the term: the next leader continues from
    /// the stored journal.
    pub(super) async fn runs(
        &self,
        cluster: &TenantCluster,
        asked_of: Option<&str>,
        word: &str,
        task: Task<'_>,
        operator: &UpgradeContext<'_>,
    ) -> Result<UpgradeResult, ReconcileError> {
        // A new swap has no Operation yet. The request on the former one is being carried out.
        let (under_way, done_already) = match task {
            Task::Swap(..) => (None, None),
            Task::Go(..) | Task::Raise(_) => (asked_of, Some(word)),
        };
        let ((end, cancelled), doing) = (watch::channel(false), RunProgress::default());
        doing.is_to_rest.store(self.rest(cluster).await?.is_some(), Ordering::SeqCst);
        let told = |notice: &Notice<'_>| {
            doing.told(notice);
            if doing.is_to_rest.load(Ordering::SeqCst) && rests(notice) {
                end.send_replace(true);
            }
        };
        let deployment = operator.deployment(&told, cancelled);
        let going = Box::pin(async {
            match task {
                Task::Swap(target, options) => {
                    deployment.apply_to(target, options, OVER).await.map(|(arrived, _)| UpgradeResult::Arrived(arrived))
                }
                Task::Go(Request::Abandon, id) => {
                    deployment.abandon(id, OVER).await.map(|(arrived, _)| UpgradeResult::Arrived(arrived))
                }
                Task::Go(verb, _) => {
                    deployment.go_on(verb, None, OVER).await.map(|(arrived, _)| UpgradeResult::Arrived(arrived))
                }
                Task::Raise(options) => {
                    deployment.upgrade_kubernetes(options, OVER).await.map(|_| UpgradeResult::Raised)
                }
            }
        });
        let otherwise = Box::pin(async {
            tokio::select! {
                () = self.until_superseded(cluster) => {}
                () = self.is_asked_otherwise(cluster, under_way, done_already) => {}
            }
            doing.settles().await;
        });
        let beside = Box::pin(async {
            let rests = self.comes_to_rest(cluster, &doing);
            let tells = self.tells_operation(cluster, asked_of.map(|name| (name, word)), &doing);
            tokio::join!(rests, tells);
        });
        let (gone, _) = self.run_until_superseded(going, &end, otherwise, beside).await?;
        self.notes_snapshot(cluster, asked_of, &doing).await?;
        Ok(match RunResult::of(gone)? {
            RunResult::Arrived(done) => done,
            RunResult::Cancelled => UpgradeResult::Cancelled,
            RunResult::Failed(error) if error.is::<GaveUp>() => UpgradeResult::GaveUp(format!("{error:#}")),
            RunResult::Failed(error) => UpgradeResult::Failed(format!("{error:#}")),
        })
    }

    /// Returns once the operator requests something new of the running Operation, or of the open swap. Requests on other
    /// Operations end nothing.
    async fn is_asked_otherwise(&self, cluster: &TenantCluster, of: Option<&str>, before: Option<&str>) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            // A failed read is no reason to end.
            let Ok(operations) = self.operations(cluster).await else { continue };
            let under_way = match of {
                Some(name) => operations.iter().find(|operation| operation.name_any() == name),
                None => last_swap(&operations).filter(is_open_swap),
            };
            if under_way.and_then(asked).is_some_and(|now| Some(now) != before) {
                return;
            }
        }
    }

    /// Once changes are paused, ends a run at the next step at which no node is away.
    async fn comes_to_rest(&self, cluster: &TenantCluster, doing: &RunProgress) {
        while !doing.is_to_rest.load(Ordering::SeqCst) {
            tokio::time::sleep(POLL_INTERVAL).await;
            // A failed read is no reason to end.
            if let Ok(Some(_)) = self.rest(cluster).await {
                doing.is_to_rest.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Records in an Operation that upgrades Kubernetes where its snapshot of etcd is. It has no other journal, and the next
    /// leader may be on a node without the snapshot.
    async fn notes_snapshot(
        &self,
        cluster: &TenantCluster,
        of: Option<&str>,
        doing: &RunProgress,
    ) -> Result<(), ReconcileError> {
        let Some((of, note)) = of.zip(doing.snapshot()) else { return Ok(()) };
        let at = u64::try_from(self.clock.time().0.as_second()).unwrap_or_default();
        let more = [("action", "snapshot"), ("note", note.as_str())];
        let more = BTreeMap::from(more.map(|(name, text)| (name.to_owned(), Value::from(text))));
        let entry = JournalEntry { at, lease: 0, event: "done".to_owned(), more };
        self.note_operation(cluster, of, &[], |status| {
            let is_noted = status.entries.last().is_some_and(|last| last.more == entry.more);
            if !is_noted {
                status.entries.push(entry.clone());
            }
        })
        .await?;
        *doing.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Writes the activity of a run until the future is dropped, and removes the operator's request once the journal has it.
    async fn tells_operation(&self, cluster: &TenantCluster, word: Option<(&str, &str)>, doing: &RunProgress) {
        let mut before = String::new();
        loop {
            tokio::time::sleep(TELLING).await;
            if let Err(trouble) = self.notes_snapshot(cluster, word.map(|(of, _)| of), doing).await {
                log::debug!("saying where a snapshot is: {trouble}");
            }
            let now = doing.now();
            if now == before {
                continue;
            }
            let told = async {
                let operations = self.operations(cluster).await?;
                let last = last_swap(&operations).filter(is_open_swap);
                if let Some(last) = last {
                    self.show_operation(cluster, last).await?;
                }
                if let Some((of, word)) = word.filter(|_| doing.is_noted.load(Ordering::SeqCst)) {
                    self.answered(cluster, of, word).await?;
                }
                let said =
                    [(TenantClusterReason::OperationRuns, now.clone()), (TenantClusterReason::Changing, now.clone())];
                self.note(cluster, &said, |status| {
                    if let Some(last) = last {
                        status.operation = Some(last.name_any());
                    }
                })
                .await
            };
            match told.await {
                Ok(()) => before = now,
                Err(trouble) => log::debug!("saying what is done: {trouble}"),
            }
        }
    }
}
