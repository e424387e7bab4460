//! A hypervisor as an upgrade may use it. Only VMs that carry the deployment's stamp are changed. Each request of a
//! call is made under a lease that was confirmed just before.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::inventory::disk_refusals;
use super::step_error::Unconfirmed;
use crate::cancel::{Cancelled, unless_cancelled};
use crate::hypervisor::{
    Absence, Addition, DiskRef, Error, ErrorKind, Fence, Hypervisor, ImageTemplate, LastSeen, Placement, PowerState,
    Replacement, Result, ShutDown, Stamp, Vm, VmRef, doubles,
};
use crate::lease::{Lease, LeaseUnconfirmed, Lost};

/// How long a call that asks a guest to shut down may take in a run that may have to end. Also the pause between two
/// looks after that.
const ASKING: Duration = Duration::from_secs(5);
const LOOKING: Duration = Duration::from_secs(5);

/// The hypervisor, under a lease. Its calls are those of [`Hypervisor`]; the permits are its own.
pub struct GuardedHypervisor<'a> {
    hypervisor: &'a dyn Hypervisor,
    hold: &'a Lease<'a>,
}

/// The permit of one call.
struct Call<'a> {
    hold: &'a Lease<'a>,
    /// Becomes true when the caller asks the call to end. `None` if it cannot.
    cancelled: Option<watch::Receiver<bool>>,
    /// Whether something was permitted before: it may have happened then, whatever the result.
    begun: AtomicBool,
}

