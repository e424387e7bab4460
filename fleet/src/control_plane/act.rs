//! Runs one action for a cluster. A record is saved before the action that follows from it. If a call's response is lost, the
//! next inventory shows the result.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use anyhow::{Context, anyhow};
use tokio::sync::{Mutex, watch};
use uuid::Uuid;

use super::action::Action;
use super::attempts::Attempts;
use super::deployment_record::{DeploymentRecord, Lifecycle, Node};
use super::desired_state::DesiredState;
use super::go::{Deploy, Notice};
use super::inventory::{Found, Inventory};
use super::look::is_copy;
use super::records::Records;
use crate::cancel::{Cancelled, last_look, unless_cancelled};
use crate::engine::{ActionError, GuardedHypervisor, Noting, Scope, guarded};
use crate::hypervisor::{
    self, CloneRequest, CloneSettings, DiskRef, Error, ErrorKind, ImageTemplate, Networks, Placement, PowerState,
    SHUTTING_DOWN, ShutDown, Vm, VmRef,
};
use crate::upgrade::UpgradeSummary;

pub(super) struct ActionContext<'a> {
    pub(super) deploy: &'a Deploy<'a>,
    pub(super) hypervisor: GuardedHypervisor<'a>,
    /// The desired state of VMs. `None` if no VM is created.
    pub(super) wanted: Option<&'a DesiredState>,
    /// The records of the last upgrade about the cluster.
    pub(super) upgraded: Option<UpgradeSummary>,
    /// The last upgrade in the store, of any deployment.
    pub(super) upgrade: Option<Uuid>,
    /// UUIDs of disks whose removal was confirmed to this command.
    pub(super) removed: std::sync::Mutex<BTreeSet<Uuid>>,
    /// Disks that were shown as missing to the operator who removes the cluster.
    pub(super) doubtful: &'a [DiskRef],
    /// Disks whose removal this command recorded and has not requested yet, because a check before the request had no result.
    pub(super) unasked: std::sync::Mutex<Vec<DiskRef>>,
    /// Counts repeated actions for nodes, to limit them.
    pub(super) attempts: Attempts<'a>,
}

