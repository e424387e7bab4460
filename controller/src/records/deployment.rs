//! The record of a cluster's control-plane nodes: [`DeploymentRecord`] of `fleet` in the status of the TenantCluster. Copies of
//! data disks are left out: a controller's image swap makes none.

use fleet::control_plane::{self, AdoptedVm, DeploymentRecord, Node};
use fleet::hypervisor::{DiskRef, Place, VmRef};
use fleet::workers::Image;
use uuid::Uuid;

use super::text::{Mismatch, digest, digits, read, read_given};
use crate::objects::{
    AdoptedVmStatus, DeletingVm, DeployedImage, DeployedNode, Deployment, DeploymentLifecycle, DiskPlace, VmPlace,
};

/// The status for a record that the holder of a lease writes.
///
/// # Errors
/// The record belongs to another cluster.
pub fn deployment_of(lease: u64, cluster: &str, kept: &DeploymentRecord) -> Result<Deployment, Mismatch> {
    let DeploymentRecord {
        cluster: of,
        deployment,
        lifecycle,
        image: Image { digest: of_image, name },
        nodes,
        formed,
        ca_fingerprint,
        deployer_fingerprint,
        removes_disks,
        adopted_vms,
        upgrade,
        retained_disks,
        disks_to_delete,
        requested_disk_deletions,
        copies: _,
        deleting_vms,
        places,
    } = kept;
    if of != cluster {
        return Err(Mismatch::new("the cluster of the record", of, format!("and this is {cluster}")));
    }
    Ok(Deployment {
        lease,
        id: deployment.map(|id| id.to_string()),
        lifecycle: match lifecycle {
            control_plane::Lifecycle::Active => DeploymentLifecycle::Active,
            control_plane::Lifecycle::Deleting => DeploymentLifecycle::Deleting,
            control_plane::Lifecycle::Deleted => DeploymentLifecycle::Deleted,
        },
        image: DeployedImage { name: name.clone(), digest: digest(of_image) },
        nodes: nodes.iter().map(node).collect(),
        formed: *formed,
        ca_fingerprint: ca_fingerprint.map(|hash| hash.to_string()),
        deployer_fingerprint: deployer_fingerprint.map(|key| key.to_string()),
        removes_disks: *removes_disks,
        adopted_vms: adopted_vms.iter().map(granted_vm).collect(),
        upgrade: upgrade.map(|id| id.to_string()),
        retained_disks: retained_disks.iter().map(disk).collect(),
        disks_to_delete: disks_to_delete.iter().map(disk).collect(),
        requested_disk_deletions: requested_disk_deletions.iter().map(ToString::to_string).collect(),
        deleting_vms: deleting_vms.iter().map(going_vm).collect(),
        places: places.iter().map(|(vm, place)| vm_place(vm, place)).collect(),
    })
}

/// The record from a cluster's name and status.
///
/// # Errors
/// A text has the wrong form.
pub fn deployment_record(cluster: &str, deployment: &Deployment) -> Result<DeploymentRecord, Mismatch> {
    let Deployment {
        lease: _,
        id,
        lifecycle,
        image,
        nodes,
        formed,
        ca_fingerprint,
        deployer_fingerprint,
        removes_disks,
        adopted_vms,
        upgrade,
        retained_disks,
        disks_to_delete,
        requested_disk_deletions,
        deleting_vms,
        places: vms,
    } = deployment;
    let DeployedImage { name, digest } = image;
    let digest = digest.as_deref().map(|digest| digits("deployment.image.digest", digest)).transpose()?;
    let places = |places: &[DiskPlace]| places.iter().map(disk_of).collect::<Result<_, _>>();
    Ok(DeploymentRecord {
        cluster: cluster.to_owned(),
        deployment: read_given("deployment.id", id.as_deref(), "UUID")?,
        lifecycle: match lifecycle {
            DeploymentLifecycle::Active => control_plane::Lifecycle::Active,
            DeploymentLifecycle::Deleting => control_plane::Lifecycle::Deleting,
            DeploymentLifecycle::Deleted => control_plane::Lifecycle::Deleted,
        },
        image: Image { digest: digest.unwrap_or_default(), name: name.clone() },
        nodes: nodes.iter().map(node_of).collect::<Result<_, _>>()?,
        formed: *formed,
        ca_fingerprint: read_given("deployment.caFingerprint", ca_fingerprint.as_deref(), "fingerprint")?,
        deployer_fingerprint: read_given(
            "deployment.deployerFingerprint",
            deployer_fingerprint.as_deref(),
            "fingerprint",
        )?,
        removes_disks: *removes_disks,
        adopted_vms: adopted_vms.iter().map(granted_of).collect::<Result<_, _>>()?,
        upgrade: read_given("deployment.upgrade", upgrade.as_deref(), "UUID")?,
        retained_disks: places(retained_disks)?,
        disks_to_delete: places(disks_to_delete)?,
        requested_disk_deletions: requested_disk_deletions
            .iter()
            .map(|disk| read("deployment.requestedDiskDeletions", disk, "UUID"))
            .collect::<Result<_, _>>()?,
        copies: Vec::new(),
        deleting_vms: deleting_vms
            .iter()
            .map(|going| going_of("deployment.deletingVMs[].biosUUID", going))
            .collect::<Result<_, _>>()?,
        places: vms.iter().map(place_of).collect::<Result<_, _>>()?,
    })
}

