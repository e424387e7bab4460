//! The state of a deployment as text.

use std::path::Path;

use fleet::control_plane::{DeployStatus, DesiredState, HeldDisk, Lifecycle, RunOutcome, Wait, left_in_words};
use fleet::hypervisor::{DiskRef, Vm};
use fleet::nodes::clean;
use fleet::upgrade::DiskCopy;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster_file::{CheckReport, ClusterFile};

/// The code of a VM that the journal does not have.
const UNNOTED: &str = "deploy.vm-unnoted";

/// The result of a command, as JSON.
#[derive(Serialize, JsonSchema)]
pub struct Outcome<'a> {
    arrived: &'static str,
    /// The path of the written kubeconfig, if one was issued: the cluster runs, or it has formed and waits for a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<&'a Path>,
    /// Templates that remain after the cluster is gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    templates: Vec<String>,
    #[serde(flatten)]
    status: &'a DeployStatus,
}

impl<'a> Outcome<'a> {
    /// `kubeconfig` is the path of the written one.
    pub(super) fn of(arrived: &RunOutcome, kubeconfig: Option<&'a Path>, status: &'a DeployStatus) -> Self {
        let word = match arrived {
            RunOutcome::Up(_) => "up",
            RunOutcome::Gone => "gone",
            RunOutcome::Paused(_) => "paused",
            RunOutcome::Stopped(_) => "stopped",
            RunOutcome::Cancelled => "cancelled",
        };
        Self { arrived: word, kubeconfig, templates: Vec::new(), status }
    }

    /// Adds the templates that remain.
    pub(super) fn leaving(self, templates: Vec<String>) -> Self {
        Self { templates, ..self }
    }
}

