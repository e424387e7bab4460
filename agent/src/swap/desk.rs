//! Where a swap is asked for, and where it stands: begun, cancelled and committed
//! one at a time. What was begun goes on after a restart of the agent; a restart of the VM
//! ends it. Knows nothing of HTTP.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::holder::{Swap, Use};
use super::judge::{self, Seen};
use super::prepare::Work;
use super::wire::{Refused, Request, Stage, State};
use super::{good, standing};
use crate::addons;
use crate::codes;
use crate::command::{Host, Runner};
use crate::config::Config;
use crate::disk::{Identity, Slots, identity};
use crate::files;
use crate::image::ImageFacts;
use crate::kubernetes::api;
use crate::records::Records;
use crate::status::Reporter;

/// What is remembered of a swap while this VM runs.
const SAVED: &str = "/run/kaas/swap.json";

/// The node that swaps are asked of.
#[derive(Clone)]
pub struct Site {
    /// Its configuration.
    pub config: Config,
    /// The system's root, `/` outside of tests.
    pub root: PathBuf,
    /// The folder of keys.
    pub pki: PathBuf,
    /// The running image.
    pub image: ImageFacts,
    /// The device of the data disk.
    pub disk: PathBuf,
    /// This VM with its image.
    pub own: Use,
    /// Tells the world.
    pub reporter: Reporter,
    /// Tells the cluster.
    pub teller: standing::Teller,
}

impl Site {
    /// The newest identity on the data disk.
    ///
    /// # Errors
    /// There is none.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        let slots = Slots::read(&self.disk).with_context(|| format!("reading {}", self.disk.display()))?;
        slots.newest().cloned().context("the data disk has lost its identity")
    }

    /// Writes another swap into the identity.
    ///
    /// # Errors
    /// The disk cannot be read or written.
    pub fn set_swap(&self, swap: Option<Swap>) -> anyhow::Result<()> {
        let changed = Identity { swap, ..self.identity()? };
        identity::write(&self.disk, &changed).with_context(|| format!("writing to {}", self.disk.display()))
    }

    /// The records on the data disk.
    pub fn records(&self) -> Records {
        Records::new(&self.root)
    }

    /// Notes a change on the data disk, as far as it can be written.
    pub fn note(&self, what: &str) {
        log::info!("{what}");
        if let Err(error) = self.records().note_swap(SystemTime::now(), what) {
            log::warn!("{error:#}");
        }
    }
}

/// What is remembered while the VM runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    request: Request,
    stage: Stage,
    error: Option<String>,
}

/// A handle on the one swap of a node; clones share it.
#[derive(Clone, Default)]
pub struct Desk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    site: Option<Arc<Site>>,
    state: Option<State>,
    way: Option<JoinHandle<()>>,
    cancelled: Arc<AtomicBool>,
}

impl Desk {
    /// Opens the desk of a node whose data disk is mounted, and goes on with what was begun before
    /// the agent was started again. Once it is open, nothing happens.
    ///
    /// # Errors
    /// The identity cannot be read, or what was begun cannot be gone on with.
    pub fn open(&self, site: Site) -> anyhow::Result<()> {
        let mut inner = self.lock();
        if inner.site.is_some() {
            return Ok(());
        }
        let taken = taken(&site)?;
        let saved = load(&site).unwrap_or_else(|error| {
            log::warn!("what was begun of a swap is not known any more: {error:#}");
            None
        });
        let site = Arc::new(site);
        inner.site = Some(Arc::clone(&site));
        if taken.is_some() {
            inner.state = taken;
        } else if let Some(Saved { request, stage, error }) = saved {
            inner.state = Some(state(&site, &request, stage, error));
            if ![Stage::Prepared, Stage::Failed].contains(&stage) {
                log::info!("the preparation of the swap {} goes on", request.id);
                self.set_out(&mut inner, site, request)?;
            }
        }
        let state = inner.state.clone();
        inner.show(state);
        Ok(())
    }

    /// This VM has taken the data disk: what that means is known from here on.
    ///
    /// # Errors
    /// The identity cannot be read.
    pub fn taken(&self) -> anyhow::Result<()> {
        let mut inner = self.lock();
        if let Some(site) = inner.site.clone()
            && let Some(taken) = taken(&site)?
        {
            inner.show(Some(taken));
        }
        Ok(())
    }

    /// The node, once the desk is open.
    pub fn site(&self) -> Option<Arc<Site>> {
        self.lock().site.clone()
    }

    /// How the swap stands.
    pub fn state(&self) -> Option<State> {
        self.lock().state.clone()
    }

    /// The swap that is being prepared, or is, on this VM.
    pub fn under_way(&self) -> Option<uuid::Uuid> {
        self.state().filter(|state| is_under_way(state.stage)).map(|state| state.id)
    }

    /// Begins to prepare a swap, and says how far it is. Asks the other members first, so it
    /// takes a moment.
    ///
    /// # Errors
    /// Why it is refused: nothing was changed.
    pub fn begin(&self, request: Request) -> Result<Stage, Refused> {
        let site = self.site().ok_or_else(not_open)?;
        if let Some(stage) = judge::repeated(self.state().as_ref(), &request)? {
            return Ok(stage);
        }
        judge::judge(&Seen::look(&site, &request))?;
        let mut inner = self.lock();
        // Somebody else may have been quicker.
        if let Some(stage) = judge::repeated(inner.state.as_ref(), &request)? {
            return Ok(stage);
        }
        site.note(&format!("preparing the swap {} to image {}", request.id, request.to.version));
        inner.state = Some(state(&site, &request, Stage::Judging, None));
        self.set_out(&mut inner, site, request).map_err(|error| failed(&error))?;
        Ok(Stage::Judging)
    }