fn node(node: &Node) -> DeployedNode {
    let Node { name, address, settings_hash, secret_hash, allocated_uuid, bios_uuid, ever_powered_on, disk } = node;
    DeployedNode {
        name: name.clone(),
        address: address.to_string(),
        settings_hash: settings_hash.clone(),
        secret_hash: secret_hash.clone(),
        allocated_uuid: allocated_uuid.map(|uuid| uuid.to_string()),
        bios_uuid: bios_uuid.map(|uuid| uuid.to_string()),
        ever_powered_on: *ever_powered_on,
        data_disk: disk.map(|uuid| uuid.to_string()),
    }
}

fn node_of(node: &DeployedNode) -> Result<Node, Mismatch> {
    let DeployedNode {
        name,
        address,
        settings_hash,
        secret_hash,
        allocated_uuid,
        bios_uuid,
        ever_powered_on,
        data_disk,
    } = node;
    Ok(Node {
        name: name.clone(),
        address: read("deployment.nodes[].address", address, "IPv4 address")?,
        settings_hash: settings_hash.clone(),
        secret_hash: secret_hash.clone(),
        allocated_uuid: read_given("deployment.nodes[].allocatedUUID", allocated_uuid.as_deref(), "UUID")?,
        bios_uuid: read_given("deployment.nodes[].biosUUID", bios_uuid.as_deref(), "UUID")?,
        ever_powered_on: *ever_powered_on,
        disk: read_given("deployment.nodes[].dataDisk", data_disk.as_deref(), "UUID")?,
    })
}

pub(super) fn going_vm(going: &VmRef) -> DeletingVm {
    let VmRef { uuid, id } = going;
    DeletingVm { bios_uuid: uuid.to_string(), id: id.clone() }
}

/// `field` is the path of the BIOS UUID, for the error.
pub(super) fn going_of(field: &'static str, going: &DeletingVm) -> Result<VmRef, Mismatch> {
    let DeletingVm { bios_uuid, id } = going;
    Ok(VmRef { uuid: read(field, bios_uuid, "UUID")?, id: id.clone() })
}

fn vm_place(vm: &Uuid, place: &Place) -> VmPlace {
    let Place { node, settings, datastore } = place.clone();
    VmPlace { bios_uuid: vm.to_string(), node, settings, datastore }
}

fn place_of(place: &VmPlace) -> Result<(Uuid, Place), Mismatch> {
    let VmPlace { bios_uuid, node, settings, datastore } = place.clone();
    Ok((read("deployment.places[].biosUUID", &bios_uuid, "UUID")?, Place { node, settings, datastore }))
}

fn granted_vm(granted: &AdoptedVm) -> AdoptedVmStatus {
    let AdoptedVm { bios_uuid, disks, earlier } = granted;
    AdoptedVmStatus {
        bios_uuid: bios_uuid.to_string(),
        disks: disks.iter().map(ToString::to_string).collect(),
        earlier: *earlier,
    }
}

fn granted_of(granted: &AdoptedVmStatus) -> Result<AdoptedVm, Mismatch> {
    let AdoptedVmStatus { bios_uuid, disks, earlier } = granted;
    let disks = disks.iter().map(|disk| read("deployment.adoptedVMs[].disks", disk, "UUID"));
    Ok(AdoptedVm {
        bios_uuid: read("deployment.adoptedVMs[].biosUUID", bios_uuid, "UUID")?,
        disks: disks.collect::<Result<_, _>>()?,
        earlier: *earlier,
    })
}

fn disk(disk: &DiskRef) -> DiskPlace {
    let DiskRef { uuid, path } = disk;
    DiskPlace { uuid: uuid.to_string(), path: path.clone() }
}

