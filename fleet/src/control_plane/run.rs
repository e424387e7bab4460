//! Reads, decides and acts until nothing is left to do. An interrupted run continues by reading again.

use std::iter;
use std::sync::Mutex;

use anyhow::bail;
use tokio::time::Instant;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::act::ActionContext;
use super::action::Action;
use super::attempts::Attempts;
use super::deployment_record::{DeploymentRecord, Lifecycle};
use super::go::{Deploy, HeldDisk, Notice, RunOutcome, UnattachedDisk};
use super::goal::Goal;
use super::inventory::Inventory;
use super::look::look;
use super::next::next;
use super::reason;
use super::records::{self, Records, begun};
use super::replica::LeftVm;
use super::status::DeployStatus;
use super::upgraded::Upgraded;
use super::wait::Wait;
use crate::cancel::{Cancelled, last_look, unless_cancelled};
use crate::engine::{ActionError, GuardedHypervisor, HYPERVISOR_TRANSIENT, Reason, STORE, TO_END};
use crate::hypervisor::{DiskRef, ErrorKind, Vm};
use crate::journals;
use crate::lease::{Lease, TakeOver};
use crate::upgrade::{DiskCopy, LastUpgrade};
use crate::workers::Newer;

impl Deploy<'_> {
    /// Records a goal, and runs until it is reached.
    ///
    /// # Errors
    /// If the goal is not possible now, or another command is at work or has taken over. [`Cancelled`] if the run was cancelled
    /// before the goal was recorded.
    pub async fn go(&self, wish: Goal<'_>, over: TakeOver) -> anyhow::Result<(RunOutcome, DeployStatus)> {
        // A goal is refused before any lease is taken over.
        unless_cancelled(&self.cancelled, self.may_be_wanted(wish)).await??;
        let say = |words: &str| (self.watch)(&Notice::TakingOver(words));
        let hold = Lease::take_unless(self.store, self.what, over, &say, &self.cancelled).await?;
        journals::prune_beside_upgrades(&hold, &self.cancelled).await;
        let gone = async {
            // Requests of a former command have arrived, and are awaited.
            GuardedHypervisor::new(self.hypervisor, &hold, Some(&self.cancelled)).settled().await??;
            let applied = unless_cancelled(&self.cancelled, self.applied(wish)).await??;
            let Applied { kept, before, upgraded, mut forgotten } = applied;
            let mut records = Records::begin(&hold, kept).await?;
            let stays = upgraded.stays;
            if stays.is_none() && before == Some(Lifecycle::Deleted) && matches!(wish, Goal::Deploy(_)) {
                // The rest of the journals of the destroyed cluster, including an upgrade's.
                journals::clear(&hold, &self.cancelled).await;
            }
            let mut replicas = Vec::new();
            let arrived = self.run(wish, &hold, &mut records, upgraded, &mut replicas).await?;
            let kept = records.kept();
            // A disk may have come back since.
            let is_named =
                |disk: &DiskRef| kept.retained_disks.iter().chain(&kept.disks_to_delete).any(|it| it.uuid == disk.uuid);
            forgotten.retain(|disk| !is_named(disk));
            let mut status = DeployStatus { forgotten, ..self.last_status(kept).await };
            if arrived == RunOutcome::Gone {
                status.replicas = replicas;
            }
            match stays {
                _ if arrived != RunOutcome::Gone => {}
                Some(why) => log::warn!("the journals stay: {why}"),
                None => {
                    journals::clear(&hold, &self.cancelled).await;
                    if status.left.is_empty() {
                        self.empty(&hold).await;
                    }
                }
            }
            anyhow::Ok((arrived, status))
        }
        .await;
        hold.release().await;
        gone
    }

    /// The present status. Changes nothing. `None` if nothing is recorded.
    pub async fn status(&self) -> anyhow::Result<Option<DeployStatus>> {
        match begun(self.store, self.hypervisor.deployment()).await? {
            Some(kept) => Ok(Some(self.status_of(&kept).await?)),
            None => Ok(None),
        }
    }

    /// Whether an operator has named a VM with this BIOS UUID for removal, and that is recorded.
    pub async fn has_granted(&self, vm: Uuid) -> anyhow::Result<bool> {
        let kept = records::read(self.store).await?;
        Ok(kept.is_some_and(|kept| kept.adopted_vms.iter().any(|granted| granted.bios_uuid == vm)))
    }

    /// The disks that no VM of the cluster holds, whatever it carries, and that may be removed with its data disks. An unseen VM,
    /// in another folder or without permission, may hold one: the operator is shown them before the removal. Also disks whose
    /// removal has no known result, and the VMs that hold such disks now.
    ///
    /// # Errors
    /// If the store or the hypervisor does not answer, or the journal is of another deployment.
    pub async fn unheld(&self) -> anyhow::Result<UnattachedDisk> {
        let Some(kept) = begun(self.store, self.hypervisor.deployment()).await? else {
            return Ok(UnattachedDisk::default());
        };
        let upgraded = Upgraded::find(self.store, self.hypervisor.deployment(), Some(&kept)).await?;
        let seen = self.seen_to_destroy(&kept, &upgraded).await?;
        let mut unheld = UnattachedDisk { goes: kept.unheld(&seen), ..UnattachedDisk::default() };
        for disk in kept.in_doubt() {
            if let Ok(false) = self.hypervisor.has_disk(&disk).await {
                unheld.goes.retain(|other| *other != disk);
                match seen.holder_elsewhere(&disk) {
                    Some((vm, now)) => unheld.held.push(HeldDisk { disk: now.clone(), by: vm.to_string() }),
                    None => unheld.doubtful.push(disk),
                }
            }
        }
        for disk in &kept.disks_to_delete {
            let is_told = unheld.held.iter().any(|held| held.disk.uuid == disk.uuid) || unheld.doubtful.contains(disk);
            if let Some(vm) = seen.other_holder(disk).filter(|_| !is_told)
                && let Some(now) = vm.disk(disk.uuid)
            {
                unheld.held.push(HeldDisk { disk: now.reference.clone(), by: vm.to_string() });
            }
        }
        Ok(unheld)
    }

    /// The copies of data disks that upgrades left. They stay when the cluster is removed, and afterwards only its record names
    /// them. The operator is shown them before the removal.
    ///
    /// # Errors
    /// If the store cannot be read, or the journal is of another deployment.
    pub async fn copies(&self) -> anyhow::Result<Vec<DiskCopy>> {
        let deployment = self.hypervisor.deployment();
        let kept = begun(self.store, deployment).await?;
        let upgraded = Upgraded::find(self.store, deployment, kept.as_ref()).await?;
        Ok(match kept {
            Some(kept) => kept.with_copies(upgraded.copies()).copies,
            None => upgraded.copies().to_vec(),
        })
    }

    /// The inventory for a removal: all recorded VMs, including those of an upgrade. Nodes are not asked.
    pub(super) async fn seen_to_destroy(
        &self,
        kept: &DeploymentRecord,
        upgraded: &Upgraded,
    ) -> anyhow::Result<Inventory> {
        let kept = DeploymentRecord { lifecycle: Lifecycle::Deleting, ..kept.clone() };
        match look(self.hypervisor, self.guests, &kept, upgraded.own.as_ref()).await {
            Ok((seen, _)) => Ok(seen),
            Err(ActionError::Stop(error)) => Err(error),
            Err(ActionError::Later(why) | ActionError::InDoubt(why) | ActionError::Refused(why)) => {
                Err(anyhow::anyhow!("{why}"))
            }
        }
    }

    /// Removes the place that a killed command created, and nothing else. False if something of a cluster exists: then nothing is
    /// done.
    ///
    /// # Errors
    /// If another command is at work there, or the place cannot be read or removed. [`Cancelled`] if the run was cancelled.
    pub async fn remove_empty(&self, over: TakeOver) -> anyhow::Result<bool> {
        let say = |words: &str| (self.watch)(&Notice::TakingOver(words));
        if !unless_cancelled(&self.cancelled, self.is_empty()).await?? {
            return Ok(false);
        }
        let hold = Lease::take_unless(self.store, self.what, over, &say, &self.cancelled).await?;
        let removed = async {
            // Until now other commands could begin something there.
            let is_empty = unless_cancelled(&self.cancelled, self.is_empty()).await??;
            if is_empty {
                hold.confirm().await?;
                (self.empties)()?;
            }
            anyhow::Ok(is_empty)
        }
        .await;
        hold.release().await;
        removed
    }

    /// Removes the place of a removed cluster. A failure does not change the outcome: it is logged, and running the command again
    /// retries.
    async fn empty(&self, hold: &Lease<'_>) {
        let emptied = async {
            hold.confirm().await?;
            (self.empties)()
        };
        if let Err(error) = emptied.await {
            log::warn!(
                "nothing of the cluster is left, but its place stays ({error:#}): run the command again to remove it"
            );
        }
    }

    /// Whether there is neither a record of a cluster nor of an upgrade, nor a VM of one.
    async fn is_empty(&self) -> anyhow::Result<bool> {
        let is_noted =
            records::read(self.store).await?.is_some() || LastUpgrade::find(self.store).await? != LastUpgrade::Nothing;
        Ok(!is_noted && self.hypervisor.vms().await?.is_empty())
    }

    /// Refuses a goal that is not possible now, as [`Deploy::go`] does before it takes over a lease. Changes nothing.
    ///
    /// # Errors
    /// Why it is refused: [`super::MadeOtherwise`] if a VM was created from something else. Or the state cannot be read.
    pub async fn may_be_wanted(&self, wish: Goal<'_>) -> anyhow::Result<()> {
        // A missing permission always counts. A place that takes no VMs now counts if one is to be created there: other VMs are
        // powered on, and a kubeconfig is given, also while their datastore is emptied.
        let mut no_place = Ok(());
        if !matches!(wish, Goal::Destroy { .. }) {
            let nodes = match wish {
                Goal::Deploy(wanted) | Goal::Replace { wanted, .. } => wanted.nodes.as_slice(),
                Goal::Continue | Goal::Destroy { .. } => &[],
            };
            let others = nodes.iter().filter_map(|node| node.placement.as_ref());
            for placement in iter::once(&self.placement).chain(others) {
                match self.hypervisor.preflight(placement).await {
                    Err(error) if error.kind != ErrorKind::Denied => no_place = no_place.and(Err(error)),
                    permitted => permitted?,
                }
            }
        }
        let Applied { kept, .. } = self.applied(wish).await?;
        if let Err(error) = no_place
            && kept.makes(&self.hypervisor.vms().await?)
        {
            return Err(error.into());
        }
        Ok(())
    }

    /// The record that a goal leads to.
    async fn applied(&self, wish: Goal<'_>) -> anyhow::Result<Applied> {
        let deployment = self.hypervisor.deployment();
        let noted = records::read(self.store).await?;
        let upgraded = Upgraded::find(self.store, deployment, noted.as_ref()).await?;
        let (noted, forgotten) = match noted {
            Some(kept) => {
                let (kept, forgotten) = self.without_doubt(wish, kept, &upgraded).await?;
                (Some(kept), forgotten)
            }
            None => (None, Vec::new()),
        };
        let before = noted.as_ref().map(|kept| kept.lifecycle);
        if let Goal::Deploy(_) | Goal::Continue = wish {
            upgraded.permits_deploy(
                noted.as_ref().is_some_and(|kept| kept.formed && kept.lifecycle == Lifecycle::Active),
            )?;
        }
        if let Goal::Replace { .. } = wish {
            // An upgrade that is open may move the node's data disk.
            upgraded.permits_deploy(false)?;
        }
        let vms = self.hypervisor.vms().await?;
        let kept = wish.applied(deployment, noted, &vms)?;
        let kept = match wish {
            Goal::Replace { node, host_is_off, retries, .. } => {
                self.replacing(kept, &upgraded, &vms, (node, host_is_off, retries)).await?
            }
            Goal::Deploy(_) | Goal::Continue | Goal::Destroy { .. } => kept,
        };
        if let (Goal::Deploy(_), None | Some(Lifecycle::Deleted)) = (wish, before) {
            self.are_unused(&kept).await?;
        }
        let goes = matches!(wish, Goal::Destroy { .. }) || before == Some(Lifecycle::Deleted);
        let kept = match upgraded.own.as_ref().filter(|_| goes) {
            // Each time: an upgrade may have continued since the last time.
            Some(own) => kept.with_unheld(&own.disks, &vms).with_copies(&own.copies),
            None => kept,
        };
        Ok(Applied { kept, before, upgraded, forgotten })
    }

    /// Refuses to begin a cluster with BIOS UUIDs that VMs have, wherever they are and whatever they carry. A store without a
    /// record may have been restored to a moment before them.
    async fn are_unused(&self, kept: &DeploymentRecord) -> anyhow::Result<()> {
        for node in &kept.nodes {
            let Some(drawn) = node.allocated_uuid else { continue };
            if let [vm, ..] = self.hypervisor.with_bios_uuid(drawn).await?.as_slice() {
                bail!(
                    "{vm} has the BIOS UUID {drawn} that was drawn for the VM of {}, and no record shows that it was created: it may have \
                     served, and the record may be older. Nothing was changed: check that VM first",
                    node.name
                );
            }
        }
        Ok(())
    }

    async fn status_of(&self, kept: &DeploymentRecord) -> anyhow::Result<DeployStatus> {
        let upgraded = Upgraded::find(self.store, self.hypervisor.deployment(), Some(kept)).await?;
        let kept = &kept.clone().with_copies(upgraded.copies());
        match look(self.hypervisor, self.guests, kept, upgraded.own.as_ref()).await {
            Ok((seen, _)) => Ok(DeployStatus::of(kept, Ok(&seen))),
            Err(ActionError::Stop(error)) => Err(error),
            Err(ActionError::Later(why) | ActionError::InDoubt(why) | ActionError::Refused(why)) => {
                Ok(DeployStatus::of(kept, Err(why)))
            }
        }
    }

    /// The status at the end, before the lease is released. If the run is cancelled, and the hypervisor or the store does not
    /// answer soon, it is the record alone. A failed read does not change the outcome, such as a kubeconfig.
    async fn last_status(&self, kept: &DeploymentRecord) -> DeployStatus {
        let why = match last_look(&self.cancelled, self.status_of(kept)).await {
            Ok(Ok(status)) => return status,
            Ok(Err(error)) => Reason::new(STORE, format!("{error:#}")),
            Err(Cancelled) => Reason::new(HYPERVISOR_TRANSIENT, TO_END),
        };
        DeployStatus::of(kept, Err(why))
    }

    /// No upgrade runs while the lease is held: `upgraded` stays the last upgrade. `replicas` gets the copies of nodes' VMs that
    /// stay when a cluster is removed. Afterwards they are not searched.
    async fn run(
        &self,
        wish: Goal<'_>,
        hold: &Lease<'_>,
        records: &mut Records<'_>,
        upgraded: Upgraded,
        replicas: &mut Vec<LeftVm>,
    ) -> anyhow::Result<RunOutcome> {
        let acting = ActionContext {
            deploy: self,
            hypervisor: GuardedHypervisor::new(self.hypervisor, hold, Some(&self.cancelled)),
            wanted: match wish {
                Goal::Deploy(wanted) | Goal::Replace { wanted, .. } => Some(wanted),
                Goal::Continue | Goal::Destroy { .. } => None,
            },
            upgrade: upgraded.id,
            upgraded: upgraded.own,
            removed: Mutex::default(),
            attempts: Attempts::new(self.restorable),
            unasked: Mutex::default(),
            doubtful: if let Goal::Destroy { doubtful, .. } = wish { doubtful } else { &[] },
        };
        let arrived = self.rounds(&acting, hold, records, replicas).await?;
        if !matches!(arrived, RunOutcome::Up(_)) {
            match acting.take_notes_back(records).await {
                // The end is recorded: a later failure does not change it.
                Err(error) if arrived == RunOutcome::Gone => log::warn!("{error:#}"),
                taken => taken?,
            }
        }
        Ok(arrived)
    }

    async fn rounds(
        &self,
        acting: &ActionContext<'_>,
        hold: &Lease<'_>,
        records: &mut Records<'_>,
        replicas: &mut Vec<LeftVm>,
    ) -> anyhow::Result<RunOutcome> {
        let mut told: Vec<Wait> = Vec::new();
        let mut in_doubt = false;
        let mut changed_last = Instant::now();
        loop {
            match unless_cancelled(&self.cancelled, hold.renew()).await {
                Ok(still) => still?,
                Err(Cancelled) => return Ok(RunOutcome::Cancelled),
            }
            let round = self.round(acting, records, &mut in_doubt).await?;
            // The waits of a round that was cancelled only say that it ends.
            let is_to_end = *self.cancelled.borrow();
            for wait in round.waits.iter().filter(|wait| !is_to_end && !told.contains(wait)) {
                (self.watch)(&Notice::Waits(wait));
            }
            told.clone_from(&round.waits);
            if round.is_gone {
                *replicas = round.replicas;
                // Nothing follows: the store is not asked again.
                return Ok(RunOutcome::Gone);
            }
            if round.changed {
                changed_last = Instant::now();
            }
            if round.changed && !round.failed {
                continue;
            }
            if let (Some(kubeconfig), Lifecycle::Active, true) = (round.given, records.kept().lifecycle, round.is_done)
            {
                return Ok(RunOutcome::Up(kubeconfig));
            }
            if round.needs_a_person && !round.changed {
                return Ok(RunOutcome::Stopped(round.waits));
            }
            if is_to_end {
                return Ok(RunOutcome::Cancelled);
            }
            if changed_last.elapsed() >= self.pause_limit {
                return Ok(RunOutcome::Paused(round.waits));
            }
            // After a failure the store is asked again: if it hangs, no sooner than by a command that only waits.
            let rest = if round.failed { self.pace.max(hold.rest()) } else { self.pace };
            if unless_cancelled(&self.cancelled, tokio::time::sleep(rest)).await.is_err() {
                return Ok(RunOutcome::Cancelled);
            }
        }
    }

    /// Reads once, and does all that is possible then.
    async fn round(
        &self,
        acting: &ActionContext<'_>,
        records: &mut Records<'_>,
        in_doubt: &mut bool,
    ) -> anyhow::Result<Round> {
        let mut round = Round::default();
        if let Err(error) = records.settle().await {
            round.meets(ActionError::store(error), in_doubt)?;
            return Ok(round);
        }
        let (seen, given) = match self.looked(acting, records.kept(), in_doubt).await {
            Ok(looked) => looked,
            Err(trouble) => {
                round.meets(trouble, in_doubt)?;
                return Ok(round);
            }
        };
        if records.kept().formed
            && let Some(kubeconfig) = &given
        {
            (self.renewed)(kubeconfig);
        }
        seen.on().for_each(|vm| acting.is_on(vm));
        if self.restorable.is_some() {
            let of = |vm: &Vm| Wait::lasting(&vm.name, reason::VM_NEWER, Newer(vm));
            round.waits.extend(seen.newer(records.kept()).into_iter().map(of));
            if !round.waits.is_empty() {
                round.needs_a_person = true;
                return Ok(round);
            }
        }
        if let Err(trouble) = acting.note_what_is_on(records, &seen).await {
            round.meets(trouble, in_doubt)?;
            return Ok(round);
        }
        if let Err(trouble) = acting.note_places(records, &seen).await {
            round.meets(trouble, in_doubt)?;
            return Ok(round);
        }
        if given.is_some()
            && let Err(trouble) = acting.let_in(records).await
        {
            round.meets(trouble, in_doubt)?;
            return Ok(round);
        }
        acting.attempts.sees(records.kept(), &seen);
        let next = next(records.kept(), &seen);
        (round.is_done, round.needs_a_person, round.given) = (next.is_done(), next.needs_a_person(), given);
        (round.waits, round.replicas) = (next.waits, seen.left_vms());
        for action in next.actions {
            if *self.cancelled.borrow() {
                break;
            }
            if let Some(wait) = acting.attempts.hinder(records.kept(), &action) {
                round.waits.push(wait);
                round.needs_a_person = true;
                continue;
            }
            (self.watch)(&Notice::Begun(&action));
            match acting.act(records, &seen, &action).await {
                Ok(()) => {
                    round.changed = true;
                    round.is_gone = action == Action::Gone;
                }
                Err(trouble) => {
                    round.meets(trouble, in_doubt)?;
                    // The actions that depend on it are decided again. Nothing depends on a disk that stays.
                    if *in_doubt || !matches!(action, Action::DeleteDisk(_)) {
                        break;
                    }
                }
            }
        }
        Ok(round)
    }

    async fn looked(
        &self,
        acting: &ActionContext<'_>,
        kept: &DeploymentRecord,
        in_doubt: &mut bool,
    ) -> Result<(Inventory, Option<Zeroizing<String>>), ActionError> {
        if *in_doubt {
            acting.hypervisor.settled().await??;
            *in_doubt = false;
        }
        unless_cancelled(&self.cancelled, look(self.hypervisor, self.guests, kept, acting.upgraded.as_ref())).await?
    }
}

/// A goal, before anything follows from it.
struct Applied {
    kept: DeploymentRecord,
    /// The lifecycle of the cluster before.
    before: Option<Lifecycle>,
    /// The last upgrade in the store.
    upgraded: Upgraded,
    /// The disks that are no longer listed.
    forgotten: Vec<DiskRef>,
}

#[derive(Default)]
struct Round {
    /// Something was done.
    changed: bool,
    /// Something could not be done.
    failed: bool,
    is_done: bool,
    /// It is recorded that nothing of the cluster is left.
    is_gone: bool,
    needs_a_person: bool,
    waits: Vec<Wait>,
    /// Copies of nodes' VMs that were seen.
    replicas: Vec<LeftVm>,
    given: Option<Zeroizing<String>>,
}

impl Round {
    /// A failed action is run later, or never by this command.
    fn meets(&mut self, trouble: ActionError, in_doubt: &mut bool) -> anyhow::Result<()> {
        let (reason, lasting) = trouble.reason(in_doubt)?;
        self.failed = true;
        self.is_done = false;
        self.needs_a_person |= lasting;
        self.waits.push(Wait { node: None, reason, lasting });
        Ok(())
    }
}
