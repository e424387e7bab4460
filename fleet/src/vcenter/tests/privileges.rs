//! The privileges of an account on each object: the role on the documented objects is enough. A missing privilege is
//! reported with its object before anything is created.

use serde_json::{Map, Value, json};
use vsphere::{DatastorePath, On, PRIVILEGES};

use super::cluster::World;
use super::*;
use crate::control_plane::Goal;
use crate::upgrade::tests::fake::{self, Ill};
use crate::upgrade::{Inventory, Mode};
use crate::vcenter::Site;

/// The objects of the bed's site that need the role according to the docs, by inventory path, with their names in
/// messages.
pub(super) const OBJECTS: [(On, &str, &str); 5] = [
    (On::Folder, "DC0/vm/control", "the folder control"),
    (On::Datastore, "DC0/datastore/LocalDS_0", "the datastore LocalDS_0"),
    (On::Network, "DC0/network/VM Network", "the network VM Network"),
    (On::Pool, "DC0/host/DC0_C0/Resources", "the resource pool DC0_C0"),
    (On::Cluster, "DC0/host/DC0_C0", "the cluster of the resource pool DC0_C0"),
];
/// Another datastore.
pub(super) const ELSEWHERE: (On, &str, &str) = (On::Datastore, "DC0/datastore/LocalDS_1", "the datastore LocalDS_1");

/// An account with only the privileges of the table on each of these objects.
fn user(name: &str, objects: &[(On, &str, &str)]) -> Value {
    user_with(name, objects, &[("DC0", &["System.View", "System.Read"])])
}

/// As [`user`], with these privileges on other objects.
pub(super) fn user_with(name: &str, objects: &[(On, &str, &str)], others: &[(&str, &[&str])]) -> Value {
    let ids = |on: On| PRIVILEGES.iter().filter(|row| row.on == on).map(|row| row.id).collect::<Vec<_>>();
    let on = objects.iter().map(|(on, path, _)| ((*path).to_owned(), json!(ids(*on))));
    let on: Map<String, Value> = on.chain(others.iter().map(|(path, ids)| ((*path).to_owned(), json!(ids)))).collect();
    json!({ "name": name, "password": testbed::PASSWORD, "on": on })
}

/// A bed with these users and the administrator, and the deployment's folder.
pub(super) async fn bed_of(users: &[Value]) -> Bed {
    let administrator = json!({ "name": bed::ADMINISTRATOR, "password": testbed::PASSWORD });
    let bed = Bed::of_users(&[&[administrator], users].concat());
    bed.make_folder(&bed.client().await, &bed.site().folder).await;
    bed
}

async fn hypervisor_of(bed: &Bed, user: &str, site: &Site) -> VcenterHypervisor {
    bed.hypervisor_by(bed.client_of(user, testbed::PASSWORD).await, DEPLOYMENT, site).await
}

/// Whether a message reports a missing privilege on an object.
fn names(error: &Error, object: &str) -> bool {
    error.to_string().contains(&format!(" on {object}, for "))
}

#[tokio::test]
async fn documented_privileges_are_sufficient_and_each_is_checked() {
    let without = |index: usize| {
        let mut objects = OBJECTS.to_vec();
        objects.remove(index);
        user(&format!("without-{index}@vsphere.local"), &objects)
    };
    let users: Vec<Value> = (0..OBJECTS.len()).map(without).chain([user("whole@vsphere.local", &OBJECTS)]).collect();
    let bed = bed_of(&users).await;
    let site = Site { different_hosts: true, ..bed.site() };
    for (index, (_, path, object)) in OBJECTS.iter().enumerate() {
        let hypervisor = hypervisor_of(&bed, &format!("without-{index}@vsphere.local"), &site).await;
        let error = hypervisor.preflight(&Placement::default()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied, "{path}: {error}");
        for (_, _, other) in &OBJECTS {
            assert_eq!(names(&error, other), other == object, "{path}: {error}");
        }
    }

    let (hypervisor, ova) = (hypervisor_of(&bed, "whole@vsphere.local", &site).await, ova());
    hypervisor.preflight(&Placement::default()).await.unwrap();
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    let other = hypervisor.added("cp2", &image).await;
    hypervisor.power_on(&vm, &Free).await.unwrap();
    hypervisor.power_on(&other, &Free).await.unwrap();
    let administrator = bed.client().await;
    let cluster = administrator.find("DC0/host/DC0_C0").await.unwrap();
    let rules = administrator.anti_affinity_rules(&cluster).await.unwrap();
    assert!(matches!(rules.as_slice(), [rule] if rule.vms.len() == 2), "{rules:?}");
    let new = hypervisor.replacement(&hypervisor.again(&vm).await, "cp1-new", &image).await;
    hypervisor.cut_power(&hypervisor.again(&vm).await, &Free).await.unwrap();
    let off = hypervisor.again(&vm).await;
    hypervisor.connect(&off, &off.adapters[0].key, false, &Free).await.unwrap();
    let disk = hypervisor.detached(&hypervisor.again(&vm).await).await;
    hypervisor.attach(&new, &disk, &Free).await.unwrap();
    hypervisor.detach(&hypervisor.again(&new).await, &disk, &Free).await.unwrap();
    for vm in [&vm, &new] {
        hypervisor.destroy(&hypervisor.again(vm).await, &Free).await.unwrap();
    }
    hypervisor.delete_disk(&disk, &Free).await.unwrap();
    assert!(!bed.file(&disk.path).exists());
    let rules = administrator.anti_affinity_rules(&cluster).await.unwrap();
    assert!(rules.is_empty(), "{rules:?}");
}

