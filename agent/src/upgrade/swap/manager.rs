//! Where a swap is asked for, and where it stands: begun, cancelled and committed
//! one at a time. What was begun goes on after a restart of the agent; a restart of the VM
//! ends it. Knows nothing of HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use contract::codes;
use contract::swap::{Refused, Request, Stage, SwapState};

use super::context::SwapContext;
use super::judge::{self, Seen};
use super::prepare::Work;
use super::saved::Saved;
use super::{good, publisher};
use crate::host::command::{Host, Runner};
use crate::host::disk::Identity;
use crate::host::disk::ownership::Swap;

/// A handle on the one swap of a node; clones share it.
#[derive(Clone, Default)]
pub struct SwapManager {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    context: Option<Arc<SwapContext>>,
    state: Option<SwapState>,
    request: Option<Request>,
    way: Option<JoinHandle<()>>,
    cancelled: Arc<AtomicBool>,
}

impl SwapManager {
    /// Opens the manager of a node whose data disk is mounted, and goes on with what was begun before
    /// the agent was started again. Once it is open, nothing happens.
    ///
    /// # Errors
    /// The identity cannot be read, or what was begun cannot be continued.
    pub fn open(&self, context: SwapContext) -> anyhow::Result<()> {
        let context = Arc::new(context);
        let mut inner = self.lock();
        if inner.context.is_none()
            && let Some(request) = inner.recall(Arc::clone(&context))?
        {
            self.set_out(&mut inner, context, request)?;
        }
        Ok(())
    }

    /// This VM has taken the data disk: what that means is known from here on.
    ///
    /// # Errors
    /// The identity cannot be read.
    pub fn taken(&self) -> anyhow::Result<()> {
        let mut inner = self.lock();
        if let Some(context) = inner.context.clone()
            && let Some(taken) = taken(&context)?
        {
            inner.show(Some(taken));
        }
        Ok(())
    }

    /// The node, once the manager is open.
    pub fn context(&self) -> Option<Arc<SwapContext>> {
        self.lock().context.clone()
    }

    /// How the swap stands.
    pub fn state(&self) -> Option<SwapState> {
        self.lock().state.clone()
    }

    /// The swap that is being prepared, or is, on this VM, or its upgrade of Kubernetes: what other nodes wait for.
    pub fn under_way(&self) -> Option<uuid::Uuid> {
        let swap = self.state().filter(|state| state.stage.is_under_way()).map(|state| state.id);
        swap.or_else(|| self.context().and_then(|context| context.upgrade()).map(|begun| begun.id))
    }

    /// Begins to prepare a swap, and says how far it is. Asks the other members first, so it
    /// takes a moment.
    ///
    /// # Errors
    /// Why it is refused: nothing was changed.
    pub fn begin(&self, request: Request) -> Result<Stage, Refused> {
        let context = self.context().ok_or_else(not_open)?;
        if let Some(stage) = judge::repeated(self.state().as_ref(), &request)? {
            return Ok(stage);
        }
        if let Some(begun) = context.upgrade() {
            let reason = format!("the upgrade of this node to Kubernetes {} is under way", begun.to);
            return Err(Refused::of(&codes::SWAP_ANOTHER, reason));
        }
        judge::judge(&Seen::look(&context, &request))?;
        let mut inner = self.lock();
        // Somebody else may have been quicker.
        if let Some(stage) = judge::repeated(inner.state.as_ref(), &request)? {
            return Ok(stage);
        }
        context.note(&format!("preparing {}", request.words(&context.image.version)));
        inner.begin(&context, &request);
        self.set_out(&mut inner, context, request).map_err(|error| failed(&error))?;
        Ok(Stage::Judging)
    }

