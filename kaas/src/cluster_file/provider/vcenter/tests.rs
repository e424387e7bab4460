//! What is wrong with `[provider.vsphere]` is said at its line, alone and held against what a vCenter has.

use std::collections::BTreeSet;
use std::path::Path;

use ::vsphere::{Datastore, Missing, MoRef, On, PRIVILEGES};
use fleet::hypervisor::Size;

use super::asked::Asked;
use super::judge::judge;
use super::seen::{AtCompute, AtDatastore, Object, Seen, SeenDatacenter, SeenHost};
use super::site::deployment;
use crate::cluster_file::ClusterFile;
use crate::cluster_file::provider::{Checked, Described};

const EXAMPLE: &str = include_str!("../../../deploy/examples/vsphere.toml");

/// The example with parts of it otherwise.
fn with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(EXAMPLE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

fn file(text: &str) -> ClusterFile {
    ClusterFile::parse(Path::new("cluster.toml"), text.to_owned()).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn vcenter(file: &ClusterFile) -> &super::VcenterProvider {
    match &file.provider {
        Described::Vcenter(vcenter) => vcenter,
        other => panic!("{other:?}"),
    }
}

/// What is wrong with a text by itself, without the file's name.
fn mistakes(text: &str) -> Vec<String> {
    let Err(mistakes) = ClusterFile::parse(Path::new("cluster.toml"), text.to_owned()) else { return Vec::new() };
    mistakes.0.iter().map(|mistake| mistake.to_string().replacen("cluster.toml:", "", 1)).collect()
}

/// The line of a text that has this in it, as mistakes begin with it.
fn line(text: &str, part: &str) -> String {
    format!("{}: ", 1 + text.lines().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}")))
}

#[test]
fn the_example_names_objects_by_their_paths() {
    let file = file(EXAMPLE);
    let names = vcenter(&file).names();
    assert_eq!(
        (names.datacenter.as_str(), names.folder.as_str(), names.resource_pool.as_str(), names.datastore.as_str()),
        ("Datacenter", "kaas/control", "Cluster", "datastore1")
    );
    assert_eq!((names.networks, names.templates), (vec!["VM Network".to_owned()], None));
    assert_eq!(vcenter(&file).journal_of("control").to_string(), "[datastore1] kaas/control");
    assert_eq!(file.provider.words(), "the folder kaas/control of Datacenter on vcenter.example.com");
    assert_eq!(file.snapshots, Path::new("control.snapshots"));
}

#[test]
fn what_the_example_has_in_comments_is_in_order_as_well() {
    let text = with(&[
        ("# thumbprint", "thumbprint"),
        ("# resource-pool = \"kaas\"", "resource-pool = \"kaas/control\""),
        ("# other-folders", "other-folders"),
        ("# templates-folder", "templates-folder"),
        ("datastore = \"datastore1\"\n", "datastore = \"Pod/one%2ftwo\"\n"),
        ("# restart-priority", "restart-priority"),
        ("# managed-by", "managed-by"),
        ("# deployment", "deployment"),
        ("# [provider.vsphere.limits]", "[provider.vsphere.limits]"),
        ("# requests", "requests"),
        ("# task-minutes", "task-minutes"),
    ]);
    assert_eq!(mistakes(&text), [""; 0]);
    let file = file(&text);
    let vcenter = vcenter(&file);
    let names = vcenter.names();
    assert_eq!(names.resource_pool, "Cluster/Resources/kaas/control");
    assert_eq!((names.different_hosts, names.managed_by.as_deref()), (true, Some("org.example.kaas")));
    assert_eq!(names.restart, Some(::vsphere::RestartPriority::High));
    assert_eq!(vcenter.journal_of("control").to_string(), "[one/two] kaas/control");
    let text = with(&[("# journal = \"[datastore1] kaas/control\"", "journal = \"[other] k/c\"")]);
    assert_eq!(mistakes(&text), [""; 0]);
}

#[test]
fn each_mistake_of_the_table_is_said_at_its_line() {
    let said = |from: &str, to: &str, part: &str| {
        let text = with(&[(from, to)]);
        let told = mistakes(&text);
        let at = to.lines().next().unwrap();
        let expected = line(&text, at) + "provider.vsphere.";
        assert!(told.len() == 1 && told[0].contains(part), "{part} is not {told:#?}");
        assert!(told[0].starts_with(&expected), "{} is not at {expected}", told[0]);
    };
    let server = "server = \"vcenter.example.com\"";
    for wrong in ["https://vcenter.example.com", "vcenter.example.com/sdk", "a b", "fe80::1:443"] {
        said(server, &format!("server = \"{wrong}\""), "give a host name or address alone");
    }
    said("# ca-file = \"vcenter-ca.pem\"", "ca-file = \"none.pem\"", "none.pem, which cannot be read: No such file");
    said("# ca-file = \"vcenter-ca.pem\"", "ca-file = \"Cargo.toml\"", "Cargo.toml, which holds no certificate in PEM");
    said("# thumbprint = \"00:11", "thumbprint = \"11", "a thumbprint has 64 hexadecimal digits");
    let password = "password = { prompt = \"Password of kaas@vsphere.local\" }";
    said(password, "password = \"secret\"", "has no place in this file");
    said("cluster = \"Cluster\"", "cluster = \"Cluster/\"", "give a name, or names with / between them");
    said("folder = \"kaas/control\"", "folder = \"kaas//control\"", "give a name, or names with / between them");
    said("datastore = \"datastore1\"\n", "datastore = \"[datastore1]\"\n", "give a name");
    said("# journal = \"[datastore1] kaas/control\"", "journal = \"kaas/control\"", "is no path on a datastore");
    said("# journal = \"[datastore1] kaas/control\"", "journal = \"[datastore1]\"", "give a directory on a datastore");
    said(
        "# journal = \"[datastore1] kaas/control\"",
        "journal = \"[datastore1] ../x\"",
        "give a directory on a datastore",
    );
    said("networks = [\"VM Network\"]", "networks = []", "is missing: give the networks");
    said("clones = \"linked\"", "clones = \"instant\"", "give linked or full");
    said("anti-affinity = true", "anti-affinity = \"yes\"", "expects true or false");
    said("# restart-priority = \"high\"", "restart-priority = \"first\"", "give one of low, medium, high, highest");
    said("# deployment = \"8f14e45f", "deployment = \"45f", "give a UUID");
    let limits = "# [provider.vsphere.limits]\n# Requests to the vCenter at once.\n# requests = 8";
    let text = with(&[(limits, "[provider.vsphere.limits]\nrequests = 0")]);
    assert!(mistakes(&text)[0].contains("limits.requests: is 0: give a number of requests at once, 1 to 64"));
}

#[test]
fn all_that_is_missing_is_said_at_once_and_one_provider_is_named() {
    let head = EXAMPLE.split("[provider.vsphere]").next().unwrap();
    let told = mistakes(&format!(
        "{head}[provider.vsphere]\nca-file = \"Cargo.toml\"\nthumbprint = \"00\"\nserver-name = \"x\"\n"
    ));
    for part in [
        "server: is missing",
        "user: is missing",
        "password: is missing",
        "datacenter: is missing",
        "cluster: is missing",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "{part} is not in {told:#?}");
    }
    for part in ["folder: is missing", "datastore: is missing", "networks: is missing", "server-name: is no key of"] {
        assert!(told.iter().any(|line| line.contains(part)), "{part} is not in {told:#?}");
    }
    assert!(told.iter().any(|line| line.contains("thumbprint: is given beside ca-file")), "{told:#?}");
    assert!(mistakes(&format!("{head}[provider]\n"))[0].contains("give a table [provider.vsphere] or [provider.lab]"));
    let both = mistakes(&format!("{EXAMPLE}\n[provider.lab]\nname = \"x\"\n"));
    assert!(both.len() == 1 && both[0].contains("names two that run VMs"), "{both:#?}");
}

#[test]
fn a_journal_is_in_no_directory_that_is_a_part_of_another_ones() {
    for journal in
        ["[datastore1] kaas/000007", "[datastore1] 000007/control", "[datastore1] kaas/../x", "[datastore1] "]
    {
        let text = EXAMPLE.replacen("[provider.vsphere]", &format!("[provider.vsphere]\njournal = \"{journal}\""), 1);
        let told = mistakes(&text);
        assert!(told.iter().any(|line| line.contains("provider.vsphere.journal: ")), "{journal}: {told:#?}");
    }
    let text = EXAMPLE.replacen("[provider.vsphere]", "[provider.vsphere]\njournal = \"[datastore1] kaas/7\"", 1);
    assert!(!mistakes(&text).iter().any(|line| line.contains("journal")));
}

#[test]
fn a_deployment_is_that_of_a_vcenter_a_journal_and_a_folder() {
    let about = |id: &str| ::vsphere::About {
        full_name: "VMware vCenter Server 8.0.3".to_owned(),
        api_type: "VirtualCenter".to_owned(),
        api_version: "8.0.3.0".to_owned(),
        instance_uuid: id.to_owned(),
    };
    let in_folder = |id: &str, journal: &str, datacenter: &str, folder: &str| {
        deployment(&about(id), &journal.parse().unwrap(), datacenter, folder)
    };
    let of = |id: &str, journal: &str| in_folder(id, journal, "DC", "a/b");
    let one = of("a", "[ds] kaas/control");
    // Stamps of VMs carry it: it must not become another one with a later version of this program.
    assert_eq!(one.to_string(), of("a", "[ds]kaas/control").to_string());
    assert_eq!(one.to_string(), "859d89d2-5275-57ac-9edc-acbbd7b2e6ec");
    // A description that was copied for another cluster, as far as the folder.
    assert_ne!(one, in_folder("a", "[ds] kaas/control", "DC", "a/c"));
    assert_eq!(one, in_folder("a", "[ds] kaas/control", "/DC/", "/a/b"));
    assert!(one != of("b", "[ds] kaas/control") && one != of("a", "[ds] kaas/other"));
}

/// What three nodes ask for.
fn asked() -> Asked {
    let node = |number: u8| (format!("cp{number}"), [10, 20, 30, 10 + number].into());
    Asked {
        nodes: [1, 2, 3].map(node).to_vec(),
        vip: Some([10, 20, 30, 10].into()),
        size: Size { processors: 2, memory: 4096, data_disk: Some(16 << 30) },
        adapters: 1,
        system: 8 << 30,
        image: 1 << 30,
        digest: "d".to_owned(),
    }
}

fn host(name: &str) -> SeenHost {
    let name = name.to_owned();
    SeenHost { name, connected: true, in_maintenance: false, reaches_datastore: true, lacks: Vec::new() }
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

/// A vCenter on which everything is in order.
fn seen() -> Seen {
    let datacenter = SeenDatacenter {
        folder: Object::There,
        other_folders: Vec::new(),
        templates: Object::Absent,
        compute: AtCompute::Cluster(["esx1", "esx2", "esx3"].map(host).to_vec()),
        pool: Object::There,
        datastore: AtDatastore::There(datastore()),
        journal: Object::There,
        networks: vec![Object::There],
        ..SeenDatacenter::default()
    };
    Seen {
        server: "VMware vCenter Server 8.0.3 build-1".to_owned(),
        api: "8.0.3.0".to_owned(),
        user: "VSPHERE.LOCAL\\kaas".to_owned(),
        datacenter: Some(datacenter),
    }
}

/// What is said of a description where a vCenter is as `change` makes it.
fn judged(text: &str, change: impl FnOnce(&mut Seen, &mut SeenDatacenter, &mut Asked)) -> Checked {
    let (file, mut seen, mut asked) = (file(text), seen(), asked());
    let mut datacenter = seen.datacenter.take().unwrap();
    change(&mut seen, &mut datacenter, &mut asked);
    seen.datacenter = Some(datacenter);
    judge(vcenter(&file), &asked, &seen, file.written())
}

/// The one mistake, which is at the line that has `at` in it.
fn mistake(text: &str, at: &str, change: impl FnOnce(&mut Seen, &mut SeenDatacenter, &mut Asked)) -> String {
    let checked = judged(text, change);
    let told: Vec<String> = checked.mistakes.iter().map(|mistake| mistake.to_string()).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    let expected = format!("cluster.toml:{}", line(text, at));
    told[0].strip_prefix(&expected).unwrap_or_else(|| panic!("{} is not at {expected}", told[0])).to_owned()
}

#[test]
fn what_is_in_order_is_said_with_what_will_be_made() {
    let checked = judged(EXAMPLE, |_, _, _| {});
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
    assert_eq!(
        checked.makes,
        [
            "a template of the image in the folder kaas/control",
            "a rule of Cluster that keeps the nodes on different hosts",
        ]
    );
}

#[test]
fn what_is_not_there_is_said_where_it_is_named() {
    let text = with(&[
        ("# resource-pool", "resource-pool"),
        ("# other-folders", "other-folders"),
        ("# templates-folder", "templates-folder"),
        ("# journal", "journal"),
    ]);
    let all = |datacenter: &mut SeenDatacenter| {
        datacenter.other_folders = vec![Object::There];
        datacenter.templates = Object::There;
    };
    let said = |at: &str, change: &dyn Fn(&mut SeenDatacenter)| {
        mistake(&text, at, |_, datacenter, _| {
            all(datacenter);
            change(datacenter);
        })
    };
    for (at, part, change) in [
        (
            "folder = \"kaas/control\"",
            "provider.vsphere.folder: there is no folder of VMs kaas/control, or the account cannot see it",
            &(|seen: &mut SeenDatacenter| seen.folder = Object::Absent) as &dyn Fn(&mut SeenDatacenter),
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
    let (file, seen) = (file(EXAMPLE), Seen { datacenter: None, ..seen() });
    let checked = judge(vcenter(&file), &asked(), &seen, file.written());
    assert!(checked.mistakes.len() == 1, "{checked:?}");
    assert!(checked.mistakes[0].to_string().contains("datacenter: there is no data center Datacenter"));
}

#[test]
fn missing_privileges_are_named_once_for_each_object_with_what_they_are_for() {
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
    // Objects whose names end alike are told apart.
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
fn room_is_counted_for_what_is_not_there_yet() {
    let at = "datastore = \"datastore1\"";
    let free = |gib: u64| {
        move |_: &mut Seen, seen: &mut SeenDatacenter, _: &mut Asked| {
            seen.datastore = AtDatastore::There(Datastore { free: gib << 30, ..datastore() });
        }
    };
    // The image once, and three times 4 GiB of memory.
    assert!(mistake(EXAMPLE, at, free(12)).contains("has 12 GiB free, and 13 GiB are taken at once"));
    let tight = judged(EXAMPLE, free(13));
    assert!(tight.mistakes.is_empty(), "{tight:?}");
    assert!(tight.warnings[0].contains("13 GiB are taken at once, and 92 GiB once the disks are full"), "{tight:?}");
    // Copies take as much each.
    let full = with(&[("clones = \"linked\"", "clones = \"full\"")]);
    assert!(mistake(&full, at, free(13)).contains("16 GiB are taken at once"));
    // Where all is there nothing more is taken: a kubeconfig can be renewed on a datastore that is full.
    let there = judged(EXAMPLE, |_, seen, _| {
        seen.datastore = AtDatastore::There(Datastore { free: 0, ..datastore() });
        seen.own = BTreeSet::from(["cp1", "cp2", "cp3"].map(str::to_owned));
        seen.staged = true;
        seen.compute = AtCompute::Cluster(vec![host("esx1")]);
    });
    assert!(there.mistakes.is_empty() && there.exists, "{there:?}");
    for (change, part) in [
        (Datastore { accessible: false, ..datastore() }, "no host reaches the datastore datastore1 now"),
        (Datastore { maintenance: "inMaintenance".to_owned(), ..datastore() }, "is in maintenance (inMaintenance)"),
    ] {
        let told = mistake(EXAMPLE, at, |_, seen, _| seen.datastore = AtDatastore::There(change));
        assert!(told.contains(part), "{told}");
    }
    let vsan = |text: &str| {
        let kind = "vsan".to_owned();
        let change = |_: &mut Seen, seen: &mut SeenDatacenter, _: &mut Asked| {
            seen.datastore = AtDatastore::There(Datastore { kind, ..datastore() });
        };
        judged(text, change).warnings
    };
    assert!(vsan(EXAMPLE)[0].contains("no directory can be made at the top: name one for the journal"));
    assert_eq!(vsan(&with(&[("# journal", "journal")])), [""; 0]);
    let local = judged(EXAMPLE, |_, seen, _| {
        seen.datastore = AtDatastore::There(Datastore { shared: false, ..datastore() });
    });
    assert!(local.warnings[0].contains("one host alone reaches the datastore"), "{local:?}");
}

#[test]
fn hosts_that_take_no_vms_are_named_with_why_and_nodes_are_kept_apart_on_the_others() {
    let ill = |seen: &mut SeenDatacenter| {
        let lacks = vec!["VM Network".to_owned()];
        seen.compute = AtCompute::Cluster(vec![
            host("esx1"),
            SeenHost { connected: false, ..host("esx2") },
            SeenHost { in_maintenance: true, ..host("esx3") },
            SeenHost { reaches_datastore: false, ..host("esx4") },
            SeenHost { lacks, ..host("esx5") },
            host("esx6"),
        ]);
    };
    let why = "(esx2 is not connected; esx3 is in maintenance; esx4 does not reach the datastore; esx5 has no network \
               VM Network)";
    let told = mistake(EXAMPLE, "anti-affinity = true", |_, seen, _| ill(seen));
    assert!(
        told.contains(&format!("2 of the 6 hosts of Cluster take VMs of this cluster now {why}, and 3 nodes")),
        "{told}"
    );
    let together = with(&[("anti-affinity = true", "anti-affinity = false")]);
    let checked = judged(&together, |_, seen, _| ill(seen));
    assert!(checked.mistakes.is_empty() && checked.found.iter().any(|found| found.contains(why)), "{checked:?}");
    assert!(!checked.makes.iter().any(|makes| makes.contains("rule")), "{checked:?}");
    let none = |seen: &mut SeenDatacenter| seen.compute = AtCompute::Cluster(vec![]);
    let told = mistake(&together, "cluster = \"Cluster\"", |_, seen, _| none(seen));
    assert!(told.contains("no host of Cluster takes VMs of this cluster now"), "{told}");
    // A host by itself has no rules, and nobody starts its VMs elsewhere.
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
fn names_addresses_and_adapters_that_do_not_fit_are_said() {
    let told = mistake(EXAMPLE, "name = \"cp2\"", |_, seen, _| seen.taken = vec!["cp2".to_owned()]);
    assert!(told.contains("node[1].name: the folder kaas/control has something called cp2"), "{told}");
    let holder = |last: u8| {
        move |_: &mut Seen, seen: &mut SeenDatacenter, _: &mut Asked| {
            seen.holders = vec![([10, 20, 30, last].into(), "web".to_owned())];
        }
    };
    // Any guest can say so: it stops nothing.
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
fn a_vcenter_of_a_later_version_is_tried_and_said() {
    for (api, warns) in [("7.0.3.0", false), ("8.0.1.0", false), ("9.1.0.0", false), ("10.0.0.0", true), ("", true)] {
        let checked = judged(EXAMPLE, |seen, _, _| seen.api = api.to_owned());
        let warned = checked.warnings.iter().any(|warning| warning.contains("was made for vCenter 7, 8 and 9"));
        assert_eq!(warned, warns, "{api}");
    }
}
