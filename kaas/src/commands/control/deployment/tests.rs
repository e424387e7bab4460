//! Descriptions: the printed examples are valid, and all mistakes of others are reported at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use contract::deployer::{Fingerprint, PrivateKey};
use contract::role::Role;
use fleet::control_plane::{DeployStatus, DeploymentRecord, LeftVm, Lifecycle, NodeStatus, RunOutcome};
use fleet::hypervisor::{DiskRef, PowerState, VmRef, VmSize};
use fleet::upgrade::{DiskCopy, KeptCopy, Target};
use ova::ovf::{Product, PropertyGroup};
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::judge::{Resolve, ResolvedFile, another_key, begun_with, judge_with};
use super::words::{Outcome, Plan, arrived, copy_stays, status, templates_stay};
use super::{EXAMPLE, exit_status, handed_over, renewed_all_the_same};
use crate::cluster_file::{CheckReport, ClusterFile};
use crate::commands::schemas::tests::fits;

const KEY: &str = include_str!("../../../../../contract/src/properties/fixtures/ssh-keys.pub");

/// The example with one control-plane node, and without a virtual IP.
static ONE: LazyLock<String> = LazyLock::new(|| {
    let without = |text: &str, begin: &str, end: &str| {
        let (before, rest) = text.split_once(begin).expect(begin);
        let (_, after) = rest.split_once(end).expect(end);
        format!("{before}{end}{after}")
    };
    let one = without(EXAMPLE, "[[node]]\nname = \"cp2\"", "# Properties of all nodes");
    without(&one, "# An unused address", "# The keys that may log in")
});

/// The image of an OVA, and its form.
fn package() -> (Target, Product) {
    let minors = ["1.35".to_owned(), "1.36".to_owned()];
    let properties = testbed::form(Role::ControlPlane);
    let target = serde_json::json!({
        "ova": "one.ova", "digest": "d", "name": "kaas-control-plane", "image": {"version": "1.0.0", "build": "b"},
        "kubernetes": minors, "signer": null,
    });
    let form = Product { groups: vec![PropertyGroup { category: None, properties }], ..Product::default() };
    (serde_json::from_value(target).unwrap(), form)
}

