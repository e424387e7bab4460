//! The probe against the test vCenter: every row is as assumed, each switch turns its rows, and nothing is left.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::privileges::{ELSEWHERE, OBJECTS, bed_of, user_with};
use super::*;
use crate::lease::TakeOver;
use crate::testing::fits;
use crate::vcenter::Site;
use crate::vcenter::probe::{AS_ASSUMED, Answered, DIFFERS, NOT_TRIED, Report, Setup, run};
use contract::role::Role;
use testbed::{ADMINISTRATOR, Appliance, IN_ROLE, PASSWORD};
use vsphere::DatastorePath;

/// Rows that a bed without guests does not answer, and one whose answer depends on the moment of a look.
const NOT_HERE: [&str; 3] = ["bios-uuid", "guest-entry-after-off", "clone-shown"];

/// The preparation before a probe with a switch.
#[derive(Clone, Copy)]
enum Before {
    Nothing,
    /// A VM `cp1` is in the folder.
    Vm,
    /// A clone takes its time.
    SlowClone,
    /// DRS only recommends hosts.
    ManualDrs,
}

/// Each switch, and the rows that it turns.
const TURNED: [(&str, &[&str], Before); 35] = [
    (r#"{"no_settings_locks": true}"#, &["settings-lock"], Before::Nothing),
    (r#"{"keeps_settings_locks": true}"#, &["settings-lock-after-off"], Before::Nothing),
    (r#"{"edit_properties_while_on": true}"#, &["properties-while-on"], Before::Nothing),
    (r#"{"clones_change_their_source": true}"#, &["template"], Before::Nothing),
    (r#"{"clone_drops": ["uuid"]}"#, &["clone-uuid"], Before::Nothing),
    (r#"{"clone_drops": ["extra"]}"#, &["clone-entries"], Before::Nothing),
    (r#"{"clone_drops": ["vapp"]}"#, &["clone-properties"], Before::Nothing),
    (r#"{"clone_drops": ["devices"]}"#, &["clone-adapters", "clone-disk"], Before::Nothing),
    (r#"{"import_drops": ["uuid"]}"#, &["lease"], Before::Nothing),
    (r#"{"reconfigure_drops": ["extra"]}"#, &["entry-length"], Before::Nothing),
    (r#"{"shows_passwords": true}"#, &["password"], Before::Nothing),
    (r#"{"rewrites_templates": true}"#, &["template"], Before::Nothing),
    (r#"{"hosts_away": true}"#, &["import"], Before::Nothing),
    (r#"{"copies_keep_uuid": true}"#, &["disk-copy"], Before::Nothing),
    (r#"{"most_free": 1073741824}"#, &["datastore"], Before::Nothing),
    (r#"{"datastore_type": "NFS41"}"#, &["datastore"], Before::Nothing),
    (r#"{"datastores_away": {"LocalDS_1": "InvalidDatastore"}}"#, &["datastore"], Before::Nothing),
    (r#"{"shows_settings_while_made": true}"#, &["clone-shown"], Before::SlowClone),
    (r#"{"inaccessible": ["cp1"]}"#, &["folder-settings"], Before::Vm),
    (r#"{"traceless": ["cp1"]}"#, &["folder-settings"], Before::Vm),
    (r#"{"simple_patterns": true}"#, &["search-middle", "search-one"], Before::Nothing),
    (r#"{"refuses_without_host": true}"#, &["clone"], Before::ManualDrs),
    (r#"{"hides_object_ids": true}"#, &["object-attach"], Before::Nothing),
    (r#"{"objects_go_with_machines": true}"#, &["object-outlives"], Before::Nothing),
    (r#"{"refuses_object_snapshots": true}"#, &["object-snapshot"], Before::Nothing),
    (r#"{"refuses_object_extension": true}"#, &["object-extend"], Before::Nothing),
    (r#"{"drops_empty_controllers": true}"#, &["controllers-stay"], Before::Nothing),
    (r#"{"ignores_locks": true}"#, &["attach-held"], Before::Nothing),
    (r#"{"stale_locks": true}"#, &["disk-attach"], Before::Nothing),
    (r#"{"decodes_names_twice": true}"#, &["file-name"], Before::Nothing),
    (r#"{"shortens_entries": true}"#, &["entry-length"], Before::Nothing),
    (r#"{"ignores_change_version": true}"#, &["guard"], Before::Nothing),
    (r#"{"edits_replace_overrides": true}"#, &["ha-override"], Before::Nothing),
    (r#"{"leaves_aborted": true}"#, &["lease"], Before::Nothing),
    (r#"{"import_drops": ["uuid"], "clone_drops": ["uuid"]}"#, &["lease", "clone-uuid"], Before::Nothing),
];

/// Switches that have their own tests.
const ELSEWHERE_TRIED: [&str; 4] = ["lists_all_tasks", "keeps_guestinfo", "in_order_uuids", "guests_say"];

/// Switches of behaviour that one VM cannot show, each with the reason.
const NOT_SHOWN: [(&str, &str); 1] = [("finds_inaccessible", "the probe can make no file of its VM inaccessible")];

fn form_ova() -> Ova {
    let directory = tempfile::tempdir().unwrap();
    let full_version = "0.2.0+bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb (etcd 3.6)";
    let properties = testbed::form(Role::ControlPlane);
    let appliance =
        Appliance { name: "kaas-control-plane", full_version, properties, extra_config: Vec::new(), signer: None };
    let path = appliance.write(directory.path());
    let digest = Target::read(&path).unwrap().digest;
    Ova { _directory: directory, path, digest }
}

/// The VMs are on another datastore than the probe's directory.
fn setup(bed: &Bed, ova: &Ova, guest: Duration) -> Setup {
    Setup {
        site: Site { datastore: "LocalDS_1".to_owned(), ..bed.site() },
        directory: DatastorePath::new("LocalDS_0", "kaas/control/probe"),
        ova: ova.path.clone(),
        guest,
        rest: Duration::from_millis(20),
        over: TakeOver::FromTheDead,
    }
}

async fn probe(
    bed: &Bed,
    user: &str,
    ova: &Ova,
    cancelled: watch::Receiver<bool>,
    tell: &(dyn Fn(&str) + Sync),
) -> Report {
    let client = bed.client_of(user, PASSWORD).await;
    let report = run(&client, &setup(bed, ova, Duration::ZERO), cancelled, tell).await.unwrap();
    client.log_out().await.unwrap();
    report
}

async fn probed(bed: &Bed, ova: &Ova) -> Report {
    probe(bed, IN_ROLE, ova, watch::channel(false).1, &|_| {}).await
}

/// A bed with an account in the role, and the folder.
async fn bed() -> Bed {
    let bed = Bed::with_users();
    bed.make_folder(&bed.client().await, "control").await;
    bed
}

fn row<'r>(report: &'r Report, name: &str) -> &'r Answered {
    report.rows.iter().find(|row| row.row == name).unwrap_or_else(|| panic!("no row {name} in {report:#?}"))
}

/// The rows with another verdict, except those that are not answered here.
fn others(report: &Report) -> Vec<&Answered> {
    let rows = report.rows.iter().filter(|row| !NOT_HERE.contains(&row.row));
    rows.filter(|row| row.verdict != AS_ASSUMED).collect()
}

/// All files of the datastores, and directories but those that the probe does not remove.
fn files(bed: &Bed) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![bed.datastores().join("LocalDS_0"), bed.datastores().join("LocalDS_1")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.retain(|path| !["/fcd", "/kaas", "/kaas/control"].iter().any(|kept| path.ends_with(kept)));
    found
}

/// A probe that leaves something. Returns the path of the settings of its clone.
async fn stuck(bed: &Bed, ova: &Ova) -> String {
    bed.switch(json!({ "stale_locks": true })).await;
    let report = probed(bed, ova).await;
    assert!(!report.left.is_empty(), "{report:#?}");
    bed.switch(json!({ "stale_locks": false })).await;
    files(bed).into_iter().find(|path| path.ends_with("-linked.vmx")).unwrap()
}

#[tokio::test]
async fn probe_confirms_the_bed_and_leaves_nothing() {
    let (bed, ova) = (bed().await, form_ova());
    let report = probed(&bed, &ova).await;
    assert_eq!(others(&report), Vec::<&Answered>::new());
    assert_eq!((&report.left, report.is_cancelled), (&Vec::new(), false));
    assert_eq!(bed.machines().await, []);
    assert_eq!(files(&bed), Vec::<String>::new());
    fits("provider-probe", &report);

    // The report names nothing of the bed.
    let text = serde_json::to_string(&report).unwrap();
    for name in ["DC0", "LocalDS", "VM Network", "kaas@", "127.0", "kaas-probe", "\"control\"", "vm-", "group-"] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    let is_uuid = |word: &str| uuid::Uuid::parse_str(word).is_ok();
    assert!(!text.split(|c: char| !c.is_ascii_hexdigit() && c != '-').any(is_uuid), "{text}");
}

#[tokio::test]
async fn each_switch_turns_its_rows() {
    let ova = form_ova();
    tokio::join!(turns(&ova, 0), turns(&ova, 1), turns(&ova, 2), turns(&ova, 3));
}

/// Every fourth switch.
async fn turns(ova: &Ova, first: usize) {
    let bed = bed().await;
    for (switches, rows, before) in TURNED.into_iter().skip(first).step_by(4) {
        match before {
            Before::Nothing => {}
            Before::Vm => {
                let hypervisor = bed.hypervisor().await;
                hypervisor.added("cp1", &hypervisor.lay(ova).await).await;
            }
            Before::SlowClone => bed.spoil("CloneVM_Task", "delay-task", json!({ "milliseconds": 500 })).await,
            Before::ManualDrs => bed.govc(&["cluster.change", "-drs-enabled=true", "-drs-mode=manual", "DC0_C0"]),
        }
        bed.switch(serde_json::from_str(switches).unwrap()).await;
        let turned = probed(&bed, ova).await;
        for name in rows {
            assert_eq!(row(&turned, name).verdict, DIFFERS, "{switches}: {turned:#?}");
        }
        if rows == ["attach-held"] {
            assert_eq!(row(&turned, "disk-attach").verdict, AS_ASSUMED, "the disk is detached again");
        }
        bed.reset().await;
        bed.make_folder(&bed.client().await, "control").await;
    }
}

/// A switch that is added later needs a row, or a reason.
#[tokio::test]
async fn each_switch_has_a_row_or_a_reason() {
    let switches: Value = Bed::start(&[]).ask("GET", "switches", Value::Null).await;
    let known: BTreeSet<String> = switches.as_object().unwrap().keys().cloned().collect();
    let turned = TURNED.iter().flat_map(|(switches, _, _)| {
        let switches: Value = serde_json::from_str(switches).unwrap();
        switches.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    });
    let others = ELSEWHERE_TRIED.into_iter().chain(NOT_SHOWN.into_iter().map(|(switch, _)| switch));
    assert_eq!(turned.chain(others.map(str::to_owned)).collect::<BTreeSet<_>>(), known);
}

#[tokio::test]
async fn a_slow_clone_shows_no_settings() {
    let (bed, ova) = (bed().await, form_ova());
    bed.spoil("CloneVM_Task", "delay-task", json!({ "milliseconds": 600_000 })).await;
    let looks = async {
        bed.reached("CloneVM_Task").await;
        // The probe looks again and again until it has seen the VM.
        let (mut looks, mut since) = (0, Instant::now());
        while since.elapsed() < Duration::from_secs(3) {
            let now = bed.count("CreateContainerView").await;
            if now != looks {
                (looks, since) = (now, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bed.spoil_nothing().await;
    };
    let (report, ()) = tokio::join!(probed(&bed, &ova), looks);
    assert_eq!(row(&report, "clone-shown").verdict, AS_ASSUMED, "{report:#?}");
}

/// An account with the printed role on the documented objects, and none on the data center.
#[tokio::test]
async fn file_tasks_are_listed_with_data_center_access() {
    let name = "blind@vsphere.local";
    let bed = bed_of(&[user_with(name, &[OBJECTS.to_vec(), vec![ELSEWHERE]].concat(), &[])]).await;
    let ova = form_ova();
    for (all, verdict) in [(false, DIFFERS), (true, AS_ASSUMED)] {
        bed.switch(json!({ "lists_all_tasks": all })).await;
        let report = probe(&bed, name, &ova, watch::channel(false).1, &|_| {}).await;
        assert_eq!(row(&report, "file-tasks").verdict, verdict, "{report:#?}");
        assert_eq!(others(&report).iter().filter(|row| row.row != "file-tasks").count(), 0, "{report:#?}");
        assert_eq!((report.left, bed.machines().await), (Vec::new(), Vec::new()));
    }
}

#[tokio::test]
async fn next_probe_removes_the_rest_and_nothing_else() {
    let (bed, ova) = (bed().await, form_ova());
    let hypervisor = bed.hypervisor().await;
    let image = hypervisor.lay(&ova).await;
    let node = hypervisor.added("cp1", &image).await;
    stuck(&bed, &ova).await;
    let left = bed.machines().await.len();
    assert!(left > 2, "the VM of others, its template, and what is left");
    let again = probed(&bed, &ova).await;
    assert_eq!((again.left.clone(), others(&again)), (Vec::new(), Vec::<&Answered>::new()));
    assert_eq!(bed.machines().await.len(), 2);
    assert_eq!(hypervisor.again(&node).await.version, node.version);
    let own = |path: &String| path.contains("kaas-probe");
    assert_eq!(files(&bed).iter().filter(|path| own(path)).count(), 0, "{:#?}", files(&bed));
}

/// vSAN keeps files such as `.sdd.sf` in each directory.
#[tokio::test]
async fn an_empty_directory_that_stays_stops_no_probe() {
    let (bed, ova) = (bed().await, form_ova());
    let path = stuck(&bed, &ova).await;
    let kept = std::path::Path::new(&path).with_file_name(".sdd.sf");
    std::fs::write(&kept, "").unwrap();
    let again = probed(&bed, &ova).await;
    assert_eq!((again.left, bed.machines().await), (Vec::new(), Vec::new()));
    let directory = kept.parent().unwrap().display().to_string();
    assert_eq!(files(&bed), [directory, kept.display().to_string()]);
}

#[tokio::test]
async fn an_ended_probe_removes_what_it_made() {
    for last in ["clone", "object-attach", "disk-detach"] {
        let (bed, ova) = (bed().await, form_ova());
        let (cancel, cancelled) = watch::channel(false);
        let tell = |words: &str| {
            if words.contains(&format!(" {last}: ")) {
                cancel.send_replace(true);
            }
        };
        let ended = probe(&bed, IN_ROLE, &ova, cancelled, &tell).await;
        assert!(ended.is_cancelled && ended.rows.last().unwrap().row == last);
        assert_eq!((ended.left, bed.machines().await, files(&bed)), (Vec::new(), Vec::new(), Vec::new()), "{last}");
    }
}

#[tokio::test]
async fn first_class_disk_of_cancelled_creation_is_removed() {
    const DELAY: u64 = 1000;
    let (bed, ova) = (bed().await, form_ova());
    bed.spoil("CreateDisk_Task", "delay-task", json!({ "milliseconds": DELAY })).await;
    let (cancel, cancelled) = watch::channel(false);
    let cancels = async {
        bed.reached("CreateDisk_Task").await;
        cancel.send_replace(true);
    };
    let (ended, ()) = tokio::join!(probe(&bed, IN_ROLE, &ova, cancelled, &|_| {}), cancels);
    assert!(ended.is_cancelled && ended.left.is_empty(), "{ended:#?}");
    tokio::time::sleep(Duration::from_millis(DELAY)).await;
    assert_eq!((bed.machines().await, files(&bed)), (Vec::new(), Vec::new()));
}

/// A guest that states what it reads in `product_uuid`.
const GUEST: &str = r#"while read -r line; do
 id=$(printf '%s\n' "$line" | sed 's/^{"id":\([0-9]*\).*/\1/'); printf '{"id":%s}\n' "$id"
 case "$line" in *'"verb":"start"'*)
  vm=$(printf '%s\n' "$line" | sed 's/.*"vm":"\([^"]*\)","run":"[^"]*".*/\1/'); run=$(printf '%s\n' "$line" | sed 's/.*"run":"\([^"]*\)".*/\1/')
  case "$line" in
   *'"in_order_uuid":true'*) reads=$vm;;
   *) reads=$(printf '%s\n' "$vm" | sed 's/^\(..\)\(..\)\(..\)\(..\)-\(..\)\(..\)-\(..\)\(..\)/\4\3\2\1-\6\5-\8\7/');;
  esac
  said="{\\\"machine\\\":\\\"$reads\\\",\\\"phase\\\":\\\"looking\\\",\\\"code\\\":null,\\\"words\\\":\\\"\\\",\\\"lasting\\\":false,\\\"times\\\":0,\\\"token\\\":null,\\\"key\\\":null,\\\"at\\\":1}"
  printf '{"event":"guestinfo","vm":"%s","run":"%s","key":"kaas.statement","value":"%s"}\n' "$vm" "$run" "$said";;
 esac
done"#;

#[tokio::test]
async fn guest_rows_are_answered_and_turned_by_switches() {
    let bodies = json!(["sh", "-c", GUEST]).to_string();
    let (bed, ova) = (Bed::start(&["-bodies", &bodies]), form_ova());
    let client = bed.client_of(ADMINISTRATOR, PASSWORD).await;
    bed.make_folder(&client, "control").await;
    let cases = [
        (json!({ "in_order_uuids": true }), AS_ASSUMED, AS_ASSUMED),
        // An agent that reads product_uuid instead of product_serial.
        (json!({ "in_order_uuids": false }), DIFFERS, AS_ASSUMED),
        (json!({ "in_order_uuids": true, "keeps_guestinfo": true }), AS_ASSUMED, DIFFERS),
    ];
    for (switches, uuid, entry) in cases {
        bed.switch(switches.clone()).await;
        let setup = setup(&bed, &ova, Duration::from_secs(60));
        let report = run(&client, &setup, watch::channel(false).1, &|_| {}).await.unwrap();
        let verdicts = (row(&report, "bios-uuid").verdict, row(&report, "guest-entry-after-off").verdict);
        assert_eq!(verdicts, (uuid, entry), "{switches}: {report:#?}");
        assert_ne!(row(&report, "power-on").verdict, NOT_TRIED);
        assert_eq!(report.left, Vec::<String>::new());
    }
}

#[tokio::test]
async fn copy_of_probe_vm_and_foreign_files_stay() {
    let (bed, ova) = (bed().await, form_ova());
    let path = stuck(&bed, &ova).await;
    let (directory, file) = path.rsplit_once('/').unwrap();
    let foreign = std::path::Path::new(directory).join("notes.txt");
    std::fs::write(&foreign, "of others").unwrap();
    let linked = file.trim_end_matches(".vmx");
    let _: Value = bed.ask("POST", "client-clone", json!({ "machine": linked, "to": "web1" })).await;
    let at = ["-ds", "LocalDS_1", "-name", "web1/more", "-size", "16M"];
    bed.govc(&[["vm.disk.create", "-vm", "/DC0/vm/control/web1"].as_slice(), &at].concat());
    let copy = bed.machine("web1").await;
    let of_copy = || files(&bed).into_iter().filter(|path| path.contains("web1")).collect::<Vec<_>>();
    let before = of_copy();
    let client = bed.client_of(IN_ROLE, PASSWORD).await;
    let setup = setup(&bed, &ova, Duration::ZERO);
    let refused = async || run(&client, &setup, watch::channel(false).1, &|_| {}).await.unwrap_err().to_string();
    let words = refused().await;
    assert!(words.contains("web1: it has the probe's stamp") && !words.contains("notes.txt"), "{words}");
    assert_eq!((bed.machine("web1").await, of_copy()), (copy, before.clone()));

    bed.govc(&["vm.change", "-vm", "/DC0/vm/control/web1", "-e", "kaas.stamp="]);
    let words = refused().await;
    assert!(words.contains("it has files that the probe did not make") && words.contains(linked), "{words}");
    assert!(foreign.is_file());
    assert_eq!(of_copy(), before);
    std::fs::remove_file(&foreign).unwrap();
    let again = probed(&bed, &ova).await;
    assert_eq!((again.left, of_copy()), (Vec::new(), before));
    assert_eq!(files(&bed).iter().filter(|path| path.contains("kaas-probe")).count(), 0, "{:#?}", files(&bed));
}
