//! An inventory full of foreign VMs: none is changed, and nothing costs more because of them.

use std::collections::BTreeMap;

use serde_json::json;

use super::bed::Count;
use super::*;
use crate::hypervisor::{DiskKind, DiskRef, VmSize};
use crate::vcenter::Site;

/// The cost of a VM's whole life, from image to removal.
async fn costs(others: &str, site: impl FnOnce(&Bed) -> Site) -> (BTreeMap<String, Count>, BTreeMap<String, Count>) {
    let bed = Bed::start(&["-others", others]);
    let site = site(&bed);
    let hypervisor = bed.hypervisor_of(DEPLOYMENT, &site).await;
    let before = bed.machines().await;
    let ova = ova();
    bed.count_anew().await;
    hypervisor.preflight(&Placement::default()).await.unwrap();
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.started("cp1", &image).await;
    assert_eq!(hypervisor.with_bios_uuid(vm.uuid()).await.unwrap().len(), 1);
    hypervisor.settle(&Free).await.unwrap();
    let way = bed.counts().await;

    bed.count_anew().await;
    assert_eq!(hypervisor.vms().await.unwrap().len(), 1);
    let look = bed.counts().await;

    hypervisor.cut_power(&hypervisor.again(&vm).await, &Free).await.unwrap();
    let disk = hypervisor.left_by(&vm).await;
    hypervisor.delete_disk(&disk, &Free).await.unwrap();
    let mut after = bed.machines().await;
    after.retain(|machine| !machine.template);
    assert_eq!(after, before, "a VM of somebody else was touched");
    (way, look)
}

