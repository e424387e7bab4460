//! The table against the objects of a vCenter.

use std::collections::BTreeSet;

use ::vsphere::{Datastore, DatastorePath, Missing, MoRef, On, PRIVILEGES};
use fleet::hypervisor::Size;

use super::super::inventory::{
    AtCompute, AtDatastore, DatacenterInventory, HostState, MissingJournal, Object, VcenterInventory,
};
use super::super::judge::{is_named, judge};
use super::super::requirements::Requirements;
use super::*;
use crate::cluster_file::provider::CheckReport;

/// The requirements of three nodes.
fn asked() -> Requirements {
    let node = |number: u8| (format!("cp{number}"), [10, 20, 30, 10 + number].into());
    Requirements {
        nodes: [1, 2, 3].map(node).to_vec(),
        vip: Some([10, 20, 30, 10].into()),
        size: Size { processors: 2, memory: 4096, data_disk: Some(16 << 30) },
        adapters: 1,
        system: 8 << 30,
        image: 1 << 30,
        digest: "d".to_owned(),
    }
}

fn host(name: &str) -> HostState {
    HostState {
        name: name.to_owned(),
        connected: true,
        in_maintenance: false,
        processors: Some(2),
        memory: Some(4096 << 20),
        reaches_datastore: true,
        lacks: Vec::new(),
    }
}

fn datastore() -> Datastore {
    Datastore {
        reference: MoRef::new("Datastore", "datastore-1"),
        name: "datastore1".to_owned(),
        kind: "VMFS".to_owned(),
        capacity: 1 << 40,
        free: 200 << 30,
        accessible: true,
        shared: true,
        maintenance: "normal".to_owned(),
        pod: None,
    }
}

/// A vCenter without any mistake.
fn seen() -> VcenterInventory {
    let datacenter = DatacenterInventory {
        folder: Object::There,
        other_folders: Vec::new(),
        templates: Object::Absent,
        compute: AtCompute::Cluster(["esx1", "esx2", "esx3"].map(host).to_vec()),
        pool: Object::There,
        datastore: AtDatastore::There(datastore()),
        journal: Object::There,
        networks: vec![Object::There],
        ..DatacenterInventory::default()
    };
    VcenterInventory {
        server: "VMware vCenter Server 8.0.3 build-1".to_owned(),
        api: "8.0.3.0".to_owned(),
        user: "VSPHERE.LOCAL\\kaas".to_owned(),
        datacenter: Some(datacenter),
    }
}

/// All requested nodes.
fn all_nodes() -> BTreeSet<String> {
    BTreeSet::from(["cp1", "cp2", "cp3"].map(str::to_owned))
}

/// The report on a description, with a vCenter that `change` has modified.
fn judged(
    text: &str,
    change: impl FnOnce(&mut VcenterInventory, &mut DatacenterInventory, &mut Requirements),
) -> CheckReport {
    let (file, mut seen, mut asked) = (file(text), seen(), asked());
    let mut datacenter = seen.datacenter.take().unwrap();
    change(&mut seen, &mut datacenter, &mut asked);
    seen.datacenter = Some(datacenter);
    judge(vcenter(&file), &asked, &seen, file.written())
}

/// The only mistake. It must be at the line that contains `at`.
fn mistake(
    text: &str,
    at: &str,
    change: impl FnOnce(&mut VcenterInventory, &mut DatacenterInventory, &mut Requirements),
) -> String {
    let checked = judged(text, change);
    let told: Vec<String> = checked.mistakes.iter().map(|mistake| mistake.to_string()).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    let expected = format!("cluster.toml:{}", line(text, at));
    told[0].strip_prefix(&expected).unwrap_or_else(|| panic!("{} is not at {expected}", told[0])).to_owned()
}