    /// Undoes what was prepared, or has it undone as soon as the step under way ends. Says whether
    /// nothing is left of it by now.
    ///
    /// # Errors
    /// Another VM's disk was taken already, or it cannot be undone now.
    pub fn cancel(&self, id: uuid::Uuid, runner: &dyn Runner) -> Result<bool, Refused> {
        let (context, request) = {
            let mut inner = self.lock();
            let Some(state) = inner.state.clone().filter(|state| state.id == id) else { return Ok(true) };
            if state.stage == Stage::Taken {
                return Err(Refused::of(
                    &codes::SWAP_TAKEN,
                    "this VM has the data disk of the former one: to go back, give the disk back to that one",
                ));
            }
            let Some((context, request)) = inner.context.clone().zip(inner.request.clone()) else { return Ok(true) };
            // Remembered first: it holds even if the agent is cut off now.
            inner.cancelled.store(true, Ordering::SeqCst);
            inner.keep(&context, &request, state.stage, state.error).map_err(|error| failed(&error))?;
            let under_way = ![Stage::Prepared, Stage::Failed].contains(&state.stage);
            if under_way && inner.way.as_ref().is_some_and(|way| !way.is_finished()) {
                return Ok(false);
            }
            (context, request)
        };
        if let Err(error) = Work::undo(&context, id, runner) {
            // It is no longer what it was, so that asking for it again begins anew.
            let words = format!("withdrawing it: {error:#}");
            self.set(&context, Some((&request, Stage::Failed, Some(words)))).map_err(|error| failed(&error))?;
            return Err(failed(&error));
        }
        self.set(&context, None).map_err(|error| failed(&error))?;
        Ok(true)
    }

    /// Commits: the former VM can no longer take the disk back. The add-ons follow when all nodes
    /// have committed; that is maintenance's. Says whether there was anything to commit.
    ///
    /// # Errors
    /// This boot is not good yet, or the disk cannot be written.
    pub fn commit(&self) -> Result<bool, Refused> {
        let context = self.context().ok_or_else(not_open)?;
        let Some(state) = self.state().filter(|state| state.stage == Stage::Taken) else { return Ok(false) };
        if good::read(&context.root).is_none() {
            return Err(Refused::of(
                &codes::SWAP_NOT_GOOD,
                "this boot is not marked good yet; `journalctl -u kaas-mark-good` says what is missing",
            ));
        }
        let commit = || -> anyhow::Result<()> {
            let identity = context.identity()?;
            let next = context.next_publisher(&identity);
            if let Some(key) = &next {
                // The cluster first: what fails between the two is done again.
                publisher::change(&context.etcd()?, key)?;
            }
            let publisher = next.clone().or_else(|| identity.publisher.clone());
            context.write(&Identity { swap: None, publisher, ..identity })?;
            context.note(&format!("the swap {} is committed: image {} stays", state.id, context.image.version));
            if let Some(key) = next {
                context.note(&format!("the publisher's key {key} is pinned, as was asked for with this swap"));
            }
            self.set(&context, None)
        };
        commit().map_err(|error| failed(&error))?;
        Ok(true)
    }

    fn set_out(&self, inner: &mut Inner, context: Arc<SwapContext>, request: Request) -> anyhow::Result<()> {
        let (manager, cancelled) = (self.clone(), Arc::clone(&inner.cancelled));
        let way = thread::Builder::new().name("swap".to_owned());
        let way = way.spawn(move || manager.carry_out(&context, &request, &cancelled, &Host));
        inner.way = Some(way.context("starting to prepare the swap")?);
        Ok(())
    }

    /// Prepares the swap, to its end.
    fn carry_out(&self, context: &SwapContext, request: &Request, cancelled: &AtomicBool, runner: &dyn Runner) {
        let mut tell = |stage| self.come_to(context, request, stage);
        let work = Work { context, request, cancelled, runner };
        let told = match work.run(&mut tell) {
            Ok(true) => Ok(()),
            Ok(false) => self.set(context, None),
            Err(error) => {
                log::warn!("the swap {} could not be prepared: {error:#}", request.id);
                self.set(context, Some((request, Stage::Failed, Some(format!("{error:#}")))))
            }
        };
        if let Err(error) = told {
            log::warn!("remembering the swap: {error:#}");
        }
    }