fn total(counts: &BTreeMap<String, Count>) -> (u64, u64) {
    let sum = |of: fn(&Count) -> u64| counts.values().map(of).sum();
    (sum(|count| count.calls), sum(|count| count.r#in + count.out))
}

#[tokio::test]
async fn calls_and_bytes_are_independent_of_inventory_size() {
    let (few_way, few_look) = costs("10", Bed::site).await;
    let (many_way, many_look) = costs("1000", Bed::site).await;
    let (few, many) = (total(&few_look), total(&many_look));
    println!("a look: {few:?} calls and bytes beside 10 VMs, {many:?} beside 1000");
    assert_eq!(few.0, many.0, "{few_look:?} {many_look:?}");
    assert!(many.1 < few.1 + few.1 / 20, "{few_look:?} {many_look:?}");
    let (few, many) = (total(&few_way), total(&many_way));
    println!("the way: {few:?} calls and bytes beside 10 VMs, {many:?} beside 1000");
    // How often a task is asked for its end differs from run to run.
    assert!(many.1 < few.1 + few.1 / 4, "{few_way:?} {many_way:?}");
}

#[tokio::test]
async fn look_reads_little_of_foreign_vms() {
    let root = |bed: &Bed| Site { folder: String::new(), ..bed.site() };
    let (_, few) = costs("10", root).await;
    let (_, many) = costs("400", root).await;
    let each = (total(&many).1 - total(&few).1) / 390;
    println!("{each} bytes for each VM in the folder that is not the deployment's");
    assert!(each < 1000, "{few:?} {many:?}");
    // Pages of a hundred.
    assert!(total(&many).0 <= total(&few).0 + 4, "{few:?} {many:?}");
}

/// A program in a VM may write 1 MB there, which is five times as long in an answer.
#[tokio::test]
async fn entries_of_guests_do_not_affect_a_look() {
    let (bed, hypervisor, image) = with_image().await;
    let mut vms = Vec::new();
    for node in ["cp1", "cp2", "cp3"] {
        vms.push(hypervisor.started(node, &image).await);
    }
    let looks = async || {
        bed.count_anew().await;
        assert_eq!(hypervisor.vms().await.unwrap().len(), 3);
        assert_eq!(hypervisor.with_bios_uuid(vms[0].uuid()).await.unwrap(), [hypervisor.again(&vms[0]).await]);
        hypervisor.settle(&Free).await.unwrap();
        total(&bed.counts().await).1
    };
    let (key, before) = ("guestinfo.kaas.statement", looks().await);
    for vm in &vms {
        bed.set_guestinfo(vm, key, &"<".repeat(256 << 10)).await;
    }
    let after = looks().await;
    // Each VM has one more task in its list.
    assert!(after < before + (64 << 10), "{before} bytes, and then {after}");
    assert_eq!(hypervisor.said(&vms[0].reference, key).await.unwrap(), None);
    bed.set_guestinfo(&vms[0], key, "short").await;
    assert_eq!(hypervisor.said(&vms[0].reference, key).await.unwrap().as_deref(), Some("short"));
}

/// A user removes a copy from the inventory between the search and the look.
#[tokio::test]
async fn vm_removed_during_search_hides_no_other() {
    let (bed, hypervisor, vm) = with_vm().await;
    bed.spoil("RetrievePropertiesEx", "fault", json!({ "fault": "ManagedObjectNotFound" })).await;
    assert_eq!(hypervisor.with_bios_uuid(vm.uuid()).await.unwrap(), [hypervisor.again(&vm).await]);
    assert!(bed.has_spoilt().await);
    bed.spoil_nothing().await;
    bed.spoil("RetrievePropertiesEx", "fault", json!({ "fault": "ManagedObjectNotFound", "times": -1 })).await;
    assert_eq!(hypervisor.with_bios_uuid(vm.uuid()).await.unwrap_err().kind, ErrorKind::Transient);
    bed.spoil_nothing().await;
}

#[tokio::test]
async fn foreign_objects_are_refused_despite_their_looks() {
    let (bed, hypervisor, ova) = with_ova().await;
    let other = bed.hypervisor_of(Uuid::from_u128(0xee), &bed.site()).await;
    let stamp_of_other = Stamp { deployment: Uuid::from_u128(0xee), ..stamp("cp1", Some(7)) };
    let strange = other.added_as("cp1", stamp_of_other.clone(), &other.lay(&ova).await).await;
    assert_eq!(hypervisor.vms().await.unwrap(), []);
    let strange = hypervisor.only(strange.uuid()).await;
    assert_eq!(strange.stamp, Some(stamp_of_other));
    let before = bed.machine("cp1").await;
    let disk = strange.data_disks().next().unwrap().reference.clone();
    let refusals = [
        hypervisor.power_on(&strange, &Free).await,
        hypervisor.cut_power(&strange, &Free).await,
        hypervisor.connect(&strange, &strange.adapters[0].key, false, &Free).await,
        hypervisor.detach(&strange, &disk, &Free).await,
        hypervisor.set_properties(&strange, &BTreeMap::new(), &Free).await,
        hypervisor.stamp(&strange, &stamp("cp1", None), &Free).await,
        hypervisor.destroy(&strange, &Free).await,
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    }
    assert_eq!(bed.machine("cp1").await, before);
}

/// A VM of an OVA that a user imports into a folder.
pub(super) async fn by_hand(client: &vsphere::Client, ova: &Ova, name: &str, folder: &str) -> vsphere::MoRef {
    let pool = client.look(&client.find("DC0/host/DC0_C0").await.unwrap(), &["resourcePool"]).await.unwrap();
    let import = vsphere::Import {
        ova: &ova.path,
        name,
        folder: &client.find(&format!("DC0/vm/{folder}")).await.unwrap(),
        pool: &pool.reference_at("resourcePool").unwrap(),
        datastore: &client.find("DC0/datastore/LocalDS_0").await.unwrap(),
        host: None,
        networks: BTreeMap::new(),
        properties: &properties("cp1"),
        option: None,
        config: &vsphere::ConfigSpec::new(),
        blank_disks: true,
    };
    client.changes(&vsphere::Unguarded).import(&import).await.unwrap().vm
}

/// A user clones a VM with its disks to this path below the folder of VMs.
pub(super) async fn full_clone(
    client: &vsphere::Client,
    vm: &vsphere::MoRef,
    path: &str,
    pool: Option<&vsphere::MoRef>,
) -> vsphere::Result<vsphere::MoRef> {
    let (folder, name) = path.rsplit_once('/').unwrap();
    let clone = vsphere::CloneVm {
        name,
        folder: &client.find(&format!("DC0/vm/{folder}")).await.unwrap(),
        pool,
        datastore: None,
        host: None,
        disks: vsphere::CloneDisks::Full,
        policy: None,
        config: &vsphere::ConfigSpec::new(),
        is_template: false,
    };
    client.changes(&vsphere::Unguarded).clone_vm(vm, &clone).await
}

#[tokio::test]
async fn unknown_stamp_stops_only_its_own_deployment() {
    let (bed, hypervisor, ova) = with_ova().await;
    let image = hypervisor.lay(&ova).await;
    let own = hypervisor.added("cp1", &image).await;
    let other = bed.hypervisor_of(Uuid::from_u128(0xee), &bed.site()).await;
    let client = bed.client().await;
    let strange = by_hand(&client, &ova, "strange", "control").await;
    let stamped = async |text: &str| {
        let spec = vsphere::ConfigSpec::new().extra("kaas.stamp", text);
        client.changes(&vsphere::Unguarded).reconfigure(&strange, &spec).await.unwrap();
    };
    stamped("x").await;
    assert_eq!(hypervisor.vms().await.unwrap(), [own]);
    assert_eq!(other.vms().await.unwrap(), []);
    // As a later version may write it, or an incomplete one.
    for text in [
        format!("{{\"of\": \"{DEPLOYMENT}\"}}"),
        format!("{{\"deployment\":\"{DEPLOYMENT}\",\"no"),
        DEPLOYMENT.simple().to_string().to_uppercase(),
    ] {
        stamped(&text).await;
        let error = hypervisor.vms().await.unwrap_err();
        assert!(error.to_string().contains("the stamp kaas.stamp of the VM strange is not understood"), "{error}");
        assert_eq!(other.vms().await.unwrap(), []);
    }
}

#[tokio::test]
async fn vm_outside_searched_folders_is_not_stamped() {
    let (bed, hypervisor, ova, client) = with_client().await;
    bed.make_folder(&client, "elsewhere").await;
    let made = by_hand(&client, &ova, "by-hand", "elsewhere").await;
    let vm = hypervisor.seen(&made).await;
    // A check without a stamp reports the same.
    let told = [hypervisor.may_be_stamped(&vm).await, hypervisor.stamp(&vm, &stamp("cp1", None), &Free).await];
    for error in told.map(|told| told.unwrap_err()) {
        says(&error, ErrorKind::Refused, "is in the folder elsewhere, which is not among the deployment's");
    }
    assert_eq!(hypervisor.again(&vm).await, vm);
    // After the folder is configured, it is searched, and the VM is stamped.
    let site = Site { other_folders: vec!["elsewhere".to_owned()], ..bed.site() };
    let hypervisor = bed.hypervisor_of(DEPLOYMENT, &site).await;
    hypervisor.may_be_stamped(&vm).await.unwrap();
    hypervisor.stamp(&vm, &stamp("cp1", None), &Free).await.unwrap();
    assert_eq!(hypervisor.of_uuid(vm.uuid()).await.stamp, Some(stamp("cp1", None)));
    // A command that does not search there reports the stamped VM too: it is not gone.
    let hypervisor = bed.hypervisor().await;
    assert_eq!(hypervisor.vms().await.unwrap(), []);
    let vm = hypervisor.seen(&made).await;
    assert_eq!(vm.stamp, Some(stamp("cp1", None)));
    let error = hypervisor.may_be_stamped(&vm).await.unwrap_err();
    for words in ["is in the folder elsewhere", "other-folders"] {
        says(&error, ErrorKind::Refused, words);
    }
}

#[tokio::test]
async fn vm_made_by_hand_is_stamped_once() {
    let (bed, hypervisor, ova) = with_ova().await;
    let client = bed.client().await;
    let made = by_hand(&client, &ova, "by-hand", "control").await;
    assert_eq!(hypervisor.vms().await.unwrap(), []);
    let vm = hypervisor.seen(&made).await;
    let kinds: Vec<_> = vm.disks.iter().map(|disk| disk.kind).collect();
    assert_eq!(kinds, [DiskKind::System, DiskKind::Data]);
    hypervisor.stamp(&vm, &stamp("cp1", None), &Free).await.unwrap();
    let stale = hypervisor.power_on(&vm, &Free).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::Changed, "{stale}");
    let vm = hypervisor.of_uuid(vm.uuid()).await;
    assert_eq!(vm.stamp, Some(stamp("cp1", None)));
    assert_eq!(hypervisor.stamp(&vm, &stamp("cp2", None), &Free).await.unwrap_err().kind, ErrorKind::Refused);
    // A snapshot holds the data disk of such a VM.
    client.changes(&vsphere::Unguarded).create_snapshot(&made, "before", "").await.unwrap();
    let vm = hypervisor.again(&vm).await;
    assert_eq!(vm.snapshots, ["before"]);
    let data = vm.data_disks().next().unwrap();
    assert!(data.parent.is_some());
    let held = hypervisor.detach(&vm, &data.reference, &Free).await.unwrap_err();
    assert_eq!(held.kind, ErrorKind::Transient, "{held}");
}

#[tokio::test]
async fn held_disk_is_not_deleted() {
    let (bed, hypervisor, ova) = with_ova().await;
    let other = bed.hypervisor_of(Uuid::from_u128(0xee), &bed.site()).await;
    let stamp_of_other = Stamp { deployment: Uuid::from_u128(0xee), ..stamp("cp1", None) };
    let strange = other.added_as("payroll", stamp_of_other, &other.lay(&ova).await).await;
    let disk = strange.data_disks().next().unwrap().reference.clone();
    // It is off and has no lock.
    let error = hypervisor.delete_disk(&disk, &Free).await.unwrap_err();
    says(&error, ErrorKind::Refused, "payroll holds the disk");
    assert!(bed.file(&disk.path).exists());
}

#[tokio::test]
async fn held_disk_is_not_attached() {
    let (bed, hypervisor, ova, client) = with_client().await;
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    bed.make_folder(&client, "elsewhere").await;
    for (name, folder, words) in [
        ("payroll", "control", "payroll holds the disk"),
        ("salaries", "elsewhere", "salaries.vmx, which is another VM's"),
    ] {
        let strange = hypervisor.seen(&by_hand(&client, &ova, name, folder).await).await;
        let disk = strange.data_disks().next().unwrap().reference.clone();
        // It is off and has no lock.
        let error = hypervisor.attach(&vm, &disk, &Free).await.unwrap_err();
        says(&error, ErrorKind::Refused, words);
    }
    assert_eq!(hypervisor.again(&vm).await, vm);
}

/// A user has moved the VM meanwhile: nothing else finds it.
#[tokio::test]
async fn disk_of_own_vm_elsewhere_attaches_unless_held() {
    let (bed, hypervisor, image) = with_image().await;
    let client = bed.client().await;
    let old = hypervisor.added("cp1", &image).await;
    let disk = old.data_disks().next().unwrap().reference.clone();
    let new = hypervisor.replacement(&old, "cp1-new", &image).await;
    bed.make_folder(&client, "elsewhere").await;
    bed.govc(&["object.mv", "/DC0/vm/control/cp1", "/DC0/vm/elsewhere"]);
    assert_eq!(hypervisor.vms().await.unwrap(), std::slice::from_ref(&new));
    let held = hypervisor.attach(&new, &disk, &Free).await.unwrap_err();
    says(&held, ErrorKind::Refused, "cp1 holds the disk");
    hypervisor.detach(&hypervisor.again(&old).await, &disk, &Free).await.unwrap();
    hypervisor.attach(&new, &disk, &Free).await.unwrap();
    assert!(hypervisor.again(&new).await.disk(disk.uuid).is_some());
}

/// For example after a user has renamed the VM, and another VM's files are in its directory. It is reported before a
/// node is off.
#[tokio::test]
async fn disk_in_differently_named_directory_prevents_replacement() {
    let (bed, hypervisor, image) = with_image().await;
    let vm = hypervisor.added("cp1", &image).await;
    let disk = vm.data_disks().next().unwrap().reference.clone();
    let (at, spec) = (vsphere::MoRef::vm(&vm.reference.id), vsphere::ConfigSpec::new().name("web1"));
    bed.client().await.changes(&vsphere::Unguarded).reconfigure(&at, &spec).await.unwrap();
    std::fs::write(bed.file(&disk.path).with_file_name("before.vmx"), "").unwrap();
    let vm = hypervisor.again(&vm).await;
    let error = hypervisor.replaced(&vm, "web1-new", &image).await.unwrap_err();
    says(&error, ErrorKind::Refused, "before.vmx, which is registered with no VM");
    assert_eq!(hypervisor.vms().await.unwrap(), [vm]);
}

/// For example after a swap by hand that left the former VM outside the deployment. It is reported before any node is
/// off.
#[tokio::test]
async fn disk_in_foreign_directory_prevents_replacement() {
    let (_bed, hypervisor, ova, client) = with_client().await;
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    hypervisor.may_be_replaced(&vm).await.unwrap();
    hypervisor.detached(&vm).await;
    let before = by_hand(&client, &ova, "before", "control").await;
    let disk = hypervisor.seen(&before).await.data_disks().next().unwrap().reference.clone();
    let before = client.vm(&before).await.unwrap();
    let held = before.devices.disk(&disk.uuid.to_string()).unwrap();
    let spec = vsphere::ConfigSpec::of(&before).detach(held);
    client.changes(&vsphere::Unguarded).reconfigure(&before.reference, &spec).await.unwrap();
    attach_by_hand(&client, &vsphere::MoRef::vm(&vm.reference.id), &disk.path).await;
    let vm = hypervisor.again(&vm).await;
    assert!(vm.disk(disk.uuid).is_some());
    let refusals =
        [hypervisor.may_be_replaced(&vm).await, hypervisor.replaced(&vm, "cp1-bbbbbbb", &image).await.map(drop)];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        says(&error, ErrorKind::Refused, "before.vmx, which is another VM's");
    }
}