impl ActionContext<'_> {
    /// Runs one action. If the inventory is outdated, the calls themselves refuse.
    pub(super) async fn act(
        &self,
        records: &mut Records<'_>,
        seen: &Inventory,
        action: &Action,
    ) -> Result<(), ActionError> {
        match action {
            Action::CloneVm(name) => self.clone_vm(records, node(records, name)?).await,
            Action::PowerOn(name) => self.power_on(records, seen, node(records, name)?).await,
            Action::Formed => {
                let kept = records.kept().clone();
                let ca_fingerprint = seen.authority(&kept);
                save(records, DeploymentRecord { formed: true, ca_fingerprint, ..kept }).await
            }
            Action::Replace(name) => self.replace(records, seen, node(records, name)?).await,
            Action::StartReplacement(name) => self.start_replacement(records, seen, name).await,
            Action::DrawAgain(_) => {
                let attempt = records.kept().replacement.as_ref().map_or(1, |open| open.attempt.saturating_add(1));
                save(records, records.kept().drawing_again(self.draws(Uuid::new_v4()), attempt)).await
            }
            Action::Replaced(_) => save(records, records.kept().replaced()).await,
            Action::Retire(vm) => self.retire(seen, vm).await,
            Action::PowerOff(vm) => {
                let vm = found(seen, vm)?;
                // Once off, a VM with other disks than recorded would be taken for a copy. If the removal of another VM with its
                // BIOS UUID was already requested, it is a copy.
                let kept = records.kept();
                let is_after = kept.deleting_vms.iter().any(|gone| vm.is_double_of(gone));
                let off = Vm { power: PowerState::Off, ..vm.clone() };
                if kept.lifecycle == Lifecycle::Deleting && !is_after && is_copy(kept, self.upgraded.as_ref(), &off) {
                    save(records, records.kept().destroying(&vm.reference)).await?;
                }
                self.power_off(vm).await
            }
            Action::Detach(vm, disk) => {
                let vm = found(seen, vm)?;
                let mut noted = records.kept().noting(vm, disk).map_err(ActionError::store)?;
                if noted.lifecycle == Lifecycle::Deleting {
                    noted = noted.destroying(&vm.reference);
                }
                if records.kept().requested_disk_deletions.contains(&disk.uuid) && !self.stays_there(disk).await? {
                    noted = noted.removing(disk);
                }
                // A disk that was shown as missing was not shown as one to remove, even if it is back.
                let is_back = self.doubtful.iter().any(|shown| shown.uuid == disk.uuid);
                let stays = is_back || self.may_have_served(records.kept(), vm);
                save(records, if stays { noted.leaving(disk) } else { noted }).await?;
                let call = self.hypervisor.open(Scope::Vm(vm))?;
                Ok(guarded(&call, self.hypervisor.detach(vm, disk, &call)).await??)
            }
            Action::Destroy(vm) => {
                let vm = found(seen, vm)?;
                if records.kept().lifecycle == Lifecycle::Deleting
                    && !records.kept().deleting_vms.contains(&vm.reference)
                {
                    save(records, records.kept().destroying(&vm.reference)).await?;
                }
                let call = self.hypervisor.open(Scope::Vm(vm))?;
                if records.kept().lifecycle == Lifecycle::Active {
                    self.attempts.removes(records.kept(), vm);
                }
                Ok(guarded(&call, self.hypervisor.destroy(vm, &call)).await??)
            }
            Action::DeleteDisk(disk) => self.delete_disk(records, disk).await,
            Action::Gone => {
                let kept = records.kept().without_others(seen);
                save(
                    records,
                    DeploymentRecord { lifecycle: Lifecycle::Deleted, upgrade: self.upgrade.or(kept.upgrade), ..kept },
                )
                .await
            }
        }
    }

    /// Whether a disk exists while no earlier removal is running. The disk is read last: a removal may have ended since its VM
    /// was read.
    async fn stays_there(&self, disk: &DiskRef) -> Result<bool, ActionError> {
        let looked = async {
            if self.deploy.may_go_yet().await {
                return false;
            }
            self.hypervisor.has_disk(disk).await.unwrap_or_else(|error| {
                log::warn!("cannot read whether the disk {} is at {}: {error}", disk.uuid, disk.path);
                false
            })
        };
        Ok(unless_cancelled(self.cancelled(), looked).await?)
    }

    /// Whether an incomplete VM may have served: another process began it, and the record may be older than the VM. False while
    /// the cluster is removed: the operator decides about its disks.
    fn may_have_served(&self, kept: &DeploymentRecord, vm: &Vm) -> bool {
        let is_anothers = self.deploy.restorable.is_some_and(|unfinished| !unfinished.has(vm.uuid()));
        let may = is_anothers && kept.lifecycle == Lifecycle::Active;
        if may {
            log::warn!(
                "{vm} was created by another process and is created again: its data disk stays, and the result names it"
            );
        }
        may
    }

    /// Records where VMs are, before they are changed.
    pub(super) async fn note_places(&self, records: &mut Records<'_>, seen: &Inventory) -> Result<(), ActionError> {
        let (kept, upgraded) = (records.kept(), self.upgraded.as_ref());
        // The place of a copy is not the place of its VM.
        let vms: Vec<Vm> = seen.vms.iter().filter(|vm| !is_copy(kept, upgraded, vm)).cloned().collect();
        let mut placed = kept.placed(&vms, upgraded);
        // Another datastore may have the former name of the datastore of a VM that is not seen.
        for vm in &vms {
            let Some(place) = placed.places.get_mut(&vm.uuid()) else { continue };
            if place.datastore.is_none() && vm.settings.as_ref() == Some(&place.settings) {
                let file = DiskRef { uuid: vm.uuid(), path: place.settings.clone() };
                place.datastore = self.hypervisor.disk_datastore(&file).await?;
            }
        }
        if placed == *records.kept() {
            return Ok(());
        }
        records.save(placed).await.map_err(ActionError::store)
    }

    /// Records that VMs are in use if they are on without a record of that. Once they are off, nothing else shows it.
    pub(super) async fn note_what_is_on(&self, records: &mut Records<'_>, seen: &Inventory) -> Result<(), ActionError> {
        for vm in seen.on() {
            let Some(noted) = records.kept().seen_on(vm, seen.is_noted(records.kept(), vm)) else { continue };
            // No removal of these was requested.
            let unasked: Vec<DiskRef> =
                self.unasked().iter().filter(|it| vm.disk(it.uuid).is_some()).cloned().collect();
            save(records, unasked.iter().fold(noted, |kept, disk| kept.not_removing(disk))).await?;
            self.unasked().retain(|disk| !unasked.contains(disk));
        }
        Ok(())
    }

    /// Records for this process that a VM is on, or is about to be. Even if the saved record is lost, the VM may have served.
    pub(super) fn is_on(&self, vm: &Vm) {
        if let Some(unfinished) = self.deploy.restorable {
            unfinished.ends(vm.uuid());
        }
    }

    /// Records the deployer key that a node of a formed cluster admitted. It differs from the recorded key if the nodes were
    /// given another one since.
    pub(super) async fn let_in(&self, records: &mut Records<'_>) -> Result<(), ActionError> {
        let deployer = self.deploy.guests.deployer_fingerprint();
        let kept = records.kept();
        if !kept.formed || deployer.is_none() || deployer == kept.deployer_fingerprint {
            return Ok(());
        }
        let noted = DeploymentRecord { deployer_fingerprint: deployer, ..kept.clone() };
        save(records, noted).await
    }

    async fn clone_vm(&self, records: &mut Records<'_>, node: Node) -> Result<(), ActionError> {
        let make = || {
            let wanted = self.wanted?;
            Some((wanted, wanted.nodes.iter().find(|wanted| wanted.name == node.name)?))
        };
        let Some((wanted, asked)) = make() else { return Ok(()) };
        if wanted.secret(asked).is_none() {
            // When the command was run, all VMs existed, so it got no secret. The former VM's secret need not be recorded.
            return Err(ActionError::Stop(anyhow!(
                "the VM of {} does not exist, and to create it the deployment secret is needed: run the command again",
                node.name
            )));
        }
        let placement = wanted.placement(asked);
        let template = self.template(wanted, placement).await?;
        // A UUID from an earlier attempt is used again: no VM has it, or that VM would be removed first. If a VM with it appears,
        // its disk is removed only if this process drew the UUID.
        let is_noted = node.allocated_uuid.is_some() && node.bios_uuid.is_none() && node.disk.is_none();
        let uuid = node.allocated_uuid.unwrap_or_else(|| self.draws(Uuid::new_v4()));
        // If a complete VM was recorded and is gone, the next one may be incomplete. No earlier disk belongs to it.
        let node = Node { allocated_uuid: Some(uuid), bios_uuid: None, disk: None, ..node };
        if !is_noted {
            save(records, records.kept().with(node.clone())).await?;
        }
        let networks = Networks::Named(&wanted.networks);
        let request = CloneRequest {
            name: &node.name,
            uuid,
            image: &template,
            settings: CloneSettings::Given { networks, size: &wanted.size, properties: &asked.properties },
            stamp: node.stamp(self.deploy.hypervisor.deployment()),
            placement,
        };
        let call = self.hypervisor.open(Scope::Clone(&request))?;
        self.attempts.makes(uuid);
        let made = guarded(&call, self.hypervisor.clone_vm(&request, &call)).await?;
        self.attempts.made(uuid, &made);
        let made = made?;
        save(records, records.kept().with(Node { bios_uuid: Some(made), ..node })).await
    }

    /// Records that this process is the first to save a BIOS UUID. No other process can have begun a VM with it that exists
    /// unseen and has served.
    fn draws(&self, uuid: Uuid) -> Uuid {
        if let Some(unfinished) = self.deploy.restorable {
            unfinished.begins(uuid);
        }
        uuid
    }

    /// The image at a VM's placement. Until an import begins, this only reads, and ends if the command is cancelled.
    pub(super) async fn template(
        &self,
        wanted: &DesiredState,
        placement: &Placement,
    ) -> Result<ImageTemplate, ActionError> {
        let (digest, cancelled) = (&wanted.image.digest, self.cancelled());
        let ready = unless_cancelled(cancelled, self.hypervisor.find_template(digest, None, placement)).await;
        if let Some(ready) = ready?? {
            return Ok(ready);
        }
        (self.deploy.watch)(&Notice::Staging);
        let call = self.hypervisor.call();
        Ok(guarded(&call, self.hypervisor.import_template(&wanted.ova, digest, None, placement, &call)).await??)
    }

    async fn power_on(&self, records: &mut Records<'_>, seen: &Inventory, node: Node) -> Result<(), ActionError> {
        let found = if records.kept().formed { seen.later_vm(&node) } else { seen.first_vm(&node) };
        let Found::Vm(vm) = found else { return Ok(()) };
        let name = node.name.clone();
        if !node.ever_powered_on {
            save(records, records.kept().starting(node, vm)).await?;
        }
        self.is_on(vm);
        let is_off = vm.power == PowerState::Off;
        let call = is_off.then(|| self.hypervisor.open(Scope::Vm(vm))).transpose()?;
        self.attempts.powers_on(vm.uuid());
        if let Some(call) = call {
            let on = guarded(&call, self.hypervisor.power_on(vm, &call)).await?;
            self.attempts.powered_on(&name, &on);
            on?;
        }
        Ok(())
    }

    /// The request is recorded before the last check and the request itself. The record says that the disk may be gone if it is
    /// missing. If that check ends the removal, or the command is cancelled before the request, the record is withdrawn. That
    /// also applies to a retry.
    ///
    /// Only a command that got the response knows that the disk is gone. If the response was lost, or the former command was
    /// killed, the disk may have been moved, and is listed as retained.
    async fn delete_disk(&self, records: &mut Records<'_>, disk: &DiskRef) -> Result<(), ActionError> {
        let was_removed = self.removed().contains(&disk.uuid);
        if !unless_cancelled(self.cancelled(), self.hypervisor.has_disk(disk)).await?? {
            if self.is_unasked(disk) {
                // Another client moved or removed it.
                save(records, records.kept().not_removing(disk)).await?;
                self.unasked().retain(|unasked| unasked != disk);
            }
            // An earlier call whose response was lost, or a former command.
            if records.kept().requested_disk_deletions.contains(&disk.uuid) {
                self.remove_emptied(records, disk).await?;
            }
            return if was_removed { removed(records, disk).await } else { missing(records, disk).await };
        }
        // The disk is back.
        self.removed().remove(&disk.uuid);
        if !self.may_go(records.kept(), disk).await? {
            log::warn!(
                "the disk {} at {} is neither next to a VM of the cluster nor where one of its nodes was: it is named as left",
                disk.uuid,
                disk.path
            );
            return save(records, records.kept().leaving(disk)).await;
        }
        let was_noted = records.kept().requested_disk_deletions.contains(&disk.uuid) && !self.is_unasked(disk);
        let asked = self.ask_to_delete(records, disk).await;
        if matches!(asked, Err(Cancelled)) && !was_noted {
            self.take_note_back(records, disk).await?;
        }
        let (answer, is_asked) = asked?;
        self.unasked().retain(|unasked| unasked != disk);
        if let Err(error) = &answer
            && !was_noted
            && !is_asked
        {
            // Only this call recorded it, and it requested nothing.
            match is_final(error) {
                true => save(records, records.kept().not_removing(disk)).await?,
                false => self.unasked().push(disk.clone()),
            }
        }
        match answer {
            // The disk existed a moment ago, and this call did not remove it.
            Err(error) if error.kind == ErrorKind::NotFound => missing(records, disk).await,
            Err(error) => Err(error.into()),
            Ok(()) => {
                self.removed().insert(disk.uuid);
                self.remove_emptied(records, disk).await?;
                removed(records, disk).await
            }
        }
    }

    /// Whether a disk may be removed. An operator who removes the cluster with its data disks was shown the disks. Other disks
    /// are blank ones of VMs that were created for its nodes, and were not shown. They must be in the directories of these nodes,
    /// whatever the journal says.
    async fn may_go(&self, kept: &DeploymentRecord, disk: &DiskRef) -> Result<bool, ActionError> {
        if kept.lifecycle == Lifecycle::Deleting && kept.removes_disks {
            return Ok(true);
        }
        let nodes: Vec<&str> = kept.nodes.iter().map(|node| node.name.as_str()).collect();
        Ok(unless_cancelled(self.cancelled(), self.hypervisor.is_in_node_directory(disk, &nodes)).await??)
    }

    /// Removes the empty directory of a VM that was removed before its disk. Runs before the disk is recorded as removed:
    /// afterwards nothing leads to the directory. If the command is cancelled, this is skipped without an error: only this
    /// command knows that the disk is gone.
    async fn remove_emptied(&self, records: &Records<'_>, disk: &DiskRef) -> Result<(), ActionError> {
        let nodes: Vec<&str> = records.kept().nodes.iter().map(|node| node.name.as_str()).collect();
        let call = self.hypervisor.call();
        match guarded(&call, self.hypervisor.remove_empty_directory(disk, &nodes, &call)).await {
            Ok(done) => Ok(done?),
            Err(Cancelled) => Ok(()),
        }
    }

    /// The result, and whether the removal was requested.
    async fn ask_to_delete(
        &self,
        records: &mut Records<'_>,
        disk: &DiskRef,
    ) -> Result<(hypervisor::Result<()>, bool), Cancelled> {
        let records = Mutex::new(records);
        let note = || -> Noting<'_> { Box::pin(note_removal(&records, disk)) };
        let call = self.hypervisor.call().noting(&note);
        let answer = guarded(&call, self.hypervisor.delete_disk(disk, &call)).await?;
        Ok((answer, call.is_begun()))
    }

    /// Withdraws the record of a removal that a cancelled command did not request. The write may have been interrupted, and may
    /// have landed. If the store does not answer soon, the record stays: it only says that the disk may be gone.
    async fn take_note_back(&self, records: &mut Records<'_>, disk: &DiskRef) -> Result<(), ActionError> {
        let taken_back = async {
            if !records.kept().requested_disk_deletions.contains(&disk.uuid) {
                return records.settle().await;
            }
            let without = records.kept().not_removing(disk);
            records.save(without).await
        };
        match last_look(self.cancelled(), taken_back).await {
            Ok(saved) => saved.map_err(ActionError::store),
            Err(Cancelled) => Ok(()),
        }
    }

    /// Withdraws the records of removals that this command never requested, at its end. They stay if the store does not accept
    /// that, or hangs.
    pub(super) async fn take_notes_back(&self, records: &mut Records<'_>) -> anyhow::Result<()> {
        let unasked = std::mem::take(&mut *self.unasked());
        for disk in &unasked {
            match self.take_note_back(records, disk).await {
                Err(ActionError::Stop(error)) => return Err(error),
                Err(ActionError::Later(why) | ActionError::InDoubt(why) | ActionError::Refused(why)) => {
                    log::warn!("the request to remove the disk {} stays recorded: {why}", disk.uuid);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn is_unasked(&self, disk: &DiskRef) -> bool {
        self.unasked().contains(disk)
    }

    fn unasked(&self) -> std::sync::MutexGuard<'_, Vec<DiskRef>> {
        self.unasked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancelled(&self) -> &watch::Receiver<bool> {
        &self.deploy.cancelled
    }

    fn removed(&self) -> std::sync::MutexGuard<'_, BTreeSet<Uuid>> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn power_off(&self, vm: &Vm) -> Result<(), ActionError> {
        let cancelled = self.cancelled();
        match self.hypervisor.shut_down_unless(vm, SHUTTING_DOWN).await? {
            ShutDown::Off => {}
            ShutDown::StillOn if *cancelled.borrow() => {}
            ShutDown::StillOn | ShutDown::CannotBeAsked => {
                let vm = unless_cancelled(cancelled, self.hypervisor.vm(&vm.reference)).await??;
                self.hypervisor.cut_power(&vm, &self.hypervisor.open(Scope::Vm(&vm))?).await?;
            }
        }
        Ok(())
    }
}

/// Whether a call has failed for good. After other errors it is repeated with the same record.
fn is_final(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Changed | ErrorKind::Refused | ErrorKind::Denied | ErrorKind::NotFound)
}

pub(super) async fn save(records: &mut Records<'_>, kept: DeploymentRecord) -> Result<(), ActionError> {
    records.save(kept).await.map_err(ActionError::store)
}

/// Records a removal. An existing record is not written again.
async fn note_removal(records: &Mutex<&mut Records<'_>>, disk: &DiskRef) -> anyhow::Result<()> {
    let mut records = records.lock().await;
    if records.kept().requested_disk_deletions.contains(&disk.uuid) {
        return Ok(());
    }
    let noted = records.kept().removing(disk);
    records.save(noted).await
}

async fn removed(records: &mut Records<'_>, disk: &DiskRef) -> Result<(), ActionError> {
    save(records, records.kept().removed(disk)).await
}

async fn missing(records: &mut Records<'_>, disk: &DiskRef) -> Result<(), ActionError> {
    log::warn!("the disk {} is no longer at {}: it is named as left", disk.uuid, disk.path);
    save(records, records.kept().leaving(disk)).await
}

fn node(records: &Records<'_>, name: &str) -> Result<Node, ActionError> {
    let node = records.kept().node(name).with_context(|| format!("there is no node {name}"));
    Ok(node.map_err(ActionError::store)?.clone())
}

fn found<'s>(seen: &'s Inventory, vm: &VmRef) -> Result<&'s Vm, ActionError> {
    let found = seen.vms.iter().find(|other| other.reference == *vm);
    found.with_context(|| format!("{} was not seen", vm.id)).map_err(ActionError::store)
}
