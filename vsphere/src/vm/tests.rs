//! VMs as they are read and changed, with answers in vCenter's form.

use std::time::Duration;

use super::*;
use crate::fake::{Fake, Reply, TASK, failure, missing, object, page, reference, success, updates};
use crate::guard::Unguarded;
use crate::reference::MoRef;
use crate::treatment::Outcome;

/// Devices as vCenter 8 shows them, shortened. The disks are not in the order of their keys.
const DEVICES: &str = r#"
<VirtualDevice xsi:type="ParaVirtualSCSIController"><key>1000</key><deviceInfo><label>SCSI controller 0</label></deviceInfo><busNumber>0</busNumber><device>2000</device><sharedBus>noSharing</sharedBus><scsiCtlrUnitNumber>7</scsiCtlrUnitNumber></VirtualDevice>
<VirtualDevice xsi:type="VirtualDisk"><key>2001</key><deviceInfo><label>Hard disk 2</label><summary>s</summary></deviceInfo><backing xsi:type="VirtualDiskFlatVer2BackingInfo"><fileName>[ds] node/data.vmdk</fileName><datastore type="Datastore">datastore-1</datastore><diskMode>independent_persistent</diskMode><uuid>6000C292-1234-5678-9ABC-DEF012345678</uuid><sharing>sharingNone</sharing></backing><controllerKey>1000</controllerKey><unitNumber>1</unitNumber><capacityInKB>1024</capacityInKB><capacityInBytes>1048576</capacityInBytes></VirtualDevice>
<VirtualDevice xsi:type="VirtualDisk"><key>2000</key><deviceInfo><label>Hard disk 1</label></deviceInfo><backing xsi:type="VirtualDiskFlatVer2BackingInfo"><fileName>[ds] node/system-000002.vmdk</fileName><diskMode>persistent</diskMode><uuid>6000c29a-0000-0000-0000-000000000001</uuid><parent><fileName>[ds] node/system-000001.vmdk</fileName><parent><fileName>[ds] template/system.vmdk</fileName></parent></parent></backing><controllerKey>1000</controllerKey><unitNumber>0</unitNumber><capacityInKB>2048</capacityInKB></VirtualDevice>
<VirtualDevice xsi:type="VirtualVmxnet3"><key>4000</key><deviceInfo><label>Network adapter 1</label></deviceInfo><backing xsi:type="VirtualEthernetCardDistributedVirtualPortBackingInfo"><port><switchUuid>50 1e</switchUuid><portgroupKey>dvportgroup-7</portgroupKey></port></backing><connectable><migrateConnect>unset</migrateConnect><startConnected>true</startConnected><allowGuestControl>true</allowGuestControl><connected>false</connected><status>untried</status></connectable><controllerKey>100</controllerKey><unitNumber>7</unitNumber><addressType>assigned</addressType><macAddress>00:50:56:aa:bb:cc</macAddress></VirtualDevice>
<VirtualDevice xsi:type="VirtualE1000e"><key>4001</key><backing xsi:type="VirtualEthernetCardNetworkBackingInfo"><deviceName>VM Network</deviceName></backing><connectable><startConnected>false</startConnected><connected>true</connected></connectable><macAddress>00:50:56:aa:bb:cd</macAddress></VirtualDevice>"#;

/// Single entries, by their keys.
const KEYED: [(&str, &str); 2] = [
    ("config.extraConfig[\"guestinfo.x\"]", "<key>guestinfo.x</key><value>very secret</value>"),
    ("config.extraConfig[\"guestinfo.gone\"]", "<key>guestinfo.gone</key><value></value>"),
];

/// All entries.
const EXTRA: &str = r#"
<OptionValue xsi:type="OptionValue"><key>guestinfo.x</key><value xsi:type="xsd:string">very secret</value></OptionValue>
<OptionValue xsi:type="OptionValue"><key>guestinfo.gone</key><value xsi:type="xsd:string"></value></OptionValue>"#;

const PROPERTIES: &str = r#"
<VAppPropertyInfo xsi:type="VAppPropertyInfo"><key>0</key><classId></classId><instanceId></instanceId><id>hostname</id><type>string</type><userConfigurable>true</userConfigurable><defaultValue>default</defaultValue><value></value></VAppPropertyInfo>
<VAppPropertyInfo xsi:type="VAppPropertyInfo"><key>5</key><classId>net</classId><instanceId>1</instanceId><id>address</id><type>string</type><value>10.0.0.5</value></VAppPropertyInfo>"#;