/// A directory with a description and an SSH key.
fn directory(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let key = KEY.lines().find(|line| line.starts_with("ssh-ed25519")).unwrap();
    std::fs::write(directory.path().join("admin.pub"), format!("{key}\n")).unwrap();
    let path = directory.path().join("cluster.toml");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn judged(text: &str, resolve: Resolve) -> anyhow::Result<ResolvedFile> {
    let (_directory, path) = directory(text);
    let (target, form) = package();
    judge_with(&ClusterFile::read(&path)?, resolve, target, &form)
}

/// The mistakes of a description, each with its line and without the directory.
fn mistakes(text: &str) -> Vec<String> {
    let Err(error) = judged(text, Resolve::WhatIsThere) else { return Vec::new() };
    let told = format!("{error:#}");
    let lines = told.lines().skip(1).map(|line| line.split_once("cluster.toml:").map_or(line, |(_, rest)| rest));
    lines.map(str::to_owned).collect()
}

/// An example with replaced parts.
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

#[test]
fn cluster_name_must_not_lead_to_other_files() {
    for (name, why) in [
        ("../other", "has a dot"),
        ("a/b", "is not a DNS label"),
        ("deploy-000001.json", "has a dot"),
        ("000001", "directories with such names hold the leases of clusters"),
        ("1000000", "directories with such names hold"),
    ] {
        let text = ONE.replacen("name = \"control\"", &format!("name = \"{name}\""), 1);
        assert_ne!(text, *ONE);
        let (_directory, path) = directory(&text);
        let told = ClusterFile::read(&path).err().unwrap_or_else(|| panic!("{name} is taken")).to_string();
        assert!(told.contains(why) && told.contains("cluster.name"), "{name}: {told}");
    }
    // No directory has this number as its name.
    let (_directory, path) = directory(&ONE.replacen("name = \"control\"", "name = \"0001\"", 1));
    assert_eq!(ClusterFile::read(&path).unwrap().name.value, "0001");
}

#[test]
fn example_is_valid_and_resolves_to_vms() {
    for (example, nodes) in [(ONE.as_str(), 1), (EXAMPLE, 3)] {
        assert_eq!(mistakes(example), [""; 0]);
        let ResolvedFile { wanted, key, warnings } = judged(example, Resolve::All).unwrap();
        assert!(key.is_some() && warnings.is_empty(), "{warnings:?}");
        assert_eq!((wanted.cluster.as_str(), wanted.nodes.len(), wanted.size.memory), ("control", nodes, 4096));
        assert_eq!(wanted.size.data_disk, Some(32 << 30));
        assert_eq!(wanted.networks, ["VM Network"]);
        let told: Vec<_> = wanted.nodes.iter().map(|node| &node.properties).collect();
        assert!(told.iter().all(|other| other["deployment-secret"] == told[0]["deployment-secret"]));
        assert!(told[0]["control-nodes"].starts_with("cp1=10.20.30.11") && told[0]["address"] == "10.20.30.11/24");
        assert_eq!(told[0].contains_key("api-vip"), nodes == 3);
    }
}

#[test]
fn keys_and_secrets_are_drawn_only_once() {
    let (directory, path) = directory(&ONE);
    let file = ClusterFile::read(&path).unwrap();
    let made = |name: &str| directory.path().join(name).exists();
    let (target, form) = package();
    judge_with(&file, Resolve::WhatIsThere, target.clone(), &form).unwrap();
    assert!(!made("control.key") && !made("control.secret"));
    let first = judge_with(&file, Resolve::All, target.clone(), &form).unwrap();
    assert!(made("control.key") && made("control.secret"));
    let again = judge_with(&file, Resolve::All, target, &form).unwrap();
    assert_eq!(first.wanted.nodes[0].properties, again.wanted.nodes[0].properties);
    let secret = std::fs::read_to_string(directory.path().join("control.secret")).unwrap();
    // The plan does not contain the secret.
    let plan = Plan::of(&again.wanted, &file, Vec::new(), CheckReport::default());
    assert!(plan.text().contains("node-name: cp1") && !plan.text().contains(secret.trim()), "{}", plan.text());
    assert!(!serde_json::to_string(&plan).unwrap().contains(secret.trim()));
    fits("control-plan", &plan);
}

#[test]
fn begun_cluster_gets_no_new_key_or_secret() {
    let (directory, path) = directory(&ONE);
    let file = ClusterFile::read(&path).unwrap();
    let kept = |goal: &str, formed: bool, vm: Option<uuid::Uuid>| -> DeploymentRecord {
        let kept = serde_json::json!({
            "cluster": "control", "lifecycle": goal, "formed": formed,
            "image": {"name": "kaas-control-plane 1.0.0"},
            "nodes": [{"name": "cp1", "address": "192.168.77.11", "settingsHash": "", "biosUUID": vm}],
        });
        serde_json::from_value(kept).unwrap()
    };
    let vm = Some(uuid::Uuid::from_u128(1));
    let had_beside = |has_key, kept: &DeploymentRecord, vms: BTreeSet<uuid::Uuid>| {
        begun_with(&file, has_key, kept, &vms).map_err(|error| error.to_string())
    };
    let had = |has_key, kept: &DeploymentRecord| had_beside(has_key, kept, BTreeSet::new());
    // No VM was created with the values, or none will be.
    for kept in [kept("Active", false, None), kept("Deleted", true, vm), kept("Deleting", true, vm)] {
        assert_eq!(had(false, &kept), Ok(Resolve::All));
    }
    for formed in [true, false] {
        let refused = had(false, &kept("Active", formed, vm)).unwrap_err();
        assert!(refused.contains("deployer-key of [cluster]: there is no ") && refused.contains("control.key,"));
    }
    // A formed cluster no longer needs the secret. Neither does one whose VMs all exist.
    assert_eq!(had(true, &kept("Active", true, vm)), Ok(Resolve::AllButTheSecret));
    assert_eq!(had_beside(true, &kept("Active", false, vm), vm.into_iter().collect()), Ok(Resolve::AllButTheSecret));
    // One VM was removed before its first start: it is created again, with the secret.
    let refused = had(true, &kept("Active", false, vm)).unwrap_err();
    assert!(refused.contains("deployment-secret of [cluster]: there is no "), "{refused}");
    let made = |name: &str| directory.path().join(name).exists();
    let (target, form) = package();
    let judged = judge_with(&file, Resolve::WhatWasBegunWith, target, &form).unwrap();
    assert!(judged.key.is_none() && !made("control.key") && !made("control.secret"));
    std::fs::write(directory.path().join("control.secret"), "a secret\n").unwrap();
    assert_eq!(had(true, &kept("Active", false, vm)), Ok(Resolve::WhatWasBegunWith));
}

#[test]
fn unneeded_deployment_secret_is_not_read() {
    for secret in
        ["{ prompt = \"the secret\" }", "{ environment = \"KAAS_TEST_THAT_NOBODY_SETS\" }", "{ file = \"none\" }"]
    {
        let (directory, path) = directory(&with(&ONE, &[("{ file = \"control.secret\" }", secret)]));
        let file = ClusterFile::read(&path).unwrap();
        let (target, form) = package();
        std::fs::write(directory.path().join("control.key"), PrivateKey::draw().unwrap().pem().expose()).unwrap();
        let judged = judge_with(&file, Resolve::AllButTheSecret, target, &form).unwrap();
        let told = &judged.wanted.nodes[0].properties;
        assert!(judged.key.is_some() && !told.contains_key("deployment-secret"), "{secret}");
        assert!(!directory.path().join("none").exists());
    }
}

#[test]
fn another_deployer_key_gives_a_warning() {
    let [noted, other] = [b"noted", b"other"].map(|key: &[u8; 5]| Fingerprint::of(key));
    let kept = |formed: bool, deployer: Option<Fingerprint>| -> DeploymentRecord {
        let kept = serde_json::json!({
            "cluster": "control", "lifecycle": "Active", "formed": formed, "image": {"name": "kaas-control-plane 1.0.0"},
            "nodes": [], "deployerFingerprint": deployer,
        });
        serde_json::from_value(kept).unwrap()
    };
    let told = another_key(Some(other), &kept(true, Some(noted))).unwrap();
    assert!(told.contains(&noted.to_string()) && told.contains(&other.to_string()), "{told}");
    // Without a warning: the same key, a cluster that has not formed (it is refused elsewhere), and unknown keys.
    for (key, kept) in [
        (Some(noted), kept(true, Some(noted))),
        (Some(other), kept(false, Some(noted))),
        (Some(other), kept(true, None)),
        (None, kept(true, Some(noted))),
    ] {
        assert_eq!(another_key(key, &kept), None);
    }
}

/// docs/plan/sizing.md lists the sizes.
#[test]
fn vcenter_example_has_the_smallest_size() {
    let (example, spec) = (EXAMPLE, include_str!("../../../../../image/specs/control-plane.toml"));
    let (example, spec): (toml::Table, toml::Table) = (example.parse().unwrap(), spec.parse().unwrap());
    let (vm, size) = (&example["vm"], &spec["hardware"]["profiles"][0]);
    let mib = |text: &toml::Value| text.as_str().unwrap().strip_suffix('G').unwrap().parse::<i64>().unwrap() * 1024;
    assert_eq!(vm["processors"], size["cpus"]);
    assert_eq!(vm["memory-mib"].as_integer(), Some(mib(&size["memory"])));
    assert_eq!(vm["data-disk-gib"].as_integer().map(|gib| gib * 1024), Some(mib(&size["data-capacity"])));
}

#[test]
fn all_mistakes_of_a_file_are_reported() {
    let text = with(
        &ONE,
        &[
            ("name = \"control\"\n# The OVA", "nam = \"control\"\n# The OVA"),
            ("processors = 2", "processors = \"two\""),
            ("data-disk-gib = 32", "data-disk-gib = 2"),
            ("{ file = \"control.secret\" }", "\"5ec4e7\""),
            ("gateway = ", "control-nodes = \"x\"\njoin-token = \"x\"\ngatewy = "),
            ("{ file = \"admin.pub\" }", "{ file = \"admin.pub\", environment = \"X\" }"),
            ("clones = \"linked\"", "clones = \"instant\""),
        ],
    );
    let told = mistakes(&text);
    for part in [
        "cluster.nam: is no key of [cluster]",
        "cluster.name: is missing: give the cluster's name",
        "vm.processors: expects a number of virtual processors",
        "vm.data-disk-gib: is 2: give a size in GiB, 4 to 63488",
        "cluster.deployment-secret: is, or may hold, a secret, which has no place in this file",
        "properties.control-nodes: is filled in from the rest of this file: it is the list of all [[node]]",
        "properties.join-token: is not used by control-plane nodes",
        "properties.gatewy: is no property",
        "properties.ssh-authorized-keys: says where a value comes from: give one of file, environment and prompt",
        "provider.vsphere.clones: is \"instant\": give linked or full",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "{part} is not in {told:#?}");
    }
    assert_eq!(told.len(), 10, "{told:#?}");
    let lacking = mistakes("");
    for part in ["cluster: is missing", "vm: is missing", "no control-plane nodes", "provider: is missing"] {
        assert!(lacking.iter().any(|line| line.contains(part)), "{part} is not in {lacking:#?}");
    }
}

