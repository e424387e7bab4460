//! One run of `fleet`, whatever it does: of a cluster's control nodes, of an Operation, or of a pool. It goes on until it ends by itself, the
//! term does, or it can be gone on with otherwise. Knows nothing of what is done.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Reconciler;
use crate::context::ReconcileError;
use crate::reach::Failure;

/// The pause between two looks, and how long a run waits for what cannot be done now. Each run takes a hold; and as long as one waits,
/// nothing of the cluster's object is looked at.
pub(super) const PACE: Duration = Duration::from_secs(2);
pub(super) const PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// So often a run that is under way says what it does, if that is new.
pub(super) const TELLING: Duration = Duration::from_secs(5);

/// What a run does now, in words.
#[derive(Default)]
pub(super) struct CurrentActivity(Mutex<String>);

impl CurrentActivity {
    /// It does this from now on.
    pub(super) fn are(&self, words: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    pub(super) fn now(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) enum RunResult<T> {
    /// Where it has come to.
    Arrived(T),
    /// It was asked to end.
    Cancelled,
    /// It was refused, or could not be done now: why.
    Failed(anyhow::Error),
}

impl<T> RunResult<T> {
    /// By how a run has ended.
    ///
    /// # Errors
    /// Somebody has taken over, or the API server does not answer: that is not what the cluster waits for.
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
    /// Lets a run go on until it ends, and what `tells` beside it. By `end` it is asked to end where it can be gone on with, once `otherwise`
    /// returns: nobody waits for what nobody wants any more. What became of it, and whether it was asked. They are large: each is on the
    /// heap, and not once more in whatever awaits this.
    ///
    /// # Errors
    /// The term is over. The run is left where it stands: whoever leads then goes on from what is kept.
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

    /// What something comes to that is given so long; none where it has not ended by then.
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

    /// That the term is over.
    pub(super) fn over(&self) -> ReconcileError {
        self.term
            .ensure_active()
            .err()
            .map_or_else(|| ReconcileError::Other(anyhow::anyhow!("the term goes on")), ReconcileError::Ended)
    }
}
