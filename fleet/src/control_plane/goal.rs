//! The operator's goal, recorded before anything follows from it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};

use uuid::Uuid;

use super::deployment_record::{AdoptedVm, DeploymentRecord, Lifecycle, NONE_KNOWN, Node};
use super::desired_state::{DesiredState, WantedNode};
use super::go::HeldDisk;
use super::inventory::Inventory;
use crate::hypervisor::{DiskKind, DiskRef, Vm, VmRef};
use crate::upgrade::DiskCopy;
use crate::workers::Image;

#[derive(Clone, Copy)]
pub enum Goal<'a> {
    /// The cluster is created, or its creation continues.
    Deploy(&'a DesiredState),
    /// A cluster that has formed continues as it is recorded. How its VMs were created no longer matters.
    Continue,
    /// A lost node of a formed cluster gets another VM.
    Replace {
        /// The desired state of its VM.
        wanted: &'a DesiredState,
        node: &'a str,
        /// The host that the operator has switched off, if vCenter cannot show whether the lost VM runs.
        host_is_off: Option<&'a str>,
        /// Whether a replacement that has made all of its VMs starts again.
        retries: bool,
    },
    /// The cluster is removed.
    Destroy {
        cluster: &'a str,
        /// Whether its data disks are removed as well: those that its VMs hold.
        disks: bool,
        /// Disks that none of its VMs holds and that are removed too, as shown to the operator ([`super::Deploy::unheld`]).
        left: &'a [DiskRef],
        /// Disks whose removal was requested, and that were missing when this was shown to the operator. If they are still
        /// missing, they are no longer listed. A disk that exists now, or that a VM holds, stays.
        doubtful: &'a [DiskRef],
        /// Disks that were to be removed, and that a VM held when this was shown. The disk of a VM of the cluster is removed with
        /// it. A disk that a VM has released since stays: it was not shown as one to remove.
        held: &'a [HeldDisk],
        /// VMs without a record of their creation that are removed too, as shown to the operator.
        also: &'a [Vm],
    },
}

/// A VM exists that was created from something else than what is wanted now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the VM of {node} was made with other properties, of another size, for another deployer's key, or by an earlier \
     version of this program: delete the cluster and create it again, or undo the change"
)]
pub struct MadeOtherwise {
    pub node: String,
}

impl Goal<'_> {
    /// The record once this is the goal. `vms` are those that carry the deployment's stamp.
    pub(super) fn applied(
        self,
        deployment: Uuid,
        kept: Option<DeploymentRecord>,
        vms: &[Vm],
    ) -> anyhow::Result<DeploymentRecord> {
        if let Some(kept) = &kept {
            kept.is_of(deployment)?;
        }
        let kept = match self {
            Self::Deploy(wanted) => deployed(wanted, kept, vms),
            Self::Continue | Self::Replace { .. } => continued(kept),
            Self::Destroy { cluster, disks, left, held, also, .. } => {
                destroyed(cluster, (disks.then_some(left), held), also, kept, vms)
            }
        };
        Ok(DeploymentRecord { deployment: Some(deployment), ..kept? })
    }
}

fn continued(kept: Option<DeploymentRecord>) -> anyhow::Result<DeploymentRecord> {
    let kept = kept.context("no cluster is recorded here")?;
    ensure!(
        kept.formed && kept.lifecycle == Lifecycle::Active,
        "the cluster {} has not formed, or is being deleted",
        kept.cluster
    );
    Ok(kept)
}