#[test]
fn report_lists_findings_and_planned_objects() {
    let directory = DatastorePath::new("datastore1", "kaas/control");
    let unmade = |_: &mut VcenterInventory, seen: &mut DatacenterInventory, _: &mut Requirements| {
        seen.unmade_journal = Some(MissingJournal { directory: directory.clone(), has_top: false });
    };
    let checked = judged(EXAMPLE, unmade);
    assert_eq!((checked.mistakes.len(), checked.warnings.len(), checked.exists), (0, 0, false), "{checked:?}");
    let found = checked.found.join("\n");
    for part in [
        "VMware vCenter Server 8.0.3 build-1 at vcenter.example.com, logged in as VSPHERE.LOCAL\\kaas",
        "VSPHERE.LOCAL\\kaas has all privileges",
        "3 of the 3 hosts of Cluster take VMs",
        // A template and three disks of 8 GiB, three of 16, and three times 4 GiB of memory to swap to.
        "the datastore datastore1: 200 GiB are free, and at most 92 GiB are taken",
    ] {
        assert!(found.contains(part), "{part} is not in {found}");
    }
    let template = "a template of the image in the folder kaas/control";
    let journal = "the directory [datastore1] kaas/control for the journal";
    let rule = "a rule of Cluster that keeps the nodes on different hosts";
    let high = "an override of Cluster for each node, by which vSphere HA starts it with the priority high";
    let off = "an override of Cluster for each VM that an upgrade disconnects, by which vSphere HA starts it no more";
    assert_eq!(checked.makes, [template, journal, rule, off]);
    let restarted = with(&[("# restart-priority", "restart-priority")]);
    assert_eq!(judged(&restarted, unmade).makes, [template, journal, rule, high, off]);
    let untouched = with(&[("anti-affinity = true", "anti-affinity = false")]);
    assert_eq!(judged(&untouched, |_, _, _| {}).makes, [template]);
}

#[test]
fn missing_objects_are_reported_at_their_lines() {
    let text = with(&[
        ("# resource-pool", "resource-pool"),
        ("# other-folders", "other-folders"),
        ("# templates-folder", "templates-folder"),
        ("# journal", "journal"),
    ]);
    let all = |datacenter: &mut DatacenterInventory| {
        datacenter.other_folders = vec![Object::There];
        datacenter.templates = Object::There;
    };
    let said = |at: &str, change: &dyn Fn(&mut DatacenterInventory)| {
        mistake(&text, at, |_, datacenter, _| {
            all(datacenter);
            change(datacenter);
        })
    };
    for (at, part, change) in [
        (
            "folder = \"kaas/control\"",
            "provider.vsphere.folder: there is no folder of VMs kaas/control, or the account cannot see it",
            &(|seen: &mut DatacenterInventory| seen.folder = Object::Absent) as &dyn Fn(&mut DatacenterInventory),
        ),
        ("other-folders = ", "there is no folder of VMs Discovered", &|seen| seen.other_folders = vec![Object::Absent]),
        ("templates-folder = ", "kaas/images is no folder of VMs: it is a VirtualApp", &|seen| {
            seen.templates = Object::Other("VirtualApp".to_owned())
        }),
        (
            "resource-pool = ",
            "there is no resource pool kaas, or the account cannot see it in the cluster Cluster",
            &|seen| seen.pool = Object::Absent,
        ),
        ("\ncluster = ", "there is no cluster Cluster", &|seen| seen.compute = AtCompute::Absent),
        ("\ncluster = ", "Cluster is no cluster: it is a Folder", &|seen| {
            seen.compute = AtCompute::Other("Folder".to_owned())
        }),
        ("networks = ", "networks[0]: there is no network VM Network", &|seen| seen.networks = vec![Object::Absent]),
        ("networks = ", "networks[0]: the network VM Network cannot be used: no System.Read", &|seen| {
            seen.networks = vec![Object::Unreadable("no System.Read".to_owned())]
        }),
        ("\ncluster = ", "cannot tell whether hosts of Cluster take VMs: no System.Read", &|seen| {
            seen.compute = AtCompute::Unreadable("no System.Read".to_owned())
        }),
        ("journal = ", "there is no datastore datastore1", &|seen| seen.journal = Object::Absent),
        ("datastore = \"datastore1\"", "there is no datastore datastore1", &|seen| {
            seen.datastore = AtDatastore::Absent
        }),
        (
            "datastore = \"datastore1\"",
            "is a datastore cluster, onto which no VM can be put: name one of its datastores, datastore1/a, datastore1/b",
            &|seen| seen.datastore = AtDatastore::Cluster(vec!["a".to_owned(), "b".to_owned()]),
        ),
    ] {
        let told = said(at.trim_start(), change);
        assert!(told.contains(part), "{part} is not {told}");
    }
    let (file, seen) = (file(EXAMPLE), VcenterInventory { datacenter: None, ..seen() });
    let checked = judge(vcenter(&file), &asked(), &seen, file.written());
    assert!(checked.mistakes.len() == 1, "{checked:?}");
    assert!(checked.mistakes[0].to_string().contains("datacenter: there is no data center Datacenter"));
}