/// Its files stay where they were, with the node's disk: the swap continues.
#[tokio::test]
async fn disk_of_unregistered_vm_attaches_to_its_node() {
    let (bed, hypervisor, image) = with_image().await;
    let old = hypervisor.added("cp1", &image).await;
    let other = hypervisor.added("cp2", &image).await;
    let disk = old.data_disks().next().unwrap().reference.clone();
    let new = hypervisor.replacement(&old, "cp1-bbbbbbb", &image).await;
    hypervisor.detach(&hypervisor.again(&old).await, &disk, &Free).await.unwrap();
    bed.govc(&["vm.unregister", "/DC0/vm/control/cp1"]);
    let refusals = [
        hypervisor.attach(&other, &disk, &Free).await,
        hypervisor.copy_disk(&disk, "before-1a2b3c4d", &["cp2"], &Free).await.map(drop),
        hypervisor.delete_disk(&disk, &Free).await,
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        for part in ["cp1.vmx, which is registered with no VM that this account sees", "do not delete its directory"] {
            says(&error, ErrorKind::Refused, part);
        }
    }
    let copy = hypervisor.copy_disk(&disk, "before-1a2b3c4d", &["cp1"], &Free).await.unwrap();
    assert!(hypervisor.has_disk(&copy).await.unwrap());
    hypervisor.attach(&hypervisor.again(&new).await, &disk, &Free).await.unwrap();
    assert!(hypervisor.again(&new).await.disk(disk.uuid).is_some());
}