fn deployed(wanted: &DesiredState, kept: Option<DeploymentRecord>, vms: &[Vm]) -> anyhow::Result<DeploymentRecord> {
    let before = match kept {
        Some(kept) if kept.lifecycle == Lifecycle::Deleting => {
            bail!("the cluster {} is being deleted: finish that first", kept.cluster)
        }
        Some(kept) if kept.lifecycle == Lifecycle::Active => return same(wanted, kept),
        gone => gone,
    };
    if let [vm, ..] = vms {
        bail!(
            "there are VMs of this deployment already, {vm} among them, and no record shows how they were created: they \
             were made otherwise"
        );
    }
    let node = |node: &WantedNode| Node {
        name: node.name.clone(),
        address: node.address,
        settings_hash: wanted.made_of(node),
        secret_hash: wanted.secret(node),
        allocated_uuid: node.drawn,
        bios_uuid: None,
        ever_powered_on: false,
        disk: None,
    };
    let upgrade = before.as_ref().and_then(|kept| kept.upgrade);
    let (left, mut removals, copies) =
        before.map(|kept| (kept.retained_disks, kept.requested_disk_deletions, kept.copies)).unwrap_or_default();
    // It stays recorded which retained disks may be gone.
    removals.retain(|removal| left.iter().any(|disk| disk.uuid == *removal));
    Ok(DeploymentRecord {
        deployment: None,
        cluster: wanted.cluster.clone(),
        lifecycle: Lifecycle::Active,
        image: wanted.image.clone(),
        nodes: wanted.nodes.iter().map(node).collect(),
        formed: false,
        ca_fingerprint: None,
        deployer_fingerprint: wanted.deployer(),
        replacement: None,
        replaced_vms: Vec::new(),
        removes_disks: false,
        adopted_vms: Vec::new(),
        upgrade,
        retained_disks: left,
        disks_to_delete: Vec::new(),
        requested_disk_deletions: removals,
        copies,
        deleting_vms: Vec::new(),
        places: BTreeMap::new(),
    })
}

/// A begun cluster is not created differently halfway: the same one continues.
fn same(wanted: &DesiredState, kept: DeploymentRecord) -> anyhow::Result<DeploymentRecord> {
    let remedy = "delete it and create it again, or undo the change";
    let is_named = kept.cluster == wanted.cluster;
    ensure!(is_named, "the cluster {} was begun here, not {}: {remedy}", kept.cluster, wanted.cluster);
    let list = |nodes: Vec<(&String, std::net::Ipv4Addr)>| {
        nodes.iter().map(|(name, address)| format!("{name}={address}")).collect::<Vec<_>>().join(",")
    };
    let begun = list(kept.nodes.iter().map(|node| (&node.name, node.address)).collect());
    let asked = list(wanted.nodes.iter().map(|node| (&node.name, node.address)).collect());
    ensure!(begun == asked, "{} was begun with the control-plane nodes {begun}, not {asked}: {remedy}", kept.cluster);
    if kept.formed {
        // Upgrades and the nodes themselves decide how its nodes are now.
        return Ok(kept);
    }
    let is_made = kept.nodes.iter().any(|node| node.bios_uuid.is_some());
    let is_same = kept.image.digest == wanted.image.digest;
    ensure!(
        is_same || !is_made,
        "{} was begun with {}, not {}: {remedy}",
        kept.cluster,
        kept.image.name,
        wanted.image.name
    );
    let deployer = wanted.deployer();
    if let (true, Some(noted), Some(asked)) = (is_made, kept.deployer_fingerprint, deployer)
        && noted != asked
    {
        bail!(
            "the VMs of {} were given the deployer's key {noted}, and this one is {asked}: another command has drawn that. Give the \
             key that they have, or delete the cluster and create it again",
            kept.cluster
        );
    }
    let mut kept = DeploymentRecord {
        image: wanted.image.clone(),
        deployer_fingerprint: deployer.or(kept.deployer_fingerprint),
        ..kept
    };
    for (node, asked) in kept.nodes.iter_mut().zip(&wanted.nodes) {
        let (made_of, secret) = (wanted.made_of(asked), wanted.secret(asked));
        if node.bios_uuid.is_some() && node.settings_hash != made_of {
            return Err(MadeOtherwise { node: node.name.clone() }.into());
        }
        ensure!(
            node.bios_uuid.is_none() || secret.is_none() || node.secret_hash.is_none() || node.secret_hash == secret,
            "the VM of {} was given another deployment secret, and nodes with different ones never meet: {remedy}",
            node.name
        );
        node.settings_hash = made_of;
        // The hash of the secret that its VM was given stays recorded if the secret is gone.
        node.secret_hash = secret.or(node.secret_hash.take());
    }
    Ok(kept)
}

