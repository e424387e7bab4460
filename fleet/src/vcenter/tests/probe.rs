//! The probe against the vCenter to test against: all is as it is assumed, each switch turns a row, and nothing is left.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::authority::TakeOver;
use crate::vcenter::probe::{Answered, Probed, Setup, Told, Verdict, run};
use contract::role::Role;
use testbed::{Appliance, IN_ROLE, PASSWORD};
use vsphere::DatastorePath;

/// What cannot be told here: nothing runs in the VMs, and how a VM is shown meanwhile depends on when it is looked at.
const NOT_HERE: [&str; 4] = ["bios-uuid", "guest-entry-after-off", "import-shown", "clone-shown"];

/// Each switch, and the row that it turns.
const TURNED: [(&str, &str); 17] = [
    (r#"{"edit_properties_while_on": true}"#, "properties-while-on"),
    (r#"{"clones_change_their_source": true}"#, "template-version"),
    (r#"{"copies_keep_uuid": true}"#, "disk-copy"),
    (r#"{"most_free": 1073741824}"#, "datastore-room"),
    (r#"{"datastore_type": "NFS41"}"#, "datastore-kind"),
    (r#"{"hides_object_ids": true}"#, "object-attach"),
    (r#"{"objects_go_with_machines": true}"#, "object-outlives"),
    (r#"{"refuses_object_snapshots": true}"#, "object-snapshot"),
    (r#"{"refuses_object_extension": true}"#, "object-extend"),
    (r#"{"drops_empty_controllers": true}"#, "controllers-stay"),
    (r#"{"ignores_locks": true}"#, "attach-held"),
    (r#"{"stale_locks": true}"#, "disk-attach"),
    (r#"{"wants_content_type": true}"#, "file"),
    (r#"{"decodes_names_twice": true}"#, "file-name"),
    (r#"{"shortens_entries": true}"#, "entry-length"),
    (r#"{"ignores_change_version": true}"#, "guard"),
    (r#"{"leaves_aborted": true}"#, "lease"),
];

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

fn setup(bed: &Bed, ova: &Ova, guest: Duration) -> Setup {
    Setup {
        site: bed.site(),
        directory: DatastorePath::new("LocalDS_0", "kaas/control/probe"),
        ova: ova.path.clone(),
        guest,
        rest: Duration::from_millis(1),
        over: TakeOver::FromTheDead,
    }
}

async fn probe(bed: &Bed, ova: &Ova, cancelled: watch::Receiver<bool>, tell: &(dyn Fn(Told<'_>) + Sync)) -> Probed {
    let client = bed.client_of(IN_ROLE, PASSWORD).await;
    let probed = run(&client, &setup(bed, ova, Duration::ZERO), cancelled, tell).await.unwrap();
    client.log_out().await.unwrap();
    probed
}

async fn probed(bed: &Bed, ova: &Ova) -> Probed {
    probe(bed, ova, watch::channel(false).1, &|_| {}).await
}

/// A bed with an account in the role, the folder, and a VM of others.
async fn bed() -> Bed {
    let bed = Bed::with_users();
    bed.make_folder(&bed.client().await, "control").await;
    bed
}

fn differing(probed: &Probed) -> Vec<&Answered> {
    let rows = probed.report.rows.iter().filter(|row| !NOT_HERE.contains(&row.row));
    rows.filter(|row| row.verdict == Verdict::Differs).collect()
}

/// All files and directories of the datastore.
fn files(bed: &Bed) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![bed.datastores().join("LocalDS_0")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.retain(|path| !path.ends_with("/fcd"));
    found
}

#[tokio::test]
async fn probe_finds_the_bed_as_assumed_and_leaves_nothing() {
    let (bed, ova) = (bed().await, form_ova());
    let probed = probed(&bed, &ova).await;
    assert_eq!(differing(&probed), Vec::<&Answered>::new());
    let untried = probed.report.rows.iter().filter(|row| row.verdict == Verdict::NotTried);
    let untried: Vec<&str> = untried.map(|row| row.row).filter(|row| !NOT_HERE.contains(row)).collect();
    let elsewhere =
        ["datastore-away", "stale-lock", "lease-maintenance", "hardware-upgrade", "rename-datastore", "client-clone"];
    assert_eq!(untried, elsewhere, "{:#?}", probed.report.rows);
    assert_eq!((probed.left, probed.is_cancelled), (Vec::new(), false));
    assert_eq!(bed.machines().await, []);
    assert_eq!(files(&bed), Vec::<String>::new());

    // The report names nothing of the bed.
    let text = serde_json::to_string(&probed.report).unwrap();
    for name in ["DC0", "LocalDS", "VM Network", "kaas@", "127.0.0.1", "kaas-probe", "\"control", "vm-", "group-"] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    let is_uuid = |word: &str| uuid::Uuid::parse_str(word).is_ok();
    assert!(!text.split(|c: char| !c.is_ascii_hexdigit() && c != '-').any(is_uuid), "{text}");
}

#[tokio::test]
async fn each_switch_turns_its_row() {
    let (bed, ova) = (bed().await, form_ova());
    for (switches, row) in TURNED {
        bed.switch(serde_json::from_str(switches).unwrap()).await;
        let turned = probed(&bed, &ova).await;
        assert!(differing(&turned).iter().any(|answered| answered.row == row), "{switches}: {:#?}", turned.report.rows);
        bed.reset().await;
        bed.make_folder(&bed.client().await, "control").await;
    }
}

#[tokio::test]
async fn next_probe_removes_what_could_not_be_removed_and_nothing_else() {
    let (bed, ova) = (bed().await, form_ova());
    let hypervisor = bed.hypervisor().await;
    let image = hypervisor.lay(&ova).await;
    let others = hypervisor.added("cp1", &image).await;
    bed.switch(json!({ "stale_locks": true })).await;
    let stuck = probed(&bed, &ova).await;
    assert!(!stuck.left.is_empty(), "{:#?}", stuck.report.rows);
    bed.switch(json!({ "stale_locks": false })).await;
    let left = bed.machines().await.len();
    assert!(left > 2, "the VM of others, its template, and what is left");
    let again = probed(&bed, &ova).await;
    assert_eq!((again.left.clone(), differing(&again)), (Vec::new(), Vec::<&Answered>::new()));
    assert_eq!(bed.machines().await.len(), 2);
    assert_eq!(hypervisor.again(&others).await.version, others.version);
}

#[tokio::test]
async fn an_ended_probe_removes_what_it_made() {
    let (bed, ova) = (bed().await, form_ova());
    let (cancel, cancelled) = watch::channel(false);
    let tell = |told: Told<'_>| {
        if matches!(told, Told::Answered(.., Answered { row: "object-attach", .. })) {
            cancel.send_replace(true);
        }
    };
    let ended = probe(&bed, &ova, cancelled, &tell).await;
    assert!(ended.is_cancelled && ended.report.rows.last().unwrap().row == "object-attach");
    assert_eq!((ended.left, bed.machines().await, files(&bed)), (Vec::new(), Vec::new(), Vec::new()));
}

/// A guest that says the UUID which it reads in the other order.
const SWAPPED: &str = r#"while read -r line; do
 id=$(printf '%s\n' "$line" | sed 's/^{"id":\([0-9]*\).*/\1/'); printf '{"id":%s}\n' "$id"
 case "$line" in *'"verb":"start"'*)
  vm=$(printf '%s\n' "$line" | sed 's/.*"vm":"\([^"]*\)","run":"[^"]*"}*$/\1/'); run=$(printf '%s\n' "$line" | sed 's/.*"run":"\([^"]*\)"}*$/\1/')
  other=$(printf '%s\n' "$vm" | sed 's/^\(..\)\(..\)\(..\)\(..\)-\(..\)\(..\)-\(..\)\(..\)/\4\3\2\1-\6\5-\8\7/')
  said="{\\\"machine\\\":\\\"$other\\\",\\\"phase\\\":\\\"looking\\\",\\\"code\\\":null,\\\"words\\\":\\\"\\\",\\\"lasting\\\":false,\\\"times\\\":0,\\\"token\\\":null,\\\"key\\\":null,\\\"at\\\":1}"
  printf '{"event":"guestinfo","vm":"%s","run":"%s","key":"kaas.statement","value":"%s"}\n' "$vm" "$run" "$said";;
 esac
done"#;

#[tokio::test]
async fn a_guest_that_reads_its_uuid_swapped_turns_the_row() {
    let bodies = json!(["sh", "-c", SWAPPED]).to_string();
    let (bed, ova) = (Bed::start(&["-bodies", &bodies]), form_ova());
    let client = bed.client().await;
    bed.make_folder(&client, "control").await;
    let setup = setup(&bed, &ova, Duration::from_secs(60));
    let probed = run(&client, &setup, watch::channel(false).1, &|_| {}).await.unwrap();
    let row = |name: &str| probed.report.rows.iter().find(|row| row.row == name).unwrap().clone();
    assert_eq!(row("bios-uuid").observation, "the same, with its first three groups in the other order");
    assert_eq!(row("bios-uuid").verdict, Verdict::Differs);
    assert_eq!(row("guest-entry-after-off").verdict, Verdict::AsAssumed);
}
