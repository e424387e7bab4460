//! Adoption of control-plane nodes that run in VMs that are newer than the database: their record and the resolved values. Pure:
//! the nodes are asked elsewhere whether they run in these VMs.

use std::collections::BTreeMap;

use contract::node::{self, RunningImage};
use fleet::control_plane::{DeploymentRecord, Node};
use fleet::hypervisor::{PowerState, Vm};
use kube::ResourceExt;
use uuid::Uuid;

use super::change::with_size;
use super::swap_progress::SwapProgress;
use crate::objects::{ADOPT, ControlPlaneSize, NodeImage, Operation, OperationKind, Resolved, TenantCluster};

/// Whether the operator has asked to adopt VMs that are newer than the database.
pub fn is_to_adopt(cluster: &TenantCluster) -> bool {
    cluster.annotations().get(ADOPT).is_some_and(|named| *named == cluster.name_any())
}

/// A message on VMs that are newer than the database, with what the operator can do.
pub fn may_adopt(drifted: &str, cluster: &TenantCluster) -> String {
    format!("{drifted}. Adopt them with {}; or remove them in the vCenter", word(cluster))
}

/// Whether none of these VMs holds a data disk. Then no node runs in one of them.
pub fn are_bare(newer: &[Vm]) -> bool {
    !newer.iter().any(|vm| vm.data_disks().next().is_some())
}

/// Why newer VMs that [are bare](are_bare) are not adopted, and what helps. `None` if they are adopted. `ahead` are the VMs that
/// are newer than the journal of an open swap; `None` if this is unknown: an unknown state ends no swap.
pub fn why_not_adopted(ahead: Option<&[Vm]>) -> Option<&'static str> {
    match ahead {
        Some([]) => Some(
            "None of these holds a data disk, and the VMs that hold one match their records: nothing is adopted. Each of these is on, or suspended: \
             power them off, or remove them",
        ),
        Some(_) => None,
        None => Some(
            "None of these holds a data disk, and whether others are ahead of the open upgrade is unknown while the vCenter does \
             not answer: nothing is adopted before it does",
        ),
    }
}

/// The message on control-plane nodes that have prepared a swap, or failed to, that no Operation finishes. It names the VMs of
/// that swap, and how to cancel it, unless the operator has asked for that. `None` if there are no such nodes.
pub fn may_cancel(left: &[node::Node], vms: &[Vm], cluster: &TenantCluster) -> Option<String> {
    if left.is_empty() {
        return None;
    }
    let nodes = left.iter().map(|node| node.node.as_str()).collect::<Vec<_>>().join(" and ");
    let is_for_it = |vm: &Vm| left.iter().any(|node| node.swap.as_ref().is_some_and(|swap| vm.is_of_swap(swap.id)));
    let bare = vms.iter().filter(|vm| is_for_it(vm) && vm.data_disks().next().is_none());
    let bare: Vec<String> = bare.map(ToString::to_string).collect();
    let bare = match bare.as_slice() {
        [] => String::new(),
        bare => format!(
            ". These VMs were created for it and hold no data disk, remove them in the vCenter: {}",
            bare.join(", ")
        ),
    };
    let advice = match is_to_adopt(cluster) {
        true => String::new(),
        false => format!(". Cancel it with {}", word(cluster)),
    };
    Some(format!(
        "{nodes} prepared an image swap, or failed to, that no Operation finishes, as after a restore of the control cluster's database from an \
         older snapshot, or if it was prepared by hand: no other one begins before it is cancelled{advice}{bare}"
    ))
}

/// The command that asks for it.
fn word(cluster: &TenantCluster) -> String {
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let other = cluster.annotations().get(ADOPT).filter(|named| **named != name);
    let other = other.map(|named| format!(" (it has {named:?})")).unwrap_or_default();
    format!(
        "the annotation {ADOPT} with the cluster's name{other}, as `kaas cluster adopt {name} --namespace {namespace}` does"
    )
}

/// Whether no VM of a control-plane node holds its data disk: it does not run. It is given up only if it has no VM at all.
pub fn is_lost(node: &Node, vms: &[Vm]) -> bool {
    power_of(node, vms).is_none()
}