/// `disks` are those to remove although no VM of the cluster holds them. `None` if no data disk is removed. `held` are those that
/// a VM held when these were shown.
fn destroyed(
    cluster: &str,
    (disks, held): (Option<&[DiskRef]>, &[HeldDisk]),
    also: &[Vm],
    kept: Option<DeploymentRecord>,
    vms: &[Vm],
) -> anyhow::Result<DeploymentRecord> {
    let before = kept.as_ref().map(|kept| kept.adopted_vms.clone()).unwrap_or_default().into_iter();
    let mut granted: Vec<AdoptedVm> = before.map(|granted| AdoptedVm { earlier: true, ..granted }).collect();
    for vm in also {
        let of_uuid: Vec<&Vm> = vms.iter().filter(|other| other.uuid() == vm.uuid()).collect();
        let [now] = of_uuid.as_slice() else {
            bail!(
                "{} VMs of this deployment have the BIOS UUID {}, and one was named: nothing was changed",
                of_uuid.len(),
                vm.uuid()
            );
        };
        let is_alike = now.disks == vm.disks && now.stamp == vm.stamp && now.power == vm.power;
        ensure!(now.reference == vm.reference && is_alike, "{vm} is no longer as it was shown: nothing was changed");
        // Disks that were detached from it since it was first named are its own as well.
        let before = granted.extract_if(.., |granted| granted.bios_uuid == vm.uuid()).flat_map(|granted| granted.disks);
        let held = vm.data_disks().map(|disk| disk.reference.uuid);
        let disks: BTreeSet<Uuid> = before.chain(held).collect();
        granted.push(AdoptedVm { bios_uuid: vm.uuid(), disks: disks.into_iter().collect(), earlier: false });
    }
    let kept = match kept {
        Some(kept) => kept,
        None => {
            let rest: Vec<String> =
                vms.iter().filter(|vm| !also.iter().any(|it| it.uuid() == vm.uuid())).map(Vm::to_string).collect();
            ensure!(!vms.is_empty(), "there is nothing of the cluster {cluster}");
            ensure!(
                rest.is_empty(),
                "no record shows how VMs of this deployment were created, and a stamp alone does not say that they may go: {}. \
                 Those that are of the cluster {cluster} go where each is named by its BIOS UUID; nothing was changed",
                rest.join(", ")
            );
            adopted(cluster)
        }
    };
    ensure!(kept.cluster == cluster, "the cluster here is {}, not {cluster}: nothing was changed", kept.cluster);
    let disks_went = kept.removes_disks;
    let mut kept = DeploymentRecord {
        lifecycle: Lifecycle::Deleting,
        removes_disks: disks.is_some(),
        adopted_vms: granted,
        ..kept
    };
    if let Some(shown) = disks {
        // Also disks that an earlier command retained, except those that were never the cluster's, and those that were not shown.
        let goes = |disk: &DiskRef| kept.is_own_disk(disk.uuid) && shown.contains(disk);
        let (own, left) = kept.retained_disks.iter().cloned().partition(goes);
        kept.retained_disks = left;
        // A disk that an earlier command marked for removal, and that a VM held when the disks were shown, is retained at that
        // place.
        for disk in std::mem::take(&mut kept.disks_to_delete) {
            match held.iter().find(|held| held.disk.uuid == disk.uuid) {
                Some(held) => kept.retained_disks.push(held.disk.clone()),
                None => kept.disks_to_delete.push(disk),
            }
        }
        kept.disks_to_delete.extend::<Vec<DiskRef>>(own);
    } else {
        // An earlier command may have marked disks for removal, and was ended: used disks that still exist are retained now. If
        // none did, all of them were blank, except what a VM that has served holds now (`DeploymentRecord::noting`).
        let is_blank = |disk: &DiskRef| {
            !disks_went
                || (!kept.formed && kept.nodes.iter().any(|node| node.disk == Some(disk.uuid) && !node.ever_powered_on))
        };
        let (blank, used) = kept.disks_to_delete.iter().cloned().partition(is_blank);
        kept.disks_to_delete = blank;
        kept.retained_disks.extend::<Vec<DiskRef>>(used);
    }
    Ok(kept)
}

