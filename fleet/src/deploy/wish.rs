//! What a person wants, as it is noted before anything follows from it.

use anyhow::{Context, bail, ensure};

use uuid::Uuid;

use super::kept::{Goal, Kept, Node};
use super::wanted::{Wanted, WantedNode};
use crate::hypervisor::{DiskKind, DiskRef, Vm};

/// What a person wants.
#[derive(Clone, Copy)]
pub enum Wish<'a> {
    /// The cluster is made, or goes on being made.
    Deploy(&'a Wanted),
    /// The cluster is removed.
    Destroy {
        /// Its name.
        cluster: &'a str,
        /// Whether its data disks are removed as well.
        disks: bool,
    },
}

impl Wish<'_> {
    /// What is kept once it is wanted. `vms` are those that carry the deployment's stamp.
    ///
    /// # Errors
    /// When it cannot be wanted now.
    pub(super) fn applied(self, deployment: Uuid, kept: Option<Kept>, vms: &[Vm]) -> anyhow::Result<Kept> {
        if let Some(kept) = &kept {
            kept.is_of(deployment)?;
        }
        let kept = match self {
            Self::Deploy(wanted) => deployed(wanted, kept, vms),
            Self::Destroy { cluster, disks } => destroyed(cluster, disks, kept, vms),
        };
        Ok(Kept { deployment: Some(deployment), ..kept? })
    }
}

fn deployed(wanted: &Wanted, kept: Option<Kept>, vms: &[Vm]) -> anyhow::Result<Kept> {
    let before = match kept {
        Some(kept) if kept.goal == Goal::Down => {
            bail!("the cluster {} is being destroyed: go on with that", kept.cluster)
        }
        Some(kept) if kept.goal == Goal::Up => return same(wanted, kept),
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
        made_of: node.made_of(&wanted.size),
        drawn: None,
        vm: None,
        started: false,
    };
    Ok(Kept {
        deployment: None,
        cluster: wanted.cluster.clone(),
        goal: Goal::Up,
        image: wanted.image.clone(),
        nodes: wanted.nodes.iter().map(node).collect(),
        formed: false,
        authority: None,
        removes_disks: false,
        left: before.map(|kept| kept.left).unwrap_or_default(),
        discarded: Vec::new(),
    })
}

/// What was begun is not made otherwise half-way: the same cluster goes on.
fn same(wanted: &Wanted, kept: Kept) -> anyhow::Result<Kept> {
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
    let is_made = kept.nodes.iter().any(|node| node.vm.is_some());
    let is_same = kept.image.digest == wanted.image.digest;
    ensure!(
        is_same || !is_made,
        "{} was begun with {}, not {}: {anew}",
        kept.cluster,
        kept.image.name,
        wanted.image.name
    );
    let mut kept = Kept { image: wanted.image.clone(), ..kept };
    for (node, asked) in kept.nodes.iter_mut().zip(&wanted.nodes) {
        let made_of = asked.made_of(&wanted.size);
        ensure!(
            node.vm.is_none() || node.made_of == made_of,
            "the VM of {} was made with other properties, or of another size: {anew}",
            node.name
        );
        node.made_of = made_of;
    }
    Ok(kept)
}

fn destroyed(cluster: &str, disks: bool, kept: Option<Kept>, vms: &[Vm]) -> anyhow::Result<Kept> {
    let Some(kept) = kept else {
        ensure!(!vms.is_empty(), "there is nothing of the cluster {cluster}");
        let names = vms.iter().map(Vm::to_string).collect::<Vec<_>>().join(", ");
        bail!(
            "nothing is noted of how VMs of this deployment were made, and a stamp alone does not say that they may go: \
             {names}. Whoever knows that they are of the cluster {cluster} removes them by hand"
        );
    };
    ensure!(kept.cluster == cluster, "the cluster here is {}, not {cluster}: nothing was changed", kept.cluster);
    let mut kept = Kept { goal: Goal::Down, removes_disks: disks, ..kept };
    if disks {
        // Also those that an earlier one has left.
        kept.discarded.append(&mut kept.left);
    }
    Ok(kept)
}

impl Kept {
    /// The same with a disk noted that is about to be detached. That of a VM which was made for a node and
    /// never on is blank; what any other VM holds is not known.
    pub(super) fn noting(&self, vm: &Vm, disk: &DiskRef) -> anyhow::Result<Self> {
        let held = vm.disk(disk.uuid).context("the disk is not there any more")?;
        let is_data = held.kind == DiskKind::Data;
        let of = self.nodes.iter().find(|node| node.owns(vm) && node.has_noted(vm.uuid()));
        let was_used = self.formed || of.is_none_or(|node| node.started);
        let goes = is_data && (self.removes_disks || !was_used);
        let mut kept = self.clone();
        if kept.left.contains(disk) || kept.discarded.contains(disk) {
            return Ok(kept);
        }
        if goes {
            kept.discarded.push(disk.clone())
        } else {
            kept.left.push(disk.clone())
        }
        Ok(kept)
    }
}