const SNAPSHOTS: &str = r#"
<VirtualMachineSnapshotTree><snapshot type="VirtualMachineSnapshot">snapshot-1</snapshot><name>a</name><childSnapshotList><snapshot type="VirtualMachineSnapshot">snapshot-2</snapshot><name>b</name></childSnapshotList><childSnapshotList><snapshot type="VirtualMachineSnapshot">snapshot-3</snapshot><name>c</name></childSnapshotList></VirtualMachineSnapshotTree>
<VirtualMachineSnapshotTree><snapshot type="VirtualMachineSnapshot">snapshot-4</snapshot><name>d</name></VirtualMachineSnapshotTree>"#;

const BOOT: &str = r#"
<bootDelay>0</bootDelay><efiSecureBootEnabled>true</efiSecureBootEnabled>
<bootOrder xsi:type="VirtualMachineBootOptionsBootableDiskDevice"><deviceKey>2000</deviceKey></bootOrder>
<bootOrder xsi:type="VirtualMachineBootOptionsBootableEthernetDevice"><deviceKey>4000</deviceKey></bootOrder>"#;

fn of(connection: &str) -> String {
    let managed = "<extensionKey>org.example</extensionKey><type>node</type>";
    object(
        "VirtualMachine",
        "vm-1",
        &[
            ("name", "node-1"),
            ("parent", "type=Folder>group-v3"),
            ("resourcePool", "type=ResourcePool>resgroup-8"),
            ("datastore", &reference("ManagedObjectReference", "Datastore", "datastore-1")),
            ("config.changeVersion", "2026-01-01T00:00:00.5Z"),
            ("config.uuid", "4212aaaa-0000-0000-0000-000000000001"),
            ("config.template", "false"),
            ("config.files.vmPathName", "[ds] node/node.vmx"),
            ("config.firmware", "efi"),
            ("config.bootOptions", BOOT),
            ("config.hardware.numCPU", "4"),
            ("config.hardware.memoryMB", "8192"),
            ("config.hardware.device", DEVICES),
            KEYED[0],
            KEYED[1],
            ("config.vAppConfig.property", PROPERTIES),
            ("config.managedBy", managed),
            ("runtime.powerState", "poweredOff"),
            ("runtime.connectionState", connection),
            ("runtime.question", "<id>7</id><text>Was it moved or copied?</text><choice><choiceInfo/></choice>"),
            ("snapshot.rootSnapshotList", SNAPSHOTS),
            ("recentTask", &reference("ManagedObjectReference", "Task", "task-7")),
        ],
    )
}

fn id() -> MoRef {
    MoRef::vm("vm-1")
}

async fn seen(fake: &Fake) -> Vm {
    fake.says("RetrievePropertiesEx", &page(&of("connected"), None));
    fake.client().await.vm_with(&id(), &["guestinfo.x", "guestinfo.gone"]).await.unwrap()
}

/// The `spec` that a change sends.
async fn sent(spec: &ConfigSpec) -> String {
    let fake = Fake::start().await;
    fake.runs("ReconfigVM_Task", [success("")]);
    fake.client().await.changes(&Unguarded).reconfigure(&id(), spec).await.unwrap();
    fake.asked("ReconfigVM_Task")[0].call()
}

