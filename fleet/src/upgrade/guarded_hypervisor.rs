//! A hypervisor as an upgrade may use it: only VMs that carry the deployment's stamp are changed, and each request of a
//! call is made under a hold that was confirmed just before.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::step_error::Unconfirmed;
use crate::authority::{Hold, Lost, Unsaid};
use crate::ending::{Cancelled, unless_cancelled};
use crate::hypervisor::{
    Absence, Addition, DiskRef, Error, Hypervisor, Kind, LastSeen, Permit, Placement, PowerState, Replacement, Result,
    ShutDown, Staged, Stamp, Vm, VmRef, doubles,
};

/// How long a call that asks a guest to shut down may take in a run that may have to end, and the pause between two looks at it after that.
const ASKING: Duration = Duration::from_secs(5);
const LOOKING: Duration = Duration::from_secs(5);

/// The hypervisor, behind a hold. Its calls are those of [`Hypervisor`]; the permits are its own.
pub struct GuardedHypervisor<'a> {
    hypervisor: &'a dyn Hypervisor,
    hold: &'a Hold<'a>,
}

/// The permit of one call.
struct Call<'a> {
    hold: &'a Hold<'a>,
    /// Becomes true when whoever asked for it is to end; none where nobody can say so.
    cancelled: Option<watch::Receiver<bool>>,
    /// Whether something was permitted before: it may have happened then, whatever comes now.
    begun: AtomicBool,
}

