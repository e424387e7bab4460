//! One run of `fleet`: for a cluster's control-plane nodes, an Operation or a pool. It lasts until it ends by itself, the term
//! ends, or it is superseded. This module does not know the work.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Reconciler;
use crate::context::ReconcileError;
use crate::reach::Failure;

/// The pause between two looks, and the limit of a wait. Each run acquires a lease, and the cluster's object is not reconciled
/// while one waits.
pub(super) const PACE: Duration = Duration::from_secs(2);
pub(super) const PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// How often a run writes its activity, if that has changed.
pub(super) const TELLING: Duration = Duration::from_secs(5);

/// The activity of a run, as text.
#[derive(Default)]
pub(super) struct CurrentActivity(Mutex<String>);

impl CurrentActivity {
    /// Sets the activity.
    pub(super) fn are(&self, words: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    pub(super) fn now(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) enum RunResult<T> {
    /// The result of the run.
    Arrived(T),
    /// It was asked to end.
    Cancelled,
    /// It was rejected, or cannot be done now: the reason.
    Failed(anyhow::Error),
}

impl<T> RunResult<T> {
    /// From the end of a run.
    ///
    /// # Errors
    /// The lease was taken over, or the API server does not answer. The cluster does not report these.
    pub(super) fn of(ended: anyhow::Result<T>) -> Result<Self, ReconcileError> {
        match ended {
            Ok(arrived) => Ok(Self::Arrived(arrived)),
            Err(error) if error.is::<fleet::Cancelled>() => Ok(Self::Cancelled),
            Err(error) if error.is::<fleet::lease::Lost>() || is_of_api(&error) => Err(ReconcileError::Other(error)),
            Err(error) => Ok(Self::Failed(error)),
        }
    }
}

fn is_of_api(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Failure>())
}

impl Reconciler<'_> {
    /// Polls a run until it ends, together with `tells`. Once `otherwise` returns, `end` asks the run to end where it can be
    /// resumed. Returns the run's result, and whether it was asked. The futures are large, so each is boxed.
    ///
    /// # Errors
    /// The term is over. The run is dropped: the next leader continues from the stored record.
    pub(in crate::reconcilers) async fn run_until_superseded<T>(
        &self,
        mut going: Pin<Box<impl Future<Output = T>>>,
        end: &watch::Sender<bool>,
        mut otherwise: Pin<Box<impl Future<Output = ()>>>,
        mut tells: Pin<Box<impl Future<Output = ()>>>,
    ) -> Result<(T, bool), ReconcileError> {
        let (mut is_heard, mut is_told) = (false, false);
        let gone = loop {
            tokio::select! {
                gone = &mut going => break gone,
                () = self.term.ended() => {
                    end.send_replace(true);
                    return Err(self.over());
                }
                () = &mut otherwise, if !is_heard => {
                    is_heard = true;
                    end.send_replace(true);
                }
                () = &mut tells, if !is_told => is_told = true,
            }
        };
        self.term.ensure_active()?;
        Ok((gone, is_heard))
    }

    /// The result of a future. `None` after the limit.
    ///
    /// # Errors
    /// The term is over.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        doing: Pin<Box<impl Future<Output = T>>>,
    ) -> Result<Option<T>, ReconcileError> {
        let ended = tokio::select! {
            ended = tokio::time::timeout(limit, doing) => ended.ok(),
            () = self.term.ended() => return Err(self.over()),
        };
        self.term.ensure_active()?;
        Ok(ended)
    }

    /// The error of a term that is over.
    pub(super) fn over(&self) -> ReconcileError {
        self.term
            .ensure_active()
            .err()
            .map_or_else(|| ReconcileError::Other(anyhow::anyhow!("the term goes on")), ReconcileError::Ended)
    }
}