#[tokio::test]
async fn a_vm_is_read_with_all_parts() {
    let fake = Fake::start().await;
    let vm = seen(&fake).await;
    assert_eq!((vm.name.as_str(), vm.processors, vm.memory, vm.power), ("node-1", 4, 8192, Power::Off));
    let order = ["Disk", "Ethernet"].map(|kind| format!("VirtualMachineBootOptionsBootable{kind}Device")).to_vec();
    assert_eq!(vm.boot, Boot { firmware: "efi".to_owned(), is_secure: true, order });
    assert_eq!((vm.host.clone(), vm.pool.clone()), (None, Some(MoRef::new("ResourcePool", "resgroup-8"))));
    let data = vm.devices.disk("60 00 C2 92 12 34 56 78-9a bc de f0 12 34 56 78").unwrap();
    assert_eq!((data.key, data.unit, data.capacity), (2001, 1, 1 << 20));
    assert_eq!((data.path.as_deref(), data.parents.len()), (Some("[ds] node/data.vmdk"), 0));
    let controller = &vm.devices.controllers[0];
    assert_eq!((controller.bus, controller.is_scsi(), data.first_class.as_deref()), (0, true, None));
    let system = &vm.devices.disks[1];
    assert_eq!(
        (system.capacity, system.parents.clone()),
        (2 << 20, vec!["[ds] node/system-000001.vmdk".to_owned(), "[ds] template/system.vmdk".to_owned()])
    );
    let [first, second] = &vm.devices.adapters[..] else { panic!("two adapters") };
    assert_eq!(
        (first.connected, first.start_connected, second.connected, second.start_connected),
        (false, true, true, false)
    );
    assert_eq!(first.network, AdapterNetwork::Distributed(MoRef::new("DistributedVirtualPortgroup", "dvportgroup-7")));
    assert_eq!(second.network, AdapterNetwork::Standard("VM Network".to_owned()));
    assert_eq!((vm.extra.get("guestinfo.x"), vm.extra.get("guestinfo.gone")), (Some("very secret"), None));
    assert!(vm.extra.keys().eq(["guestinfo.gone", "guestinfo.x"]));
    let properties: Vec<(String, &str)> =
        vm.properties.iter().map(|property| (property.name(), property.value.as_str())).collect();
    assert_eq!(properties, [("hostname".to_owned(), "default"), ("net.address.1".to_owned(), "10.0.0.5")]);
    let said = vm.properties.iter().map(|property| (property.is_given, property.is_configurable));
    assert!(said.eq([(false, true), (true, false)]));
    assert_eq!(vm.managed_by.as_ref().unwrap().extension, "org.example");
    assert_eq!(vm.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect::<String>(), "abcd");
    assert_eq!((vm.tasks.clone(), vm.tools_run), (vec![MoRef::new("Task", "task-7")], false));
    assert_eq!(vm.question.as_deref(), Some("Was it moved or copied?"));
    let shown = format!("{vm:?}");
    assert!(!shown.contains("very secret") && !shown.contains("10.0.0.5"), "values are not shown: {shown}");
}

/// A guest can write any number of entries.
#[tokio::test]
async fn only_whole_vms_read_all_entries() {
    let (fake, client) = Fake::connected().await;
    fake.says("RetrievePropertiesEx", &page(&of("connected"), None));
    fake.says("CreateContainerView", &reference("returnval", "ContainerView", "view-1"));
    assert_eq!(client.vm(&id()).await.unwrap().extra.keys().count(), 0);
    client.vms_in(&MoRef::new("Folder", "group-v3"), false).await.unwrap();
    let found = client.vms_with(&[id()], &["guestinfo.x"]).await.unwrap();
    assert!(found[0].extra.keys().eq(["guestinfo.x"]), "{found:?}");
    let asked = fake.asked("RetrievePropertiesEx");
    assert!(asked.iter().all(|asked| !asked.call().contains("<pathSet>config.extraConfig</pathSet>")), "{asked:?}");
    let all = of("connected").replace("</objects>", &format!("{}</objects>", property("config.extraConfig", EXTRA)));
    fake.says("RetrievePropertiesEx", &page(&all, None));
    let whole = client.whole_vm(&id()).await.unwrap();
    assert_eq!((whole.extra.get("guestinfo.x"), whole.extra.get("guestinfo.gone")), (Some("very secret"), None));
    assert_eq!((whole.extra.get("guestinfo.other"), whole.extra.keys().count()), (None, 2));
    assert!(!format!("{whole:?}").contains("very secret"));
}

fn property(path: &str, value: &str) -> String {
    format!("<propSet><name>{path}</name><val>{value}</val></propSet>")
}