/// The power state of the VM that holds a control-plane node's data disk. `None` without such a VM. Of several, one that is on
/// counts.
pub fn power_of(node: &Node, vms: &[Vm]) -> Option<PowerState> {
    let own = vms.iter().filter(|vm| is_of(vm, node) && vm.data_disks().next().is_some());
    let powers: Vec<PowerState> = own.map(|vm| vm.power).collect();
    powers.iter().find(|power| **power == PowerState::On).or(powers.first()).copied()
}

/// Whether a VM has the stamp of a node.
fn is_of(vm: &Vm, node: &Node) -> bool {
    vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node.name)
}

/// The record of control-plane nodes after adoption. Each node is taken to run in the one VM with its stamp that holds a data
/// disk and is on. If that VM is off, its image is unknown, and whether a swap is open on it. Once the cluster has formed, a node
/// without any VM is lost, and its record stays. The record of a node that runs in the recorded VM stays too.
pub fn adopted(kept: &DeploymentRecord, vms: &[Vm]) -> Result<DeploymentRecord, String> {
    let is_stranger = |vm: &&Vm| vm.data_disks().next().is_some() && !kept.nodes.iter().any(|node| is_of(vm, node));
    if let Some(vm) = vms.iter().find(is_stranger) {
        return Err(format!("{vm} is stamped as a node that the cluster does not have: remove it, or its stamp"));
    }
    let taken = |node: &Node| {
        let own: Vec<&Vm> = vms.iter().filter(|vm| is_of(vm, node) && vm.data_disks().next().is_some()).collect();
        let vm = match own.as_slice() {
            [] if kept.formed => return given_up(node, vms),
            [] => return Err(format!("{} has no VM that holds a data disk", node.name)),
            [vm] => *vm,
            several => {
                let named = several.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
                return Err(format!("{} has several VMs that hold a data disk, {named}: one is a copy", node.name));
            }
        };
        if vm.power != PowerState::On {
            return Err(format!(
                "{vm}, the VM of {} that holds its data disk, is {}: power it on, or remove it if the node is lost",
                node.name, vm.power
            ));
        }
        if kept.formed && node.bios_uuid == Some(vm.uuid()) {
            return Ok(node.clone());
        }
        let disks: Vec<Uuid> = vm.data_disks().map(|disk| disk.reference.uuid).collect();
        match disks.as_slice() {
            [disk] if node.own_disk().is_none_or(|noted| noted == *disk) => {
                // An unknown data disk stays unknown: the operator has decided which VM is the node's.
                Ok(Node {
                    bios_uuid: Some(vm.uuid()),
                    ever_powered_on: true,
                    disk: node.disk.or(Some(*disk)),
                    ..node.clone()
                })
            }
            [_] => Err(format!("{vm} holds another data disk than {} was made with", node.name)),
            several => Err(format!("{vm}, the VM of {}, holds {} data disks", node.name, several.len())),
        }
    };
    let nodes = kept.nodes.iter().map(taken).collect::<Result<Vec<_>, String>>()?;
    Ok(DeploymentRecord { nodes, formed: true, ..kept.clone() })
}

/// The record of a control-plane node that [is lost](is_lost). If it has VMs, its data disk may have been moved between them. The
/// data on the disk is the node's, and only the operator gives it up.
fn given_up(node: &Node, vms: &[Vm]) -> Result<Node, String> {
    let bare: Vec<String> = vms.iter().filter(|vm| is_of(vm, node)).map(ToString::to_string).collect();
    if bare.is_empty() {
        return Ok(node.clone());
    }
    let disk = node.own_disk().map(|disk| format!(", {disk},")).unwrap_or_default();
    Err(format!(
        "none of the VMs of {} holds its data disk, {}: it may have been on its way from one to the other. Look for the disk{disk} \
         in the vCenter, attach it to the one that is to run, and power that on; or remove these VMs if the node is lost",
        node.name,
        bare.join(", ")
    ))
}