fn disk_of(place: &DiskPlace) -> Result<DiskRef, Mismatch> {
    let DiskPlace { uuid, path } = place;
    Ok(DiskRef { uuid: read("a disk's UUID", uuid, "UUID")?, path: path.clone() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn disk(number: u128) -> DiskRef {
        DiskRef { uuid: Uuid::from_u128(number), path: format!("[vsan-1] shop/disk-{number}.vmdk") }
    }

    fn place(datastore: &str, vm: u128) -> (Uuid, Place) {
        let (node, settings) = ("shop-cp1".to_owned(), "[vsan-1] a/a.vmx".to_owned());
        let datastore = Some(datastore.to_owned()).filter(|id| !id.is_empty());
        (Uuid::from_u128(vm), Place { node, settings, datastore })
    }

    /// A record in which no field has its default.
    fn whole() -> DeploymentRecord {
        let node = |number: u8| Node {
            name: format!("shop-cp{number}"),
            address: [192, 0, 2, number].into(),
            settings_hash: "0c".repeat(32),
            secret_hash: Some("0d".repeat(32)),
            allocated_uuid: Some(Uuid::from_u128(10 + u128::from(number))),
            bios_uuid: Some(Uuid::from_u128(20 + u128::from(number))),
            ever_powered_on: true,
            disk: Some(Uuid::from_u128(30 + u128::from(number))),
        };
        DeploymentRecord {
            cluster: "shop".to_owned(),
            deployment: Some(Uuid::from_u128(1)),
            lifecycle: control_plane::Lifecycle::Deleting,
            image: Image { digest: "0a".repeat(32), name: "kaas-tenant 0.2.0".to_owned() },
            nodes: vec![node(1), node(2), node(3)],
            formed: true,
            ca_fingerprint: Some(format!("sha256:{}", "0b".repeat(32)).parse().unwrap()),
            deployer_fingerprint: Some(format!("sha256:{}", "0e".repeat(32)).parse().unwrap()),
            removes_disks: true,
            adopted_vms: vec![AdoptedVm {
                bios_uuid: Uuid::from_u128(2),
                disks: vec![Uuid::from_u128(3)],
                earlier: true,
            }],
            upgrade: Some(Uuid::from_u128(7)),
            retained_disks: vec![disk(4), disk(5)],
            disks_to_delete: vec![disk(6)],
            requested_disk_deletions: vec![Uuid::from_u128(8)],
            copies: Vec::new(),
            deleting_vms: vec![VmRef { uuid: Uuid::from_u128(9), id: "vm-9".to_owned() }],
            places: [("ds-1", 21), ("", 22)].map(|(id, vm)| place(id, vm)).into(),
        }
    }

    #[test]
    fn deployment_record_round_trips() {
        let begun = DeploymentRecord {
            deployment: None,
            lifecycle: control_plane::Lifecycle::Active,
            image: Image { digest: String::new(), name: "an image that was imported by hand".to_owned() },
            nodes: whole()
                .nodes
                .into_iter()
                .map(|node| Node {
                    secret_hash: None,
                    allocated_uuid: None,
                    bios_uuid: None,
                    ever_powered_on: false,
                    disk: None,
                    ..node
                })
                .collect(),
            formed: false,
            ca_fingerprint: None,
            deployer_fingerprint: None,
            removes_disks: false,
            adopted_vms: Vec::new(),
            upgrade: None,
            retained_disks: Vec::new(),
            disks_to_delete: Vec::new(),
            requested_disk_deletions: Vec::new(),
            deleting_vms: Vec::new(),
            places: BTreeMap::new(),
            ..whole()
        };
        for kept in [
            whole(),
            begun,
            DeploymentRecord { lifecycle: control_plane::Lifecycle::Deleted, nodes: Vec::new(), ..whole() },
        ] {
            let object = deployment_of(4, "shop", &kept).unwrap();
            // As the API server stores it.
            let object: Deployment = serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap();
            assert_eq!(deployment_record("shop", &object).unwrap(), kept);
        }
    }

    #[test]
    fn mismatch_names_its_field() {
        assert!(deployment_of(4, "bank", &whole()).is_err());
        let good = deployment_of(4, "shop", &whole()).unwrap();
        type Change<'a> = &'a dyn Fn(&mut Deployment);
        let changes: [(&str, Change<'_>); 6] = [
            ("deployment.id", &|it| it.id = Some("x".to_owned())),
            ("deployment.image.digest", &|it| it.image.digest = Some("0a".repeat(32))),
            ("deployment.caFingerprint", &|it| it.ca_fingerprint = Some("sha256:0".to_owned())),
            ("deployment.deployerFingerprint", &|it| it.deployer_fingerprint = Some("sha256:0".to_owned())),
            ("deployment.nodes[].address", &|it| it.nodes[1].address = "192.0.2".to_owned()),
            ("a disk's UUID", &|it| it.retained_disks[0].uuid = String::new()),
        ];
        for (field, change) in changes {
            let mut object = good.clone();
            change(&mut object);
            let error = deployment_record("shop", &object).unwrap_err().to_string();
            assert!(error.starts_with(field), "{field}: {error}");
        }
    }
}