#[tokio::test]
async fn power_of_an_unreachable_vm_is_unknown() {
    let (fake, client) = Fake::connected().await;
    fake.says("RetrievePropertiesEx", &page(&of("disconnected"), None));
    assert_eq!(client.vm(&id()).await.unwrap().power, Power::Unknown);
    fake.says("CreateContainerView", &reference("returnval", "ContainerView", "view-1"));
    let bare = object("VirtualMachine", "vm-2", &[("name", "lost"), ("runtime.connectionState", "inaccessible")]);
    fake.says("RetrievePropertiesEx", &page(&[of("connected"), bare].concat(), None));
    let listed = client.vms_in(&MoRef::new("Folder", "group-v3"), true).await.unwrap();
    let [lost] = listed.unread.as_slice() else { panic!("{listed:?}") };
    assert_eq!((listed.vms.len(), lost.name.as_str(), lost.error.outcome()), (1, "lost", Outcome::Transient));
    let words = "the VM lost (VirtualMachine vm-2): vCenter does not show them";
    assert!(lost.error.to_string().contains(words), "{}", lost.error);
    fake.says(
        "FindAllByUuid",
        &[reference("returnval", "VirtualMachine", "vm-1"), reference("returnval", "VirtualMachine", "vm-2")].concat(),
    );
    assert_eq!(client.vms_of_bios_uuid("4212aaaa-0000-0000-0000-000000000001").await.unwrap().len(), 2);
}