#[tokio::test]
async fn datastores_of_own_vms_are_checked_when_dismantled() {
    let whole = [OBJECTS.as_slice(), &[ELSEWHERE]].concat();
    let bed = bed_of(&[user("here@vsphere.local", &OBJECTS), user("whole@vsphere.local", &whole)]).await;
    let site = bed.site();
    let (here, whole) = (
        hypervisor_of(&bed, "here@vsphere.local", &site).await,
        hypervisor_of(&bed, "whole@vsphere.local", &site).await,
    );
    let refused = async || {
        here.preflight(&Placement::default()).await.unwrap();
        let error = here.may_change_own().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        assert!(names(&error, ELSEWHERE.2) && error.to_string().contains("Datastore.FileManagement"), "{error}");
        whole.may_change_own().await.unwrap();
    };
    // The journal's datastore.
    let journal = DatastorePath::new("LocalDS_1", "kaas/control");
    let client = bed.client_of("here@vsphere.local", testbed::PASSWORD).await;
    let told = VcenterHypervisor::new(client, DEPLOYMENT, &site, &journal).await.unwrap();
    let error = told.preflight(&Placement::default()).await.unwrap_err();
    assert!(error.kind == ErrorKind::Denied && names(&error, ELSEWHERE.2), "{error}");
    here.preflight(&Placement::default()).await.unwrap();
    here.may_change_own().await.unwrap();

    // The datastore of a VM's settings and data disk, and of the data disk alone once its replacement is elsewhere.
    let ova = ova();
    let placement = Placement { datastore: Some("LocalDS_1".to_owned()), ..Placement::default() };
    let image = whole.lay(&ova).await;
    let old = whole.added_at("cp1", &whole.lay_at(&ova, &placement).await, &placement).await;
    refused().await;
    let back = Placement { datastore: Some("LocalDS_0".to_owned()), ..Placement::default() };
    let new = whole.replaced_with(&old, "cp1-new", &image, None, &back).await.unwrap();
    let disk = whole.detached(&whole.again(&old).await).await;
    whole.attach(&whole.of_uuid(new).await, &disk, &Free).await.unwrap();
    whole.destroy(&whole.again(&old).await, &Free).await.unwrap();
    refused().await;
    whole.detach(&whole.of_uuid(new).await, &disk, &Free).await.unwrap();
    here.may_change_own().await.unwrap();
}

/// For example after a user has migrated a node's VM to a datastore without the role. The VM is powered on all the
/// same.
#[tokio::test]
async fn denied_datastore_stops_upgrade_but_not_deploy() {
    let here = unread(user("here@vsphere.local", &OBJECTS), "DC0/datastore/pod/LocalDS_1");
    let mut world = World::on(bed_of(&[here]).await, 1).await;
    world.wanted.placement.datastore = Some("LocalDS_1".to_owned());
    world.deploys().await;
    world.hypervisor = hypervisor_of(&world.bed, "here@vsphere.local", &world.bed.site()).await;
    world.may_be_wanted(Goal::Deploy(&world.wanted)).await.unwrap();
    let guests = fake::World::of(1, Mode::Rolling, Ill::Well);
    let seen = Inventory::take(&world.hypervisor, &guests, &guests, &Placement::default(), None).await.unwrap();
    let denied = seen.denied.expect("what is denied");
    assert!(denied.contains(&format!(" on {}, for ", ELSEWHERE.2)), "{denied}");
    // A datastore that the account cannot see is not reported as missing.
    world.bed.govc(&["folder.create", "/DC0/datastore/pod"]);
    world.bed.govc(&["object.mv", "/DC0/datastore/LocalDS_1", "/DC0/datastore/pod"]);
    let error = world.hypervisor.may_change_own().await.unwrap_err();
    says(&error, ErrorKind::Denied, "the datastore LocalDS_1, which the account cannot see");
}

/// A user who may view an object, as all users may, and not read it.
fn unread(mut user: Value, path: &str) -> Value {
    user["on"][path] = json!(["System.View"]);
    user
}

