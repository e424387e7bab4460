//! Takes requests for a swap or an evacuation, and holds their state. They are begun, cancelled and committed one at a time. A
//! restart of the agent continues the preparation; a restart of the VM ends it. It does not depend on HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use contract::codes;
use contract::swap::{EvacuationRequest, EvacuationState, Losses, Rejection, Request, Stage, SwapState};
use uuid::Uuid;

use super::context::SwapContext;
use super::evacuate::failure;
use super::judge::{self, SwapPreconditions};
use super::manager_state::{ManagerState, taken};
use super::preparation_record::{PreparationRecord, Purpose};
use super::prepare::PreparationTask;
use super::{boot_health, publisher};
use crate::host::command::{Runner, SlowHost};
use crate::host::disk::Identity;

/// How long etcd may take to be healthy again once the pods have moved, times the timeout factor.
const SETTLING: Duration = Duration::from_secs(20);

/// A handle on the node's only manager; clones share it.
#[derive(Clone, Default)]
pub struct SwapManager {
    inner: Arc<Mutex<ManagerState>>,
}

impl SwapManager {
    /// Opens the manager of a node whose data disk is mounted. Continues a preparation that was begun before the agent was
    /// restarted. Does nothing if it is open.
    ///
    /// # Errors
    /// The identity cannot be read, or the preparation cannot be continued.
    pub fn open(&self, context: SwapContext) -> anyhow::Result<()> {
        let context = Arc::new(context);
        let mut inner = self.lock();
        if inner.context.is_none()
            && let Some(purpose) = inner.recall(Arc::clone(&context))?
        {
            self.set_out(&mut inner, context, purpose)?;
        }
        Ok(())
    }

    /// Reads the swap again after this VM has taken the data disk.
    pub fn taken(&self) -> anyhow::Result<()> {
        let mut inner = self.lock();
        if let Some(context) = inner.context.clone()
            && let Some(taken) = taken(&context)?
        {
            inner.taken = Some(taken);
            inner.show();
        }
        Ok(())
    }

    /// The node, once the manager is open.
    pub fn context(&self) -> Option<Arc<SwapContext>> {
        self.lock().context.clone()
    }

    pub fn state(&self) -> Option<SwapState> {
        self.lock().swap()
    }

    pub fn evacuation(&self) -> Option<EvacuationState> {
        self.lock().preparation.as_ref().and_then(PreparationRecord::evacuation)
    }

    /// The swap or evacuation that is being prepared or is prepared on this VM, or its upgrade of Kubernetes. Other nodes wait
    /// for it.
    pub fn under_way(&self) -> Option<Uuid> {
        let leaving = self.lock().under_way();
        leaving.or_else(|| self.context().and_then(|context| context.upgrade()).map(|begun| begun.id))
    }

    /// Begins to prepare a swap, and returns its stage. Asks the other members first, so it takes a moment.
    ///
    /// # Errors
    /// The reason of the refusal. Nothing was changed.
    pub fn begin(&self, request: Request) -> Result<Stage, Rejection> {
        self.leave(Purpose::Swap(request))
    }

    /// Begins an evacuation, as [`SwapManager::begin`] a swap. This VM is going to be shut down, and the right to take the disk
    /// stays as it is.
    ///
    /// # Errors
    /// The reason of the refusal. Nothing was changed.
    pub fn evacuate(&self, request: EvacuationRequest) -> Result<Stage, Rejection> {
        self.leave(Purpose::Evacuation(request))
    }

    fn leave(&self, purpose: Purpose) -> Result<Stage, Rejection> {
        self.leave_if(purpose, |context| judge::judge(&SwapPreconditions::look(context)))
    }