#[tokio::test]
async fn vms_are_found_by_their_guests_addresses() {
    let (fake, client) = Fake::connected().await;
    fake.says("FindAllByIp", &reference("returnval", "VirtualMachine", "vm-7"));
    assert_eq!(client.vms_of_address("10.0.0.11".parse().unwrap()).await.unwrap(), [MoRef::vm("vm-7")]);
    let asked = fake.asked("FindAllByIp")[0].call();
    assert!(asked.contains("<ip>10.0.0.11</ip>") && asked.contains("<vmSearch>true</vmSearch>"), "{asked}");
    fake.says("FindAllByIp", "");
    assert!(client.vms_of_address("10.0.0.12".parse().unwrap()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_vm_is_found_by_its_settings_file() {
    let fake = Fake::start().await;
    let (client, datacenter) = (fake.client().await, MoRef::new("Datacenter", "datacenter-2"));
    let settings = "[ds 1] web/web.vmx".parse().unwrap();
    fake.says("FindByDatastorePath", &reference("returnval", "VirtualMachine", "vm-7"));
    assert_eq!(client.vm_of_settings(&settings, &datacenter).await.unwrap(), Some(MoRef::vm("vm-7")));
    let asked = fake.asked("FindByDatastorePath")[0].call();
    assert!(asked.contains("datacenter-2") && asked.contains("<path>[ds 1] web/web.vmx</path>"), "{asked}");
    fake.says("FindByDatastorePath", "");
    assert_eq!(client.vm_of_settings(&settings, &datacenter).await.unwrap(), None);
}

#[tokio::test]
async fn settings_are_sent_in_schema_order() {
    let fake = Fake::start().await;
    let vm = seen(&fake).await;
    let by = ManagedBy { extension: "org.example".to_owned(), kind: "node".to_owned() };
    let spec = ConfigSpec::of(&vm)
        .policy("profile-1")
        .managed_by(&by)
        .properties(&vm.properties, [("net.address.1", "10.0.0.6")])
        .unwrap()
        .extra("guestinfo.a", "b & c")
        .memory(4096)
        .processors(2)
        .annotation("notes")
        .name("node-2");
    insta::assert_snapshot!(sent(&spec).await);
    let error = ConfigSpec::new().properties(&vm.properties, [("address", "10.0.0.6")]).unwrap_err();
    assert_eq!((error.outcome(), error.to_string().contains("no property address")), (Outcome::Refused, true));
    let nobody = sent(&ConfigSpec::of(&vm).managed_by_nobody()).await;
    assert!(nobody.contains("<managedBy>\n<extensionKey/>\n<type/>\n</managedBy>"), "{nobody}");
    let nothing = ConfigSpec::new().properties(&vm.properties, []).unwrap();
    assert!(!sent(&nothing).await.contains("vAppConfig"));
}

#[tokio::test]
async fn edited_devices_keep_their_other_parts() {
    let fake = Fake::start().await;
    let vm = seen(&fake).await;
    let data = vm.devices.disk("6000c292-1234-5678-9abc-def012345678").unwrap();
    let adapter = vm.devices.adapter(4000).unwrap();
    let on = ConfigSpec::new().connect(adapter, true, Power::On);
    insta::assert_snapshot!(sent(&on).await);
    let off = sent(&ConfigSpec::new().connect(adapter, true, Power::Off)).await;
    assert!(off.contains("<startConnected>true</startConnected>"), "{off}");
    assert!(off.contains("<connected>false</connected>"), "{off}");
    insta::assert_snapshot!(sent(&ConfigSpec::new().detach(data)).await);
    let standard = crate::soap::Element::new("x")
        .of("VirtualEthernetCardNetworkBackingInfo")
        .with([crate::soap::Element::text("deviceName", "other")]);
    let moved = sent(&ConfigSpec::new().network(adapter, &standard, true)).await;
    assert!(
        moved.contains("<backing xsi:type=\"VirtualEthernetCardNetworkBackingInfo\">\n<deviceName>other</deviceName>"),
        "{moved}"
    );
    assert!(!moved.contains("portgroupKey"), "{moved}");
    assert!(!moved.contains("macAddress"), "that of a clone is another one: {moved}");
    assert!(moved.contains("<startConnected>true</startConnected>"), "{moved}");
    let apart = sent(&ConfigSpec::new().network(adapter, &standard, false)).await;
    assert!(apart.contains("<startConnected>false</startConnected>"), "{apart}");
}

#[tokio::test]
async fn new_disks_take_the_controllers_free_units() {
    let fake = Fake::start().await;
    let vm = seen(&fake).await;
    let controller = &vm.devices.controllers[0];
    assert_eq!((controller.key, controller.free_unit()), (1000, Some(2)));
    let existing = ExistingDisk { path: "[ds] other/data.vmdk", controller, mode: DiskMode::IndependentPersistent };
    let new =
        NewDisk { capacity: 1 << 30, controller, mode: DiskMode::Persistent, datastore: Some("ds"), policy: Some("p") };
    insta::assert_snapshot!(sent(&ConfigSpec::new().attach(&existing).unwrap().new_disk(&new).unwrap()).await);
    let mut spec = ConfigSpec::new();
    // 16 units, without those of two disks and of the controller.
    for _ in 0..13 {
        spec = spec.attach(&existing).unwrap();
    }
    let error = spec.attach(&existing).unwrap_err();
    assert_eq!((error.outcome(), error.to_string().contains("no free unit")), (Outcome::Refused, true));
}

#[tokio::test]
async fn clones_are_full_or_linked_to_a_snapshot() {
    let (fake, client) = Fake::connected().await;
    fake.runs("CloneVM_Task", [success("type=VirtualMachine>vm-9")]);
    fake.says("CreateSnapshot_Task", TASK);
    let (folder, pool, datastore) = (
        MoRef::new("Folder", "group-v3"),
        MoRef::new("ResourcePool", "resgroup-8"),
        MoRef::new("Datastore", "datastore-1"),
    );
    let (host, snapshot) = (MoRef::new("HostSystem", "host-1"), MoRef::new("VirtualMachineSnapshot", "snapshot-1"));
    let config = ConfigSpec::new().extra("stamp", "s");
    let vm = seen(&fake).await;
    let full = CloneVm {
        name: "node-2",
        folder: &folder,
        pool: Some(&pool),
        datastore: Some(&datastore),
        host: None,
        disks: CloneDisks::Full,
        policy: None,
        config: &config,
        is_template: false,
    };
    assert_eq!(client.changes(&Unguarded).clone_vm(&id(), &full).await.unwrap(), MoRef::vm("vm-9"));
    let linked = CloneVm {
        host: Some(&host),
        disks: CloneDisks::LinkedTo(&snapshot),
        policy: Some(ClonePolicy { id: "p", disks: &vm.devices.disks, datastore: &datastore }),
        is_template: true,
        ..full
    };
    client.changes(&Unguarded).clone_vm(&id(), &linked).await.unwrap();
    let [first, second] = &fake.asked("CloneVM_Task")[..] else { panic!("two clones") };
    insta::assert_snapshot!(format!("{}\n\n{}", first.call(), second.call()));
    fake.runs("CloneVM_Task", [failure("DuplicateName")]);
    let error = client.changes(&Unguarded).clone_vm(&id(), &linked).await.unwrap_err();
    assert!(error.is_fault("DuplicateName"), "{error}");
    fake.runs("CreateSnapshot_Task", [success("type=VirtualMachineSnapshot>snapshot-1")]);
    assert_eq!(client.changes(&Unguarded).create_snapshot(&id(), "base", "for clones").await.unwrap(), snapshot);
    assert!(fake.asked("CreateSnapshot_Task")[0].call().contains("<memory>false</memory>"));
    fake.runs("CreateSnapshot_Task", [success("")]);
    let error = client.changes(&Unguarded).create_snapshot(&id(), "base", "").await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt, "a result that is not understood is no success");
}

#[tokio::test]
async fn edits_of_changed_settings_are_refused() {
    let (fake, client) = Fake::connected().await;
    fake.replies("ReconfigVM_Task", [Reply::Fault("ConcurrentAccess", String::new())]);
    let error = client.changes(&Unguarded).reconfigure(&id(), &ConfigSpec::new()).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Changed);
}

#[tokio::test]
async fn each_change_calls_its_method() {
    let (fake, client) = Fake::connected().await;
    let tasks = ["PowerOnVM_Task", "PowerOffVM_Task", "Destroy_Task"];
    tasks.iter().for_each(|method| fake.runs(method, [success("")]));
    fake.says("MarkAsTemplate", "");
    fake.says("UnregisterVM", "");
    let changes = client.changes(&Unguarded);
    changes.power_on(&id()).await.unwrap();
    changes.power_off(&id()).await.unwrap();
    changes.destroy(&id()).await.unwrap();
    changes.mark_as_template(&id()).await.unwrap();
    changes.unregister(&id()).await.unwrap();
    for method in tasks.into_iter().chain(["MarkAsTemplate", "UnregisterVM"]) {
        let asked = fake.asked(method);
        assert_eq!(asked.len(), 1, "{method}");
        assert!(asked[0].call().contains("<_this type=\"VirtualMachine\">vm-1</_this>"), "{method}");
    }
}

#[tokio::test]
async fn a_lost_conversion_to_a_template_is_checked() {
    let (fake, client) = Fake::connected().await;
    let changes = client.changes(&Unguarded);
    fake.replies("MarkAsTemplate", [Reply::Cut]);
    // vCenter still works on it during the first look.
    let seen = |version: &str, is_template: &str| {
        updates(version, "VirtualMachine", "vm-1", &[("config.template", is_template)])
    };
    fake.runs("none", [seen("1", "false"), seen("2", "true")]);
    changes.mark_as_template(&id()).await.unwrap();
    assert_eq!((fake.count("MarkAsTemplate"), fake.count("WaitForUpdatesEx")), (1, 2));
    // A VM that is missing shows no result.
    fake.replies("WaitForUpdatesEx", [Reply::Cut]);
    fake.replies("RetrievePropertiesEx", [Reply::Fault("ManagedObjectNotFound", String::new())]);
    assert_eq!(changes.mark_as_template(&id()).await.unwrap_err().outcome(), Outcome::InDoubt);
    assert_eq!(fake.count("MarkAsTemplate"), 2);
}

#[tokio::test]
async fn a_shutdown_waits_for_the_guest() {
    let (fake, client) = Fake::connected().await;
    let changes = client.changes(&Unguarded);
    let power = |state: &str| {
        updates(
            "1",
            "VirtualMachine",
            "vm-1",
            &[("runtime.powerState", state), ("runtime.connectionState", "connected")],
        )
    };
    fake.runs("none", [power("poweredOn"), power("poweredOff")]);
    fake.says("ShutdownGuest", "");
    assert_eq!(changes.shut_down(&id(), Duration::from_secs(60)).await.unwrap(), ShutDown::Off);
    fake.runs("none", [power("poweredOn")]);
    assert_eq!(changes.shut_down(&id(), Duration::ZERO).await.unwrap(), ShutDown::StillOn);
    // A VM on a lost host is not off, whatever was seen last.
    let lost = updates(
        "1",
        "VirtualMachine",
        "vm-1",
        &[("runtime.powerState", "poweredOff"), ("runtime.connectionState", "notResponding")],
    );
    fake.runs("none", [lost.clone()]);
    assert_eq!(client.wait_for_power(&id(), Power::Off, Duration::ZERO).await.unwrap(), Power::Unknown);
    // It does not count as on either: a power-off could hit a VM that is off or runs elsewhere.
    fake.runs("none", [lost]);
    let error = changes.shut_down(&id(), Duration::ZERO).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt, "{error}");
    fake.replies("CreateFilter", [Reply::Fault("ManagedObjectNotFound", String::new())]);
    fake.replies("RetrievePropertiesEx", [Reply::Fault("ManagedObjectNotFound", String::new())]);
    let error = changes.shut_down(&id(), Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt, "it was asked");
    fake.replies("ShutdownGuest", [Reply::Fault("ToolsUnavailable", String::new())]);
    assert_eq!(changes.shut_down(&id(), Duration::from_secs(60)).await.unwrap(), ShutDown::CannotBeAsked);
    fake.replies("ShutdownGuest", [Reply::Fault("InvalidPowerState", String::new())]);
    assert_eq!(changes.shut_down(&id(), Duration::from_secs(60)).await.unwrap_err().outcome(), Outcome::Changed);
}

