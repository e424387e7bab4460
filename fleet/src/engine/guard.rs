//! Changes of VMs under a lease:
//!
//! 1. [`GuardedHypervisor::open`] checks that the VM to change is the deployment's, and returns a [`Call`].
//! 2. The hypervisor asks the call before each of its requests. The answer is that of the lease, just confirmed.
//! 3. [`guarded`] ends a call early when the operator asks the command to end, unless a request was permitted.
//!
//! Reads need no call: [`GuardedHypervisor`] dereferences to its [`Hypervisor`].

use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cancel::{Cancelled, unless_cancelled};
use crate::hypervisor::{
    CloneRequest, CloneSettings, Error, ErrorKind, Fence, Hypervisor, PowerState, Result, ShutDown, Stamp, Vm,
};
use crate::lease::{Lease, LeaseUnconfirmed, Lost};

/// How long a call that asks a guest to shut down may take in a run that may have to end. Also the pause between two
/// looks after that.
const ASKING: Duration = Duration::from_secs(5);
const LOOKING: Duration = Duration::from_secs(5);

pub struct GuardedHypervisor<'a> {
    hypervisor: &'a dyn Hypervisor,
    hold: &'a Lease<'a>,
    cancelled: Option<watch::Receiver<bool>>,
}

impl<'a> Deref for GuardedHypervisor<'a> {
    type Target = dyn Hypervisor + 'a;

    fn deref(&self) -> &Self::Target {
        self.hypervisor
    }
}

/// The subject of a call. Each must be the deployment's.
#[derive(Clone, Copy)]
pub enum Scope<'s> {
    /// A VM that is changed.
    Vm(&'s Vm),
    /// The stamp that a VM gets.
    Stamp(&'s Stamp),
    /// The stamp of a new VM, and the VM that it replaces.
    Clone(&'s CloneRequest<'s>),
}

pub struct Call<'a> {
    hold: &'a Lease<'a>,
    /// Becomes true when the operator asks the command to end. `None` if it cannot.
    cancelled: Option<watch::Receiver<bool>>,
    /// Whether a request was permitted: it may have happened then, whatever the result.
    begun: AtomicBool,
    /// Writes a note before the requests.
    note: Option<&'a (dyn Fn() -> Noting<'a> + Send + Sync)>,
    is_noted: AtomicBool,
}

/// Writes a note: it is saved when this returns.
pub(crate) type Noting<'n> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'n>>;

/// The result of a [`guarded`] call.
pub(crate) type Unless<T> = std::result::Result<Result<T>, Cancelled>;

/// Runs a call, unless the operator asks to end before the call was permitted anything. Until then it has only looked,
/// and is dropped. A permitted request goes on when it is dropped, so its end is waited for.
pub(crate) async fn guarded<T>(
    call: &Call<'_>,
    mut work: impl Future<Output = T> + Unpin,
) -> std::result::Result<T, Cancelled> {
    let Some(cancelled) = &call.cancelled else { return Ok(work.await) };
    match unless_cancelled(cancelled, &mut work).await {
        Err(Cancelled) if call.is_begun() => Ok(work.await),
        done => done,
    }
}

