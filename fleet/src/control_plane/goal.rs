//! What a person wants, as it is noted before anything follows from it.

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
    /// The cluster is made, or goes on being made.
    Deploy(&'a DesiredState),
    /// The cluster is removed.
    Destroy {
        cluster: &'a str,
        /// Whether its data disks are removed as well: those that its VMs hold.
        disks: bool,
        /// Those that none of its VMs holds and that go with them, as they were shown to whoever says so ([`super::Deploy::unheld`]).
        left: &'a [DiskRef],
        /// Those whose removal was asked for and that were not there when that was shown to whoever says so: where they still are not, they
        /// are named no more, and one that is there by now, or that a VM holds, stays.
        doubtful: &'a [DiskRef],
        /// Those that were to be removed and that a VM held when that was shown: what goes with a VM of the cluster goes, and what a VM has let
        /// go of since stays, for nobody was shown that it goes.
        held: &'a [HeldDisk],
        /// VMs that go as well though nothing is noted of how they were made, as they were shown to whoever says so.
        also: &'a [Vm],
    },
}

/// A VM is there that was made of something else than what is wanted now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the VM of {node} was made with other properties, of another size, for another deployer's key, or by an earlier \
     version of this program: destroy it and deploy it anew, or take back what was changed"
)]
pub struct MadeOtherwise {
    pub node: String,
}

impl Goal<'_> {
    /// What is kept once it is wanted. `vms` are those that carry the deployment's stamp.
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
            Self::Destroy { cluster, disks, left, held, also, .. } => {
                destroyed(cluster, (disks.then_some(left), held), also, kept, vms)
            }
        };
        Ok(DeploymentRecord { deployment: Some(deployment), ..kept? })
    }
}