/// A user attaches a disk to a VM.
pub(super) async fn attach_by_hand(client: &vsphere::Client, vm: &vsphere::MoRef, path: &str) {
    let vm = client.vm(vm).await.unwrap();
    let controller = crate::vcenter::disks::first_controller(&vm).unwrap();
    let disk = vsphere::ExistingDisk { path, controller, mode: vsphere::DiskMode::IndependentPersistent };
    let spec = vsphere::ConfigSpec::of(&vm).attach(&disk).unwrap();
    client.changes(&vsphere::Unguarded).reconfigure(&vm.reference, &spec).await.unwrap();
}

/// A copy of a disk, in a directory without settings of a VM.
pub(super) async fn copied(bed: &Bed, client: &vsphere::Client, disk: &DiskRef, path: &str) -> DiskRef {
    std::fs::create_dir_all(bed.file(path).parent().unwrap()).unwrap();
    let datacenter = client.find("DC0").await.unwrap();
    let file = |path| vsphere::DiskFile { path, datacenter: &datacenter };
    client.changes(&vsphere::Unguarded).copy_disk(file(disk.path.as_str()), file(path)).await.unwrap();
    let uuid = client.disk_uuid(file(path)).await.unwrap().parse().unwrap();
    DiskRef { uuid, path: path.to_owned() }
}