#[test]
fn conflicting_values_are_reported_once_at_their_line() {
    let text = with(
        EXAMPLE,
        &[
            ("10.20.30.12/24", "10.20.30.11/24"),
            ("api-vip = \"10.20.30.10\"", "api-vip = \"10.20.31.10\"\nkubernetes-version = \"1.20\""),
            ("name = \"cp3\"", "name = \"Cp3\""),
            ("gateway = \"10.20.30.1\"", "gateway = \"10.20.30.13\"\npod-cidr = \"10.20.0.0/16\""),
        ],
    );
    let told = mistakes(&text);
    let line_of = |text_of: &str| 1 + text.lines().position(|line| line.contains(text_of)).unwrap();
    for (at, part) in [
        ("10.20.31.10", "properties.api-vip: the virtual IP 10.20.31.10 is not in the node's subnet 10.20.30.0/24"),
        ("1.20", "properties.kubernetes-version: this image does not carry Kubernetes 1.20, but 1.35 and 1.36"),
        ("pod-cidr", "properties.pod-cidr: the pod CIDR 10.20.0.0/16 overlaps the node subnet 10.20.30.0/24"),
        ("10.20.30.13\"", "properties.gateway: the gateway 10.20.30.13 is the address of"),
        ("\"Cp3\"", "node[2].name: \"Cp3\" has upper-case letters"),
    ] {
        let found: Vec<&String> = told.iter().filter(|line| line.contains(part)).collect();
        assert_eq!(found.len(), 1, "{part} is not once in {told:#?}");
        assert!(found[0].starts_with(&format!("{}: ", line_of(at))), "{}", found[0]);
    }
    assert!(told.iter().any(|line| line.contains("control-nodes: ") && line.contains("[")), "{told:#?}");
}