    /// Begins `purpose` if `judged` allows it, which may take long.
    fn leave_if(
        &self,
        purpose: Purpose,
        judged: impl FnOnce(&SwapContext) -> Result<(), Rejection>,
    ) -> Result<Stage, Rejection> {
        let context = self.context().ok_or_else(not_open)?;
        if let Some(stage) = self.lock().repeated(&purpose)? {
            return Ok(stage);
        }
        if let Some(begun) = context.upgrade() {
            let reason = format!("the upgrade of this node to Kubernetes {} is under way", begun.to);
            return Err(Rejection::of(&codes::SWAP_ANOTHER, reason));
        }
        let own = &context.image.version;
        if let Purpose::Swap(request) = &purpose {
            judge::version(own, request)?;
        }
        judged(&context)?;
        let mut inner = self.lock();
        // In the meantime another request may have begun it, or cancelled it.
        if let Some(stage) = inner.repeated(&purpose)? {
            return Ok(stage);
        }
        context.note(&match &purpose {
            Purpose::Swap(request) => format!("preparing {}", request.words(own)),
            Purpose::Evacuation(_) => format!("preparing {purpose}"),
        });
        inner.begin(purpose.clone());
        self.set_out(&mut inner, context, purpose).map_err(|error| failed(&error))?;
        Ok(Stage::Judging)
    }

    /// Undoes the preparation. If a step is under way, the preparation is undone when the step ends. Returns whether all is
    /// undone.
    ///
    /// # Errors
    /// Another VM's disk was taken already, or it cannot be undone now.
    pub fn cancel(&self, id: Uuid, runner: &dyn Runner) -> Result<bool, Rejection> {
        let (context, purpose) = {
            let mut inner = self.lock();
            if inner.taken.as_ref().is_some_and(|taken| taken.id == id) {
                return Err(Rejection::of(
                    &codes::SWAP_TAKEN,
                    "this VM has the data disk of the former one: to go back, give the disk back to that one",
                ));
            }
            let leaving = inner.leaving_for(id).cloned();
            let Some((context, leaving)) = inner.context.clone().zip(leaving) else {
                inner.withdraw(id);
                return Ok(true);
            };
            // Another request withdraws the same.
            if inner.withdrawing.is_some() {
                return Ok(false);
            }
            // Saved first: the cancellation holds even if the agent is killed now.
            inner.cancelled.store(true, Ordering::SeqCst);
            let (stage, purpose) = (leaving.stage, leaving.purpose.clone());
            inner.keep(&context, leaving).map_err(|error| failed(&error))?;
            let under_way = ![Stage::Prepared, Stage::Failed].contains(&stage);
            if under_way && inner.way.as_ref().is_some_and(|way| !way.is_finished()) {
                return Ok(false);
            }
            inner.withdrawing = Some(id);
            (context, purpose)
        };
        let undone = self.undo(&context, &purpose, runner);
        let mut inner = self.lock();
        // In any case, and under the same lock.
        inner.withdrawing = None;
        match undone {
            Ok(()) => {
                inner.forget(&context, id).map_err(|error| failed(&error))?;
                inner.withdraw(id);
                Ok(true)
            }
            Err(error) => {
                // The stage is failed now, so that a new request begins again.
                let refused = failed(&error.context("withdrawing it"));
                gave_up(&mut inner, &context, id, &refused).map_err(|error| failed(&error))?;
                Err(refused)
            }
        }
    }

    /// Undoes the preparation for a purpose that is given up, and tells the cluster. Later announcements leave it out, although
    /// it is not forgotten yet.
    fn undo(&self, context: &SwapContext, purpose: &Purpose, runner: &dyn Runner) -> anyhow::Result<()> {
        PreparationTask::undo(context, runner)?;
        self.lock().undone = Some(purpose.id());
        let told = context.announce(|| self.under_way());
        told.with_context(|| format!("telling the cluster that {purpose} is off"))?;
        context.note(&format!("{purpose} is withdrawn"));
        Ok(())
    }