#[tokio::test]
async fn another_adapter_gets_a_separate_port() {
    let fake = Fake::start().await;
    let vm = seen(&fake).await;
    let looks = fake.asked("RetrievePropertiesEx").len();
    let standard = vm.devices.adapter(4001).unwrap().backing_like().unwrap();
    assert_eq!(standard.text_of("deviceName"), Some("VM Network"));
    let distributed = vm.devices.adapter(4000).unwrap().backing_like().unwrap();
    let port = distributed.child("port").unwrap();
    assert_eq!((port.text_of("switchUuid"), port.text_of("portgroupKey")), (Some("50 1e"), Some("dvportgroup-7")));
    assert_eq!(port.text_of("portKey"), None);
    assert_eq!(fake.asked("RetrievePropertiesEx").len(), looks, "the key of a port group names no object");
}

#[tokio::test]
async fn unreadable_vms_are_listed_with_their_reason() {
    let (fake, client) = Fake::connected().await;
    let stamped = [
        ("name", "node-1"),
        ("config.template", "true"),
        ("config.changeVersion", "1"),
        ("config.extraConfig[\"a.stamp\"]", "<key>a.stamp</key><value>ours</value>"),
    ];
    let other = [("name", "other"), ("config.template", "false"), ("config.changeVersion", "1")];
    let [stamped, other] =
        [("vm-1", &stamped[..]), ("vm-2", &other[..])].map(|(id, seen)| object("VirtualMachine", id, seen));
    // vcsim names unset properties, without a value.
    let unset =
        other.replace("</objects>", "<propSet><name>config.extraConfig[\"a.stamp\"]</name></propSet></objects>");
    fake.says("CreateContainerView", &reference("returnval", "ContainerView", "view-1"));
    fake.says("RetrievePropertiesEx", &page(&[stamped.clone(), other, unset].concat(), None));
    let folder = MoRef::new("Folder", "group-v3");
    let found = client.entries_in(&folder, false, &["a.stamp"]).await.unwrap().vms;
    let said = found.iter().map(|vm| (vm.name.as_str(), vm.is_template, vm.extra.get("a.stamp")));
    let expected = [("node-1", true, Some("ours")), ("other", false, None), ("other", false, None)];
    assert!(said.eq(expected), "{found:?}");
    let asked = fake.asked("RetrievePropertiesEx").pop().unwrap().call();
    assert!(
        asked.contains("<pathSet>config.extraConfig[&quot;a.stamp&quot;]</pathSet>")
            || asked.contains("<pathSet>config.extraConfig[\"a.stamp\"]</pathSet>"),
        "{asked}"
    );
    let lost = object("VirtualMachine", "vm-3", &[("name", "lost")]);
    fake.says("RetrievePropertiesEx", &page(&[stamped.clone(), lost].concat(), None));
    let listed = client.entries_in(&folder, false, &["a.stamp"]).await.unwrap();
    assert_eq!((listed.vms.len(), listed.unread.len()), (1, 1), "the others are read");
    let lost = &listed.unread[0];
    assert_eq!((lost.name.as_str(), lost.error.outcome()), ("lost", Outcome::Transient), "{}", lost.error);
    assert!(!lost.error.to_string().contains("take the VM out"), "{}", lost.error);
    // If vCenter has a reason, the message has it, and it decides the outcome.
    fake.says(
        "RetrievePropertiesEx",
        &page(&missing("VirtualMachine", "vm-3", "config.changeVersion", "NoPermission"), None),
    );
    let error = client.entries_in(&folder, false, &["a.stamp"]).await.unwrap().unread.remove(0).error;
    assert_eq!(error.outcome(), Outcome::Denied);
    assert!(error.to_string().contains("(VirtualMachine vm-3): NoPermission"), "{error}");
    fake.says("RetrievePropertiesEx", &page(&stamped, None));
    assert_eq!(client.entry(&id(), "a.stamp").await.unwrap().as_deref(), Some("ours"));
}