#[test]
fn missing_privileges_are_grouped_by_object() {
    let missing = |id: &str, object: &str| {
        let privilege = *PRIVILEGES.iter().find(|privilege| privilege.id == id).unwrap();
        Missing { privilege, on: object.to_owned() }
    };
    let checked = judged(EXAMPLE, |_, seen, _| {
        seen.missing = vec![
            missing("VirtualMachine.Interact.PowerOn", "the folder kaas/control"),
            missing("VirtualMachine.Inventory.Create", "the folder kaas/control"),
            missing("Datastore.AllocateSpace", "the datastore datastore1"),
            missing("Network.Assign", "the network VM Network"),
            missing("Host.Inventory.EditCluster", "the cluster Cluster"),
        ];
    });
    let told: Vec<String> = checked.mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 4, "{told:#?}");
    assert!(
        told[0].contains(
            "folder: VSPHERE.LOCAL\\kaas lacks privileges on the folder kaas/control: VirtualMachine.Interact.PowerOn \
             (powering VMs on), VirtualMachine.Inventory.Create (importing VMs); `kaas provider role` prints a role"
        ),
        "{}",
        told[0]
    );
    for (line, key) in told.iter().zip(["folder", "datastore", "networks[0]", "cluster"]) {
        assert!(line.contains(&format!("provider.vsphere.{key}: ")), "{line}");
    }
    assert!(!checked.found.iter().any(|found| found.contains("all privileges")));
    assert_eq!(PRIVILEGES.iter().filter(|privilege| privilege.on == On::Cluster).count(), 1);
    // Objects whose names have the same end are distinguished.
    let text = with(&[
        ("# other-folders = [\"Discovered virtual machine\"]", "other-folders = [\"control\"]"),
        ("# journal = \"[datastore1] kaas/control\"", "journal = \"[store1] kaas/control\""),
    ]);
    for (object, id, key) in [
        ("the folder kaas/control", "VirtualMachine.Inventory.Create", "folder"),
        ("the folder control", "VirtualMachine.Inventory.Create", "other-folders[0]"),
        ("the datastore datastore1", "Datastore.Browse", "datastore"),
        ("the datastore store1", "Datastore.Browse", "journal"),
    ] {
        let checked = judged(&text, |_, seen, _| {
            seen.other_folders = vec![Object::There];
            seen.missing = vec![missing(id, object)];
        });
        let told = checked.mistakes[0].to_string();
        assert!(told.contains(&format!("provider.vsphere.{key}: ")), "{object}: {told}");
    }
}

#[test]
fn storage_policy_must_exist_for_new_vms() {
    let (text, at) = (with(&[("# storage-policy", "storage-policy")]), "storage-policy = ");
    let with_policies = |names: &[&str]| {
        let policies = Some(names.iter().map(|name| (*name).to_owned()).collect());
        move |_: &mut VcenterInventory, seen: &mut DatacenterInventory, _: &mut Requirements| seen.policies = policies
    };
    let name = "vSAN Default Storage Policy";
    let checked = judged(&text, with_policies(&["gold", name]));
    assert!(checked.mistakes.is_empty(), "{checked:?}");
    assert!(checked.found.iter().any(|found| found.starts_with(&format!("the storage policy {name}"))), "{checked:?}");
    let told = mistake(&text, at, with_policies(&["gold", "silver"]));
    assert!(told.contains("storage-policy: there is no storage policy vSAN Default"), "{told}");
    assert!(told.contains("; there are gold, silver"), "{told}");
    assert!(mistake(&text, at, with_policies(&[])).contains("; there is no other"));
    assert!(mistake(&text, at, with_policies(&[name, name])).contains("there are 2 storage policies called vSAN"));
    // Existing VMs do not need the policy.
    let there = judged(&text, |_, seen, _| {
        seen.policies = Some(Vec::new());
        seen.own = all_nodes();
    });
    assert!(there.mistakes.is_empty(), "{there:?}");
    let told = mistake(&text, at, |_, seen, _| {
        let privilege = *PRIVILEGES.iter().find(|privilege| privilege.on == On::Root).unwrap();
        seen.missing = vec![Missing { privilege, on: "the root of the vCenter".to_owned() }];
    });
    assert!(told.contains("lacks privileges on the root of the vCenter: StorageProfile.View"), "{told}");
}