#[tokio::test]
async fn unreadable_switch_or_host_is_named() {
    let group = (On::Network, "DC0/network/DC0_DVPG0", "the network DC0_DVPG0");
    let objects = [OBJECTS.as_slice(), &[group]].concat();
    let cases = [
        (
            "DC0/network/DVS0",
            "System.Read for the network DC0_DVPG0 (reading uuid of DistributedVirtualSwitch",
            ErrorKind::Denied,
        ),
        // If no VM is to be created, none is needed.
        ("DC0/host/DC0_C0/127.0.1.1", "the host 127.0.1.1", ErrorKind::Refused),
    ];
    let name = |index: usize| format!("unread-{index}@vsphere.local");
    let users = cases.iter().enumerate().map(|(index, (path, ..))| unread(user(&name(index), &objects), path));
    let users: Vec<Value> = users.chain([user("whole@vsphere.local", &objects)]).collect();
    let bed = bed_of(&users).await;
    let site = Site { networks: vec!["DC0_DVPG0".to_owned()], ..bed.site() };
    hypervisor_of(&bed, "whole@vsphere.local", &site).await.preflight(&Placement::default()).await.unwrap();
    for (index, (path, words, kind)) in cases.iter().enumerate() {
        let hypervisor = hypervisor_of(&bed, &name(index), &site).await;
        let error = hypervisor.preflight(&Placement::default()).await.unwrap_err();
        assert_eq!(error.kind, *kind, "{path}: {error}");
        assert!(error.to_string().contains(words) && error.to_string().contains("System.Read"), "{path}: {error}");
    }
}

#[tokio::test]
async fn hidden_switch_or_hosts_are_reported_before_changes() {
    let bed = Bed::start(&[]);
    let site = Site { networks: vec!["DC0_DVPG0".to_owned()], ..bed.site() };
    // A client checks once whether it sees tasks.
    let hypervisor = async || {
        let hypervisor = bed.hypervisor_of(DEPLOYMENT, &site).await;
        assert!(hypervisor.sees_tasks_on_files().await.unwrap());
        hypervisor
    };
    let first = hypervisor().await;
    bed.count_anew().await;
    first.preflight(&Placement::default()).await.unwrap();
    let looks = bed.count("RetrievePropertiesEx").await;
    let mut told = Vec::new();
    for skip in 0..looks {
        let hypervisor = hypervisor().await;
        bed.spoil("RetrievePropertiesEx", "fault", json!({ "fault": "NoPermission", "skip": skip })).await;
        let error = hypervisor.preflight(&Placement::default()).await.unwrap_err();
        bed.spoil_nothing().await;
        let is_of_hosts = error.to_string().contains("System.Read for the cluster or the hosts of DC0_C0");
        assert_eq!(error.kind, if is_of_hosts { ErrorKind::Refused } else { ErrorKind::Denied }, "{skip}: {error}");
        told.push(error.to_string());
    }
    for part in [
        "System.Read for the network DC0_DVPG0 (reading the UUID of",
        "System.Read on the distributed switch of the port group DistributedVirtualPortgroup",
        "System.Read for the cluster or the hosts of DC0_C0",
    ] {
        assert!(told.iter().any(|said| said.contains(part)), "{part} is not in {told:#?}");
    }
}

/// According to the reference, an account sees no task of an object that it may not access.
#[tokio::test]
async fn hidden_file_tasks_only_prevent_conclusions() {
    let bed = bed_of(&[user_with("blind@vsphere.local", &OBJECTS, &[]), user("whole@vsphere.local", &OBJECTS)]).await;
    let (site, mark) = (bed.site(), "before-1a2b3c4d");
    let blind = async || hypervisor_of(&bed, "blind@vsphere.local", &site).await;
    let (first, ova) = (blind().await, ova());
    first.preflight(&Placement::default()).await.unwrap();
    first.settle(&Free).await.unwrap();
    let refused = |error: Error| {
        let words = error.to_string();
        assert!(error.kind == ErrorKind::Transient && words.contains("Read-only on the data center DC0"), "{error}");
    };
    refused(first.has_pending_deletes().await.unwrap_err());
    refused(first.has_pending_deletes().await.unwrap_err());
    assert_eq!(bed.count("MoveDatastoreFile_Task").await, 1, "it tries once a session");
    // A copy is interrupted. The next command cannot see whether it still runs.
    let image = first.lay(&ova).await;
    let vm = first.added("cp1", &image).await;
    let disk = first.detached(&vm).await;
    bed.spoil("CopyVirtualDisk_Task", "lose-answer", json!({})).await;
    assert_eq!(first.copy_disk(&disk, mark, &["cp1"], &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    bed.spoil_nothing().await;
    while !bed.file(&disk.beside(mark)).exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let next = blind().await;
    next.settle(&Free).await.unwrap();
    refused(next.copy_disk(&disk, mark, &["cp1"], &Free).await.unwrap_err());
    assert_eq!(bed.count("DeleteVirtualDisk_Task").await, 0);
    // All other calls succeed.
    next.attach(&next.again(&vm).await, &disk, &Free).await.unwrap();
    next.power_on(&next.again(&vm).await, &Free).await.unwrap();

    let whole = hypervisor_of(&bed, "whole@vsphere.local", &site).await;
    whole.preflight(&Placement::default()).await.unwrap();
    assert!(!whole.has_pending_deletes().await.unwrap());
    bed.switch(json!({ "lists_all_tasks": true })).await;
    assert!(!blind().await.has_pending_deletes().await.unwrap());
}