#[tokio::test]
async fn volume_of_storage_driver_is_not_deleted() {
    let (bed, hypervisor, vm) = with_vm().await;
    let client = bed.client().await;
    let own = vm.data_disks().next().unwrap().reference.clone();
    for path in ["[LocalDS_0] kubevols/v.vmdk", "[LocalDS_0] fcd/v.vmdk"] {
        let volume = copied(&bed, &client, &own, path).await;
        for named in [path.to_owned(), path.replace("] ", "] /")] {
            let error = hypervisor.delete_disk(&DiskRef { path: named, ..volume.clone() }, &Free).await.unwrap_err();
            says(&error, ErrorKind::Refused, "among the volumes of a storage driver");
        }
        assert!(!hypervisor.is_in_node_directory(&volume, &["cp1", "fcd", "kubevols"]).await.unwrap());
        assert!(bed.file(path).exists());
    }
}

#[tokio::test]
async fn node_directory_is_known_by_vm_or_name() {
    let (bed, hypervisor, ova, client) = with_client().await;
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    let own = vm.data_disks().next().unwrap().reference.clone();
    let lies = async |disk: &DiskRef, node: &str| hypervisor.is_in_node_directory(disk, &[node]).await.unwrap();
    assert!(lies(&own, "of-another-name").await, "beside a VM of the deployment");
    // A VM in another folder that is off holds it, and no settings are in its directory: nothing here shows that.
    let disk = copied(&bed, &client, &own, "[LocalDS_0] payroll-data/payroll.vmdk").await;
    bed.make_folder(&client, "elsewhere").await;
    let payroll = by_hand(&client, &ova, "payroll", "elsewhere").await;
    attach_by_hand(&client, &payroll, &disk.path).await;
    assert!(!lies(&disk, "cp1").await);
    // In the directory of another VM's settings, no name helps.
    let settings = client.vm(&payroll).await.unwrap().vmx_path;
    let second = DiskRef { path: settings.replace(".vmx", "_2.vmdk"), ..disk };
    assert!(!lies(&second, "payroll").await);
    hypervisor.left_by(&vm).await;
    assert!(lies(&own, "cp1").await && !lies(&own, "cp2").await, "its VM is gone");
}