impl<'a> Call<'a> {
    /// The same call with a note. The note is written after all looks but the last one, so that a call that is refused
    /// until then leaves none. If the last look or the lease ends the call, the note stays though nothing was requested:
    /// [`Self::is_begun`] tells.
    pub(crate) fn noting<'c>(self, note: &'c (dyn Fn() -> Noting<'c> + Send + Sync)) -> Call<'c>
    where
        'a: 'c,
    {
        let Self { hold, cancelled, begun, is_noted, .. } = self;
        Call { hold, cancelled, begun, note: Some(note), is_noted }
    }

    /// Whether a request was permitted.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Fence for Call<'_> {
    async fn prepare(&self) -> Result<()> {
        let Some(note) = self.note.filter(|_| !self.is_noted.load(Ordering::Relaxed)) else { return Ok(()) };
        note().await.map_err(|error| match error.is::<Lost>() {
            true => Error::new(ErrorKind::Fenced, error),
            // Nothing was requested.
            false => Error::transient(error),
        })?;
        self.is_noted.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn still(&self) -> Result<()> {
        self.prepare().await?;
        // Last: a note takes its time.
        match may(self.hold).await {
            // In a call that lasts, one unanswered question ends nothing: the answer before is still valid. But a
            // question that is still under way has the place of the request that would follow among those that are made
            // at once.
            Err(error) if error.kind == ErrorKind::Transient && self.is_begun() => {
                if self.hold.is_fresh() && !error.source.is::<LeaseUnconfirmed>() {
                    return Ok(());
                }
                Err(Error::new(ErrorKind::InDoubt, error.source))
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.begun.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn rest(&self) -> Duration {
        self.hold.rest()
    }

    async fn rests(&self, rest: Duration) -> bool {
        let rested = tokio::time::sleep(rest);
        match &self.cancelled {
            Some(cancelled) => unless_cancelled(cancelled, rested).await.is_ok(),
            None => {
                rested.await;
                true
            }
        }
    }
}

/// Whether this command still holds the deployment could not be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is changed while it cannot be confirmed that no other command has taken over")]
pub(crate) struct Unconfirmed;

/// Confirms the lease. The permitted request must begin at once.
pub(crate) async fn may(hold: &Lease<'_>) -> Result<()> {
    match hold.confirm().await {
        Ok(()) if hold.is_fresh() => Ok(()),
        Ok(()) => Err(Error::transient(anyhow::anyhow!("confirming it took too long").context(Unconfirmed))),
        Err(lost) if lost.is::<Lost>() => Err(Error::new(ErrorKind::Fenced, lost)),
        Err(unknown) => Err(Error::transient(unknown.context(Unconfirmed))),
    }
}

impl<'a> GuardedHypervisor<'a> {
    /// `cancelled` becomes true when the operator asks the command to end. `None` if it cannot.
    pub fn new(hypervisor: &'a dyn Hypervisor, hold: &'a Lease<'a>, cancelled: Option<&watch::Receiver<bool>>) -> Self {
        Self { hypervisor, hold, cancelled: cancelled.cloned() }
    }

    /// Begins a call that changes a VM.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the VM or the stamp is not the deployment's.
    pub fn open(&self, scope: Scope<'_>) -> Result<Call<'a>> {
        let (stamp, vm) = match scope {
            Scope::Vm(vm) => (None, Some(vm)),
            Scope::Stamp(stamp) => (Some(stamp), None),
            Scope::Clone(request) => match request.settings {
                CloneSettings::Replaces { vm, .. } => (Some(&request.stamp), Some(vm)),
                CloneSettings::Given { .. } => (Some(&request.stamp), None),
            },
        };
        let deployment = self.hypervisor.deployment();
        if stamp.is_some_and(|stamp| stamp.deployment != deployment) {
            return Err(Error::refused("the stamp is another deployment's"));
        }
        if let Some(vm) = vm.filter(|vm| !vm.is_of(deployment)) {
            return Err(Error::refused(format!("the VM {vm} is not stamped as this deployment's; it is not changed")));
        }
        Ok(self.call())
    }

    /// Begins a call that changes no VM: the lease is enough.
    pub fn call(&self) -> Call<'a> {
        let (hold, cancelled) = (self.hold, self.cancelled.clone());
        Call { hold, cancelled, begun: AtomicBool::new(false), note: None, is_noted: AtomicBool::new(false) }
    }

    /// Waits until earlier requests have ended ([`Hypervisor::settle`]).
    pub(crate) async fn settled(&self) -> Unless<()> {
        let call = self.call();
        guarded(&call, self.hypervisor.settle(&call)).await
    }

    /// Asks a guest to shut down and waits until the VM is off, at most `limit`. If the operator asks the command to
    /// end, the wait ends and the guest goes on shutting down. [`ShutDown::StillOn`] is no reason to cut the power then.
    pub(crate) async fn shut_down_unless(&self, vm: &Vm, limit: Duration) -> Result<ShutDown> {
        let begun = Instant::now();
        // That call is waited for: its request cannot be withdrawn.
        let mut became = self.hypervisor.shut_down(vm, ASKING.min(limit), &self.open(Scope::Vm(vm))?).await?;
        let is_cancelled = || self.cancelled.as_ref().is_some_and(|cancelled| *cancelled.borrow());
        while became == ShutDown::StillOn && begun.elapsed() < limit && !is_cancelled() {
            tokio::time::sleep(LOOKING).await;
            if self.hypervisor.vm(&vm.reference).await?.power == PowerState::Off {
                became = ShutDown::Off;
            }
        }
        Ok(became)
    }
}

#[cfg(test)]
mod tests;