#[test]
fn space_is_counted_only_for_new_vms() {
    let at = "datastore = \"datastore1\"";
    let free = |gib: u64| {
        move |_: &mut VcenterInventory, seen: &mut DatacenterInventory, _: &mut Requirements| {
            seen.datastore = AtDatastore::There(Datastore { free: gib << 30, ..datastore() });
        }
    };
    // The image once, and three times 4 GiB of memory.
    assert!(mistake(EXAMPLE, at, free(12)).contains("has 12 GiB free, and 13 GiB are taken at once"));
    let tight = judged(EXAMPLE, free(13));
    assert!(tight.mistakes.is_empty(), "{tight:?}");
    assert!(tight.warnings[0].contains("13 GiB are taken at once, and 92 GiB once the disks are full"), "{tight:?}");
    // Each full clone needs the space of the image.
    let full = with(&[("clones = \"linked\"", "clones = \"full\"")]);
    assert!(mistake(&full, at, free(13)).contains("16 GiB are taken at once"));
    // Without new VMs no space is needed: a kubeconfig can be renewed on a full datastore.
    let there = judged(EXAMPLE, |_, seen, _| {
        seen.datastore = AtDatastore::There(Datastore { free: 0, ..datastore() });
        seen.own = all_nodes();
        seen.compute = AtCompute::Cluster(vec![host("esx1")]);
    });
    assert!(there.mistakes.is_empty() && there.exists, "{there:?}");
    assert!(!there.makes.iter().any(|makes| makes.contains("template")), "{there:?}");
    // One new VM needs its space and that of the image.
    let told = mistake(EXAMPLE, at, |_, seen, _| {
        seen.datastore = AtDatastore::There(Datastore { free: 0, ..datastore() });
        seen.own = BTreeSet::from(["cp1", "cp3"].map(str::to_owned));
    });
    assert!(told.contains("has 0 GiB free, and 5 GiB are taken at once"), "{told}");
    for (change, part) in [
        (Datastore { accessible: false, ..datastore() }, "no host reaches the datastore datastore1 now"),
        (Datastore { maintenance: "inMaintenance".to_owned(), ..datastore() }, "is in maintenance (inMaintenance)"),
    ] {
        let told = mistake(EXAMPLE, at, |_, seen, _| seen.datastore = AtDatastore::There(change));
        assert!(told.contains(part), "{told}");
    }
    let local = judged(EXAMPLE, |_, seen, _| {
        seen.datastore = AtDatastore::There(Datastore { shared: false, ..datastore() });
    });
    assert!(local.warnings[0].contains("one host alone reaches the datastore"), "{local:?}");
}

/// A policy of vSAN may take twice the data of a disk, or its whole capacity at once.
#[test]
fn object_datastore_warns_about_the_policys_copies() {
    let words = "the storage policy decides how much of it is taken. Room is counted for one copy of thin disks";
    for (kind, own, warns) in [
        ("vsan", BTreeSet::new(), true),
        ("VVOL", BTreeSet::new(), true),
        ("VMFS", BTreeSet::new(), false),
        ("vsan", all_nodes(), false),
    ] {
        let case = format!("{kind} {own:?}");
        let checked = judged(EXAMPLE, |_, seen, _| {
            seen.datastore = AtDatastore::There(Datastore { kind: kind.to_owned(), ..datastore() });
            seen.own = own;
        });
        assert!(checked.mistakes.is_empty(), "{case}: {checked:?}");
        assert_eq!(checked.warnings.iter().any(|warning| warning.contains(words)), warns, "{case}: {checked:?}");
    }
}