#[tokio::test]
async fn free_disk_in_foreign_directory_is_not_deleted() {
    let (bed, hypervisor, vm) = with_vm().await;
    let other = bed.hypervisor_of(Uuid::from_u128(0xee), &bed.site()).await;
    let disk = hypervisor.detached(&vm).await;
    // Its journal says that the disk belongs to the other deployment, which has no VM there.
    let error = other.delete_disk(&disk, &Free).await.unwrap_err();
    says(&error, ErrorKind::Refused, "cp1.vmx, which is another VM's");
    assert!(bed.file(&disk.path).exists());
    // In the directory of an own VM it is removed.
    hypervisor.delete_disk(&disk, &Free).await.unwrap();
    assert!(!bed.file(&disk.path).exists());
}

#[tokio::test]
async fn replacement_has_former_or_given_size() {
    let (_bed, hypervisor, image) = with_image().await;
    let vm = hypervisor.added("cp1", &image).await;
    assert_eq!(vm.size, Some(VmSize { processors: SIZE.processors, memory: SIZE.memory.into() }));
    for (name, size) in [("cp1-same", None), ("cp1-larger", Some(VmSize { processors: 4, memory: 8192 }))] {
        let new = hypervisor.replaced_with(&vm, name, &image, size, &Placement::default()).await.unwrap();
        assert_eq!(hypervisor.of_uuid(new).await.size, size.or(vm.size), "{name}");
    }
}