#[async_trait]
impl Permit for Call<'_> {
    async fn still(&self) -> Result<()> {
        match may(self.hold).await {
            // Of a call that lasts, one question that nobody answers ends nothing: the answer before is still good. But a question that
            // is still under way has the place of the request that would follow among those that are made at once.
            Err(error) if error.kind == Kind::Transient && self.begun.load(Ordering::Relaxed) => {
                if self.hold.is_fresh() && !error.source.is::<Unsaid>() {
                    return Ok(());
                }
                Err(Error::new(Kind::InDoubt, error.source))
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

/// Notes what is about to be asked for: it is kept when this returns.
pub(crate) type Noting<'n> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'n>>;

/// What came of a call that is noted before it asks for anything.
pub(crate) struct NotedEnd {
    pub(crate) answer: Result<()>,
    /// Whether it was permitted anything: where it was not, nothing was asked for, whatever was noted.
    pub(crate) is_asked: bool,
}

/// The permit of one call that is noted before: once all that it looks at has been looked at but for a last time, so that what is refused
/// by then leaves no note.
struct NotedCall<'c, 'n> {
    call: Call<'c>,
    note: &'c (dyn Fn() -> Noting<'n> + Send + Sync),
    is_noted: AtomicBool,
}

#[async_trait]
impl Permit for NotedCall<'_, '_> {
    async fn prepare(&self) -> Result<()> {
        if !self.is_noted.load(Ordering::Relaxed) {
            (self.note)().await.map_err(|error| match error.is::<Lost>() {
                true => Error::new(Kind::Fenced, error),
                // Nothing was asked for.
                false => Error::transient(error),
            })?;
            self.is_noted.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn still(&self) -> Result<()> {
        self.prepare().await?;
        // Last: a note takes its time.
        self.call.still().await
    }

    fn rest(&self) -> Duration {
        self.call.rest()
    }
}

/// Confirms the hold; what follows must be begun at once.
pub(crate) async fn may(hold: &Hold<'_>) -> Result<()> {
    match hold.confirm().await {
        Ok(()) if hold.is_fresh() => Ok(()),
        Ok(()) => Err(Error::transient(anyhow::anyhow!("confirming it took too long").context(Unconfirmed))),
        Err(lost) if lost.is::<Lost>() => Err(Error::new(Kind::Fenced, lost)),
        Err(unknown) => Err(Error::transient(unknown.context(Unconfirmed))),
    }
}

/// What becomes of a call that ends with [`Cancelled`] where the operator asks to end before it was permitted anything.
pub(crate) type Unless<T> = std::result::Result<Result<T>, Cancelled>;

/// Does what a call is for, unless the operator asks to end before the call was permitted anything: until then it has only looked,
/// and is dropped. What was permitted goes on when it is dropped, so its end is waited for.
async fn unless_begun<T>(
    cancelled: &watch::Receiver<bool>,
    call: &Call<'_>,
    mut work: impl Future<Output = T> + Unpin,
) -> std::result::Result<T, Cancelled> {
    match unless_cancelled(cancelled, &mut work).await {
        Err(Cancelled) if call.begun.load(Ordering::Relaxed) => Ok(work.await),
        done => done,
    }
}

impl<'a> GuardedHypervisor<'a> {
    /// The hypervisor for as long as the hold is ours.
    pub fn new(hypervisor: &'a dyn Hypervisor, hold: &'a Hold<'a>) -> Self {
        Self { hypervisor, hold }
    }

    fn call(&self) -> Call<'a> {
        Call { hold: self.hold, cancelled: None, begun: AtomicBool::new(false) }
    }

    /// Refuses a VM that is not stamped as the deployment's.
    fn of(&self, vm: &Vm) -> Result<Call<'a>> {
        if !vm.is_of(self.hypervisor.deployment()) {
            return Err(Error::refused(format!("the VM {vm} is not stamped as this deployment's; it is left alone")));
        }
        Ok(self.call())
    }

    /// As [`Hypervisor::vms`].
    ///
    /// # Errors
    /// As there.
    pub async fn vms(&self) -> Result<Vec<Vm>> {
        self.hypervisor.vms().await
    }

    /// As [`Hypervisor::with_bios_uuid`].
    ///
    /// # Errors
    /// As there.
    pub async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        self.hypervisor.with_bios_uuid(uuid).await
    }

    /// As [`Hypervisor::absence`].
    ///
    /// # Errors
    /// As there.
    pub async fn absence(&self, uuid: Uuid, nodes: &[&str], seen: LastSeen<'_>) -> Result<Absence> {
        self.hypervisor.absence(uuid, nodes, seen).await
    }

    /// As [`Hypervisor::unread`].
    ///
    /// # Errors
    /// As there.
    pub async fn unread(&self, nodes: &[&str]) -> Result<Option<String>> {
        self.hypervisor.unread(nodes).await
    }

    /// As [`Hypervisor::may_be_stamped`].
    ///
    /// # Errors
    /// As there.
    pub async fn may_be_stamped(&self, vm: &Vm) -> Result<()> {
        self.hypervisor.may_be_stamped(vm).await
    }

    /// As [`Hypervisor::may_be_replaced`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn may_be_replaced(&self, vm: &Vm) -> Result<()> {
        self.hypervisor.may_be_replaced(vm).await
    }

    /// As [`Hypervisor::is_sole_holder`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn is_sole_holder(&self, vm: &Vm) -> Result<()> {
        self.hypervisor.is_sole_holder(vm).await
    }

    /// As [`doubles`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn doubles(&self, vm: &Vm) -> Result<Vec<Vm>> {
        doubles(self.hypervisor, vm).await
    }

    /// As [`Hypervisor::vm`].
    ///
    /// # Errors
    /// As there.
    pub async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        self.hypervisor.vm(vm).await
    }

    /// As [`Hypervisor::settle`], for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn settle_unless(&self, cancelled: &watch::Receiver<bool>) -> Unless<()> {
        let call = self.call();
        unless_begun(cancelled, &call, self.hypervisor.settle(&call)).await
    }

    /// As [`Hypervisor::stamp`], for who may be asked to end meanwhile. The VM carries no stamp yet: an operator has confirmed that it is this
    /// deployment's.
    ///
    /// # Errors
    /// As there, within; or the stamp is another deployment's. And [`Cancelled`] when the operator has asked to end before anything was
    /// permitted.
    pub(crate) async fn stamp_unless(&self, cancelled: &watch::Receiver<bool>, vm: &Vm, stamp: &Stamp) -> Unless<()> {
        if stamp.deployment != self.hypervisor.deployment() {
            return Ok(Err(Error::refused("the stamp is another deployment's")));
        }
        let call = self.call();
        unless_begun(cancelled, &call, self.hypervisor.stamp(vm, stamp, &call)).await
    }

    /// As [`Hypervisor::staged`].
    ///
    /// # Errors
    /// As there.
    pub async fn staged<'v>(
        &self,
        digest: &str,
        like: impl Into<Option<&'v Vm>>,
        placement: &Placement,
    ) -> Result<Option<Staged>> {
        self.hypervisor.staged(digest, like.into(), placement).await
    }

    /// As [`Hypervisor::stage`].
    ///
    /// # Errors
    /// As there.
    pub async fn stage<'v>(
        &self,
        ova: &Path,
        digest: &str,
        like: impl Into<Option<&'v Vm>>,
        placement: &Placement,
    ) -> Result<Staged> {
        self.hypervisor.stage(ova, digest, like.into(), placement, &self.call()).await
    }

    /// The same, for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn stage_unless<'v>(
        &self,
        cancelled: &watch::Receiver<bool>,
        ova: &Path,
        digest: &str,
        like: impl Into<Option<&'v Vm>>,
        placement: &Placement,
    ) -> Unless<Staged> {
        let call = Call { cancelled: Some(cancelled.clone()), ..self.call() };
        unless_begun(cancelled, &call, self.hypervisor.stage(ova, digest, like.into(), placement, &call)).await
    }

    /// As [`Hypervisor::import`].
    ///
    /// # Errors
    /// As there; or a stamp is another deployment's.
    pub async fn import(&self, replacement: &Replacement<'_>) -> Result<Uuid> {
        if replacement.stamp.deployment != self.hypervisor.deployment() {
            return Err(Error::refused("the stamp of the new VM is another deployment's"));
        }
        self.hypervisor.import(replacement, &self.of(replacement.like)?).await
    }

    /// The same, for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn import_unless(
        &self,
        cancelled: &watch::Receiver<bool>,
        replacement: &Replacement<'_>,
    ) -> Unless<Uuid> {
        if replacement.stamp.deployment != self.hypervisor.deployment() {
            return Ok(Err(Error::refused("the stamp of the new VM is another deployment's")));
        }
        let call = match self.of(replacement.like) {
            Ok(call) => call,
            Err(refused) => return Ok(Err(refused)),
        };
        unless_begun(cancelled, &call, self.hypervisor.import(replacement, &call)).await
    }

    /// As [`Hypervisor::add`].
    ///
    /// # Errors
    /// As there; or the stamp is another deployment's.
    pub async fn add(&self, addition: &Addition<'_>) -> Result<Uuid> {
        if addition.stamp.deployment != self.hypervisor.deployment() {
            return Err(Error::refused("the stamp of the new VM is another deployment's"));
        }
        self.hypervisor.add(addition, &self.call()).await
    }

    /// The same, for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn add_unless(&self, cancelled: &watch::Receiver<bool>, addition: &Addition<'_>) -> Unless<Uuid> {
        if addition.stamp.deployment != self.hypervisor.deployment() {
            return Ok(Err(Error::refused("the stamp of the new VM is another deployment's")));
        }
        let call = self.call();
        unless_begun(cancelled, &call, self.hypervisor.add(addition, &call)).await
    }

    /// As [`Hypervisor::give`].
    ///
    /// # Errors
    /// As there; or the VM is not the deployment's.
    pub async fn give(&self, vm: &Vm, properties: &BTreeMap<String, String>) -> Result<()> {
        self.hypervisor.give(vm, properties, &self.of(vm)?).await
    }

    /// As [`Hypervisor::power_on`].
    ///
    /// # Errors
    /// As there; or the VM is not the deployment's.
    pub async fn power_on(&self, vm: &Vm) -> Result<()> {
        self.hypervisor.power_on(vm, &self.of(vm)?).await
    }

    /// The same, for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn power_on_unless(&self, cancelled: &watch::Receiver<bool>, vm: &Vm) -> Unless<()> {
        let call = match self.of(vm) {
            Ok(call) => call,
            Err(refused) => return Ok(Err(refused)),
        };
        unless_begun(cancelled, &call, self.hypervisor.power_on(vm, &call)).await
    }

    /// As [`Hypervisor::shut_down`].
    ///
    /// # Errors
    /// As there; or the VM is not the deployment's.
    pub async fn shut_down(&self, vm: &Vm, limit: Duration) -> Result<ShutDown> {
        self.hypervisor.shut_down(vm, limit, &self.of(vm)?).await
    }

    /// The same for a run that may have to end: once it is `cancelled`, nothing is waited for any more, and what the guest was asked to do
    /// goes on. Still on counts for nothing then: its power is not to be cut for that.
    ///
    /// # Errors
    /// As there; or the VM cannot be looked at.
    pub async fn shut_down_unless(
        &self,
        vm: &Vm,
        limit: Duration,
        cancelled: &watch::Receiver<bool>,
    ) -> Result<ShutDown> {
        let begun = Instant::now();
        // That call is waited for: nobody can take back what it asks.
        let mut became = self.shut_down(vm, ASKING.min(limit)).await?;
        while became == ShutDown::StillOn && begun.elapsed() < limit && !*cancelled.borrow() {
            tokio::time::sleep(LOOKING).await;
            if self.vm(&vm.reference).await?.power == PowerState::Off {
                became = ShutDown::Off;
            }
        }
        Ok(became)
    }

    /// As [`Hypervisor::cut_power`].
    ///
    /// # Errors
    /// As there; or the VM is not the deployment's.
    pub async fn cut_power(&self, vm: &Vm) -> Result<()> {
        self.hypervisor.cut_power(vm, &self.of(vm)?).await
    }

    /// As [`Hypervisor::connect`].
    ///
    /// # Errors
    /// As there; or the VM is not the deployment's.
    pub async fn connect(&self, vm: &Vm, adapter: &str, connected: bool) -> Result<()> {
        self.hypervisor.connect(vm, adapter, connected, &self.of(vm)?).await
    }

    /// As [`Hypervisor::detach`].
    ///
    /// # Errors
    /// As there; or the VM is not the deployment's.
    pub async fn detach(&self, vm: &Vm, disk: &DiskRef) -> Result<()> {
        self.hypervisor.detach(vm, disk, &self.of(vm)?).await
    }

    /// The same, for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn detach_unless(&self, cancelled: &watch::Receiver<bool>, vm: &Vm, disk: &DiskRef) -> Unless<()> {
        let call = match self.of(vm) {
            Ok(call) => call,
            Err(refused) => return Ok(Err(refused)),
        };
        unless_begun(cancelled, &call, self.hypervisor.detach(vm, disk, &call)).await
    }

    /// As [`Hypervisor::attach`], for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; or the VM is not the deployment's. And [`Cancelled`] when the operator has asked to end before anything was
    /// permitted.
    pub(crate) async fn attach_unless(&self, cancelled: &watch::Receiver<bool>, vm: &Vm, disk: &DiskRef) -> Unless<()> {
        let call = match self.of(vm) {
            Ok(call) => call,
            Err(refused) => return Ok(Err(refused)),
        };
        unless_begun(cancelled, &call, self.hypervisor.attach(vm, disk, &call)).await
    }

    /// As [`Hypervisor::disk_datastore`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn disk_datastore(&self, disk: &DiskRef) -> Result<Option<String>> {
        self.hypervisor.disk_datastore(disk).await
    }

    /// As [`Hypervisor::present_place`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn present_place(&self, disk: &DiskRef, datastore: &str) -> Result<DiskRef> {
        self.hypervisor.present_place(disk, datastore).await
    }

    /// As [`Hypervisor::has_disk`].
    ///
    /// # Errors
    /// As there.
    pub async fn has_disk(&self, disk: &DiskRef) -> Result<bool> {
        self.hypervisor.has_disk(disk).await
    }

    /// As [`Hypervisor::lies_where_a_node_was`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn lies_where_a_node_was(&self, disk: &DiskRef, nodes: &[&str]) -> Result<bool> {
        self.hypervisor.lies_where_a_node_was(disk, nodes).await
    }

    /// As [`Hypervisor::copy_path`].
    pub(crate) fn copy_path(&self, disk: &DiskRef, mark: &str) -> String {
        self.hypervisor.copy_path(disk, mark)
    }

    /// As [`Hypervisor::copy_disk`], for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn copy_disk_unless(
        &self,
        cancelled: &watch::Receiver<bool>,
        disk: &DiskRef,
        mark: &str,
        nodes: &[&str],
    ) -> Unless<DiskRef> {
        let call = self.call();
        unless_begun(cancelled, &call, self.hypervisor.copy_disk(disk, mark, nodes, &call)).await
    }

    /// Removes a copy of a data disk, as [`Hypervisor::delete_disk`], for who may be asked to end meanwhile. Where it lies was noted when
    /// it was made.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn delete_copy_unless(&self, cancelled: &watch::Receiver<bool>, copy: &DiskRef) -> Unless<()> {
        let call = self.call();
        unless_begun(cancelled, &call, self.hypervisor.delete_disk(copy, &call)).await
    }

    /// As [`Hypervisor::delete_disk`], for who may be asked to end meanwhile. It is noted before it is looked a last time and asked for,
    /// and not where the call is refused by then. Where that look or the permit ends the call, it is noted and was not asked for, which is
    /// said with the answer: as there, or that it cannot be noted.
    ///
    /// # Errors
    /// [`Cancelled`] when the operator has asked to end before anything was permitted: it may be noted then.
    pub(crate) async fn delete_disk_unless<'n>(
        &self,
        cancelled: &watch::Receiver<bool>,
        disk: &DiskRef,
        note: &(dyn Fn() -> Noting<'n> + Send + Sync),
    ) -> std::result::Result<NotedEnd, Cancelled> {
        let noted = NotedCall { call: self.call(), note, is_noted: AtomicBool::new(false) };
        let answer = unless_begun(cancelled, &noted.call, self.hypervisor.delete_disk(disk, &noted)).await?;
        Ok(NotedEnd { answer, is_asked: noted.call.begun.load(Ordering::Relaxed) })
    }

    /// As [`Hypervisor::remove_emptied`], for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn remove_emptied_unless(
        &self,
        cancelled: &watch::Receiver<bool>,
        disk: &DiskRef,
        nodes: &[&str],
    ) -> Unless<()> {
        let call = self.call();
        unless_begun(cancelled, &call, self.hypervisor.remove_emptied(disk, nodes, &call)).await
    }

    /// As [`Hypervisor::destroy`].
    ///
    /// # Errors
    /// As there; or the VM is not the deployment's.
    pub async fn destroy(&self, vm: &Vm) -> Result<()> {
        self.hypervisor.destroy(vm, &self.of(vm)?).await
    }

    /// The same, for who may be asked to end meanwhile.
    ///
    /// # Errors
    /// As there, within; and [`Cancelled`] when the operator has asked to end before anything was permitted.
    pub(crate) async fn destroy_unless(&self, cancelled: &watch::Receiver<bool>, vm: &Vm) -> Unless<()> {
        let call = match self.of(vm) {
            Ok(call) => call,
            Err(refused) => return Ok(Err(refused)),
        };
        unless_begun(cancelled, &call, self.hypervisor.destroy(vm, &call)).await
    }

    /// As [`Hypervisor::release`].
    ///
    /// # Errors
    /// As there; or the VM is not the deployment's.
    pub async fn release(&self, vm: &Vm, name: &str) -> Result<()> {
        self.hypervisor.release(vm, name, &self.of(vm)?).await
    }
}

#[cfg(test)]
#[path = "tests/answers.rs"]
mod tests;
