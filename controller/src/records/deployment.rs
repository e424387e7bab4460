//! What was begun for the control nodes of a cluster: [`DeploymentRecord`] of `fleet`, whole, in the status of the TenantCluster; but for copies of data
//! disks, which no swap of a controller makes.

use fleet::control_plane::{self, AdoptedVm, DeploymentRecord, Node};
use fleet::hypervisor::{DiskRef, Place, VmRef};
use fleet::workers::Image;
use uuid::Uuid;

use super::text::{Mismatch, digest, digits, read, read_given};
use crate::objects::{
    AdoptedVmStatus, DeletingVm, DeployedImage, DeployedNode, Deployment, DeploymentLifecycle, DiskPlace, VmPlace,
};

/// What a cluster's status has of what is kept under a hold.
///
/// # Errors
/// When it is kept of another cluster.
pub fn deployment_of(hold: u64, cluster: &str, kept: &DeploymentRecord) -> Result<Deployment, Mismatch> {
    let DeploymentRecord {
        cluster: of,
        deployment,
        goal,
        image: Image { digest: of_image, name },
        nodes,
        formed,
        authority,
        deployer,
        removes_disks,
        granted,
        upgrade,
        left,
        discarded,
        removals,
        copies: _,
        going,
        places,
    } = kept;
    if of != cluster {
        return Err(Mismatch::new("the cluster that is kept", of, format!("and this is {cluster}")));
    }
    Ok(Deployment {
        hold,
        id: deployment.map(|id| id.to_string()),
        goal: match goal {
            control_plane::Lifecycle::Up => DeploymentLifecycle::Up,
            control_plane::Lifecycle::Down => DeploymentLifecycle::Down,
            control_plane::Lifecycle::Gone => DeploymentLifecycle::Gone,
        },
        image: DeployedImage { name: name.clone(), digest: digest(of_image) },
        nodes: nodes.iter().map(node).collect(),
        formed: *formed,
        authority: authority.map(|authority| authority.to_string()),
        deployer: deployer.map(|key| key.to_string()),
        removes_disks: *removes_disks,
        granted: granted.iter().map(granted_vm).collect(),
        upgrade: upgrade.map(|id| id.to_string()),
        left: left.iter().map(disk).collect(),
        discarded: discarded.iter().map(disk).collect(),
        removals: removals.iter().map(ToString::to_string).collect(),
        going: going.iter().map(going_vm).collect(),
        places: places.iter().map(|(vm, place)| vm_place(vm, place)).collect(),
    })
}

/// What is kept of a cluster, by its name and its status.
///
/// # Errors
/// When a text is not what it has to be.
pub fn deployment_record(cluster: &str, deployment: &Deployment) -> Result<DeploymentRecord, Mismatch> {
    let Deployment {
        hold: _,
        id,
        goal,
        image,
        nodes,
        formed,
        authority,
        deployer,
        removes_disks,
        granted,
        upgrade,
        left,
        discarded,
        removals,
        going,
        places: vms,
    } = deployment;
    let DeployedImage { name, digest } = image;
    let digest = digest.as_deref().map(|digest| digits("deployment.image.digest", digest)).transpose()?;
    let places = |places: &[DiskPlace]| places.iter().map(disk_of).collect::<Result<_, _>>();
    Ok(DeploymentRecord {
        cluster: cluster.to_owned(),
        deployment: read_given("deployment.id", id.as_deref(), "UUID")?,
        goal: match goal {
            DeploymentLifecycle::Up => control_plane::Lifecycle::Up,
            DeploymentLifecycle::Down => control_plane::Lifecycle::Down,
            DeploymentLifecycle::Gone => control_plane::Lifecycle::Gone,
        },
        image: Image { digest: digest.unwrap_or_default(), name: name.clone() },
        nodes: nodes.iter().map(node_of).collect::<Result<_, _>>()?,
        formed: *formed,
        authority: read_given("deployment.authority", authority.as_deref(), "fingerprint")?,
        deployer: read_given("deployment.deployer", deployer.as_deref(), "fingerprint")?,
        removes_disks: *removes_disks,
        granted: granted.iter().map(granted_of).collect::<Result<_, _>>()?,
        upgrade: read_given("deployment.upgrade", upgrade.as_deref(), "UUID")?,
        left: places(left)?,
        discarded: places(discarded)?,
        removals: removals.iter().map(|disk| read("deployment.removals", disk, "UUID")).collect::<Result<_, _>>()?,
        copies: Vec::new(),
        going: going.iter().map(|going| going_of("deployment.going[].vm", going)).collect::<Result<_, _>>()?,
        places: vms.iter().map(place_of).collect::<Result<_, _>>()?,
    })
}

fn node(node: &Node) -> DeployedNode {
    let Node { name, address, made_of, secret, drawn, vm, started, disk } = node;
    DeployedNode {
        name: name.clone(),
        address: address.to_string(),
        made_of: made_of.clone(),
        secret: secret.clone(),
        drawn: drawn.map(|uuid| uuid.to_string()),
        vm: vm.map(|uuid| uuid.to_string()),
        started: *started,
        data_disk: disk.map(|uuid| uuid.to_string()),
    }
}

fn node_of(node: &DeployedNode) -> Result<Node, Mismatch> {
    let DeployedNode { name, address, made_of, secret, drawn, vm, started, data_disk } = node;
    Ok(Node {
        name: name.clone(),
        address: read("deployment.nodes[].address", address, "IPv4 address")?,
        made_of: made_of.clone(),
        secret: secret.clone(),
        drawn: read_given("deployment.nodes[].drawn", drawn.as_deref(), "UUID")?,
        vm: read_given("deployment.nodes[].vm", vm.as_deref(), "UUID")?,
        started: *started,
        disk: read_given("deployment.nodes[].dataDisk", data_disk.as_deref(), "UUID")?,
    })
}

