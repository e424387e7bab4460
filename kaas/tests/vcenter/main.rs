//! `kaas control create`, `status`, `upgrade`, `adopt` and `delete`, and `kaas image push`, against a vCenter that refuses the same
//! calls as a real one. It has no bodies: VMs are created and powered on, but nothing runs in them.

mod bed;
#[allow(dead_code, reason = "tests of clusters use the rest of it")]
#[path = "../control/mod.rs"]
mod control;
mod policies;
mod push;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use contract::deployer::PrivateKey;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use bed::Bed;
use testbed::{ADMINISTRATOR, LOOKER};

fn kaas(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kaas"));
    command.args(arguments).arg("--file").arg(file).stdin(Stdio::null());
    command.output().expect("running kaas")
}

/// The output of a command with the expected exit status.
#[track_caller]
fn says(status: i32, arguments: &[&str], file: &Path) -> String {
    let output = kaas(arguments, file);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
    text
}

/// The output of a command that gets SIGTERM while a look at the journal's datastore hangs. A command that has not ended within
/// half a minute gets the answer of its look.
#[track_caller]
fn ended_in_its_looks(bed: &Bed, arguments: &[&str], file: &Path) -> Output {
    let pause = Duration::from_millis(20);
    bed.hangs("SearchDatastore_Task");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kaas"));
    command.args(arguments).arg("--file").arg(file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut looks = command.spawn().expect("running kaas");
    while !bed.is_hanging() {
        if looks.try_wait().unwrap().is_some() {
            let ended = looks.wait_with_output().unwrap();
            panic!("{arguments:?}: it has ended before it looked: {ended:?}");
        }
        std::thread::sleep(pause);
    }
    kill(Pid::from_raw(i32::try_from(looks.id()).unwrap()), Signal::SIGTERM).unwrap();
    let asked = Instant::now();
    while looks.try_wait().unwrap().is_none() {
        if asked.elapsed() > Duration::from_secs(30) {
            bed.goes_on();
        }
        std::thread::sleep(pause);
    }
    bed.goes_on();
    looks.wait_with_output().unwrap()
}

const ON: [(&str, &str); 3] = [("cp1", "poweredOn"), ("cp2", "poweredOn"), ("cp3", "poweredOn")];

fn named(machines: &[(String, String)]) -> Vec<(&str, &str)> {
    machines.iter().map(|(name, power)| (name.as_str(), power.as_str())).collect()
}

#[test]
fn cluster_is_created_and_destroyed_by_its_file() {
    let bed = Bed::start(&[]);
    bed.make_folder("control");
    let file = bed.described(&[]);
    let plan = says(0, &["control", "create", "--dry-run"], &file);
    for part in [
        "the cluster control, in the folder control of DC0 on 127.0.0.1",
        "VM cp3: 2 processors, 1024 MiB, data disk of 4 GiB, on VM Network",
        "also creates: a template of the image in the folder control",
        "also creates: the directory [LocalDS_0] kaas/control for the journal",
        "also creates: a rule of DC0_C0 that keeps the nodes on different hosts",
        "also creates: an override of DC0_C0 for each VM that an upgrade disconnects, by which vSphere HA starts it no more",
        "logged in as administrator@vsphere.local",
        "3 of the 3 hosts of DC0_C0 take VMs",
    ] {
        assert!(plan.contains(part), "{part} is not in {plan}");
    }
    assert_eq!((bed.machines("cp"), bed.path("control.key").exists()), (Vec::new(), false), "a dry run makes nothing");
    assert!(says(1, &["control", "status"], &file).contains("nothing was begun for the cluster control"));

    // Nothing runs in the VMs, so the command reports that it waits for the cluster to form.
    let paused = says(3, &["control", "create", "--timeout", "1s"], &file);
    assert!(paused.contains("paused: run the command again to continue"), "{paused}");
    assert_eq!(named(&bed.machines("cp")), ON);
    assert_eq!(bed.machines("kaas-image-").len(), 1);
    // No node issues a kubeconfig yet.
    assert!(says(1, &["control", "kubeconfig"], &file).contains("the cluster's CA is unknown"));
    assert!(!bed.path("control.kubeconfig").exists());
    let rules = bed.vsphere(async |client| {
        let cluster = client.find("DC0/host/DC0_C0").await.unwrap();
        client.anti_affinity_rules(&cluster).await.unwrap()
    });
    assert_eq!(rules.iter().map(|rule| rule.vms.len()).collect::<Vec<_>>(), [3]);
    assert!(rules[0].name.ends_with(": on different hosts"), "{}", rules[0].name);

    // A second run creates nothing again. The statement of a node is shown.
    let refused = json!({
        "machine": null, "phase": "refused", "code": "address.duplicate", "words": "somebody has 10.20.30.12", "lasting": true,
        "times": 1, "token": null, "at": 7,
    });
    bed.vsphere(async |client| {
        let vm = client.find("DC0/vm/control/cp2").await.unwrap();
        let spec = vsphere::ConfigSpec::new().extra(contract::statement::Statement::GUESTINFO, &refused.to_string());
        client.changes(&vsphere::Unguarded).reconfigure(&vm, &spec).await.unwrap();
    });
    let paused = says(3, &["control", "create", "--timeout", "1s"], &file);
    assert!(paused.contains("cp2 says: somebody has 10.20.30.12 [address.duplicate]"), "{paused}");
    assert_eq!(paused.matches(" says: ").count(), 1, "{paused}");
    assert_eq!(named(&bed.machines("cp")), ON);
    let plan = says(0, &["control", "create", "--dry-run"], &file);
    assert!(plan.contains("exists already") && !plan.contains("also creates: a template"), "{plan}");
    assert!(!plan.contains("for the journal"), "{plan}");
    let status = says(3, &["control", "status"], &file);
    assert!(status.contains("has not formed yet") && status.contains("cp2 at 10.20.30.12: VM cp2 is on"), "{status}");
    // An upgrade uses the same file. There is no upgrade, and no node can be asked.
    assert!(says(1, &["control", "upgrade", "status"], &file).contains("there is no upgrade of this deployment"));
    for command in [
        &["control", "upgrade", "plan", "--ova", "x.ova"][..],
        &["control", "upgrade", "commit"],
        &["control", "adopt", "--yes"],
    ] {
        let told = says(1, command, &file);
        assert!(told.contains("no node gives its deployer credentials: give a --kubeconfig"), "{told}");
    }

    // Resume and rollback need no node.
    for command in [&["control", "upgrade", "resume"][..], &["control", "upgrade", "rollback"]] {
        let told = says(1, command, &file);
        assert!(told.contains("warning: no node can be asked now: no node gives its deployer credentials"), "{told}");
        assert!(told.contains("error: there is no upgrade of this deployment"), "{told}");
    }

    assert!(says(1, &["control", "delete", "--confirm", "other"], &file).contains("not confirmed"));
    let told = says(1, &["control", "delete"], &file);
    assert!(told.contains("standard input is closed: give the cluster's name with --confirm"), "{told}");
    assert!(told.contains("Its journal is removed too: the numbered files in [LocalDS_0] kaas/control"), "{told}");
    let nobody = "00000000-0000-0000-0000-000000000001";
    let told = says(1, &["control", "delete", "--confirm", "control", "--also-vm", nobody], &file);
    assert!(told.contains(&format!("no VM with the stamp of this deployment has the BIOS UUID {nobody}")), "{told}");
    assert_eq!(bed.machines("cp").len(), 3);
    let mut gone = String::new();
    let asked = bed.asked(|| gone = says(0, &["control", "delete", "--confirm", "control"], &file));
    assert!(gone.contains("was deleted"), "{gone}");
    // After the last change, no lookup follows: the result must not depend on its answer.
    let last = |is: &dyn Fn(&str) -> bool| asked.iter().rposition(|asked| is(asked)).expect("a call");
    let change = last(&|asked| asked.ends_with("_Task") && asked != "SearchDatastore_Task");
    assert!(last(&|asked| asked == "FindByInventoryPath") < change, "{asked:?}");
    let template = bed.machines("kaas-image-")[0].0.clone();
    assert!(gone.contains(&format!("  left: the template control/{template}; remove it")), "{gone}");
    assert!(gone.contains("Whether it has tenant clusters is not known: its journal does not say"), "{gone}");
    assert_eq!(bed.machines("cp"), []);
    assert_eq!(bed.machines("kaas-image-").len(), 1, "clusters share it");
    let rules = bed.vsphere(async |client| {
        let cluster = client.find("DC0/host/DC0_C0").await.unwrap();
        client.anti_affinity_rules(&cluster).await.unwrap().len()
    });
    assert_eq!(rules, 0);
    // The data disks are left. On request they are removed, and nothing else of the datastore.
    assert_eq!(gone.matches("left: the data disk").count(), 3, "{gone}");
    let journal = bed.datastores().join("LocalDS_0/kaas/control");
    let foreign = journal.join("foreign");
    fs::create_dir(&foreign).unwrap();
    let all = says(0, &["control", "delete", "--confirm", "control", "--data-disks"], &file);
    assert!(!all.contains("left: the data disk") && !all.contains("tenant clusters"), "{all}");
    assert_eq!(
        all.matches(", which is removed too\n  no VM of the cluster holds it").count(),
        3,
        "each is named before: {all}"
    );
    // The last lease of the journal is left, so that no number is used again, and so are foreign files.
    let left = fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let (numbered, others): (Vec<String>, Vec<String>) = left.partition(|name| name.parse::<u64>().is_ok());
    assert_eq!((numbered.len(), others.contains(&"foreign".to_owned())), (1, true), "{numbered:?} {others:?}");
    assert!(says(0, &["control", "status"], &file).contains("was deleted"));
    // Each command has ended its session.
    assert_eq!(bed.sessions(), 0);
}

#[test]
fn destroy_that_ends_during_its_looks_removes_nothing() {
    let bed = Bed::start(&[]);
    bed.make_folder("control");
    let file = bed.described(&[]);
    says(3, &["control", "create", "--timeout", "1s"], &file);
    let uuid = bed.vsphere(async |client| {
        let vm = client.find("DC0/vm/control/cp1").await.unwrap();
        client.look(&vm, &["config.uuid"]).await.unwrap().text("config.uuid").to_owned()
    });
    let uuid = uuid.as_str();
    for more in [&["--data-disks"][..], &["--also-vm", uuid], &["--data-disks", "--also-vm", uuid], &[]] {
        let ended =
            ended_in_its_looks(&bed, &[&["control", "delete", "--confirm", "control"][..], more].concat(), &file);
        let text = String::from_utf8_lossy(&ended.stderr);
        // Without options, `delete` looks for tenant clusters before the confirmation.
        assert_eq!(ended.status.code(), Some(143), "{more:?}: {text}");
        assert_eq!(named(&bed.machines("cp")), ON, "{more:?}: {text}");
        assert_eq!(bed.sessions(), 0, "{more:?}");
    }
    assert!(says(3, &["control", "status"], &file).contains("has not formed yet"), "nothing was noted");
}

#[test]
fn begun_deployment_is_checked_before_anything_is_drawn() {
    let bed = Bed::start(&[]);
    bed.make_folder("control");
    let file = bed.described(&[]);
    says(3, &["control", "create", "--timeout", "1s"], &file);
    let refused = |file: &Path, words: &str| {
        for command in [&["control", "create", "--dry-run"][..], &["control", "create", "--timeout", "1s"]] {
            let told = says(1, command, file);
            assert!(told.contains(words), "{command:?}: {words} is not in {told}");
        }
    };
    let aside = bed.path("aside");
    fs::rename(bed.path("control.key"), &aside).unwrap();
    refused(&file, "deployer-key of [cluster]: there is no ");
    assert!(!bed.path("control.key").exists(), "it was drawn anew");
    // Another operator has drawn one as well.
    fs::write(bed.path("control.key"), PrivateKey::draw().unwrap().pem().expose()).unwrap();
    refused(&file, "the VMs of control were given the deployer's key sha256:");
    fs::rename(&aside, bed.path("control.key")).unwrap();
    // All VMs exist: no new one needs the secret.
    fs::rename(bed.path("control.secret"), &aside).unwrap();
    assert!(says(0, &["control", "create", "--dry-run"], &file).contains("exists already"));
    says(3, &["control", "create", "--timeout", "1s"], &file);
    assert!(!bed.path("control.secret").exists(), "it was drawn anew");
    fs::rename(&aside, bed.path("control.secret")).unwrap();
    let other = bed.described(&[("processors = 2", "processors = 4")]);
    refused(&other, "was made with other properties, of another size");
    let other = bed.described(&[("address = \"10.20.30.13/24\"", "address = \"10.20.30.14/24\"")]);
    refused(&other, "was begun with the control-plane nodes cp1=10.20.30.11");
    let file = bed.described(&[]);
    assert!(says(0, &["control", "create", "--dry-run"], &file).contains("exists already"));
    // The removal waits while another client has a snapshot of one of its VMs.
    bed.vsphere(async |client| {
        let vm = client.find("DC0/vm/control/cp1").await.unwrap();
        client.changes(&vsphere::Unguarded).create_snapshot(&vm, "backup", "").await.unwrap();
    });
    says(3, &["control", "delete", "--confirm", "control", "--timeout", "1s"], &file);
    refused(&file, "the cluster control is being deleted: finish that first");
    assert_eq!((named(&bed.machines("cp")), bed.sessions()), (ON.to_vec(), 0));
}

#[test]
fn missing_objects_are_reported_together_with_their_lines() {
    let bed = Bed::start(&["-hosts", "2"]);
    let file = bed.described(&[
        ("folder = \"control\"", "folder = \"none\""),
        ("networks = [\"VM Network\"]", "networks = [\"VM Network\", \"Storage\"]"),
        ("# resource-pool = \"kaas\"", "resource-pool = \"kaas\""),
        ("datastore = \"LocalDS_0\"", "datastore = \"LocalDS_7\""),
    ]);
    let told = says(1, &["control", "create"], &file);
    let text = fs::read_to_string(&file).unwrap();
    let line = |part: &str| 1 + text.lines().position(|line| line.starts_with(part)).unwrap();
    for (at, part) in [
        ("folder = ", "provider.vsphere.folder: there is no folder of VMs none"),
        ("resource-pool = ", "provider.vsphere.resource-pool: there is no resource pool kaas"),
        ("datastore = ", "provider.vsphere.datastore: there is no datastore LocalDS_7"),
        ("networks = ", "provider.vsphere.networks[1]: there is no network Storage"),
        ("networks = ", "2 networks are named, and the image has 1 network adapters"),
    ] {
        let found = told.lines().find(|told| told.contains(part)).unwrap_or_else(|| panic!("{part} is not in {told}"));
        assert!(found.contains(&format!("cluster.toml:{}: ", line(at))), "{found}");
    }
    bed.make_folder("control");
    let told = says(1, &["control", "create"], &bed.described(&[]));
    assert!(
        told.contains("2 of the 2 hosts of DC0_C0 take VMs of this cluster now, and 3 nodes cannot be kept apart"),
        "{told}"
    );
    bed.make_folder_in("DC0/vm/control", "cp2");
    let told = says(1, &["control", "create"], &bed.described(&[("anti-affinity = true", "anti-affinity = false")]));
    assert!(
        told.contains("node[1].name: the folder control has something called cp2, which is not this cluster's"),
        "{told}"
    );
    assert_eq!((bed.machines("cp"), bed.path("control.key").exists()), (Vec::new(), false));
    assert_eq!(bed.sessions(), 0);
}

#[test]
fn missing_privileges_and_a_wrong_password_are_reported() {
    let bed = Bed::start(&[]);
    bed.make_folder("control");
    let user = format!("user = \"{ADMINISTRATOR}\"");
    let looker = format!("user = \"{LOOKER}\"");
    let told = says(1, &["control", "create", "--dry-run"], &bed.described(&[(&user, &looker)]));
    for part in [
        "provider.vsphere.folder: looker@vsphere.local lacks privileges on the folder control: ",
        "VirtualMachine.Interact.PowerOn (powering VMs on)",
        "provider.vsphere.datastore: ",
        "Datastore.AllocateSpace (putting disks onto datastores)",
        "provider.vsphere.networks[0]: ",
        "Resource.AssignVMToPool",
        "Host.Inventory.EditCluster",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    fs::write(bed.path("password"), "wrong\n").unwrap();
    let told = says(1, &["control", "create", "--dry-run"], &bed.described(&[]));
    assert!(told.contains("logging in as administrator@vsphere.local") && told.contains("InvalidLogin"), "{told}");
    assert!(!told.contains("wrong"), "{told}");
    // The certificate is self-signed: without the thumbprint it is not trusted.
    let thumbprint = format!("thumbprint = \"{}\"", bed.thumbprint());
    let told = says(1, &["control", "create", "--dry-run"], &bed.described(&[(&thumbprint, "")]));
    assert!(told.contains("certificate"), "{told}");
    assert!(told.contains("name its CA with ca-file, or itself with thumbprint"), "{told}");
    assert_eq!(bed.machines("cp"), []);
}

/// The account may see the hosts, but not the settings of their cluster.
#[test]
fn unreadable_cluster_settings_or_hosts_are_a_mistake() {
    // From version 9 on, a clone needs no host, and the command only looks at the hosts.
    for (version, wanted) in [("8.0.3.0", 2), ("9.0.0.0", 1)] {
        let bed = Bed::start(&["-api", version]);
        bed.make_folder("control");
        let file = bed.described(&[]);
        let asked = bed.asked(|| drop(says(0, &["control", "create", "--dry-run"], &file)));
        let looks = asked.iter().filter(|asked| *asked == "RetrievePropertiesEx").count();
        let is_mistake = |skip: usize| {
            bed.denies("RetrievePropertiesEx", skip);
            let output = kaas(&["control", "create", "--dry-run"], &file);
            bed.goes_on();
            String::from_utf8_lossy(&output.stderr).contains("cannot tell whether hosts of DC0_C0 take VMs: ")
        };
        let mistakes = (0..looks).filter(|skip| is_mistake(*skip)).count();
        assert_eq!(mistakes, wanted, "on {version}: the look at the hosts, and that at how their cluster is set");
    }
}

#[test]
fn vcenter_9_needs_drs_only_for_an_import() {
    let bed = Bed::start(&["-api", "9.0.0.0"]);
    bed.make_folder("control");
    let file = bed.described(&[]);
    bed.govc(&["cluster.change", "-drs-enabled=false", "DC0_C0"]);
    let told = says(1, &["control", "create", "--dry-run"], &file);
    assert!(told.contains("the cluster DC0_C0 has DRS turned off"), "{told}");
    bed.govc(&["cluster.change", "-drs-enabled=true", "DC0_C0"]);
    says(3, &["control", "create", "--timeout", "1s"], &file);
    says(0, &["control", "delete", "--confirm", "control", "--data-disks"], &file);
    bed.govc(&["cluster.change", "-drs-enabled=false", "DC0_C0"]);
    let plan = says(0, &["control", "create", "--dry-run"], &file);
    assert!(plan.contains("VM cp3: ") && !plan.contains("a template of the image"), "{plan}");
}

#[test]
fn bare_host_is_refused_with_the_reason() {
    let bed = Bed::start(&["-esx"]);
    let told = says(1, &["control", "create", "--dry-run"], &bed.described(&[]));
    assert!(told.contains("and not a vCenter: a host by itself has no store of OVF properties"), "{told}");
}

#[test]
fn probe_asks_first_and_leaves_nothing() {
    let bed = Bed::start(&[]);
    bed.make_folder("control");
    let (file, written) = (bed.described(&[]), bed.path("probe.json"));
    assert!(says(1, &["provider", "probe"], &file).contains("standard input is closed: give --yes"));
    let probe = ["provider", "probe", "--yes", "--guest-timeout", "0s", "--to-file", written.to_str().unwrap()];
    let told = says(0, &probe, &file);
    assert!(told.contains("clone-uuid: as assumed") && told.contains(" as assumed, 0 differ, "), "{told}");
    let text = fs::read_to_string(&written).unwrap();
    for name in [
        "DC0",
        "LocalDS",
        "VM Network",
        "administrator",
        "127.0.0.1",
        "kaas-probe",
        "kaas-image",
        "/control",
        "control\"",
    ] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["format"], &report["rows"][0]["verdict"]), (&json!(1), &json!("as assumed")));
    assert_eq!((bed.machines(""), bed.sessions()), (Vec::new(), 0));

    bed.switches(json!({"copies_keep_uuid": true}));
    let told = says(4, &probe, &file);
    assert!(told.contains("disk-copy: differs") && told.contains(" as assumed, 1 differ, "), "{told}");
    assert_eq!((bed.machines(""), bed.sessions()), (Vec::new(), 0));
}
