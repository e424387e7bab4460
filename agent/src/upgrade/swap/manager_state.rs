//! What the manager of swaps knows and remembers: what was begun, how far it is, and what was cancelled. Prepares nothing.

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

/// How many cancelled ones are remembered; the requests of so many are never under way at once.
const WITHDRAWN: usize = 32;

#[derive(Default)]
pub(super) struct ManagerState {
    /// The node, once the manager is open.
    pub(super) context: Option<Arc<SwapContext>>,
    /// The swap by which this VM has the disk of another one.
    pub(super) taken: Option<SwapState>,
    /// What was asked for since power-on: under way, done or failed.
    pub(super) preparation: Option<PreparationRecord>,
    pub(super) way: Option<JoinHandle<()>>,
    /// Whether what is under way was cancelled.
    pub(super) cancelled: Arc<AtomicBool>,
    /// What is withdrawn at this moment: nothing else begins meanwhile, for the withdrawal would undo that.
    pub(super) withdrawing: Option<Uuid>,
    /// What is given up and has been undone: the cluster is told of it no more.
    pub(super) undone: Option<Uuid>,
    /// What was cancelled last, the newest at the end. A request for it that was sent before may still come.
    withdrawn: VecDeque<Uuid>,
}

impl ManagerState {
    /// What is being prepared, or is.
    pub(super) fn leaving(&self) -> Option<&PreparationRecord> {
        self.preparation.as_ref().filter(|leaving| leaving.stage.is_under_way())
    }

    /// The same, unless it has been undone.
    pub(super) fn under_way(&self) -> Option<Uuid> {
        self.leaving().map(|leaving| leaving.purpose.id()).filter(|id| self.undone != Some(*id))
    }

    /// How the swap stands: this VM has the disk of another one, or leaves its own.
    pub(super) fn swap(&self) -> Option<SwapState> {
        let own = self.context.as_ref().map(|context| &context.own);
        let leaving = self.preparation.as_ref().zip(own).and_then(|(leaving, own)| leaving.swap(own));
        self.taken.clone().or(leaving)
    }

    /// How far it is if it was begun before.
    ///
    /// # Errors
    /// It was cancelled, or another one is under way.
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

    /// Finds out where the node stands after the agent was started again. Gives what is to be continued, or withdrawn.
    pub(super) fn recall(&mut self, context: Arc<SwapContext>) -> anyhow::Result<Option<Purpose>> {
        self.taken = taken(&context)?;
        let saved = PreparationRecord::load(&context.root).unwrap_or_else(|error| {
            log::warn!("what this node left its work for is not known any more: {error:#}");
            None
        });
        // Whoever has another one's disk is prepared for no further swap.
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

    /// Remembers that this one was cancelled.
    pub(super) fn withdraw(&mut self, id: Uuid) {
        if !self.withdrawn.contains(&id) {
            self.withdrawn.push_back(id);
        }
        if self.withdrawn.len() > WITHDRAWN {
            self.withdrawn.pop_front();
        }
    }

    /// Something else is prepared from now on.
    pub(super) fn begin(&mut self, purpose: Purpose) {
        (self.cancelled, self.undone) = (Arc::default(), None);
        self.preparation = Some(PreparationRecord::begun(purpose));
        self.show();
    }

    /// Remembers how far it is.
    pub(super) fn keep(&mut self, context: &SwapContext, leaving: PreparationRecord) -> anyhow::Result<()> {
        let leaving = PreparationRecord { cancelled: self.cancelled.load(Ordering::SeqCst), ..leaving };
        leaving.save(&context.root)?;
        self.preparation = Some(leaving);
        self.show();
        Ok(())
    }

    /// What was prepared under this identifier, if that is what this node leaves its work for.
    pub(super) fn leaving_for(&self, id: Uuid) -> Option<&PreparationRecord> {
        self.preparation.as_ref().filter(|leaving| leaving.purpose.id() == id)
    }

    /// Nothing is left of what was prepared under this identifier. What has begun since stays as it is.
    pub(super) fn forget(&mut self, context: &SwapContext, id: Uuid) -> anyhow::Result<()> {
        if self.leaving_for(id).is_some() {
            PreparationRecord::forget(&context.root)?;
            (self.preparation, self.undone) = (None, None);
            self.show();
        }
        Ok(())
    }

    /// Shows it in the status.
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

/// The swap by which this VM has the disk of another one, if it has taken it already.
pub(super) fn taken(context: &SwapContext) -> anyhow::Result<Option<SwapState>> {
    let Identity { holder, swap, .. } = context.identity()?;
    let swap = swap.filter(|swap| holder == context.own.vm && !swap.from.is(&context.own));
    let (stage, losses) = (Stage::Taken, Losses::default());
    Ok(swap.map(|Swap { id, from, to, .. }| SwapState { id, stage, error: None, code: None, losses, from, to }))
}