/// The plan of a dry run. Secret values are left out.
#[derive(Serialize, JsonSchema)]
pub struct Plan {
    cluster: String,
    place: String,
    exists: bool,
    image: String,
    digest: String,
    nodes: Vec<PlannedVm>,
    makes: Vec<String>,
    found: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct PlannedVm {
    name: String,
    processors: u32,
    memory_mib: u32,
    data_disk_bytes: Option<u64>,
    networks: Vec<String>,
    properties: std::collections::BTreeMap<String, String>,
}

impl Plan {
    /// Combines the judged description, its warnings, and the check of the site.
    pub(super) fn of(wanted: &DesiredState, file: &ClusterFile, warnings: Vec<String>, checked: CheckReport) -> Self {
        let shown = |(key, value): (&String, &String)| {
            let hidden = contract::properties::find(key).is_none_or(|property| property.betrays(value));
            (key.clone(), if hidden { "…".to_owned() } else { value.clone() })
        };
        let nodes = wanted.nodes.iter().map(|node| PlannedVm {
            name: node.name.clone(),
            processors: wanted.size.processors,
            memory_mib: wanted.size.memory,
            data_disk_bytes: wanted.size.data_disk,
            networks: wanted.networks.clone(),
            properties: node.properties.iter().map(shown).collect(),
        });
        Self {
            cluster: wanted.cluster.clone(),
            place: file.provider.words(),
            exists: checked.exists,
            image: wanted.image.name.clone(),
            digest: wanted.image.digest.clone(),
            nodes: nodes.collect(),
            makes: checked.makes,
            found: checked.found,
            warnings: [warnings, checked.warnings].concat(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("the cluster {}, in {}, from {}\n", self.cluster, self.place, self.image);
        if self.exists {
            text += "its place exists already: the command creates only what is missing\n";
        }
        for vm in &self.nodes {
            let disk =
                vm.data_disk_bytes.map(|bytes| format!(", data disk of {} GiB", bytes >> 30)).unwrap_or_default();
            let PlannedVm { name, processors, memory_mib, networks, .. } = vm;
            text +=
                &format!("VM {name}: {processors} processors, {memory_mib} MiB{disk}, on {}\n", networks.join(", "));
            for (key, value) in &vm.properties {
                text += &format!("  {key}: {value}\n");
            }
        }
        for makes in &self.makes {
            text += &format!("also creates: {makes}\n");
        }
        for found in &self.found {
            text += &format!("found: {found}\n");
        }
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        text
    }
}

/// A VM that is removed in addition, as the hypervisor reports it.
pub fn goes_as_well(vm: &Vm) -> String {
    let mut text = format!("VM {}, which is removed too\n  {}, BIOS UUID {}", clean(&vm.name), vm.power, vm.uuid());
    if let Some(stamp) = &vm.stamp {
        text += &format!("\n  stamped as {} of the deployment {}", clean(&stamp.node), stamp.deployment);
    }
    for disk in vm.data_disks() {
        text += &format!("\n  data disk {} at {}", disk.reference.uuid, clean(&disk.reference.path));
    }
    text
}

/// A data disk that is removed in addition, as the journal records it. No VM of the cluster holds it.
pub fn disk_goes_as_well(disk: &DiskRef) -> String {
    format!(
        "the data disk {} at {}, which is removed too\n  no VM of the cluster holds it: see that no other one does, which may be off",
        disk.uuid,
        clean(&disk.path)
    )
}

/// A missing data disk whose removal was not confirmed, as the journal records it.
pub fn disk_in_doubt(disk: &DiskRef) -> String {
    format!(
        "the data disk {} at {}, which does not exist\n  its removal was requested: it is deleted or was moved, and later runs do not list it",
        disk.uuid,
        clean(&disk.path)
    )
}

/// A data disk that an earlier run was to remove and that a VM holds now, as the hypervisor reports it.
pub fn disk_held(HeldDisk { disk, by }: &HeldDisk) -> String {
    format!(
        "the data disk {} at {}, which the VM {by} holds\n  an earlier run was to remove it: it is removed if that VM is removed with its data \
         disks, and stays otherwise",
        disk.uuid,
        clean(&disk.path)
    )
}

/// A copy of a data disk, made by an upgrade. It remains.
pub fn copy_stays(copy: &DiskCopy) -> String {
    format!(
        "a copy of the data disk {copy}, which stays\n  an upgrade has made it: it holds what the disk held, Secrets among that; remove it \
         yourself once it is no longer needed"
    )
}

/// Templates that remain, each on a line.
pub fn templates_stay(templates: &[String]) -> String {
    let line = |template: &String| {
        format!("  left: the template {}; remove it in vSphere Client once no VM is based on it\n", clean(template))
    };
    templates.iter().map(line).collect()
}

pub fn status(status: &DeployStatus) -> String {
    let stands = match status.lifecycle {
        Lifecycle::Active if status.done && status.formed => "runs",
        Lifecycle::Active if status.formed => "has formed, but is incomplete",
        Lifecycle::Active => "has not formed yet",
        Lifecycle::Deleting => "is being deleted",
        Lifecycle::Deleted => "was deleted",
    };
    let mut text = format!("the cluster {} {stands}\n", status.cluster);
    if status.lifecycle != Lifecycle::Deleted && status.looked {
        for node in &status.nodes {
            let vm = match (&node.vm, node.power) {
                (Some(vm), Some(power)) => format!("VM {vm} is {power}"),
                _ => "no VM".to_owned(),
            };
            let ready = if node.ready { ", Ready" } else { "" };
            text += &format!("  {} at {}: {vm}{ready}\n", node.name, node.address);
        }
    }
    for disk in &status.left {
        text += &format!("  left: {}\n", left_in_words(disk, status.doubtful.contains(&disk.uuid)));
    }
    for disk in &status.discarded {
        text += &format!("  also to be removed: the data disk {} at {}\n", disk.uuid, disk.path);
    }
    let is_left = if status.lifecycle == Lifecycle::Active { "also there" } else { "left" };
    for copy in &status.copies {
        text += &format!("  {is_left}: a copy of the data disk {copy}\n");
    }
    for vm in &status.replicas {
        text += &format!("  left: {vm}\n");
    }
    text + &waits(&status.waits)
}

fn waits(waits: &[Wait]) -> String {
    waits.iter().map(|wait| format!("  waiting: {wait}\n")).collect()
}

/// The result of a command. `kubeconfig` is the path of the written one.
pub fn arrived(arrived: &RunOutcome, kubeconfig: Option<&Path>, at: &DeployStatus) -> String {
    let given = kubeconfig.map(|path| format!("kubeconfig, valid for a day: {}", path.display()));
    let renewed = given.as_ref().map(|given| format!("{given}\n")).unwrap_or_default();
    match arrived {
        RunOutcome::Up(_) => status(at) + &given.unwrap_or_default(),
        RunOutcome::Gone => status(at),
        RunOutcome::Paused(_) => format!("{}{renewed}paused: run the command again to continue", status(at)),
        RunOutcome::Stopped(waits) => {
            let mut why: String = waits.iter().map(|wait| format!("  {wait}\n")).collect();
            if at.lifecycle == Lifecycle::Deleting && waits.iter().any(|wait| wait.reason.code == UNNOTED) {
                why += "if such a VM is the cluster's, give --also-vm with its BIOS UUID, once for each VM\n";
            }
            format!("stopped: the operator must act\n{why}{}{}", status(at), given.unwrap_or_default())
        }
        RunOutcome::Cancelled => format!("{}{renewed}run the command again to continue", status(at)),
    }
}