#[test]
fn journal_at_object_datastore_root_gives_a_warning() {
    let words = "on which no directory can be made at the top: name one for the journal";
    let vsan = || Datastore { name: "vsan1".to_owned(), kind: "vsan".to_owned(), ..datastore() };
    // The datastore of the VMs, that of the journal if it is another one, whether the directory exists, and whether its topmost
    // parent exists.
    for (vms, journal, is_there, has_top, warns) in [
        (vsan(), None, false, false, true),
        (vsan(), None, false, true, false),
        (vsan(), None, true, true, false),
        (vsan(), Some(datastore()), false, false, false),
        (datastore(), Some(vsan()), false, false, true),
        (datastore(), Some(vsan()), false, true, false),
        (datastore(), None, false, false, false),
    ] {
        let case = format!("{} {journal:?} {is_there} {has_top}", vms.kind);
        // With and without `journal` in the file.
        for text in [EXAMPLE.to_owned(), with(&[("# journal", "journal")])] {
            let checked = judged(&text, |_, seen, _| {
                let unmade = MissingJournal { directory: DatastorePath::new("vsan1", "kaas/control"), has_top };
                seen.unmade_journal = (!is_there).then_some(unmade);
                (seen.datastore, seen.journal_at) = (AtDatastore::There(vms.clone()), journal.clone());
            });
            assert_eq!(checked.warnings.iter().any(|warning| warning.contains(words)), warns, "{case}: {checked:?}");
            let is_named = checked.warnings.iter().any(|warning| warning.contains("is to be in [vsan1] kaas/control"));
            assert_eq!(is_named, warns, "{case}: {checked:?}");
        }
    }
}

/// Existing VMs can be powered on, and issue a kubeconfig, while an administrator empties their datastore.
#[test]
fn closed_datastore_blocks_only_new_vms() {
    let entering = || Datastore { maintenance: "enteringMaintenance".to_owned(), ..datastore() };
    let unreached = || Datastore { accessible: false, ..datastore() };
    let checked = |there: Datastore, own: BTreeSet<String>, journal_at: Option<Datastore>| {
        judged(EXAMPLE, |_, seen, _| {
            (seen.datastore, seen.own, seen.journal_at) = (AtDatastore::There(there), own, journal_at);
        })
    };
    let words = "the datastore datastore1 is in maintenance (enteringMaintenance)";
    let there = checked(entering(), all_nodes(), None);
    assert!(there.mistakes.is_empty() && there.warnings[0].contains(words), "{there:?}");
    let lacking = checked(entering(), BTreeSet::from(["cp1".to_owned()]), None);
    assert!(lacking.mistakes[0].to_string().contains(words), "{lacking:?}");
    // Without the journal no command can run. It is on the same datastore unless the file names another one.
    let words = "no host reaches the datastore datastore1 now";
    let beside = checked(unreached(), all_nodes(), None);
    assert!(beside.mistakes.len() == 1 && beside.mistakes[0].to_string().contains(words), "{beside:?}");
    let elsewhere = checked(unreached(), all_nodes(), Some(Datastore { name: "store1".to_owned(), ..datastore() }));
    assert!(elsewhere.mistakes.is_empty() && elsewhere.warnings[0].contains(words), "{elsewhere:?}");
}

/// An account that may not see hosts can power existing VMs on.
#[test]
fn unreadable_hosts_block_only_new_vms() {
    let with = |own: BTreeSet<String>| {
        judged(EXAMPLE, |_, seen, _| {
            (seen.compute, seen.own) = (AtCompute::Unreadable("no System.Read".to_owned()), own);
        })
    };
    let there = with(all_nodes());
    assert!(there.mistakes.is_empty(), "{there:?}");
    let lacking = with(BTreeSet::from(["cp1".to_owned()]));
    assert!(lacking.mistakes.len() == 1, "{lacking:?}");
    assert!(lacking.mistakes[0].to_string().contains("cannot tell whether hosts of Cluster take VMs"), "{lacking:?}");
}

