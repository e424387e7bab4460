//! One VM after the other, as in an upgrade.

use std::time::Duration;

use contract::deployer::{Fingerprint, Fingerprints};
use serde_json::json;

use super::others::{attach_by_hand, copied};
use super::*;
use crate::hypervisor::{DiskKind, DiskRef, PowerState, ShutDown, VmRef};
use crate::vcenter::Clones;

#[tokio::test]
async fn vm_hands_its_disk_to_its_replacement() {
    let bed = Bed::start(&[]);
    for clones in [Clones::Linked, Clones::Full] {
        let hypervisor = bed.hypervisor_of(DEPLOYMENT, &crate::vcenter::Site { clones, ..bed.site() }).await;
        hypervisor.preflight(&Placement::default()).await.unwrap();
        let ova = ova();
        assert_eq!(
            hypervisor.find_template(&ova.digest, None, &Placement::default()).await.unwrap().is_some(),
            clones == Clones::Full
        );
        let image = hypervisor.lay(&ova).await;
        assert_eq!(hypervisor.vms().await.unwrap(), [], "a template is no VM of the deployment");

        let old = hypervisor.added("cp1", &image).await;
        assert_eq!((old.stamp.clone(), old.power), (Some(stamp("cp1", None)), PowerState::Off));
        assert_eq!(old.disks.iter().map(|disk| disk.kind).collect::<Vec<_>>(), [DiskKind::System, DiskKind::Data]);
        assert_eq!(old.disks[0].parent.is_some(), clones == Clones::Linked);
        assert!(matches!(old.adapters.as_slice(), [adapter] if adapter.network == NETWORK && adapter.connected));
        let disk = old.data_disks().next().unwrap().clone();
        assert_eq!(disk.parent, None);
        let twice = hypervisor.try_add("cp1", &image).await.unwrap_err();
        assert_eq!(twice.kind, ErrorKind::Refused, "{twice}");

        hypervisor.power_on(&old, &Free).await.unwrap();
        let on = hypervisor.again(&old).await;
        assert_eq!(on.power, PowerState::On);
        let form = bed.machine("cp1").await.unwrap().guestinfo["ovfEnv"].clone();
        assert!(form.contains("a &lt;secret&gt; &amp; more"), "{form}");
        assert_ne!(hypervisor.detach(&on, &disk.reference, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
        assert_ne!(hypervisor.destroy(&on, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);

        let new = hypervisor.replacement(&on, "cp1-new", &image).await;
        assert_eq!(new.disks.iter().map(|disk| disk.kind).collect::<Vec<_>>(), [DiskKind::System]);
        assert_eq!(new.stamp, Some(stamp("cp1", Some(7))));
        assert!(matches!(new.adapters.as_slice(), [adapter] if adapter.network == NETWORK && adapter.connected));
        assert_ne!(new.adapters[0].mac, on.adapters[0].mac);

        // The disk is locked, and a VM of the deployment holds it.
        let held = hypervisor.attach(&new, &disk.reference, &Free).await.unwrap_err();
        assert_eq!(held.kind, ErrorKind::Refused, "{held}");
        let down = hypervisor.shut_down(&on, Duration::from_secs(20), &Free).await.unwrap();
        assert_eq!(down, ShutDown::Off);
        let off = hypervisor.again(&old).await;
        hypervisor.connect(&off, &off.adapters[0].key, false, &Free).await.unwrap();
        let stale = hypervisor.detach(&off, &disk.reference, &Free).await.unwrap_err();
        assert_eq!(stale.kind, ErrorKind::Changed, "{stale}");
        let fenced = hypervisor.again(&old).await;
        assert!(fenced.is_fenced());
        hypervisor.detach(&fenced, &disk.reference, &Free).await.unwrap();
        let bare = hypervisor.again(&old).await;
        assert_eq!(bare.data_disks().count(), 0);
        let gone = hypervisor.detach(&bare, &disk.reference, &Free).await.unwrap_err();
        assert_eq!(gone.kind, ErrorKind::NotFound, "{gone}");

        hypervisor.attach(&new, &disk.reference, &Free).await.unwrap();
        let new = hypervisor.again(&new).await;
        assert_eq!(new.data_disks().next().unwrap().reference, disk.reference);
        let held = hypervisor.destroy(&new, &Free).await.unwrap_err();
        assert_eq!(held.kind, ErrorKind::Changed, "{held}");
        hypervisor.power_on(&new, &Free).await.unwrap();
        // Passwords cannot be read back: the node has the values on its data disk.
        let form = bed.machine("cp1-new").await.unwrap().guestinfo["ovfEnv"].clone();
        assert!(form.contains("\"cp1\"") && !form.contains("secret&gt;"), "{form}");

        hypervisor.destroy(&bare, &Free).await.unwrap();
        assert!(hypervisor.vm(&bare.reference).await.is_err_and(|error| error.kind == ErrorKind::NotFound));
        assert_eq!(hypervisor.destroy(&bare, &Free).await.unwrap_err().kind, ErrorKind::NotFound);
        assert!(bed.file(&disk.reference.path).exists());

        let new = hypervisor.again(&new).await;
        hypervisor.cut_power(&new, &Free).await.unwrap();
        hypervisor.cut_power(&hypervisor.again(&new).await, &Free).await.unwrap();
        let held = hypervisor.delete_disk(&disk.reference, &Free).await.unwrap_err();
        assert_eq!(held.kind, ErrorKind::Refused, "{held}");
        assert_eq!(hypervisor.left_by(&new).await, disk.reference);
        assert!(hypervisor.has_disk(&disk.reference).await.unwrap());
        let other = DiskRef { uuid: Uuid::from_u128(0xd15c), ..disk.reference.clone() };
        assert!(!hypervisor.has_disk(&other).await.unwrap(), "another disk lies there");
        hypervisor.delete_disk(&disk.reference, &Free).await.unwrap();
        assert!(!hypervisor.has_disk(&disk.reference).await.unwrap());
        assert_eq!(hypervisor.delete_disk(&disk.reference, &Free).await.unwrap_err().kind, ErrorKind::NotFound);
        assert!(!bed.file(&disk.reference.path).exists());
        assert!(hypervisor.find_template(&ova.digest, None, &Placement::default()).await.unwrap().is_some());
    }
}

/// The number of requests before a template is sealed.
const SEALING: usize = 9;

#[tokio::test]
async fn template_is_imported_once_and_incomplete_one_replaced() {
    let (bed, hypervisor, ova) = with_ova().await;
    let nowhere = Placement::default();
    let other = hypervisor.import_template(&ova.path, &"0".repeat(64), None, &nowhere, &Free).await.unwrap_err();
    assert_eq!(other.kind, ErrorKind::Refused, "{other}");
    assert_eq!(bed.count("ImportVApp").await, 0);

    // A command is taken over from after each request: the next one always ends with one template. A template that was
    // complete and not yet sealed may have been cloned by others: it stays and is not used.
    let mut permitted = 0;
    let (hypervisor, image) = loop {
        let few = Few(AtomicUsize::new(permitted));
        let hypervisor = bed.hypervisor().await;
        let first = hypervisor.import(&ova, &few).await;
        let image = hypervisor.lay(&ova).await;
        assert_eq!(hypervisor.vms().await.unwrap(), []);
        let machines = bed.machines().await;
        let laid: Vec<_> = machines.iter().filter(|machine| machine.template).collect();
        assert_eq!(laid.len(), if permitted == SEALING { 2 } else { 1 }, "after {permitted} requests: {laid:?}");
        match first {
            Ok(first) => {
                assert_eq!(first, image);
                break (hypervisor, image);
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::Fenced, "{error}"),
        }
        permitted += 1;
        bed.reset().await;
    };
    assert_eq!(
        permitted,
        SEALING + 1,
        "directories, the note, import, its file, its end, the snapshot, the template, the seal"
    );
    bed.count_anew().await;
    assert_eq!(bed.hypervisor().await.lay(&ova).await, image);
    assert_eq!(bed.count("ImportVApp").await, 0);
    let machines = bed.machines().await;
    let templates: Vec<_> = machines.iter().filter(|machine| machine.template).collect();
    assert_eq!(templates.len(), 1, "{machines:?}");
    assert_eq!(templates[0].disks.len(), 1, "the blank disk of the OVA is not in it");

    // Each datastore has its own template.
    let elsewhere = Placement { datastore: Some("LocalDS_1".to_owned()), ..nowhere.clone() };
    assert_eq!(hypervisor.find_template(&ova.digest, None, &elsewhere).await.unwrap(), None);
    assert_ne!(hypervisor.lay_at(&ova, &elsewhere).await, image);
    let gone = ImageTemplate { reference: "vm-9999".to_owned(), ..image.clone() };
    assert_eq!(hypervisor.try_add("cp1", &gone).await.unwrap_err().kind, ErrorKind::NotFound);
    let of_another = ImageTemplate { digest: "0".repeat(64), ..image };
    assert_eq!(hypervisor.try_add("cp1", &of_another).await.unwrap_err().kind, ErrorKind::Refused);
}

#[tokio::test]
async fn impossible_settings_of_a_vm_are_refused() {
    let (bed, hypervisor, image) = with_image().await;
    let add = async |networks: &[&str], properties: &BTreeMap<String, String>, placement: &Placement| {
        hypervisor.try_add_with("cp1", &image, networks, properties, placement).await.unwrap_err()
    };
    let (network, here) = ([NETWORK], Placement::default());
    let strange = BTreeMap::from([("strange".to_owned(), "x".to_owned())]);
    let place = |datastore: Option<&str>, folder: Option<&str>| Placement {
        datastore: datastore.map(str::to_owned),
        folder: folder.map(str::to_owned),
        resource_pool: None,
    };
    let client = bed.client().await;
    bed.make_folder(&client, "elsewhere").await;
    for (error, words) in [
        (add(&["no-such"], &properties("cp1"), &here).await, "no-such"),
        (add(&[], &properties("cp1"), &here).await, "1 network adapters"),
        (add(&network, &strange, &here).await, "strange"),
        (add(&network, &properties("cp1"), &place(Some("no-such"), None)).await, "no-such"),
        (add(&network, &properties("cp1"), &place(None, Some("no-such"))).await, "no-such"),
        (add(&network, &properties("cp1"), &place(None, Some("elsewhere"))).await, "not be found again"),
        (add(&network, &properties("cp1"), &place(Some("LocalDS_1"), None)).await, "import the image there first"),
    ] {
        says(&error, ErrorKind::Refused, words);
    }
    assert_eq!(hypervisor.vms().await.unwrap(), []);

    let vm = hypervisor.added("cp1", &image).await;
    let taken = hypervisor.replaced(&vm, "cp1", &image).await.unwrap_err();
    assert!(matches!(taken.kind, ErrorKind::Refused | ErrorKind::Transient), "{taken}");
    let renewed = BTreeMap::from([("node-name".to_owned(), "cp9".to_owned())]);
    assert_eq!(hypervisor.set_properties(&vm, &strange, &Free).await.unwrap_err().kind, ErrorKind::Refused);
    hypervisor.set_properties(&vm, &renewed, &Free).await.unwrap();
    let vm = hypervisor.again(&vm).await;
    hypervisor.power_on(&vm, &Free).await.unwrap();
    let form = bed.machine("cp1").await.unwrap().guestinfo["ovfEnv"].clone();
    assert!(form.contains("\"cp9\"") && form.contains("a &lt;secret&gt; &amp; more"), "{form}");
    let on = hypervisor.again(&vm).await;
    assert_eq!(hypervisor.set_properties(&on, &renewed, &Free).await.unwrap_err().kind, ErrorKind::Refused);
    assert_eq!(hypervisor.power_on(&on, &Free).await.unwrap_err().kind, ErrorKind::Changed);
}

/// Guestinfo may outlive a power cycle.
#[tokio::test]
async fn statement_from_before_power_on_is_not_shown() {
    let bed = Bed::start(&[]);
    bed.switch(json!({ "keeps_guestinfo": true })).await;
    let (hypervisor, ova) = (bed.hypervisor().await, ova());
    let vm = hypervisor.started("cp1", &hypervisor.lay(&ova).await).await;
    let shown = Fingerprints { ca: Fingerprint::of(b"a"), endpoint: Fingerprint::of(b"e") };
    bed.set_guestinfo(&vm, Fingerprints::GUESTINFO, &serde_json::to_string(&shown).unwrap()).await;
    bed.set_guestinfo(&vm, "guestinfo.kaas.statement", "of before").await;
    hypervisor.cut_power(&hypervisor.again(&vm).await, &Free).await.unwrap();
    let kept = bed.machine("cp1").await.unwrap().guestinfo;
    assert!(kept.contains_key("kaas.statement") && kept.contains_key("kaas.fingerprints"), "{kept:?}");
    hypervisor.power_on(&hypervisor.again(&vm).await, &Free).await.unwrap();
    assert_eq!(hypervisor.fingerprints(&vm.reference).await.unwrap(), None);
    assert_eq!(hypervisor.said(&vm.reference, "guestinfo.kaas.statement").await.unwrap(), None);
}

#[tokio::test]
async fn statement_of_a_running_guest_is_shown() {
    let (bed, hypervisor, vm) = with_vm().await;
    hypervisor.power_on(&vm, &Free).await.unwrap();
    assert_eq!(hypervisor.fingerprints(&vm.reference).await.unwrap(), None);
    assert_eq!(hypervisor.statement(&vm.reference).await.unwrap(), None);
    let shown = Fingerprints { ca: Fingerprint::of(b"a"), endpoint: Fingerprint::of(b"e") };
    bed.set_guestinfo(&vm, Fingerprints::GUESTINFO, &serde_json::to_string(&shown).unwrap()).await;
    assert_eq!(hypervisor.fingerprints(&vm.reference).await.unwrap(), Some(shown));
    let strange = VmRef { uuid: Uuid::from_u128(1), ..vm.reference.clone() };
    assert_eq!(hypervisor.fingerprints(&strange).await.unwrap_err().kind, ErrorKind::NotFound);
    hypervisor.cut_power(&hypervisor.again(&vm).await, &Free).await.unwrap();
    assert_eq!(hypervisor.fingerprints(&vm.reference).await.unwrap(), None);
}

/// VMs on different hosts of three, managed by an extension.
async fn managed() -> (Bed, VcenterHypervisor, ImageTemplate) {
    let bed = Bed::start(&["-hosts", "3"]);
    let site = crate::vcenter::Site { different_hosts: true, managed_by: Some("org.example".to_owned()), ..bed.site() };
    let hypervisor = bed.hypervisor_of(DEPLOYMENT, &site).await;
    let image = hypervisor.lay(&ova()).await;
    (bed, hypervisor, image)
}

#[tokio::test]
async fn rule_separates_vms_until_one_is_left() {
    let (bed, hypervisor, image) = managed().await;
    let client = bed.client().await;
    let cluster = client.find("DC0/host/DC0_C0").await.unwrap();
    let mut hosts = std::collections::BTreeSet::new();
    for node in ["cp1", "cp2", "cp3"] {
        let vm = hypervisor.started(node, &image).await;
        let seen = client.vm(&vsphere::MoRef::vm(&vm.reference.id)).await.unwrap();
        assert!(hosts.insert(seen.host.clone().unwrap()), "{node} is on the host of another one");
        assert_eq!(seen.managed_by.unwrap().extension, "org.example");
    }
    let rules = client.anti_affinity_rules(&cluster).await.unwrap();
    assert!(matches!(rules.as_slice(), [rule] if rule.vms.len() == 3 && rule.name.contains(&DEPLOYMENT.to_string())));
    for left in [2, 0, 0] {
        let vm = hypervisor.vms().await.unwrap().remove(0);
        hypervisor.cut_power(&vm, &Free).await.unwrap();
        hypervisor.left_by(&vm).await;
        let rules = client.anti_affinity_rules(&cluster).await.unwrap();
        assert_eq!(rules.first().map_or(0, |rule| rule.vms.len()), left, "{rules:?}");
    }
}

#[tokio::test]
async fn disowned_vm_keeps_disks_and_loses_owner() {
    let (bed, hypervisor, image) = managed().await;
    let client = bed.client().await;
    let cluster = client.find("DC0/host/DC0_C0").await.unwrap();
    let apart = async || client.anti_affinity_rules(&cluster).await.unwrap().first().map_or(0, |rule| rule.vms.len());
    let mut vms = Vec::new();
    for node in ["w1", "w2", "w3"] {
        vms.push(hypervisor.started(node, &image).await);
    }
    assert_eq!(apart().await, 3);
    let (vm, name) = (vms.remove(0), "w1-kept-0f5e2a30");
    let on = hypervisor.again(&vm).await;
    assert_eq!(hypervisor.disown(&on, name, &Free).await.unwrap_err().kind, ErrorKind::Changed);
    hypervisor.cut_power(&on, &Free).await.unwrap();
    let off = hypervisor.again(&vm).await;
    says(&hypervisor.disown(&off, name, &Free).await.unwrap_err(), ErrorKind::Changed, "is connected");
    hypervisor.connect(&off, &off.adapters[0].key, false, &Free).await.unwrap();
    let stale = hypervisor.disown(&off, name, &Free).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::Changed, "{stale}");
    assert_eq!((hypervisor.again(&vm).await.name.as_str(), apart().await), ("w1", 3), "nothing was begun");
    // Volumes of a storage driver are detached first.
    let path = "[LocalDS_0] kubevols/v.vmdk";
    let volume = copied(&bed, &client, &vm.data_disks().next().unwrap().reference, path).await;
    let refused = hypervisor.attach(&hypervisor.again(&vm).await, &volume, &Free).await.unwrap_err();
    says(&refused, ErrorKind::Refused, "among the volumes");
    attach_by_hand(&client, &vsphere::MoRef::vm(&vm.reference.id), path).await;
    let holds = hypervisor.disown(&hypervisor.again(&vm).await, name, &Free).await.unwrap_err();
    says(&holds, ErrorKind::Transient, path);
    hypervisor.detach(&hypervisor.again(&vm).await, &volume, &Free).await.unwrap();
    hypervisor.disown(&hypervisor.again(&vm).await, name, &Free).await.unwrap();

    let kept = hypervisor.again(&vm).await;
    assert_eq!((kept.name.as_str(), kept.power, kept.is_fenced()), (name, PowerState::Off, true));
    assert_eq!(kept.stamp, Some(stamp("w1", None).released()));
    assert_eq!(kept.disks, vm.disks, "they stay on it");
    assert!(kept.data_disks().all(|disk| bed.file(&disk.reference.path).exists()) && kept.data_disks().count() == 1);
    let seen = client.vm(&vsphere::MoRef::vm(&vm.reference.id)).await.unwrap();
    assert!(seen.managed_by.is_none());
    assert_eq!((hypervisor.vms().await.unwrap().len(), apart().await), (2, 2));
    assert_eq!(hypervisor.with_bios_uuid(vm.uuid()).await.unwrap(), std::slice::from_ref(&kept));
    // After that, no deployment changes or stamps it.
    let connected = hypervisor.connect(&kept, &kept.adapters[0].key, true, &Free).await;
    let stamped = hypervisor.stamp(&kept, &stamp("w1", None), &Free).await;
    let released = hypervisor.disown(&kept, name, &Free).await;
    for refused in [hypervisor.power_on(&kept, &Free).await, connected, stamped, released] {
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Refused);
    }
    assert_eq!(hypervisor.destroy(&kept, &Free).await.unwrap_err().kind, ErrorKind::Refused);
    // Its name is free. The rule separates a VM with that name from the others only.
    hypervisor.started("w1", &image).await;
    assert_eq!((hypervisor.vms().await.unwrap().len(), apart().await), (3, 3));
}

/// The request has taken effect: a later look shows that the VM was given up.
#[tokio::test]
async fn disowned_vm_is_recognized_after_lost_answer() {
    let (bed, hypervisor, image) = with_image().await;
    let vm = hypervisor.added("w1", &image).await;
    hypervisor.connect(&vm, &vm.adapters[0].key, false, &Free).await.unwrap();
    let unconnected = hypervisor.again(&vm).await;
    bed.spoil("ReconfigVM_Task", "lose-answer", json!({})).await;
    let lost = hypervisor.disown(&unconnected, "w1-kept", &Free).await.unwrap_err();
    assert_eq!(lost.kind, ErrorKind::InDoubt, "{lost}");
    hypervisor.settle(&Free).await.unwrap();
    let kept = hypervisor.again(&vm).await;
    assert_eq!((kept.name.as_str(), kept.stamp.clone()), ("w1-kept", Some(stamp("w1", None).released())));
    assert_eq!(hypervisor.vms().await.unwrap(), []);
}

#[tokio::test]
async fn cluster_without_drs_is_refused_before_any_change() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let hypervisor = bed.hypervisor().await;
    hypervisor.preflight(&Placement::default()).await.unwrap();
    bed.govc(&["cluster.change", "-drs-enabled=false", "DC0_C0"]);
    let error = hypervisor.preflight(&Placement::default()).await.unwrap_err();
    says(&error, ErrorKind::Refused, "the cluster of DC0_C0 has DRS turned off");
    bed.count_anew().await;
    says(&hypervisor.import(&ova, &Free).await.unwrap_err(), ErrorKind::Refused, "DRS turned off");
    assert_eq!(bed.count("ImportVApp").await, 0);
    bed.govc(&["cluster.change", "-drs-enabled=true", "DC0_C0"]);
    hypervisor.preflight(&Placement::default()).await.unwrap();
}