#[tokio::test]
async fn a_new_vm_is_compared_with_each_setting() {
    let fake = Fake::start().await;
    let vm = seen(&fake).await;
    let by = |kind: &str| ManagedBy { extension: "org.example".to_owned(), kind: kind.to_owned() };
    let (first, second) = (&vm.devices.adapters[0], &vm.devices.adapters[1]);
    let (own, other) = (first.backing_like().unwrap(), second.backing_like().unwrap());
    let same = ConfigSpec::new()
        .bios_uuid("4212AAAA-0000-0000-0000-000000000001")
        .processors(4)
        .memory(8192)
        .managed_by(&by("node"))
        .extra("guestinfo.x", "very secret")
        .extra("guestinfo.gone", "")
        .network(first, &own, true)
        .properties(&vm.properties, [("net.address.1", "10.0.0.5")])
        .unwrap();
    assert_eq!(same.lacking_in(&vm).parts, [""; 0]);
    let controller = &vm.devices.controllers[0];
    let disk = NewDisk { capacity: 1 << 20, controller, mode: DiskMode::Persistent, datastore: None, policy: None };
    for (spec, part, sent) in [
        (ConfigSpec::new().bios_uuid("4212aaaa-0000-0000-0000-000000000002"), "the BIOS UUID", "<uuid>4212aaaa-0"),
        (ConfigSpec::new().processors(2), "the number of CPUs", "<numCPUs>2<"),
        (ConfigSpec::new().memory(4096), "the size of its memory", "<memoryMB>4096<"),
        (ConfigSpec::new().managed_by(&by("x")), "the extension that manages it", "<type>x<"),
        (ConfigSpec::new().extra("guestinfo.x", "y"), "the entry guestinfo.x of extraConfig", "<key>guestinfo.x<"),
        (ConfigSpec::new().network(first, &other, true), "the network of Network adapter 1", "VM Network"),
        (ConfigSpec::new().network(first, &own, false), "the network of Network adapter 1", "<startConnected>false"),
        (ConfigSpec::new().new_disk(&disk).unwrap(), "a disk", "<fileOperation>create<"),
        (
            ConfigSpec::new().properties(&vm.properties, [("hostname", "cp1")]).unwrap(),
            "the OVF property hostname",
            "<userConfigurable>true</userConfigurable>\n<defaultValue>default</defaultValue>\n<value>cp1<",
        ),
    ] {
        let lacking = spec.lacking_in(&vm);
        assert_eq!(lacking.parts, [part]);
        let rest = self::sent(&lacking.rest).await;
        assert!(rest.contains(sent) && rest.contains("<changeVersion>"), "{part}: {rest}");
    }
    // The size or mode of a disk can no longer be set.
    let mut there = vm.clone();
    let mut other = there.devices.disks[0].clone();
    (other.unit, other.label) = (controller.free_unit().unwrap(), "Hard disk 3".to_owned());
    there.devices.disks.push(other);
    let larger = NewDisk { capacity: 1 << 21, ..disk };
    let lacking = ConfigSpec::new().new_disk(&larger).unwrap().lacking_in(&there);
    assert_eq!(lacking.parts, ["the size of Hard disk 3", "the mode of Hard disk 3"]);
    assert!(!self::sent(&lacking.rest).await.contains("deviceChange"));
}