    /// Undoes what was prepared, or has it undone as soon as the step under way ends. Says whether
    /// nothing is left of it by now.
    ///
    /// # Errors
    /// Another VM's disk was taken already, or it cannot be undone now.
    pub fn cancel(&self, id: uuid::Uuid) -> Result<bool, Refused> {
        let (site, saved) = {
            let inner = self.lock();
            let Some(state) = inner.state.as_ref().filter(|state| state.id == id) else { return Ok(true) };
            if state.stage == Stage::Taken {
                return Err(refused(
                    &codes::SWAP_TAKEN,
                    "this VM has the data disk of the former one: to go back, give the disk back to that one",
                ));
            }
            let Some(site) = inner.site.clone() else { return Ok(true) };
            if inner.way.as_ref().is_some_and(|way| !way.is_finished()) {
                inner.cancelled.store(true, Ordering::SeqCst);
                return Ok(false);
            }
            (site, state.id)
        };
        Work::undo(&site, saved).map_err(|error| failed(&error))?;
        self.set(&site, None).map_err(|error| failed(&error))?;
        Ok(true)
    }

    /// Commits: the former VM can no longer take the disk back. Says whether there was anything to commit.
    ///
    /// # Errors
    /// This boot is not good yet, or the disk cannot be written.
    pub fn commit(&self, runner: &dyn Runner) -> Result<bool, Refused> {
        let site = self.site().ok_or_else(not_open)?;
        let Some(state) = self.state().filter(|state| state.stage == Stage::Taken) else { return Ok(false) };
        if good::read(&site.root).is_none() {
            return Err(refused(
                &codes::SWAP_NOT_GOOD,
                "this boot is not marked good yet; `journalctl -u kaas-mark-good` says what is missing",
            ));
        }
        let commit = || -> anyhow::Result<()> {
            site.set_swap(None)?;
            site.note(&format!("the swap {} is committed: image {} stays", state.id, site.image.version));
            self.set(&site, None)
        };
        commit().map_err(|error| failed(&error))?;
        // Add-ons change only now; what fails is applied again by whoever commits next.
        if let Err(error) = api::apply(runner, site.config.address(), &addons::cluster_dns(&site.config, &site.image)) {
            log::warn!("applying cluster DNS: {error:#}");
        }
        Ok(true)
    }

    fn set_out(&self, inner: &mut Inner, site: Arc<Site>, request: Request) -> anyhow::Result<()> {
        inner.cancelled = Arc::new(AtomicBool::new(false));
        let (desk, cancelled) = (self.clone(), Arc::clone(&inner.cancelled));
        let state = inner.state.clone();
        inner.show(state);
        let id = request.id;
        let way = thread::Builder::new().name("swap".to_owned()).spawn(move || {
            let mut tell = |stage| desk.set(&site, Some((&request, stage, None)));
            let work = Work { site: &site, request: &request, cancelled: &cancelled, runner: &Host };
            let outcome = work.run(&mut tell);
            let told = match outcome {
                Ok(true) => desk.set(&site, Some((&request, Stage::Prepared, None))),
                Ok(false) => desk.set(&site, None),
                Err(error) => {
                    log::warn!("the swap {id} could not be prepared: {error:#}");
                    desk.set(&site, Some((&request, Stage::Failed, Some(format!("{error:#}")))))
                }
            };
            if let Err(error) = told {
                log::warn!("remembering the swap: {error:#}");
            }
        });
        inner.way = Some(way.context("starting to prepare the swap")?);
        Ok(())
    }

    fn set(&self, site: &Site, now: Option<(&Request, Stage, Option<String>)>) -> anyhow::Result<()> {
        let mut inner = self.lock();
        let path = files::below(&site.root, SAVED);
        match now {
            None => {
                files::remove(&path)?;
                inner.show(None);
            }
            Some((request, stage, error)) => {
                let saved = Saved { request: request.clone(), stage, error: error.clone() };
                files::write_atomically(&path, &serde_json::to_vec_pretty(&saved)?, 0o600)?;
                let state = state(site, request, stage, error);
                inner.show(Some(state));
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn show(&mut self, state: Option<State>) {
        self.state = state;
        if let Some(site) = &self.site {
            site.reporter.update(|status| status.swap = self.state.clone());
        }
    }
}

/// Whether a swap is between its beginning and the shutdown of the VM.
pub fn is_under_way(stage: Stage) -> bool {
    !matches!(stage, Stage::Failed | Stage::Taken)
}

/// The swap by which this VM has the disk of another one, if it has taken it already.
fn taken(site: &Site) -> anyhow::Result<Option<State>> {
    let Identity { holder, swap, .. } = site.identity()?;
    let swap = swap.filter(|swap| holder == site.own.vm && !swap.from.is(&site.own));
    Ok(swap.map(|Swap { id, from, to, .. }| State { id, stage: Stage::Taken, error: None, from, to }))
}

fn state(site: &Site, request: &Request, stage: Stage, error: Option<String>) -> State {
    State { id: request.id, stage, error, from: site.own.clone(), to: Some(request.to.clone()) }
}

fn load(site: &Site) -> anyhow::Result<Option<Saved>> {
    let path = files::below(&site.root, SAVED);
    match fs::read(&path) {
        Ok(text) => {
            serde_json::from_slice(&text).map(Some).with_context(|| format!("understanding {}", path.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

fn not_open() -> Refused {
    refused(&codes::SWAP_NOT_READY, "this node has not come far enough since power-on: ask again in a moment")
}

fn failed(error: &anyhow::Error) -> Refused {
    refused(&codes::SWAP_FAILED, format!("{error:#}"))
}

/// A refusal with this code.
pub(super) fn refused(code: &codes::Code, reason: impl Into<String>) -> Refused {
    Refused { code: code.code.to_owned(), reason: reason.into() }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