/// The record for a cluster without one: all of its VMs are removed because an operator named them.
fn adopted(cluster: &str) -> DeploymentRecord {
    DeploymentRecord {
        cluster: cluster.to_owned(),
        deployment: None,
        lifecycle: Lifecycle::Deleting,
        image: Image { digest: String::new(), name: "an image that was imported by hand".to_owned() },
        nodes: Vec::new(),
        formed: true,
        ca_fingerprint: None,
        deployer_fingerprint: None,
        replacement: None,
        replaced_vms: Vec::new(),
        removes_disks: false,
        adopted_vms: Vec::new(),
        upgrade: None,
        retained_disks: Vec::new(),
        disks_to_delete: Vec::new(),
        requested_disk_deletions: Vec::new(),
        copies: Vec::new(),
        deleting_vms: Vec::new(),
        places: BTreeMap::new(),
    }
}

impl DeploymentRecord {
    /// The record with an upgrade's disks that no VM holds: nothing else leads to them once its journal is gone. Each disk is
    /// recorded once, and never one that was removed. They are retained even if data disks are removed: an unseen VM may hold
    /// one, and they were not shown.
    #[must_use]
    pub(super) fn with_unheld(mut self, disks: &[DiskRef], vms: &[Vm]) -> Self {
        for disk in disks {
            let is_noted = self.retained_disks.iter().chain(&self.disks_to_delete).any(|noted| noted.uuid == disk.uuid);
            if !is_noted && !self.requested_disk_deletions.contains(&disk.uuid) && !is_held(vms, disk) {
                self.retained_disks.push(disk.clone());
            }
        }
        self
    }

    /// The record with the copies of data disks that upgrades left, in their last known state.
    #[must_use]
    pub(super) fn with_copies(mut self, copies: &[DiskCopy]) -> Self {
        for copy in copies {
            self.copies.retain(|noted| noted.copy.path != copy.copy.path);
            self.copies.push(copy.clone());
        }
        self
    }

    /// The disks that no seen VM holds, and that are removed if data disks are: those marked for removal, and retained ones of
    /// the cluster.
    pub(super) fn unheld(&self, seen: &Inventory) -> Vec<DiskRef> {
        let left = self.retained_disks.iter().filter(|disk| self.is_own_disk(disk.uuid));
        self.disks_to_delete.iter().chain(left).filter(|disk| seen.is_free(disk)).cloned().collect()
    }

    /// The record once the cluster is gone. Disks that were to be removed, and that a VM outside the cluster holds, are retained.
    /// Disks of a VM that an operator named once, and then no longer, are left out.
    pub(super) fn without_others(&self, seen: &Inventory) -> Self {
        let mut kept = self.clone();
        kept.retained_disks.append(&mut kept.disks_to_delete);
        let is_nodes = |disk: &DiskRef| self.nodes.iter().any(|node| node.disk == Some(disk.uuid));
        let is_earlier =
            |vm: &Vm| self.adopted_vms.iter().any(|granted| granted.bios_uuid == vm.uuid() && granted.earlier);
        kept.retained_disks.retain(|disk| is_nodes(disk) || !seen.other_holder(disk).is_some_and(is_earlier));
        kept.note_gone();
        kept
    }

    /// Records all VMs as gone. The proof of that, such as an upgrade's journal, may be removed with the cluster.
    fn note_gone(&mut self) {
        let mut proved: BTreeSet<Uuid> = std::mem::take(&mut self.places).into_keys().collect();
        proved.extend(self.nodes.iter().filter_map(|node| node.bios_uuid));
        proved.retain(|vm| !self.deleting_vms.iter().any(|gone| gone.uuid == *vm));
        self.deleting_vms.extend(proved.into_iter().map(|uuid| VmRef { uuid, id: String::new() }));
    }