/// Existing VMs are powered on where they are.
#[test]
fn missing_drs_blocks_only_new_vms() {
    let words = "the cluster Cluster has DRS turned off, and without it vCenter chooses no host for a new VM";
    let told = mistake(EXAMPLE, "cluster = \"Cluster\"", |_, seen, _| seen.lacks_drs = true);
    assert!(told.contains(words), "{told}");
    let there = judged(EXAMPLE, |_, seen, _| (seen.lacks_drs, seen.own) = (true, all_nodes()));
    assert!(there.mistakes.is_empty(), "{there:?}");
}

/// New VMs are known only after a look for existing ones. A full datastore must not prevent that look.
#[test]
fn named_objects_are_judged_without_new_vms() {
    let named = |change: &dyn Fn(&mut DatacenterInventory)| {
        let (file, mut datacenter) = (file(EXAMPLE), seen().datacenter.unwrap());
        change(&mut datacenter);
        is_named(vcenter(&file), &asked(), &datacenter, file.written())
    };
    assert!(named(&|seen| {
        let maintenance = "enteringMaintenance".to_owned();
        seen.datastore = AtDatastore::There(Datastore { free: 0, maintenance, ..datastore() });
        seen.compute = AtCompute::Cluster(vec![HostState { in_maintenance: true, ..host("esx1") }]);
    }));
    let unseen = || AtCompute::Unreadable("no System.Read".to_owned());
    assert!(named(&|seen| seen.compute = unseen()));
    assert!(!named(&|seen| seen.folder = Object::Absent));
    assert!(!named(&|seen| seen.datastore = AtDatastore::Absent));
    assert!(!named(&|seen| seen.datastore = AtDatastore::There(Datastore { accessible: false, ..datastore() })));
}

#[test]
fn hosts_that_take_no_vms_are_listed() {
    let ill = |seen: &mut DatacenterInventory| {
        let lacks = vec!["VM Network".to_owned()];
        seen.compute = AtCompute::Cluster(vec![
            // A little less than its nominal memory.
            HostState { memory: Some((4096 << 20) - 1), ..host("esx1") },
            HostState { connected: false, ..host("esx2") },
            HostState { in_maintenance: true, ..host("esx3") },
            HostState { reaches_datastore: false, ..host("esx4") },
            HostState { lacks, ..host("esx5") },
            // vCenter does not report the size of the last one.
            HostState { processors: None, memory: None, ..host("esx6") },
            HostState { processors: Some(1), ..host("esx7") },
            HostState { memory: Some(2048 << 20), ..host("esx8") },
        ]);
    };
    let why = "(esx2 is not connected; esx3 is in maintenance; esx4 does not reach the datastore; esx5 has no network \
               VM Network; esx7 has 1 of the 2 processors that each VM is given; esx8 has 2048 of the 4096 MiB of memory \
               that each VM is given)";
    let told = mistake(EXAMPLE, "anti-affinity = true", |_, seen, _| ill(seen));
    assert!(
        told.contains(&format!("2 of the 8 hosts of Cluster take VMs of this cluster now {why}, and 3 nodes")),
        "{told}"
    );
    let together = with(&[("anti-affinity = true", "anti-affinity = false")]);
    let checked = judged(&together, |_, seen, _| ill(seen));
    assert!(checked.mistakes.is_empty() && checked.found.iter().any(|found| found.contains(why)), "{checked:?}");
    assert!(!checked.makes.iter().any(|makes| makes.contains("rule")), "{checked:?}");
    let none = |seen: &mut DatacenterInventory| seen.compute = AtCompute::Cluster(vec![]);
    let told = mistake(&together, "cluster = \"Cluster\"", |_, seen, _| none(seen));
    assert!(told.contains("no host of Cluster takes VMs of this cluster now"), "{told}");
    // A size that no host has is a separate mistake.
    let told = mistake(&together, "cluster = \"Cluster\"", |_, _, asked| asked.size.processors = 64);
    let small =
        "no host of Cluster takes VMs of this cluster now (esx1 has 2 of the 64 processors that each VM is given;";
    assert!(told.contains(small), "{told}");
    // A host without a cluster has no rules, and no other host starts its VMs.
    let text = with(&[("# restart-priority", "restart-priority")]);
    let checked = judged(&text, |_, seen, _| seen.compute = AtCompute::Host(["a", "b", "c"].map(host).to_vec()));
    let told: Vec<String> = checked.mistakes.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|line| line.contains("anti-affinity: Cluster is a host without a cluster")), "{told:#?}");
    assert!(
        told.iter().any(|line| line.contains("restart-priority: Cluster is a host without a cluster")),
        "{told:#?}"
    );
}