/// Why control-plane nodes with VMs, but without a data disk, are not given up. `None` if there are no such nodes.
pub fn without_disk(kept: &DeploymentRecord, vms: &[Vm]) -> Option<String> {
    let lost = kept.nodes.iter().filter(|node| kept.formed && is_lost(node, vms));
    let bare: Vec<String> = lost.filter_map(|node| given_up(node, vms).err()).collect();
    (!bare.is_empty()).then(|| bare.join("; "))
}

/// The resolved values for control-plane nodes that run these images, by node names, in VMs of these sizes. If they run several
/// images, the current values stay, and the nodes are swapped to the image that the spec names.
pub fn pinned_as_run(
    cluster: &TenantCluster,
    run: &[(String, RunningImage)],
    sizes: &[Option<ControlPlaneSize>],
    images: &[NodeImage],
) -> Result<Resolved, String> {
    let pinned = cluster.resolved().cloned().unwrap_or_default();
    let mut found: BTreeMap<String, &NodeImage> = BTreeMap::new();
    for (node, runs) in run {
        let image = images.iter().find(|image| is_image(image, runs)).ok_or_else(|| {
            let RunningImage { name, version, build, .. } = runs;
            format!("{node} runs {name} {version} (build {build}), and no NodeImage is that one: push it, and create the object")
        })?;
        found.insert(image.name_any(), image);
    }
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let resolved = match (names.as_slice(), &cluster.spec.image) {
        ([name], _) => {
            Resolved { image: Some((*name).to_owned()), digest: Some(found[*name].spec.digest.clone()), ..pinned }
        }
        (names, Some(wanted)) if names.contains(&wanted.as_str()) && pinned.image.as_ref() != Some(wanted) => pinned,
        (names, _) => {
            let names = names.join(" and ");
            return Err(format!("its control-plane nodes run {names}: name in spec.image the one that all are to run"));
        }
    };
    let size = sizes.first().copied().flatten().filter(|first| sizes.iter().all(|size| size.as_ref() == Some(first)));
    Ok(with_size(resolved, size))
}

/// The open swaps whose journals are older than the VMs: their next steps are wrong. The error names a swap that cannot be read.
pub fn superseded(operations: &[Operation]) -> Result<Vec<&Operation>, String> {
    let mut superseded = Vec::new();
    for swap in operations.iter().filter(|it| it.spec.kind == OperationKind::ImageSwap) {
        match SwapProgress::of(swap) {
            Ok(Some(swapping)) if !swapping.is_open() => {}
            Ok(_) => superseded.push(swap),
            Err(_) if swap.has_ended() => {}
            Err(error) => {
                return Err(format!(
                    "the journal of the Operation {} is not understood ({error}): look at it, and delete it if it is of no use",
                    swap.name_any()
                ));
            }
        }
    }
    Ok(superseded)
}

fn is_image(image: &NodeImage, runs: &RunningImage) -> bool {
    let RunningImage { name, version, build, publisher: _ } = runs;
    image.status.as_ref().is_some_and(|status| {
        let known = [&status.appliance, &status.version, &status.build];
        known.into_iter().zip([name, version, build]).all(|(known, runs)| known.as_ref() == Some(runs))
    })
}

#[cfg(test)]
mod tests {
    use fleet::control_plane::Lifecycle;
    use fleet::hypervisor::{Disk, DiskRef};
    use fleet::workers::Image;

    use serde_json::json;

    use super::super::fixture::{self, cluster, image, swap};
    use super::*;
    use crate::records::fixture::plan;

