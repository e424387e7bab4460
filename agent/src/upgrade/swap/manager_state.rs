//! State of the manager of swaps: the current preparation, its stage, and cancellations. Prepares nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use contract::codes;
use contract::swap::{Losses, Rejection, Stage, SwapState};
use uuid::Uuid;

use super::context::SwapContext;
use super::judge;
use super::preparation_record::{PreparationRecord, Purpose};
use super::prepare::PreparationTask;
use crate::host::disk::{Identity, Swap};

/// How many cancelled identifiers are remembered. So many requests are never under way at once.
const WITHDRAWN: usize = 32;

#[derive(Default)]
pub(super) struct ManagerState {
    pub(super) context: Option<Arc<SwapContext>>,
    /// The swap in which this VM took another one's disk.
    pub(super) taken: Option<SwapState>,
    /// The swap or evacuation requested since power-on: under way, done or failed.
    pub(super) preparation: Option<PreparationRecord>,
    pub(super) way: Option<JoinHandle<()>>,
    pub(super) cancelled: Arc<AtomicBool>,
    /// The identifier that is being withdrawn. Nothing else may begin, because the withdrawal would undo it.
    pub(super) withdrawing: Option<Uuid>,
    /// The identifier that was given up and undone. It is no longer announced to the cluster.
    pub(super) undone: Option<Uuid>,
    /// The identifiers that were cancelled last, oldest first. An older request for one of them may still arrive.
    withdrawn: VecDeque<Uuid>,
}

impl ManagerState {
    /// The swap or evacuation that is being prepared or is prepared.
    pub(super) fn leaving(&self) -> Option<&PreparationRecord> {
        self.preparation.as_ref().filter(|leaving| leaving.stage.is_under_way())
    }

    /// The same, unless it was undone.
    pub(super) fn under_way(&self) -> Option<Uuid> {
        self.leaving().map(|leaving| leaving.purpose.id()).filter(|id| self.undone != Some(*id))
    }

    /// The current swap: this VM has the disk of another one, or leaves its own.
    pub(super) fn swap(&self) -> Option<SwapState> {
        let own = self.context.as_ref().map(|context| &context.own);
        let leaving = self.preparation.as_ref().zip(own).and_then(|(leaving, own)| leaving.swap(own));
        self.taken.clone().or(leaving)
    }

    /// The stage, if `purpose` was begun before. An error if it was cancelled, or another one is under way.
    pub(super) fn repeated(&self, purpose: &Purpose) -> Result<Option<Stage>, Rejection> {
        if self.withdrawn.contains(&purpose.id()) {
            return Err(Rejection::of(&codes::SWAP_WITHDRAWN, format!("{purpose} was cancelled")));
        }
        if let Some(id) = self.withdrawing {
            let reason =
                format!("what this node left its work for before, {id}, is being withdrawn: ask again in a moment");
            return Err(Rejection::of(&codes::SWAP_ANOTHER, reason));
        }
        judge::repeated(self.taken.as_ref(), self.preparation.as_ref(), purpose)
    }

    /// Restores the state after a restart of the agent. Returns the purpose that is to be continued or withdrawn.
    pub(super) fn recall(&mut self, context: Arc<SwapContext>) -> anyhow::Result<Option<Purpose>> {
        self.taken = taken(&context)?;
        let saved = PreparationRecord::load(&context.root).unwrap_or_else(|error| {
            log::warn!("what this node left its work for is unknown: {error:#}");
            None
        });
        // A VM that has taken another one's disk is not prepared for another swap.
        self.preparation = saved.filter(|saved| self.taken.is_none() || saved.evacuation().is_some());
        let mut goes_on = None;
        match &self.preparation {
            Some(PreparationRecord { stage: Stage::Failed, .. }) | None => PreparationTask::put_back(&context)?,
            Some(PreparationRecord { stage: Stage::Prepared, cancelled: false, .. }) => {}
            Some(PreparationRecord { purpose, .. }) => {
                log::info!("the preparation of {purpose} goes on");
                goes_on = Some(purpose.clone());
            }
        }
        self.cancelled = Arc::new(AtomicBool::new(self.preparation.as_ref().is_some_and(|leaving| leaving.cancelled)));
        self.context = Some(context);
        self.show();
        Ok(goes_on)
    }

    pub(super) fn withdraw(&mut self, id: Uuid) {
        if !self.withdrawn.contains(&id) {
            self.withdrawn.push_back(id);
        }
        if self.withdrawn.len() > WITHDRAWN {
            self.withdrawn.pop_front();
        }
    }

    pub(super) fn begin(&mut self, purpose: Purpose) {
        (self.cancelled, self.undone) = (Arc::default(), None);
        self.preparation = Some(PreparationRecord::begun(purpose));
        self.show();
    }

    pub(super) fn keep(&mut self, context: &SwapContext, leaving: PreparationRecord) -> anyhow::Result<()> {
        let leaving = PreparationRecord { cancelled: self.cancelled.load(Ordering::SeqCst), ..leaving };
        leaving.save(&context.root)?;
        self.preparation = Some(leaving);
        self.show();
        Ok(())
    }

    /// The record under this identifier, if it is the current one.
    pub(super) fn leaving_for(&self, id: Uuid) -> Option<&PreparationRecord> {
        self.preparation.as_ref().filter(|leaving| leaving.purpose.id() == id)
    }

    /// Forgets the preparation under this identifier. One that has begun since stays.
    pub(super) fn forget(&mut self, context: &SwapContext, id: Uuid) -> anyhow::Result<()> {
        if self.leaving_for(id).is_some() {
            PreparationRecord::forget(&context.root)?;
            (self.preparation, self.undone) = (None, None);
            self.show();
        }
        Ok(())
    }

    pub(super) fn show(&self) {
        if let Some(context) = &self.context {
            let evacuation = self.preparation.as_ref().and_then(PreparationRecord::evacuation);
            context.reporter.update(|status| {
                status.swap = self.swap();
                status.evacuation = evacuation;
            });
        }
    }
}

/// The swap in which this VM took another one's disk. `None` if it has not taken it.
pub(super) fn taken(context: &SwapContext) -> anyhow::Result<Option<SwapState>> {
    let Identity { holder, swap, .. } = context.identity()?;
    let swap = swap.filter(|swap| holder == context.own.vm && !swap.from.is(&context.own));
    let (stage, losses) = (Stage::Taken, Losses::default());
    Ok(swap.map(|Swap { id, from, to, .. }| SwapState { id, stage, error: None, code: None, losses, from, to }))
}