    /// Commits this swap, or any if `None`. From then on the former VM can no longer take the disk. Maintenance updates the
    /// add-ons when all nodes have committed. Returns whether there was anything to commit.
    ///
    /// # Errors
    /// Another swap is meant, this boot is not healthy yet, the node is leaving its work, or the disk cannot be written.
    pub fn commit(&self, swap: Option<Uuid>) -> Result<bool, Rejection> {
        let context = self.context().ok_or_else(not_open)?;
        // Nothing else begins in the meantime.
        let mut inner = self.lock();
        let Some(state) = inner.taken.clone() else { return Ok(false) };
        // A request that was sent before the last commit may arrive now.
        if let Some(other) = swap.filter(|swap| *swap != state.id) {
            let reason = format!("the swap {other} is no longer this node's; its swap is {}", state.id);
            return Err(Rejection::of(&codes::SWAP_ANOTHER, reason));
        }
        if let Some(leaving) = inner.leaving() {
            let reason = format!("{} of this node is under way: cancel it first", leaving.purpose);
            return Err(Rejection::of(&codes::SWAP_ANOTHER, reason));
        }
        if boot_health::read(&context.root).is_none() {
            return Err(Rejection::of(
                &codes::SWAP_NOT_GOOD,
                "this boot is not marked good yet; `journalctl -u kaas-mark-good` says what is missing",
            ));
        }
        let commit = || -> anyhow::Result<()> {
            let identity = context.identity()?;
            let next = context.next_publisher(&identity);
            if let Some(key) = &next {
                // The cluster first. If the second write fails, both are repeated.
                publisher::change(&context.etcd()?, key)?;
            }
            let publisher = next.clone().or_else(|| identity.publisher.clone());
            context.write(&Identity { swap: None, publisher, ..identity })?;
            context.note(&format!("the swap {} is committed: image {} stays", state.id, context.image.version));
            if let Some(key) = next {
                context.note(&format!("the publisher's key {key} is pinned, as was asked for with this swap"));
            }
            Ok(())
        };
        commit().map_err(|error| failed(&error))?;
        inner.taken = None;
        inner.show();
        Ok(true)
    }

    fn set_out(&self, inner: &mut ManagerState, context: Arc<SwapContext>, purpose: Purpose) -> anyhow::Result<()> {
        let (manager, cancelled) = (self.clone(), Arc::clone(&inner.cancelled));
        let way = thread::Builder::new().name("swap".to_owned());
        let host = SlowHost(context.config.timeout_factor);
        let way = way.spawn(move || manager.carry_out(&context, &purpose, &cancelled, &host));
        inner.way = Some(way.context("starting to prepare this node")?);
        Ok(())
    }

    /// Prepares the node, until it is done, cancelled or failed.
    fn carry_out(&self, context: &SwapContext, purpose: &Purpose, cancelled: &AtomicBool, runner: &dyn Runner) {
        let mut tell = |stage, losses: &Losses| self.come_to(context, stage, losses);
        let settling = context.config.timeout(SETTLING);
        let work = PreparationTask { context, purpose, cancelled, runner, settling };
        let done = match work.run(&mut tell) {
            Ok(true) => Ok(true),
            other => {
                let undone = self.undo(context, purpose, runner);
                other.and_then(|done| undone.map(|()| done))
            }
        };
        let told = match done {
            Ok(true) => Ok(()),
            Ok(false) => self.lock().forget(context, purpose.id()),
            Err(error) => {
                log::warn!("{purpose} could not be prepared: {error:#}");
                gave_up(&mut self.lock(), context, purpose.id(), &failed(&error))
            }
        };
        if let Err(error) = told {
            log::warn!("remembering {purpose}: {error:#}");
        }
    }

    /// Records that a stage is reached, unless it was cancelled. Returns whether to continue.
    fn come_to(&self, context: &SwapContext, stage: Stage, losses: &Losses) -> anyhow::Result<bool> {
        let mut inner = self.lock();
        let goes_on = !inner.cancelled.load(Ordering::SeqCst);
        if goes_on && let Some(leaving) = inner.preparation.clone() {
            inner.keep(context, PreparationRecord { stage, losses: losses.clone(), ..leaving })?;
        }
        Ok(goes_on)
    }

    fn lock(&self) -> MutexGuard<'_, ManagerState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records why the preparation under this identifier has failed, if nothing else has begun since.
fn gave_up(inner: &mut ManagerState, context: &SwapContext, id: Uuid, why: &Rejection) -> anyhow::Result<()> {
    let Some(leaving) = inner.leaving_for(id).cloned() else { return Ok(()) };
    let failure = Some((why.reason.clone(), why.code.clone()));
    inner.keep(context, PreparationRecord { stage: Stage::Failed, failure, ..leaving })
}

fn not_open() -> Rejection {
    Rejection::of(&codes::SWAP_NOT_READY, "this node has not come far enough since power-on: ask again in a moment")
}

fn failed(error: &anyhow::Error) -> Rejection {
    failure(error, &codes::SWAP_FAILED)
}

#[cfg(test)]
mod cuts;
#[cfg(test)]
mod drain_tests;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod withdrawal_tests;