#[test]
fn ova_of_another_publisher_is_refused() {
    let text = with(&ONE, &[("ova = \"build\"", "ova = \"build\"\npublisher = \"publisher.pem\"")]);
    let (directory, path) = directory(&text);
    let (unsigned, form) = package();
    let key = directory.path().join("publisher.pem");
    let said = |signer: Option<String>| {
        let target = Target { signer, ..unsigned.clone() };
        let refused = judge_with(&ClusterFile::read(&path).unwrap(), Resolve::WhatIsThere, target, &form).err();
        refused.map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(said(None).contains("cluster.publisher: reading "), "{}", said(None));
    std::fs::write(&key, rcgen::KeyPair::generate().unwrap().public_key_pem()).unwrap();
    let fingerprint = crate::keys::publisher_fingerprint(&key).unwrap();
    assert!(said(None).contains(&format!("cluster.publisher: has the key {fingerprint}, and one.ova is not signed")));
    assert!(said(Some("another".to_owned())).contains("and one.ova is signed with another"));
    assert_eq!(said(Some(fingerprint)), "");
}

#[test]
fn secrets_and_missing_files_are_reported() {
    let text = with(
        &ONE,
        &[
            ("gateway = ", "http-proxy = \"http://me:pass@proxy.example.com:3128\"\ngateway = "),
            ("{ file = \"admin.pub\" }", "{ file = \"none.pub\" }"),
        ],
    );
    let told = mistakes(&text);
    assert!(told[0].contains("properties.http-proxy: is, or may hold, a secret") && told.len() == 1, "{told:#?}");
    let text = with(&ONE, &[("{ file = \"admin.pub\" }", "{ file = \"none.pub\" }")]);
    let told = mistakes(&text);
    assert!(told.iter().any(|line| line.contains("properties.ssh-authorized-keys: reading ")), "{told:#?}");
    let named = with(&ONE, &[("ova = \"build\"", "ova = \"images/one.ova\"")]);
    let file = ClusterFile::parse(Path::new("/etc/clusters/one.toml"), named).unwrap();
    assert_eq!(file.ova, Path::new("/etc/clusters/images/one.ova"));
    assert_eq!(file.kubeconfig, Path::new("/etc/clusters/control.kubeconfig"));
}

#[test]
fn remaining_disks_and_copies_are_listed_as_left() {
    let disk = |number: u128| DiskRef { uuid: uuid::Uuid::from_u128(number), path: format!("[ds] {number}.vmdk") };
    let path = "[ds] cp1/data-before-1a2b3c4d.vmdk";
    let copy = DiskCopy { node: "cp1".to_owned(), copy: KeptCopy { path: path.to_owned(), uuid: None } };
    let stays = copy_stays(&copy);
    assert!(stays.starts_with(&format!("a copy of the data disk of cp1: {path} (perhaps incomplete")), "{stays}");
    let vm = VmRef { uuid: disk(5).uuid, id: "vm-5".to_owned() };
    let replica = LeftVm { name: "cp1-restored".to_owned(), vm };
    let at = DeployStatus {
        cluster: "control".to_owned(),
        lifecycle: Lifecycle::Deleting,
        image: "one".to_owned(),
        formed: true,
        looked: true,
        nodes: Vec::new(),
        left: vec![disk(1), disk(3)],
        doubtful: vec![disk(3).uuid],
        forgotten: vec![disk(4)],
        discarded: vec![disk(2)],
        copies: vec![copy],
        replicas: vec![replica],
        waits: Vec::new(),
        done: false,
        newer: Vec::new(),
        returned: Vec::new(),
    };
    let text = status(&at);
    assert!(text.contains(&format!("  left: the data disk {} at [ds] 1.vmdk\n", disk(1).uuid)), "{text}");
    assert!(text.contains(&format!("  also to be removed: the data disk {} at [ds] 2.vmdk\n", disk(2).uuid)), "{text}");
    let asked = format!("  left: the data disk {} at [ds] 3.vmdk; its removal was asked for: it is", disk(3).uuid);
    assert!(text.contains(&asked), "{text}");
    // JSON also has the disks that are dropped from the journal: with --confirm, no question lists them.
    let told = serde_json::to_value(Outcome::of(&RunOutcome::Gone, None, &at)).unwrap();
    assert_eq!(told["forgotten"][0]["uuid"], serde_json::json!(disk(4).uuid));
    // Text and JSON name a copy of a disk as one that remains.
    assert!(text.contains(&format!("  left: a copy of the data disk of cp1: {path} (perhaps incomplete")), "{text}");
    assert_eq!((&told["copies"][0]["node"], &told["copies"][0]["path"]), (&"cp1".into(), &path.into()));
    assert!(text.contains(&format!("  left: the VM cp1-restored ({}, vm-5), a copy of ", disk(5).uuid)), "{text}");
    assert_eq!((&told["replicas"][0]["name"], &told["replicas"][0]["id"]), (&"cp1-restored".into(), &"vm-5".into()));
    let (address, uuid) = ("10.20.30.11".parse().unwrap(), Some(disk(5).uuid));
    let (vm, power) = (Some("cp1".to_owned()), Some(PowerState::On));
    let size = Some(VmSize { processors: 2, memory: 4096 });
    let node = NodeStatus { name: "cp1".to_owned(), address, vm, uuid, power, size, formed: true, ready: false };
    let lost = NodeStatus { vm: None, uuid: None, power: None, size: None, ..node.clone() };
    let of_nodes = DeployStatus { nodes: vec![node, lost], ..at.clone() };
    fits("control-status", &of_nodes);
    fits("control-outcome", &Outcome::of(&RunOutcome::Paused(Vec::new()), Some(Path::new("kubeconfig")), &of_nodes));
    // Templates are named too.
    let template = "kaas/control/kaas-image-1".to_owned();
    let told = serde_json::to_value(Outcome::of(&RunOutcome::Gone, None, &at).leaving(vec![template.clone()])).unwrap();
    assert_eq!(told["templates"], serde_json::json!([template]));
    assert!(templates_stay(&[template]).starts_with("  left: the template kaas/control/kaas-image-1; remove it in"));
    let text = status(&DeployStatus { lifecycle: Lifecycle::Active, ..at });
    assert!(text.contains("  also there: a copy of the data disk of cp1: "), "{text}");
}

/// The previous kubeconfig may expire before a failed host returns.
#[test]
fn waiting_cluster_writes_its_renewed_kubeconfig() {
    let at = DeployStatus { cluster: "control".to_owned(), formed: true, looked: true, ..DeployStatus::default() };
    let ends = [
        (RunOutcome::Up(Zeroizing::new("the last".to_owned())), 0, "the last"),
        (RunOutcome::Paused(Vec::new()), 3, "one"),
        (RunOutcome::Stopped(Vec::new()), 4, "one"),
        (RunOutcome::Cancelled, 3, "one"),
    ];
    for (end, exit, text) in ends {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let written = handed_over(&path, &end, Some("one")).unwrap();
        assert_eq!((written, exit_status(&end)), (Some(path.as_path()), exit), "{end:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{end:?}");
        let told = arrived(&end, written, &at);
        assert!(told.contains(&format!("kubeconfig, valid for a day: {}", path.display())), "{told}");
        let told = serde_json::to_value(Outcome::of(&end, written, &at)).unwrap();
        assert_eq!(told["kubeconfig"], serde_json::json!(path), "{end:?}");
    }
    // Without a renewed kubeconfig, or for a removed cluster, the old file is not changed.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    for (end, renewed) in [(RunOutcome::Paused(Vec::new()), None), (RunOutcome::Gone, Some("one"))] {
        assert_eq!(handed_over(&path, &end, renewed).unwrap(), None, "{end:?}");
        assert!(!path.exists() && !arrived(&end, None, &at).contains("kubeconfig"), "{end:?}");
    }
    // A failed write is an error only if the cluster runs.
    std::fs::write(&path, "").unwrap();
    let below = path.join("kubeconfig");
    assert_eq!(handed_over(&below, &RunOutcome::Paused(Vec::new()), Some("one")).unwrap(), None);
    handed_over(&below, &RunOutcome::Up(Zeroizing::new("the last".to_owned())), None).unwrap_err();
}

/// For example, the store fails after a node issued a kubeconfig.
#[test]
fn failed_run_writes_the_renewed_kubeconfig() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let failed = || anyhow::Result::<()>::Err(anyhow::anyhow!("the store does not answer"));
    assert!(renewed_all_the_same(failed(), &path, None).is_err() && !path.exists());
    // After a success, the caller writes it.
    assert!(renewed_all_the_same(Ok(()), &path, Some("one")).is_ok() && !path.exists());
    let error = renewed_all_the_same(failed(), &path, Some("one")).unwrap_err();
    assert_eq!(error.to_string(), "the store does not answer");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    // A failed write does not hide the error.
    let error = renewed_all_the_same(failed(), &path.join("kubeconfig"), Some("one")).unwrap_err();
    assert_eq!(error.to_string(), "the store does not answer");
}