/// Few accounts that import may see the cluster's setting.
#[tokio::test]
async fn hidden_drs_setting_leaves_the_answer_to_vcenter() {
    let (bed, ova) = (Bed::start(&[]), ova());
    let hypervisor = bed.hypervisor().await;
    bed.govc(&["cluster.change", "-drs-enabled=false", "DC0_C0"]);
    let stage = async || hypervisor.import(&ova, &Free).await;
    stage().await.unwrap_err();
    bed.count_anew().await;
    stage().await.unwrap_err();
    // The last look reads the cluster.
    let looks = bed.count("RetrievePropertiesEx").await;
    bed.spoil("RetrievePropertiesEx", "fault", json!({ "fault": "NoPermission", "skip": looks - 1 })).await;
    let error = stage().await.unwrap_err();
    assert!(bed.has_spoilt().await, "{error}");
    assert_ne!(bed.count("ImportVApp").await, 0, "{error}");
}

#[tokio::test]
async fn vcenter_9_without_drs_clones_but_cannot_import() {
    let (bed, ova) = (Bed::start(&["-api", "9.0.0.0"]), ova());
    let hypervisor = bed.hypervisor().await;
    let image = hypervisor.lay(&ova).await;
    bed.govc(&["cluster.change", "-drs-enabled=false", "DC0_C0"]);
    hypervisor.preflight(&Placement::default()).await.unwrap();
    hypervisor.added("cp1", &image).await;
    let stage = hypervisor.import_template(&ova.path, "another digest", None, &Placement::default(), &Free).await;
    let error = stage.unwrap_err();
    assert!(error.to_string().contains("DRS turned off"), "{error}");
}