#[test]
fn conflicting_names_addresses_and_adapters_are_reported() {
    let told = mistake(EXAMPLE, "name = \"cp2\"", |_, seen, _| seen.taken = vec!["cp2".to_owned()]);
    assert!(told.contains("node[1].name: the folder kaas/control has something called cp2"), "{told}");
    let holder = |last: u8| {
        move |_: &mut VcenterInventory, seen: &mut DatacenterInventory, _: &mut Requirements| {
            seen.holders = vec![([10, 20, 30, last].into(), "web".to_owned())];
        }
    };
    // Any guest can state this, so it blocks nothing.
    for (last, whose) in [(13, "cp3"), (10, "the virtual IP")] {
        let checked = judged(EXAMPLE, holder(last));
        assert_eq!(checked.mistakes.len(), 0, "{:?}", checked.mistakes);
        let words =
            format!("another VM, web, says that it has the address 10.20.30.{last}, which is to be that of {whose}");
        assert!(checked.warnings.iter().any(|warning| warning.contains(&words)), "{:?}", checked.warnings);
    }
    let told = mistake(EXAMPLE, "networks = ", |_, _, asked| asked.adapters = 2);
    assert!(told.contains("1 networks are named, and the image has 2 network adapters"), "{told}");
}

#[test]
fn vm_name_cannot_forge_a_report_line() {
    let checked = judged(EXAMPLE, |_, seen, _| {
        seen.holders = vec![([10, 20, 30, 13].into(), "web\nfound: kaas has all privileges".to_owned())];
    });
    assert!(checked.warnings.iter().any(|warning| warning.contains("another VM, web found: kaas has")));
    assert!(checked.warnings.iter().all(|warning| !warning.contains('\n')), "{:?}", checked.warnings);
}

#[test]
fn separate_journal_datastore_must_be_writable() {
    let text = with(&[("# journal = \"[datastore1] kaas/control\"", "journal = \"[store1] kaas/control\"")]);
    let told = |change: fn(&mut Datastore)| {
        mistake(&text, "journal = ", |_, seen, _| {
            let mut there = Datastore { name: "store1".to_owned(), ..datastore() };
            change(&mut there);
            seen.journal_at = Some(there);
        })
    };
    assert!(told(|there| there.accessible = false).contains("no host reaches the datastore store1 now"));
    // Also while it enters maintenance: later records of a command could not be written.
    type Change = fn(&mut Datastore);
    let changes: [(&str, Change); 2] = [
        ("inMaintenance", |there| there.maintenance = "inMaintenance".to_owned()),
        ("enteringMaintenance", |there| there.maintenance = "enteringMaintenance".to_owned()),
    ];
    for (maintenance, change) in changes {
        let told = told(change);
        assert!(told.contains(&format!("the datastore store1 is in maintenance ({maintenance})")), "{told}");
    }
}

#[test]
fn newer_vcenter_version_gives_a_warning() {
    for (api, warns) in [("7.0.3.0", false), ("8.0.1.0", false), ("9.1.0.0", false), ("10.0.0.0", true), ("", true)] {
        let checked = judged(EXAMPLE, |seen, _, _| seen.api = api.to_owned());
        let warned = checked.warnings.iter().any(|warning| warning.contains("was made for vCenter 7, 8 and 9"));
        assert_eq!(warned, warns, "{api}");
    }
}