    /// The record with a disk that is about to be detached.
    ///
    /// The disk of a VM that was created for a node and never on is blank, and is removed. If the VM holds several, and none is
    /// recorded as its own, all of them are retained. A used disk is removed only if it is the cluster's and that was requested.
    /// A disk that another client attached to a VM of the cluster is retained.
    ///
    /// An earlier removal request has not happened, because the VM holds the disk. The caller knows whether it still may.
    pub(super) fn noting(&self, vm: &Vm, disk: &DiskRef) -> anyhow::Result<Self> {
        let held = vm.disk(disk.uuid).context("the VM no longer holds the disk")?;
        let is_only = held.kind == DiskKind::Data && vm.data_disks().count() == 1;
        let mut kept = self.not_removing(disk);
        let of = kept.nodes.iter_mut().find(|node| node.owns(vm) && node.has_noted(vm.uuid()));
        // The disk of a VM that has not joined in place of a lost node is blank, too.
        let is_blank = self.is_replacement(vm.uuid());
        let was_used = !is_blank && (self.formed || of.as_ref().is_none_or(|node| node.ever_powered_on));
        let is_noted = |noted: &DiskRef| noted.uuid == disk.uuid;
        // If another disk is recorded as its own, that one was detached before, and this one was attached since.
        let own = of.as_ref().and_then(|node| node.disk);
        let is_its_own = is_only && own.is_none_or(|own| own == disk.uuid) && !self.retained_disks.iter().any(is_noted);
        let are_several = vm.data_disks().count() > 1;
        let lacks_own = of.as_ref().is_some_and(|node| node.own_disk().is_none());
        if let Some(node) = of {
            if is_its_own {
                node.disk = Some(disk.uuid);
            } else if are_several {
                node.disk = node.disk.or(Some(NONE_KNOWN));
            }
        }
        if (!was_used || lacks_own) && are_several {
            // Also if they are detached one by one.
            let others = vm.data_disks().map(|other| &other.reference).filter(|other| !is_noted(other));
            let unnoted = |other: &&DiskRef| {
                !self.retained_disks.iter().chain(&self.disks_to_delete).any(|it| it.uuid == other.uuid)
            };
            kept.retained_disks.extend(others.filter(unnoted).cloned());
        }
        let is_own = held.kind == DiskKind::Data && kept.is_own_disk(disk.uuid);
        let goes = if was_used { is_own && self.removes_disks } else { is_its_own };
        if was_used && !goes {
            // A former blank disk that could not be removed, and was attached to a VM that has served.
            kept.disks_to_delete.retain(|noted| !is_noted(noted));
        }
        if let Some(noted) = kept.disks_to_delete.iter_mut().find(|noted| is_noted(noted)) {
            // It was moved since.
            noted.path.clone_from(&disk.path);
            return Ok(kept);
        }
        // A disk that was retained because no VM held it, and that a VM of the cluster holds again, is recorded as that VM's.
        kept.retained_disks.retain(|noted| !is_noted(noted));
        if goes {
            kept.disks_to_delete.push(disk.clone());
        } else {
            kept.retained_disks.push(disk.clone());
        }
        Ok(kept)
    }
}

/// Whether one of these VMs holds a disk.
fn is_held(vms: &[Vm], disk: &DiskRef) -> bool {
    vms.iter().any(|vm| vm.disk(disk.uuid).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_formed_cluster_continues() {
        let kept = |formed, lifecycle| DeploymentRecord { formed, lifecycle, ..adopted("shop") };
        assert!(continued(None).is_err());
        assert!(continued(Some(kept(false, Lifecycle::Active))).is_err());
        assert!(continued(Some(kept(true, Lifecycle::Deleting))).is_err());
        let formed = kept(true, Lifecycle::Active);
        assert_eq!(continued(Some(formed.clone())).unwrap(), formed);
    }
}