pub(super) fn going_vm(going: &VmRef) -> DeletingVm {
    let VmRef { uuid, id } = going;
    DeletingVm { vm: uuid.to_string(), id: id.clone() }
}

/// `field` is that of the BIOS UUID.
pub(super) fn going_of(field: &'static str, going: &DeletingVm) -> Result<VmRef, Mismatch> {
    let DeletingVm { vm, id } = going;
    Ok(VmRef { uuid: read(field, vm, "UUID")?, id: id.clone() })
}

fn vm_place(vm: &Uuid, place: &Place) -> VmPlace {
    let Place { node, settings, datastore } = place.clone();
    VmPlace { vm: vm.to_string(), node, settings, datastore }
}

fn place_of(place: &VmPlace) -> Result<(Uuid, Place), Mismatch> {
    let VmPlace { vm, node, settings, datastore } = place.clone();
    Ok((read("deployment.places[].vm", &vm, "UUID")?, Place { node, settings, datastore }))
}

fn granted_vm(granted: &AdoptedVm) -> AdoptedVmStatus {
    let AdoptedVm { vm, disks, earlier } = granted;
    AdoptedVmStatus { vm: vm.to_string(), disks: disks.iter().map(ToString::to_string).collect(), earlier: *earlier }
}

fn granted_of(granted: &AdoptedVmStatus) -> Result<AdoptedVm, Mismatch> {
    let AdoptedVmStatus { vm, disks, earlier } = granted;
    let disks = disks.iter().map(|disk| read("deployment.granted[].disks", disk, "UUID"));
    Ok(AdoptedVm {
        vm: read("deployment.granted[].vm", vm, "UUID")?,
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

    /// A record of which no field is as it is where nothing was begun.
    fn whole() -> DeploymentRecord {
        let node = |number: u8| Node {
            name: format!("shop-cp{number}"),
            address: [192, 0, 2, number].into(),
            made_of: "0c".repeat(32),
            secret: Some("0d".repeat(32)),
            drawn: Some(Uuid::from_u128(10 + u128::from(number))),
            vm: Some(Uuid::from_u128(20 + u128::from(number))),
            started: true,
            disk: Some(Uuid::from_u128(30 + u128::from(number))),
        };
        DeploymentRecord {
            cluster: "shop".to_owned(),
            deployment: Some(Uuid::from_u128(1)),
            goal: control_plane::Lifecycle::Down,
            image: Image { digest: "0a".repeat(32), name: "kaas-tenant 0.2.0".to_owned() },
            nodes: vec![node(1), node(2), node(3)],
            formed: true,
            authority: Some(format!("sha256:{}", "0b".repeat(32)).parse().unwrap()),
            deployer: Some(format!("sha256:{}", "0e".repeat(32)).parse().unwrap()),
            removes_disks: true,
            granted: vec![AdoptedVm { vm: Uuid::from_u128(2), disks: vec![Uuid::from_u128(3)], earlier: true }],
            upgrade: Some(Uuid::from_u128(7)),
            left: vec![disk(4), disk(5)],
            discarded: vec![disk(6)],
            removals: vec![Uuid::from_u128(8)],
            copies: Vec::new(),
            going: vec![VmRef { uuid: Uuid::from_u128(9), id: "vm-9".to_owned() }],
            places: [("ds-1", 21), ("", 22)].map(|(id, vm)| place(id, vm)).into(),
        }
    }

    #[test]
    fn each_field_that_is_kept_comes_back() {
        let begun = DeploymentRecord {
            deployment: None,
            goal: control_plane::Lifecycle::Up,
            image: Image { digest: String::new(), name: "an image that was imported by hand".to_owned() },
            nodes: whole()
                .nodes
                .into_iter()
                .map(|node| Node { secret: None, drawn: None, vm: None, started: false, disk: None, ..node })
                .collect(),
            formed: false,
            authority: None,
            deployer: None,
            removes_disks: false,
            granted: Vec::new(),
            upgrade: None,
            left: Vec::new(),
            discarded: Vec::new(),
            removals: Vec::new(),
            going: Vec::new(),
            places: BTreeMap::new(),
            ..whole()
        };
        for kept in
            [whole(), begun, DeploymentRecord { goal: control_plane::Lifecycle::Gone, nodes: Vec::new(), ..whole() }]
        {
            let object = deployment_of(4, "shop", &kept).unwrap();
            // As the API server keeps it.
            let object: Deployment = serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap();
            assert_eq!(deployment_record("shop", &object).unwrap(), kept);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_field() {
        assert!(deployment_of(4, "bank", &whole()).is_err());
        let good = deployment_of(4, "shop", &whole()).unwrap();
        type Change<'a> = &'a dyn Fn(&mut Deployment);
        let changes: [(&str, Change<'_>); 6] = [
            ("deployment.id", &|it| it.id = Some("x".to_owned())),
            ("deployment.image.digest", &|it| it.image.digest = Some("0a".repeat(32))),
            ("deployment.authority", &|it| it.authority = Some("sha256:0".to_owned())),
            ("deployment.deployer", &|it| it.deployer = Some("sha256:0".to_owned())),
            ("deployment.nodes[].address", &|it| it.nodes[1].address = "192.0.2".to_owned()),
            ("a disk's UUID", &|it| it.left[0].uuid = String::new()),
        ];
        for (field, change) in changes {
            let mut object = good.clone();
            change(&mut object);
            let error = deployment_record("shop", &object).unwrap_err().to_string();
            assert!(error.starts_with(field), "{field}: {error}");
        }
    }
}