    fn kept(formed: bool) -> DeploymentRecord {
        let node = |number: u8| Node {
            name: format!("shop-cp{number}"),
            address: [192, 168, 10, 19 + number].into(),
            settings_hash: "x".to_owned(),
            secret_hash: None,
            allocated_uuid: Some(Uuid::from_u128(number.into())),
            bios_uuid: formed.then(|| Uuid::from_u128(number.into())),
            ever_powered_on: formed,
            disk: formed.then(|| Uuid::from_u128(0xd0 + u128::from(number))),
        };
        DeploymentRecord {
            cluster: "shop".to_owned(),
            deployment: Some(Uuid::from_u128(1)),
            lifecycle: Lifecycle::Active,
            image: Image { digest: "0a".repeat(32), name: "kaas-tenant-0.2.0".to_owned() },
            deployer_fingerprint: None,
            replacement: None,
            replaced_vms: Vec::new(),
            nodes: vec![node(1), node(2)],
            formed,
            ca_fingerprint: None,
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

    /// A VM of a node with its data disk.
    fn vm(number: u8, uuid: u128) -> Vm {
        fixture::vm(&format!("shop-cp{number}"), uuid, 0xd0 + u128::from(number))
    }

    fn in_vms(kept: &DeploymentRecord, vms: &[Vm]) -> Result<Vec<Option<u128>>, String> {
        let adopted = adopted(kept, vms)?;
        assert!(adopted.formed);
        Ok(adopted.nodes.iter().map(|node| node.bios_uuid.map(|vm| vm.as_u128())).collect())
    }

    #[test]
    fn adopted_nodes_run_where_their_data_disks_are() {
        let empty = Vm { disks: Vec::new(), power: PowerState::Off, ..vm(1, 1) };
        assert_eq!(in_vms(&kept(true), &[empty, vm(1, 9), vm(2, 2)]), Ok(vec![Some(9), Some(2)]));
        assert_eq!(in_vms(&kept(true), &[vm(1, 9)]), Ok(vec![Some(9), Some(2)]), "one that is lost stays as it was");
        let adopted = adopted(&kept(false), &[vm(1, 1), vm(2, 2)]).unwrap();
        let first = &adopted.nodes[0];
        assert_eq!(
            (first.bios_uuid, first.ever_powered_on, first.disk),
            (first.allocated_uuid, true, Some(Uuid::from_u128(0xd1)))
        );
    }

    #[test]
    fn uncertain_adoption_is_rejected_with_a_reason() {
        let other =
            Disk { reference: DiskRef { uuid: Uuid::from_u128(7), path: "p".to_owned() }, ..vm(1, 9).disks[0].clone() };
        let bare = Vm { disks: Vec::new(), power: PowerState::Off, ..vm(2, 2) };
        for (formed, vms, words) in [
            (true, vec![vm(1, 9), vm(1, 8)], "several VMs"),
            (true, vec![Vm { power: PowerState::Off, ..vm(1, 9) }], "power it on"),
            (true, vec![vm(1, 9), Vm { power: PowerState::Off, ..vm(2, 2) }], "the VM of shop-cp2"),
            (true, vec![vm(1, 9), Vm { power: PowerState::Unknown, ..vm(2, 2) }], "power it on"),
            (true, vec![Vm { disks: vec![other.clone()], ..vm(1, 9) }], "another data disk"),
            (true, vec![Vm { disks: vec![vm(1, 9).disks[0].clone(), other], ..vm(1, 9) }], "2 data disks"),
            (true, vec![vm(3, 3)], "does not have"),
            (true, vec![vm(1, 9), bare], "attach it"),
            (false, vec![vm(1, 1)], "shop-cp2 has no VM"),
        ] {
            let refused = in_vms(&kept(formed), &vms).unwrap_err();
            assert!(refused.contains(words), "{words}: {refused}");
        }
    }

    #[test]
    fn common_image_is_adopted_or_the_spec_decides() {
        let known = |name: &str, version: &str| {
            let mut image = image(name, version);
            let status = image.status.as_mut().unwrap();
            (status.appliance, status.build) = (Some("kaas-tenant".to_owned()), Some(version.to_owned()));
            image
        };
        let images = [known("kaas-tenant-0.2.0", "0.2.0"), known("kaas-tenant-0.3.0", "0.3.0")];
        let runs = |version: &str| {
            let (name, build) = ("kaas-tenant".to_owned(), version.to_owned());
            ("shop-cp1".to_owned(), RunningImage { name, version: version.to_owned(), build, publisher: None })
        };
        let mut cluster = cluster();
        let former = Resolved { image: Some("kaas-tenant-0.2.0".to_owned()), ..Resolved::default() };
        cluster.status.get_or_insert_default().resolved = Some(former);
        let pinned = |cluster: &TenantCluster, run: &[&str], sizes: &[Option<ControlPlaneSize>]| {
            let run: Vec<_> = run.iter().map(|version| runs(version)).collect();
            pinned_as_run(cluster, &run, sizes, &images)
        };
        let large = ControlPlaneSize { processors: 4, memory_mib: 16384 };
        let all = pinned(&cluster, &["0.3.0", "0.3.0"], &[Some(large), Some(large)]).unwrap();
        assert_eq!((all.image.as_deref(), all.memory_mib), (Some("kaas-tenant-0.3.0"), Some(16384)));
        let mixed = pinned(&cluster, &["0.3.0"], &[Some(large), None]).unwrap();
        assert_eq!(mixed.memory_mib, None, "nobody knows it of one");
        let refused = pinned(&cluster, &["0.2.0", "0.3.0"], &[]).unwrap_err();
        assert!(refused.contains("name in spec.image"), "{refused}");
        cluster.spec.image = Some("kaas-tenant-0.3.0".to_owned());
        let goes = pinned(&cluster, &["0.2.0", "0.3.0"], &[]).unwrap();
        assert_eq!(goes.image.as_deref(), Some("kaas-tenant-0.2.0"));
        let refused = pinned(&cluster, &["0.4.0"], &[]).unwrap_err();
        assert!(refused.contains("shop-cp1 runs kaas-tenant 0.4.0"), "{refused}");
    }

    #[test]
    fn open_swaps_are_superseded_and_unreadable_ones_named() {
        let open = swap(plan(), &[]);
        let all = [open.clone()];
        assert_eq!(superseded(&all).map(|all| all.len()), Ok(1));
        let strange = swap(plan(), &[json!({"event": "dreamt"})]);
        let refused = superseded(&[open.clone(), strange.clone()]).unwrap_err();
        assert!(refused.contains("shop-1") && refused.contains("dreamt"), "{refused}");
        let mut ended = strange;
        ended.status.get_or_insert_default().outcome = Some("committed".to_owned());
        assert_eq!(superseded(&[ended]).map(|all| all.len()), Ok(0), "it has ended, whatever it says");
    }

    #[test]
    fn bare_vm_is_not_adopted() {
        let bare = Vm { disks: Vec::new(), ..vm(1, 9) };
        assert!(are_bare(std::slice::from_ref(&bare)) && !are_bare(&[bare, vm(1, 8)]));
        let words = why_not_adopted(Some(&[])).unwrap();
        assert!(words.contains("on, or suspended: power them off"), "{words}");
        assert_eq!(why_not_adopted(Some(&[vm(1, 9)])), None, "they are adopted");
        let unknown = why_not_adopted(None).unwrap();
        assert!(unknown.contains("is unknown") && !unknown.contains("power them off"), "{unknown}");
    }

    #[test]
    fn advice_is_left_out_after_the_request() {
        let node = json!({
            "node": "shop-cp1", "image": {"name": "kaas-tenant", "version": "0.2.0", "build": "a"}, "disk": Uuid::from_u128(1),
            "generation": 1, "kubernetes": {"version": "1.36.2", "carried": []}, "ready": true,
        });
        let left = [serde_json::from_value::<node::Node>(node).unwrap()];
        let mut cluster = cluster();
        assert_eq!(may_cancel(&[], &[], &cluster), None);
        assert!(may_cancel(&left, &[], &cluster).unwrap().contains(ADOPT));
        cluster.annotations_mut().insert(ADOPT.to_owned(), "shop".to_owned());
        let words = may_cancel(&left, &[], &cluster).unwrap();
        assert!(words.contains("shop-cp1") && !words.contains(ADOPT), "{words}");
    }

    #[test]
    fn adoption_needs_the_name_of_the_cluster() {
        let mut cluster = cluster();
        assert!(!is_to_adopt(&cluster));
        cluster.annotations_mut().insert(ADOPT.to_owned(), "bank".to_owned());
        assert!(!is_to_adopt(&cluster) && may_adopt("VMs", &cluster).contains("(it has \"bank\")"));
        cluster.annotations_mut().insert(ADOPT.to_owned(), "shop".to_owned());
        assert!(is_to_adopt(&cluster) && !may_adopt("VMs", &cluster).contains("it has"));
    }
}
