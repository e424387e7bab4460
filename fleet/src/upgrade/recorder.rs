//! Adds entries to the journal, and lets the cluster show users the progress.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::context::StepContext;
use super::entry::Event;
use super::journal::Journal;
use super::nodes::Nodes as _;
use super::notice::Notice;
use super::step_error::StepError;
use crate::engine::{Reason, STORE};
use crate::lease::Lost;

/// The number of looks between two tries of a blocked step.
pub(super) const LOOKS_PER_TRY: u32 = 5;

/// Notes what happens to one journal.
#[derive(Default)]
pub(super) struct Recorder {
    /// Until then the cluster's API counts as away.
    away_until: Mutex<Option<Instant>>,
}

impl Recorder {
    /// Adds an entry to the journal. While that cannot be written, nothing can follow: it is tried again, for as long
    /// as the run may be paused.
    pub(super) async fn note(
        &self,
        context: &StepContext<'_>,
        journal: &mut Journal<'_>,
        event: Event,
    ) -> Result<(), StepError> {
        let started = Instant::now();
        let mut said = false;
        while let Err(error) = journal.append(event.clone()).await {
            if error.is::<Lost>() {
                return Err(StepError::Stop(error));
            }
            let reason = Reason::new(STORE, format!("{error:#}"));
            if *context.cancelled.borrow() {
                return Err(StepError::Cancelled);
            }
            if started.elapsed() >= context.pause_limit {
                return Err(StepError::JournalUnwritable(reason));
            }
            if !said {
                (context.watch)(&Notice::Paused { reason: &reason });
                said = true;
            }
            context.rest(context.pace * LOOKS_PER_TRY).await?;
        }
        self.show(context, journal).await;
        Ok(())
    }

    /// Lets the cluster show users the journal. While its API is away it is not asked at every entry; the next time it
    /// gets all of it.
    async fn show(&self, context: &StepContext<'_>, journal: &Journal<'_>) {
        let away = |until: Option<Instant>| *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        let until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        // A command that was frozen and overtaken does not overwrite its successor's status.
        if !context.hold.is_fresh() && context.hold.confirm().await.is_err() {
            return;
        }
        match context.nodes.publish(&shown(journal)).await {
            Ok(()) => away(None),
            Err(error) => {
                log::debug!("the cluster does not show the journal now: {error:#}");
                away(Some(Instant::now() + context.most_of_a_look()));
            }
        }
    }

    /// The same at the end of a command, even if the API was away a moment ago. Does nothing if it was overtaken.
    pub(super) async fn show_last(&self, context: &StepContext<'_>, journal: &Journal<'_>) {
        if context.hold.confirm().await.is_err() {
            return;
        }
        *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.show(context, journal).await;
    }
}

/// The public part of a journal: how far it is, and nothing that names VMs or disks.
fn shown(journal: &Journal<'_>) -> String {
    let (plan, progress) = (journal.plan(), journal.progress());
    let (done, total) = progress.count(plan);
    serde_json::json!({
        "id": plan.id, "image": plan.target.image, "direction": progress.direction, "done": done, "total": total,
        "outcome": progress.outcome, "paused": progress.paused,
    })
    .to_string()
}
