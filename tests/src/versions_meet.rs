//! Compatibility with the commit that upgrades are tried from. The present version understands the answers, requests and records of
//! that commit, and that commit's agent understands the present ones. The scenarios of upgrades show the same with both programs.
//! These tests try each form, also those that no scenario uses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent::boot::volumes::VolumesDisk;
use agent::cluster::encryption::key_set::KeySet;
use agent::cluster::etcd::replace::Admission;
use agent::cluster::etcd::restore::RestoreRecord;
use agent::cluster::kubernetes::upgrade::UpgradeRecord;
use agent::cluster::records::{Cordon, DeployerRights, DiskCounter, Progress};
use agent::cluster::rendezvous::RendezvousRecord;
use agent::host::disk::Identity;
use agent::intake::config::Config;
use agent::upgrade::swap::node_record::NodeRecord;
use contract::json::read_strictly;
use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::properties::form;
use contract::role::{Role, Roles};
use contract::swap::{CommitRequest, EvacuationRequest, Rejection, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::places::workspace;

/// The tree of the commit that upgrades are tried from.
fn earlier() -> PathBuf {
    let said = Command::new(workspace().join(".ci/earlier")).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    PathBuf::from(String::from_utf8(said.stdout).unwrap().trim_end())
}

/// Reads a text that is read tolerantly, and checks that it is written again with all its fields.
fn told<T: Serialize + DeserializeOwned>(text: &str) -> Result<(), String> {
    let given: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let read: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
    missing(&given, &serde_json::to_value(read).unwrap(), "")
        .map_or(Ok(()), |place| Err(format!("{place} is gone or another")))
}

/// Reads a text that is read strictly, to its end, and checks that it is written again without other fields.
fn asked<T: Serialize + DeserializeOwned>(text: &str) -> Result<(), String> {
    let read: T = read_strictly(text.as_bytes()).map_err(|error| error.to_string())?;
    let (given, written) = (serde_json::from_str(text).unwrap(), serde_json::to_value(read).unwrap());
    let differs = missing(&given, &written, "").or_else(|| missing(&written, &given, ""));
    differs.map_or(Ok(()), |place| Err(format!("{place} is new, gone or another")))
}

/// The place of something in `given` that is not the same in `written`. Null says as much as nothing.
fn missing(given: &Value, written: &Value, place: &str) -> Option<String> {
    match (given, written) {
        (Value::Object(given), Value::Object(written)) => given.iter().find_map(|(name, value)| {
            missing(value, written.get(name).unwrap_or(&Value::Null), &format!("{place}/{name}"))
        }),
        (Value::Array(given), Value::Array(written)) if given.len() == written.len() => {
            let mut pairs = given.iter().zip(written).enumerate();
            pairs.find_map(|(index, (given, written))| missing(given, written, &format!("{place}/{index}")))
        }
        _ => (given != written).then(|| place.to_owned()),
    }
}

/// All JSON of a directory, by the names of the files.
fn all_of(directory: &Path, judge: impl Fn(&str, &str) -> Result<(), String>) {
    let mut seen = 0;
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        judge(name, &fs::read_to_string(&path).unwrap()).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
        seen += 1;
    }
    assert!(seen > 0, "{} is empty", directory.display());
}

#[test]
fn earlier_nodes_and_commands_are_understood() {
    all_of(&earlier().join("contract/testdata"), |name, text| match name {
        "node.json" | "node-prepared.json" | "node-taken.json" | "node-upgrading.json" | "node-evacuation.json" => {
            told::<Node>(text)
        }
        "refused.json" => told::<Rejection>(text),
        "swap-request.json" | "swap-request-publisher.json" => asked::<Request>(text),
        "commit-request.json" => asked::<CommitRequest>(text),
        "evacuation-request.json" => asked::<EvacuationRequest>(text),
        "kubernetes-request.json" => asked::<kubernetes_upgrade::Request>(text),
        "node-label-keys.txt" => Ok(()),
        _ => Err("say of what type it is".to_owned()),
    });
}

/// The files in `testdata/kept` are as images since that commit write them.
#[test]
fn earlier_and_present_images_understand_records() {
    all_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/kept"), |name, text| match name {
        "identity.json" | "identity-swap.json" | "identity-local-volumes.json" => asked::<Identity>(text),
        "local-volumes.json" => told::<VolumesDisk>(text),
        "config.json" | "config-worker.json" | "config-dhcp.json" => told::<Config>(text),
        "deployer.json" => told::<DeployerRights>(text),
        "progress.json" => told::<Progress>(text),
        "disk-counter.json" => told::<DiskCounter>(text),
        "rendezvous.json" => told::<RendezvousRecord>(text),
        "swap.json" => told::<Cordon>(text),
        "kubernetes-upgrade.json" => told::<UpgradeRecord>(text),
        "admission.json" => told::<Admission>(text),
        "restored.json" => told::<RestoreRecord>(text),
        "etcd-node.json" => told::<NodeRecord>(text),
        "etcd-encryption.json" => told::<KeySet>(text),
        _ => Err("say of what type it is".to_owned()),
    });
}

/// The earlier image has the form of today, and options files live longer than images.
#[test]
fn form_has_all_properties_of_earlier_images() {
    let reference = fs::read_to_string(earlier().join("docs/reference.md")).unwrap();
    let (_, rest) = reference.split_once("<!-- properties:begin -->").unwrap();
    let (table, _) = rest.split_once("<!-- properties:end -->").unwrap();
    let before: BTreeSet<_> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let roles = Roles::new(Role::ALL.to_vec()).unwrap();
    let today: BTreeSet<_> = form(&roles, &["1.36".to_owned()]).iter().map(|property| property.key).collect();
    let gone: Vec<_> = before.difference(&today).collect();
    assert!(before.len() > 10 && gone.is_empty(), "gone: {gone:?}");
}

#[test]
fn differences_are_found() {
    let text = include_str!("../../contract/testdata/swap-request.json");
    let with = |change: fn(&mut Value)| {
        let mut value = serde_json::from_str(text).unwrap();
        change(&mut value);
        value.to_string()
    };
    asked::<Request>(text).unwrap();
    let more = with(|value| value["more"] = 1.into());
    assert!(asked::<Request>(&more).unwrap_err().contains("unknown field `more`"));
    assert_eq!(told::<Request>(&more).unwrap_err(), "/more is gone or another");
    // Without it, today's program would still write it: who reads strictly and does not know it refuses.
    let less = with(|value| drop(value.as_object_mut().unwrap().remove("downgrade")));
    told::<Request>(&less).unwrap();
    assert_eq!(asked::<Request>(&less).unwrap_err(), "/downgrade is new, gone or another");
    assert!(told::<Request>(&with(|value| drop(value["to"].as_object_mut().unwrap().remove("build")))).is_err());
}