#[async_trait]
impl Fence for Call<'_> {
    async fn still(&self) -> Result<()> {
        match may(self.hold).await {
            // In a call that lasts, one unanswered question ends nothing: the answer before is still valid. But a
            // question that is still under way has the place of the request that would follow among those that are made
            // at once.
            Err(error) if error.kind == ErrorKind::Transient && self.begun.load(Ordering::Relaxed) => {
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

/// Notes what is about to be asked for: it is kept when this returns.
pub(crate) type Noting<'n> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'n>>;

/// The result of a call that is noted before it asks for anything.
pub(crate) struct NotedEnd {
    pub(crate) answer: Result<()>,
    /// Whether it was permitted anything. If not, nothing was asked for, whatever was noted.
    pub(crate) is_asked: bool,
}

/// The permit of one call that is noted before. The note follows all looks but the last one, so that a call that is
/// refused until then leaves no note.
struct NotedCall<'c, 'n> {
    call: Call<'c>,
    note: &'c (dyn Fn() -> Noting<'n> + Send + Sync),
    is_noted: AtomicBool,
}

#[async_trait]
impl Fence for NotedCall<'_, '_> {
    async fn prepare(&self) -> Result<()> {
        if !self.is_noted.load(Ordering::Relaxed) {
            (self.note)().await.map_err(|error| match error.is::<Lost>() {
                true => Error::new(ErrorKind::Fenced, error),
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

/// Confirms the lease. The permitted request must begin at once.
pub(crate) async fn may(hold: &Lease<'_>) -> Result<()> {
    match hold.confirm().await {
        Ok(()) if hold.is_fresh() => Ok(()),
        Ok(()) => Err(Error::transient(anyhow::anyhow!("confirming it took too long").context(Unconfirmed))),
        Err(lost) if lost.is::<Lost>() => Err(Error::new(ErrorKind::Fenced, lost)),
        Err(unknown) => Err(Error::transient(unknown.context(Unconfirmed))),
    }
}

/// The result of a call that ends with [`Cancelled`] if the operator asks to end before it was permitted anything.
pub(crate) type Unless<T> = std::result::Result<Result<T>, Cancelled>;

/// Runs a call, unless the operator asks to end before the call was permitted anything. Until then it has only looked,
/// and is dropped. A permitted request goes on when it is dropped, so its end is waited for.
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

/// Reads are passed on.
macro_rules! reads {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {$(
        pub(crate) async fn $name(&self, $($argument: $kind),*) -> Result<$answer> {
            self.hypervisor.$name($($argument),*).await
        }
    )*};
}

/// A change is passed on with the permit that follows `by`. Without a permit nothing is requested.
macro_rules! changes {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty, by $permit:ident($($of:expr),*);)*) => {$(
        pub(crate) async fn $name(&self, $($argument: $kind),*) -> Result<$answer> {
            self.hypervisor.$name($($argument,)* &self.$permit($($of),*)?).await
        }
    )*};
}

/// The same, but the change ends with [`Cancelled`] if the operator asks to end before the hypervisor was permitted anything.
macro_rules! changes_unless {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty, $change:ident by $permit:ident($($of:expr),*);)*) => {$(
        pub(crate) async fn $name(
            &self,
            cancelled: &watch::Receiver<bool>,
            $($argument: $kind),*
        ) -> Unless<$answer> {
            match self.$permit($($of),*) {
                Ok(call) => unless_begun(cancelled, &call, self.hypervisor.$change($($argument,)* &call)).await,
                Err(refused) => Ok(Err(refused)),
            }
        }
    )*};
}

impl<'a> GuardedHypervisor<'a> {
    /// The hypervisor for as long as the lease is held.
    pub fn new(hypervisor: &'a dyn Hypervisor, hold: &'a Lease<'a>) -> Self {
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

    /// Refuses nothing: the lease is enough.
    fn held(&self) -> Result<Call<'a>> {
        Ok(self.call())
    }

    /// Refuses a stamp that is another deployment's.
    fn stamping(&self, stamp: &Stamp) -> Result<Call<'a>> {
        if stamp.deployment != self.hypervisor.deployment() {
            return Err(Error::refused("the stamp is another deployment's"));
        }
        Ok(self.call())
    }

    fn replacing(&self, replacement: &Replacement<'_>) -> Result<Call<'a>> {
        self.stamping(&replacement.stamp)?;
        self.of(replacement.like)
    }

    reads! {
        fn vms() -> Vec<Vm>;
        fn with_bios_uuid(uuid: Uuid) -> Vec<Vm>;
        fn absence(uuid: Uuid, nodes: &[&str], seen: LastSeen<'_>) -> Absence;
        fn unread(nodes: &[&str]) -> Option<String>;
        fn may_be_stamped(vm: &Vm) -> ();
        fn vm(vm: &VmRef) -> Vm;
        fn disk_datastore(disk: &DiskRef) -> Option<String>;
        fn present_place(disk: &DiskRef, datastore: &str) -> DiskRef;
        fn has_disk(disk: &DiskRef) -> bool;
        fn is_in_node_directory(disk: &DiskRef, nodes: &[&str]) -> bool;
    }

    changes! {
        fn add(addition: &Addition<'_>) -> Uuid, by stamping(&addition.stamp);
        fn set_properties(vm: &Vm, properties: &BTreeMap<String, String>) -> (), by of(vm);
        fn power_on(vm: &Vm) -> (), by of(vm);
        fn shut_down(vm: &Vm, limit: Duration) -> ShutDown, by of(vm);
        fn cut_power(vm: &Vm) -> (), by of(vm);
        fn connect(vm: &Vm, adapter: &str, connected: bool) -> (), by of(vm);
        fn detach(vm: &Vm, disk: &DiskRef) -> (), by of(vm);
        fn destroy(vm: &Vm) -> (), by of(vm);
        fn disown(vm: &Vm, name: &str) -> (), by of(vm);
    }

    changes_unless! {
        fn settle_unless() -> (), settle by held();
        // The VM carries no stamp yet: an operator has confirmed that it is this deployment's.
        fn stamp_unless(vm: &Vm, stamp: &Stamp) -> (), stamp by stamping(stamp);
        fn import_unless(replacement: &Replacement<'_>) -> Uuid, clone_vm by replacing(replacement);
        fn add_unless(addition: &Addition<'_>) -> Uuid, add by stamping(&addition.stamp);
        fn power_on_unless(vm: &Vm) -> (), power_on by of(vm);
        fn detach_unless(vm: &Vm, disk: &DiskRef) -> (), detach by of(vm);
        fn attach_unless(vm: &Vm, disk: &DiskRef) -> (), attach by of(vm);
        fn copy_disk_unless(disk: &DiskRef, mark: &str, nodes: &[&str]) -> DiskRef, copy_disk by held();
        // A copy of a data disk. Its path was noted when it was made.
        fn delete_copy_unless(copy: &DiskRef) -> (), delete_disk by held();
        fn remove_emptied_unless(disk: &DiskRef, nodes: &[&str]) -> (), remove_empty_directory by held();
        fn destroy_unless(vm: &Vm) -> (), destroy by of(vm);
    }

    pub(crate) async fn doubles(&self, vm: &Vm) -> Result<Vec<Vm>> {
        doubles(self.hypervisor, vm).await
    }

    pub(crate) async fn disk_refusals(&self, vm: &Vm) -> Vec<Result<(&'static str, String)>> {
        disk_refusals(self.hypervisor, vm).await
    }

    pub async fn find_template<'v>(
        &self,
        digest: &str,
        like: impl Into<Option<&'v Vm>>,
        placement: &Placement,
    ) -> Result<Option<ImageTemplate>> {
        self.hypervisor.find_template(digest, like.into(), placement).await
    }

    pub async fn import_template<'v>(
        &self,
        ova: &Path,
        digest: &str,
        like: impl Into<Option<&'v Vm>>,
        placement: &Placement,
    ) -> Result<ImageTemplate> {
        self.hypervisor.import_template(ova, digest, like.into(), placement, &self.call()).await
    }

    pub(crate) async fn import_template_unless<'v>(
        &self,
        cancelled: &watch::Receiver<bool>,
        ova: &Path,
        digest: &str,
        like: impl Into<Option<&'v Vm>>,
        placement: &Placement,
    ) -> Unless<ImageTemplate> {
        let call = Call { cancelled: Some(cancelled.clone()), ..self.call() };
        unless_begun(cancelled, &call, self.hypervisor.import_template(ova, digest, like.into(), placement, &call))
            .await
    }

    /// If the run is `cancelled`, the wait ends and the guest goes on shutting down. The answer may be "still on" then,
    /// which is no reason to cut the power.
    pub async fn shut_down_unless(
        &self,
        vm: &Vm,
        limit: Duration,
        cancelled: &watch::Receiver<bool>,
    ) -> Result<ShutDown> {
        let begun = Instant::now();
        // That call is waited for: its request cannot be withdrawn.
        let mut became = self.shut_down(vm, ASKING.min(limit)).await?;
        while became == ShutDown::StillOn && begun.elapsed() < limit && !*cancelled.borrow() {
            tokio::time::sleep(LOOKING).await;
            if self.vm(&vm.reference).await?.power == PowerState::Off {
                became = ShutDown::Off;
            }
        }
        Ok(became)
    }

    pub(crate) fn copy_path(&self, disk: &DiskRef, mark: &str) -> String {
        self.hypervisor.copy_path(disk, mark)
    }

    /// The removal is noted before the last look and the request. A call that is refused before leaves no note. If the
    /// last look or the permit ends the call, the removal is noted but was not requested: the answer says so.
    ///
    /// # Errors
    /// [`Cancelled`] when the operator has asked to end before anything was permitted. The removal may be noted then.
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
}

#[cfg(test)]
mod tests;