fn deployed(wanted: &DesiredState, kept: Option<DeploymentRecord>, vms: &[Vm]) -> anyhow::Result<DeploymentRecord> {
    let before = match kept {
        Some(kept) if kept.lifecycle == Lifecycle::Deleting => {
            bail!("the cluster {} is being destroyed: go on with that", kept.cluster)
        }
        Some(kept) if kept.lifecycle == Lifecycle::Active => return same(wanted, kept),
        gone => gone,
    };
    if let [vm, ..] = vms {
        bail!(
            "there are VMs of this deployment already, {vm} among them, and nothing is noted of how they were made: they \
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
    // Of those that are left it stays known that they may be gone.
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

/// What was begun is not made otherwise half-way: the same cluster goes on.
fn same(wanted: &DesiredState, kept: DeploymentRecord) -> anyhow::Result<DeploymentRecord> {
    let anew = "destroy it and deploy it anew, or take back what was changed";
    let is_named = kept.cluster == wanted.cluster;
    ensure!(is_named, "the cluster {} was begun here, not {}: {anew}", kept.cluster, wanted.cluster);
    let list = |nodes: Vec<(&String, std::net::Ipv4Addr)>| {
        nodes.iter().map(|(name, address)| format!("{name}={address}")).collect::<Vec<_>>().join(",")
    };
    let begun = list(kept.nodes.iter().map(|node| (&node.name, node.address)).collect());
    let asked = list(wanted.nodes.iter().map(|node| (&node.name, node.address)).collect());
    ensure!(begun == asked, "{} was begun with the control nodes {begun}, not {asked}: {anew}", kept.cluster);
    if kept.formed {
        // How its nodes are now is the upgrades' and their own.
        return Ok(kept);
    }
    let is_made = kept.nodes.iter().any(|node| node.bios_uuid.is_some());
    let is_same = kept.image.digest == wanted.image.digest;
    ensure!(
        is_same || !is_made,
        "{} was begun with {}, not {}: {anew}",
        kept.cluster,
        kept.image.name,
        wanted.image.name
    );
    let deployer = wanted.deployer();
    if let (true, Some(noted), Some(asked)) = (is_made, kept.deployer_fingerprint, deployer)
        && noted != asked
    {
        bail!(
            "the VMs of {} were told the deployer's key {noted}, and this one is {asked}: another command has drawn that. Give the \
             key that they were told, or destroy the cluster and deploy it anew",
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
            "the VM of {} was told another deployment secret, and nodes that were told different ones never meet: {anew}",
            node.name
        );
        node.settings_hash = made_of;
        // What its VM was told stays noted where the secret is gone by now.
        node.secret_hash = secret.or(node.secret_hash.take());
    }
    Ok(kept)
}

/// `disks` are those that go though no VM of the cluster holds them; none where no data disk goes. `held` are those that a VM held when
/// these were shown.
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
        ensure!(now.reference == vm.reference && is_alike, "{vm} is not as it was shown any more: nothing was changed");
        // What was detached from it since it was named first is its own as well.
        let before = granted.extract_if(.., |granted| granted.bios_uuid == vm.uuid()).flat_map(|granted| granted.disks);
        let held = vm.data_disks().map(|disk| disk.reference.uuid);
        let disks: BTreeSet<Uuid> = before.chain(held).collect();
        granted.push(AdoptedVm { bios_uuid: vm.uuid(), disks: disks.into_iter().collect(), earlier: false });
    }
    let mut kept = match kept {
        Some(kept) => kept,
        None => {
            let rest: Vec<String> =
                vms.iter().filter(|vm| !also.iter().any(|it| it.uuid() == vm.uuid())).map(Vm::to_string).collect();
            ensure!(!vms.is_empty(), "there is nothing of the cluster {cluster}");
            ensure!(
                rest.is_empty(),
                "nothing is noted of how VMs of this deployment were made, and a stamp alone does not say that they may go: {}. \
                 Those that are of the cluster {cluster} go where each is named by its BIOS UUID; nothing was changed",
                rest.join(", ")
            );
            adopted(cluster)
        }
    };
    ensure!(kept.cluster == cluster, "the cluster here is {}, not {cluster}: nothing was changed", kept.cluster);
    if kept.lifecycle == Lifecycle::Deleted {
        // An earlier version has not noted that.
        kept.note_gone();
    }
    let disks_went = kept.removes_disks;
    let mut kept = DeploymentRecord {
        lifecycle: Lifecycle::Deleting,
        removes_disks: disks.is_some(),
        adopted_vms: granted,
        ..kept
    };
    if let Some(shown) = disks {
        // Also those that an earlier one has left, but for what was never the cluster's, and what nobody was shown.
        let goes = |disk: &DiskRef| kept.is_own_disk(disk.uuid) && shown.contains(disk);
        let (own, left) = kept.retained_disks.iter().cloned().partition(goes);
        kept.retained_disks = left;
        // Nor what an earlier one has said to go, where a VM held it when this one was shown what goes: it is left where it was then.
        for disk in std::mem::take(&mut kept.disks_to_delete) {
            match held.iter().find(|held| held.disk.uuid == disk.uuid) {
                Some(held) => kept.retained_disks.push(held.disk.clone()),
                None => kept.disks_to_delete.push(disk),
            }
        }
        kept.disks_to_delete.extend::<Vec<DiskRef>>(own);
    } else {
        // An earlier one may have said that disks go, and was ended: what was used and is still there stays now. Where none has said that,
        // all of them were blank, but for what a VM that has served holds by now (`Kept::noting`).
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

/// A cluster of which nothing was noted: all of its VMs go by an operator's word.
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
    /// The same with those of an upgrade's disks noted that no VM holds: nothing else leads to them once its journal goes. However
    /// often that is asked for, each is noted once, and none that was removed. They are left also where data disks go: a VM that is not
    /// seen here may hold one, and nobody was shown it.
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

    /// The same with the copies of data disks noted that upgrades have left, as they are known last.
    #[must_use]
    pub(super) fn with_copies(mut self, copies: &[DiskCopy]) -> Self {
        for copy in copies {
            self.copies.retain(|noted| noted.copy.path != copy.copy.path);
            self.copies.push(copy.clone());
        }
        self
    }

    /// The disks that no VM which was seen holds and that go where data disks go: those that are noted to go, and the cluster's own
    /// among what is left.
    pub(super) fn unheld(&self, seen: &Inventory) -> Vec<DiskRef> {
        let left = self.retained_disks.iter().filter(|disk| self.is_own_disk(disk.uuid));
        self.disks_to_delete.iter().chain(left).filter(|disk| seen.is_free(disk)).cloned().collect()
    }

    /// The same once the cluster is gone, with what was to be removed and is held by a VM that is not the cluster's among what is
    /// left; without what came with a VM that an operator had named, and has taken back.
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

    /// Notes all VMs as gone. What proved them gone may go with the cluster, such as an upgrade's journal.
    fn note_gone(&mut self) {
        let mut proved: BTreeSet<Uuid> = std::mem::take(&mut self.places).into_keys().collect();
        proved.extend(self.nodes.iter().filter_map(|node| node.bios_uuid));
        proved.retain(|vm| !self.deleting_vms.iter().any(|gone| gone.uuid == *vm));
        self.deleting_vms.extend(proved.into_iter().map(|uuid| VmRef { uuid, id: String::new() }));
    }

    /// The same with a disk noted that is about to be detached. That of a VM which was made for a node and never on is blank, and
    /// goes; where one holds several, and none is noted as its own, nobody knows which is that, and all of them are left. A disk that was
    /// used goes only if it is the cluster's, and that was asked for: what somebody has hung on a VM of the cluster is somebody's. Where
    /// its removal was asked for before, that has not happened, for the VM holds it; whether it may yet, the caller knows.
    pub(super) fn noting(&self, vm: &Vm, disk: &DiskRef) -> anyhow::Result<Self> {
        let held = vm.disk(disk.uuid).context("the disk is not there any more")?;
        let is_only = held.kind == DiskKind::Data && vm.data_disks().count() == 1;
        let mut kept = self.not_removing(disk);
        let of = kept.nodes.iter_mut().find(|node| node.owns(vm) && node.has_noted(vm.uuid()));
        let was_used = self.formed || of.as_ref().is_none_or(|node| node.ever_powered_on);
        let is_noted = |noted: &DiskRef| noted.uuid == disk.uuid;
        // Where another one is noted as its own, that was detached before, and this one was hung on the VM since.
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
            // Also where they are taken off one by one.
            let others = vm.data_disks().map(|other| &other.reference).filter(|other| !is_noted(other));
            let unnoted = |other: &&DiskRef| {
                !self.retained_disks.iter().chain(&self.disks_to_delete).any(|it| it.uuid == other.uuid)
            };
            kept.retained_disks.extend(others.filter(unnoted).cloned());
        }
        let is_own = held.kind == DiskKind::Data && kept.is_own_disk(disk.uuid);
        let goes = if was_used { is_own && self.removes_disks } else { is_its_own };
        if was_used && !goes {
            // A blank one of before, which could not be removed and was hung on a VM that has served.
            kept.disks_to_delete.retain(|noted| !is_noted(noted));
        }
        if let Some(noted) = kept.disks_to_delete.iter_mut().find(|noted| is_noted(noted)) {
            // It was moved since.
            noted.path.clone_from(&disk.path);
            return Ok(kept);
        }
        // What was left since no VM held it, and what a VM of the cluster holds again, is noted as that one's.
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