/// vCenter keeps the directory, because the disk is in it.
#[tokio::test]
async fn only_empty_directory_is_removed_after_its_disk() {
    let (bed, hypervisor, image) = with_image().await;
    let empties =
        async |disk: &DiskRef, node: &str| hypervisor.remove_empty_directory(disk, &[node], &Free).await.unwrap();
    for strange in [false, true] {
        let vm = hypervisor.added("cp1", &image).await;
        let disk = vm.data_disks().next().unwrap().reference.clone();
        let directory = bed.file(&disk.path).parent().unwrap().to_owned();
        hypervisor.detach(&vm, &disk, &Free).await.unwrap();
        empties(&disk, "cp1").await;
        assert!(bed.file(&disk.path).exists() && hypervisor.vm(&vm.reference).await.is_ok(), "a VM is there");
        hypervisor.destroy(&hypervisor.again(&vm).await, &Free).await.unwrap();
        empties(&disk, "cp1").await;
        assert!(hypervisor.has_disk(&disk).await.unwrap(), "a disk lies there");
        hypervisor.delete_disk(&disk, &Free).await.unwrap();
        empties(&disk, "cp2").await;
        assert!(directory.exists(), "it is none of that node's");
        if strange {
            std::fs::write(directory.join("notes.txt"), "a person's").unwrap();
        }
        empties(&disk, "cp1").await;
        assert_eq!(directory.exists(), strange);
        if !strange {
            // An earlier call has ended in between. A user has added a file meanwhile, or not.
            let aside = directory.with_file_name(format!("cp1-{}-emptied", disk.uuid));
            std::fs::create_dir(&aside).unwrap();
            empties(&disk, "cp1").await;
            assert!(!aside.exists());
            std::fs::create_dir(&aside).unwrap();
            std::fs::write(aside.join("notes.txt"), "a person's").unwrap();
            empties(&disk, "cp1").await;
            assert!(!aside.exists() && directory.join("notes.txt").exists(), "it has its name again");
            std::fs::remove_dir_all(&directory).unwrap();
            empties(&disk, "cp1").await;
        }
    }
}

#[tokio::test]
async fn disk_on_datastore_in_folder_is_deleted() {
    let (bed, hypervisor, ova) = with_ova().await;
    let placement = Placement { datastore: Some("LocalDS_1".to_owned()), ..Placement::default() };
    let vm = hypervisor.added_at("cp1", &hypervisor.lay_at(&ova, &placement).await, &placement).await;
    let disk = hypervisor.detached(&vm).await;
    assert!(disk.path.starts_with("[LocalDS_1] "), "{}", disk.path);
    // The path of a datastore in a datastore cluster: its name alone no longer leads to it.
    bed.govc(&["folder.create", "/DC0/datastore/pod"]);
    bed.govc(&["object.mv", "/DC0/datastore/LocalDS_1", "/DC0/datastore/pod"]);
    assert!(bed.client().await.find("DC0/datastore/LocalDS_1").await.is_err());
    let other = bed.hypervisor_of(Uuid::from_u128(0xee), &bed.site()).await;
    let error = other.delete_disk(&disk, &Free).await.unwrap_err();
    assert!(error.to_string().contains("cp1.vmx, which is another VM's"), "{error}");
    hypervisor.delete_disk(&disk, &Free).await.unwrap();
    assert!(!bed.file(&disk.path).exists());
}
