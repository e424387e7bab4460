//! The output of commands in the documentation: the real program, before an API server in memory. `make screens` renews the
//! committed files. The test fails if they differ.

#[allow(dead_code, reason = "tests of clusters use the rest of it")]
mod control;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{env, fs};

use serde_json::json;
use testbed::{Appliance, few_properties};

use control::Bed;

/// The age of the cluster: three days, and an hour for slow machines.
const AGE: Duration = Duration::from_secs(3 * 86_400 + 3_600);

/// A command and its output, as in a terminal.
fn transcript(bed: &Bed, arguments: &str) -> String {
    let (out, err) = bed.says(0, arguments);
    assert!(err.is_empty(), "kaas {arguments}: {err}");
    format!("$ kaas {arguments}\n{out}")
}

/// A control cluster with one tenant cluster, which is Ready.
fn with_cluster() -> Bed {
    let bed = Bed::start();
    bed.says(
        0,
        "cluster create shop --namespace team-blue --provider dc1 --kubernetes 1.36 --network tenants \
         --endpoint 192.168.10.10 --control-nodes 3 --workers 2 --worker-class medium --wait=false",
    );
    let mut kept = bed.kept();
    for (about, reason) in [
        ("Preflight", "Passed"),
        ("ControlPlaneReady", "AllReady"),
        ("NodesReady", "AllReady"),
        ("UpToDate", "Current"),
        ("Ready", "Available"),
    ] {
        kept.says("tenantclusters", "shop", about, "True", reason);
    }
    let workers = ["shop-workers-w1", "shop-workers-w2"];
    let machines = ["shop-cp1", "shop-cp2", "shop-cp3"].into_iter().chain(workers);
    for name in machines.clone() {
        let mut machine = json!({"spec": {"clusterRef": {"name": "shop"}}});
        if workers.contains(&name) {
            machine["spec"]["poolRef"] = json!({"name": "shop-workers"});
        }
        kept.put("machines", "team-blue", name, machine);
        kept.says("machines", name, "Ready", "True", "Ready");
    }
    kept.says("nodepools", "shop-workers", "Ready", "True", "AllReady");
    let created = humantime::format_rfc3339_seconds(SystemTime::now() - AGE).to_string();
    let machines = machines.map(|name| ("machines", name));
    for (plural, name) in [("tenantclusters", "shop"), ("nodepools", "shop-workers")].into_iter().chain(machines) {
        let object = kept.object(plural, name);
        object["metadata"]["creationTimestamp"] = created.as_str().into();
        for condition in object["status"]["conditions"].as_array_mut().expect("conditions") {
            condition["message"] = "".into();
            condition["lastTransitionTime"] = created.as_str().into();
        }
    }
    let status = &mut kept.object("tenantclusters", "shop")["status"];
    status["version"] = "1.36.3".into();
    status["controlPlane"]["ready"] = 3.into();
    status["nodes"]["ready"] = 2.into();
    status["resolved"]["endpoint"] = "192.168.10.10".into();
    status["resolved"]["image"] = "kaas-tenant-0.2.0".into();
    for count in ["replicas", "readyReplicas", "updatedReplicas"] {
        kept.object("nodepools", "shop-workers")["status"][count] = 2.into();
    }
    drop(kept);
    bed
}

/// All files by their names.
fn files() -> BTreeMap<String, String> {
    let bed = with_cluster();
    let ova = Appliance {
        name: "kaas-control-plane",
        full_version: "0.2.0+bbbbbbb.etcd-3.6.0",
        properties: few_properties(),
        extra_config: Vec::new(),
        signer: None,
    };
    ova.write(&bed.path(""));
    let mut files: BTreeMap<String, String> = [
        ("cluster-get", "cluster get --namespace team-blue"),
        ("cluster-get-shop", "cluster get shop --namespace team-blue"),
        ("cluster-describe", "cluster describe shop --namespace team-blue"),
        ("pool-list", "pool list --namespace team-blue"),
        ("provider-create-example", "provider create --example"),
        ("explain", "explain disk.foreign"),
        ("ova-inspect", "ova inspect appliance.ova"),
    ]
    .into_iter()
    .map(|(name, arguments)| (format!("{name}.txt"), transcript(&bed, arguments)))
    .collect();
    for call in calls() {
        let name = call.split(' ').next().filter(|word| !word.is_empty());
        let name = name.map_or_else(|| "help.txt".to_owned(), |word| format!("help-{word}.txt"));
        let text = transcript(&bed, format!("{call} --help").trim_start());
        let file = files.entry(name).or_default();
        if !file.is_empty() {
            file.push('\n');
        }
        *file += &text;
    }
    files
}

/// The words of each visible group and command, without the program. The first ones are empty.
fn calls() -> Vec<String> {
    let program = kaas::commands::program();
    let mut calls = Vec::new();
    for (command, _) in kaas::commands::leaves(&program) {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        for length in 0..=words.len() {
            let call = words[..length].join(" ");
            if !calls.contains(&call) {
                calls.push(call);
            }
        }
    }
    calls
}

/// The committed files by their names.
fn committed(directory: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(directory) else { return BTreeMap::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn committed_output_is_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/output");
    let files = files();
    if env::var_os("KAAS_SCREENS").is_some_and(|value| value == "write") {
        fs::create_dir_all(&directory).unwrap();
        for name in committed(&directory).keys().filter(|name| !files.contains_key(*name)) {
            fs::remove_file(directory.join(name)).unwrap();
        }
        for (name, text) in &files {
            fs::write(directory.join(name), text).unwrap();
        }
    }
    let committed = committed(&directory);
    let names: Vec<&String> = files.keys().chain(committed.keys().filter(|name| !files.contains_key(*name))).collect();
    let stale: Vec<&String> = names.into_iter().filter(|name| files.get(*name) != committed.get(*name)).collect();
    assert!(stale.is_empty(), "the commands print something else: `make screens` renews {stale:?}");
}

#[test]
fn help_covers_groups_and_commands() {
    let calls = calls();
    for call in ["", "cluster", "cluster create", "ova inspect", "explain"] {
        assert!(calls.iter().any(|known| known == call), "{call:?}: {calls:?}");
    }
}
