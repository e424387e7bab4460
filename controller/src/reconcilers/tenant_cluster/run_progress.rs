//! Accompanies a run of `fleet`'s upgrade: writes its activity from its notices into the status, records snapshots, and watches for
//! requests and pauses. A failed read ends no run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet::upgrade::{Action, Notice};
use kube::ResourceExt;
use serde_json::Value;

use super::fleet_run::{CurrentActivity, TELLING};
use super::{POLL_INTERVAL, Round};
use crate::context::ReconcileError;
use crate::decisions::{asked, is_open_swap, last_swap, words};
use crate::objects::{JournalEntry, TenantClusterReason};

/// How long a data disk may be between two VMs before a run is ended anyway.
const SETTLES: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct RunProgress {
    words: CurrentActivity,
    /// Whether a data disk is between two VMs: only the journal leads to it then.
    moves_disk: AtomicBool,
    /// Whether the journal has the request. Notices of steps come after their entry, a change of direction before.
    is_noted: AtomicBool,
    /// Whether it ends at the next step at which no node is away.
    pub(super) is_to_rest: AtomicBool,
    /// The place of a new snapshot that no journal has yet.
    snapshot: Mutex<Option<String>>,
}

impl RunProgress {
    pub(super) fn told(&self, notice: &Notice<'_>) {
        let told = match notice {
            Notice::Step { plan, step, .. } => words(plan, *step),
            Notice::Done { note } => return log::info!("{note}"),
            Notice::Losses { node, words } => return log::warn!("{node}: {words}"),
            Notice::Waiting { what, why } => format!("waiting for {what}: {why}"),
            Notice::Paused { reason } => format!("waiting: {reason}"),
            Notice::DirectionChanged { reason, .. } => format!("turning: {reason}"),
            Notice::TakingOver { words } => return log::info!("{words}"),
            Notice::Stamped { node, .. } => format!("stamping the VM of {node}"),
            Notice::Snapshot { place, bytes } => {
                log::info!("snapshot: {bytes} bytes, {place}");
                *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{place}: {bytes} bytes"));
                return;
            }
            Notice::NoSnapshot { name } => return log::warn!("{name} is not kept here, and none is taken now"),
            Notice::Kubernetes { node, to, .. } => format!("{} to Kubernetes {to}", node.name),
            Notice::KubernetesRuns { version, .. } => format!("Kubernetes {version} runs"),
        };
        log::info!("{told}");
        if let Notice::Step { step, .. } = notice {
            let moves = [Action::Detach, Action::DetachNew, Action::Attach, Action::AttachOld].contains(&step.action);
            self.moves_disk.store(moves, Ordering::SeqCst);
        }
        if matches!(notice, Notice::Step { .. } | Notice::Kubernetes { .. }) {
            self.is_noted.store(true, Ordering::SeqCst);
        }
        self.words.are(told);
    }

    /// Returns once no data disk is between two VMs, or after [`SETTLES`].
    pub(super) async fn settles(&self) {
        let limit = tokio::time::Instant::now() + SETTLES;
        while self.moves_disk.load(Ordering::SeqCst) && tokio::time::Instant::now() < limit {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn now(&self) -> String {
        self.words.now()
    }

    fn snapshot(&self) -> Option<String> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether no node is away before such a step.
pub(super) fn rests(notice: &Notice<'_>) -> bool {
    let stands =
        |action: Action| matches!(action, Action::Verify | Action::Snapshot | Action::CloneVm | Action::Prepare);
    match notice {
        Notice::Step { step, .. } => stands(step.action),
        Notice::Kubernetes { .. } => true,
        _ => false,
    }
}

impl Round<'_> {
    /// Returns once the operator requests something new of the running Operation, or of the open swap. Requests on other
    /// Operations end nothing.
    pub(super) async fn until_new_request(&self, of: Option<&str>, before: Option<&str>) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Ok(operations) = self.operations(self.cluster).await else { continue };
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
    pub(super) async fn pause_when_due(&self, doing: &RunProgress) {
        while !doing.is_to_rest.load(Ordering::SeqCst) {
            tokio::time::sleep(POLL_INTERVAL).await;
            if let Ok(Some(_)) = self.pause_reason(self.cluster).await {
                doing.is_to_rest.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Records in an Operation that upgrades Kubernetes where its snapshot of etcd is. It has no other journal, and the next
    /// leader may be on a node without the snapshot.
    pub(super) async fn note_snapshot(&self, of: Option<&str>, doing: &RunProgress) -> Result<(), ReconcileError> {
        let Some((of, note)) = of.zip(doing.snapshot()) else { return Ok(()) };
        let at = u64::try_from(self.clock.time().0.as_second()).unwrap_or_default();
        let more = [("action", "snapshot"), ("note", note.as_str())];
        let more = BTreeMap::from(more.map(|(name, text)| (name.to_owned(), Value::from(text))));
        let entry = JournalEntry { at, lease: 0, event: "done".to_owned(), more };
        self.note_operation(of, &[], |status| {
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
    pub(super) async fn report_progress(&self, word: Option<(&str, &str)>, doing: &RunProgress) {
        let mut before = String::new();
        loop {
            tokio::time::sleep(TELLING).await;
            if let Err(trouble) = self.note_snapshot(word.map(|(of, _)| of), doing).await {
                log::debug!("saying where a snapshot is: {trouble}");
            }
            let now = doing.now();
            if now == before {
                continue;
            }
            let told = async {
                let operations = self.operations(self.cluster).await?;
                let last = last_swap(&operations).filter(is_open_swap);
                if let Some(last) = last {
                    self.show_operation(last).await?;
                }
                if let Some((of, word)) = word.filter(|_| doing.is_noted.load(Ordering::SeqCst)) {
                    self.remove_request(of, word).await?;
                }
                let said =
                    [(TenantClusterReason::OperationRuns, now.clone()), (TenantClusterReason::Changing, now.clone())];
                self.note(self.cluster, &said, |status| {
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