    /// Notes that a stage is reached, unless the swap was cancelled. Says so.
    fn come_to(&self, context: &SwapContext, request: &Request, stage: Stage) -> anyhow::Result<bool> {
        let mut inner = self.lock();
        let goes_on = !inner.cancelled.load(Ordering::SeqCst);
        if goes_on {
            inner.keep(context, request, stage, None)?;
        }
        Ok(goes_on)
    }

    fn set(&self, context: &SwapContext, now: Option<(&Request, Stage, Option<String>)>) -> anyhow::Result<()> {
        let mut inner = self.lock();
        match now {
            None => {
                Saved::forget(&context.root)?;
                inner.request = None;
                inner.show(None);
            }
            Some((request, stage, error)) => inner.keep(context, request, stage, error)?,
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Finds out where a swap stands after the agent was started again. Gives the request that is
    /// to be continued, or withdrawn.
    fn recall(&mut self, context: Arc<SwapContext>) -> anyhow::Result<Option<Request>> {
        let taken = taken(&context)?;
        let saved = Saved::load(&context.root).unwrap_or_else(|error| {
            log::warn!("what was begun of a swap is not known any more: {error:#}");
            None
        });
        let mut goes_on = None;
        match saved {
            Some(Saved { request, stage, error, cancelled }) if taken.is_none() => {
                self.state = Some(state(&context, &request, stage, error));
                self.cancelled = Arc::new(AtomicBool::new(cancelled));
                let stands = !cancelled && stage == Stage::Prepared;
                match stage {
                    Stage::Failed => Work::put_back(&context)?,
                    _ if stands => {}
                    _ => {
                        log::info!("the preparation of the swap {} goes on", request.id);
                        goes_on = Some(request.clone());
                    }
                }
                self.request = Some(request);
            }
            _ => {
                self.state = taken;
                Work::put_back(&context)?;
            }
        }
        self.context = Some(context);
        let state = self.state.clone();
        self.show(state);
        Ok(goes_on)
    }

    fn begin(&mut self, context: &SwapContext, request: &Request) {
        self.cancelled = Arc::default();
        self.request = Some(request.clone());
        self.show(Some(state(context, request, Stage::Judging, None)));
    }

    /// Remembers how far the swap is.
    fn keep(
        &mut self,
        context: &SwapContext,
        request: &Request,
        stage: Stage,
        error: Option<String>,
    ) -> anyhow::Result<()> {
        let cancelled = self.cancelled.load(Ordering::SeqCst);
        Saved { request: request.clone(), stage, error: error.clone(), cancelled }.save(&context.root)?;
        self.show(Some(state(context, request, stage, error)));
        Ok(())
    }

    fn show(&mut self, state: Option<SwapState>) {
        self.state = state;
        if let Some(context) = &self.context {
            context.reporter.update(|status| status.swap = self.state.clone());
        }
    }
}

/// The swap by which this VM has the disk of another one, if it has taken it already.
fn taken(context: &SwapContext) -> anyhow::Result<Option<SwapState>> {
    let Identity { holder, swap, .. } = context.identity()?;
    let swap = swap.filter(|swap| holder == context.own.vm && !swap.from.is(&context.own));
    Ok(swap.map(|Swap { id, from, to, .. }| SwapState { id, stage: Stage::Taken, error: None, from, to }))
}

fn state(context: &SwapContext, request: &Request, stage: Stage, error: Option<String>) -> SwapState {
    SwapState { id: request.id, stage, error, from: context.own.clone(), to: Some(request.to.clone()) }
}

fn not_open() -> Refused {
    Refused::of(&codes::SWAP_NOT_READY, "this node has not come far enough since power-on: ask again in a moment")
}

fn failed(error: &anyhow::Error) -> Refused {
    Refused::of(&codes::SWAP_FAILED, format!("{error:#}"))
}

#[cfg(test)]
#[path = "manager_cuts.rs"]
mod cuts;
#[cfg(test)]
#[path = "manager_tests.rs"]
pub(crate) mod tests;
