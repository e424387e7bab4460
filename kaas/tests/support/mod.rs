//! `kaas support`: the content of a bundle, unreadable parts, the size limit, and planted secrets.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::control::Bed;

const KEY: &str = "MHcCAQEEIGJhZGJhZGJhZGJhZGJhZGJhZGJhZGJhZGJhZGJhZGJhoAoGCCqGSM49";
const TOKEN: &str = "abcdef.0123456789abcdef";
const BEARER: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJlLWJ5dGVz";
const HASH: &str = "$y$j9T$saltsaltsalt$hashhashhashhash";
const PROXY: &str = "proxy-user:proxy-word";
const PASSWORD: &str = "hunter2-of-vcenter";
/// A secret without a known form, in fields that no bundle has.
const PLAIN: &str = "an open word";
const PLANTED: [&str; 7] = [KEY, TOKEN, BEARER, HASH, PROXY, PASSWORD, PLAIN];

/// A text with secrets, as programs write them.
fn planted() -> String {
    format!(
        "begin\npassword={PASSWORD}\nadmin:{HASH}:1\n-----BEGIN EC PRIVATE KEY-----\n{KEY}\n\
         -----END EC PRIVATE KEY-----\njoin --token {TOKEN}\nHTTP_PROXY=http://{PROXY}@proxy:3128/\n\
         Authorization: Bearer {BEARER}\nend\n"
    )
}

/// An object with secrets in each part.
fn object(more: &Value) -> Value {
    let mut object = json!({
        "metadata": {
            "managedFields": [{"manager": PLAIN}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": PLAIN, "note": planted()},
        },
        "spec": {
            "password": PASSWORD,
            "tokens": {"bootstrapToken": [PLAIN]},
            "kubeconfig": PLAIN,
            "containers": [{"name": "app", "args": ["--word", PLAIN], "env": [{"name": "A", "value": PLAIN}]}],
        },
        "data": {"a": BASE64_STANDARD.encode(PASSWORD)},
        "status": {"note": planted(), "conditions": [{
            "type": "Ready", "status": "False", "reason": "Forming", "message": planted(), "observedGeneration": 1,
        }]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        object["status"][field] = value.clone();
    }
    object
}

/// A control cluster of one node, with secrets in all of its objects.
fn bed() -> Bed {
    let bed = Bed::start();
    let mut kept = bed.kept();
    for plural in ["providers", "tenantclusters", "nodepools", "machines", "operations", "events", "leases"] {
        kept.put(plural, "team-blue", "shop", object(&json!({})));
    }
    let address = json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]});
    kept.put("nodes", "", "cp1", object(&address));
    kept.put("status", "", "agent", object(&json!({})));
    kept.object("status", "agent")["cluster"] = "control-a".into();
    let statuses = json!({"containerStatuses": [{"name": "app", "state": {"running": {}}}]});
    for pod in ["web", "api", "late"] {
        kept.put("pods", "kaas-system", pod, object(&statuses));
        kept.logs.insert(pod.to_owned(), planted());
    }
    kept.put("secrets", "kaas-system", "vcenter", json!({"data": {"password": BASE64_STANDARD.encode(PASSWORD)}}));
    drop(kept);
    bed
}

fn files(bundle: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(bundle).unwrap()));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(path.split_once('/').unwrap().1.to_owned(), text);
    }
    files
}

#[test]
fn bundle_has_all_parts_without_secrets() {
    let bed = bed();
    let (out, err) = bed.says(0, &format!("support --port {}", bed.port));
    assert!(err.is_empty() && out.contains("reading nodes/cp1.json\n"), "{out}{err}");
    let names = fs::read_dir(bed.path(".")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let bundles: Vec<String> = names.filter(|name| name.starts_with("kaas-support-control-a-")).collect();
    let [bundle] = bundles.as_slice() else { panic!("{bundles:?}") };
    assert!(out.contains(&format!("{bundle}: ")), "{out}");
    let path = bed.path(bundle);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let files = files(&path);
    for (name, text) in &files {
        for planted in PLANTED {
            assert!(!text.contains(planted), "{planted} is in {name}:\n{text}");
            assert!(!text.contains(&BASE64_STANDARD.encode(planted)), "{planted} is in {name}:\n{text}");
        }
        let is_json = serde_json::from_str::<Value>(text).is_ok();
        assert!(is_json || !name.ends_with(".json"), "{name} is no JSON:\n{text}");
    }
    for name in [
        "README.txt",
        "conditions.txt",
        "versions.json",
        "objects/machines.json",
        "objects/tenantclusters.json",
        "kubernetes/events.json",
        "kubernetes/leases.json",
        "kubernetes/nodes.json",
        "kubernetes/pods-kaas-system.json",
        "nodes/cp1.json",
        "logs/kaas-system/web/app.txt",
    ] {
        assert!(files.contains_key(name), "{name} is missing: {:?}", files.keys());
    }
    assert!(!files.contains_key("errors.txt"));
    assert!(files["conditions.txt"].starts_with("Provider team-blue/shop\n  Ready is False (Forming): begin"));
    assert!(files["versions.json"].contains("v1.37.0"), "{}", files["versions.json"]);
    // The list has two pages.
    assert_eq!(files["kubernetes/pods-kaas-system.json"].matches("\"uid\"").count(), 3);
    let log = &files["logs/kaas-system/web/app.txt"];
    assert!(log.starts_with("begin\n") && log.ends_with("end\n"), "{log}");
    let secret = |line: &str| line.contains("/secrets") || line.contains("/configmaps");
    assert!(bed.kept().asked.iter().all(|asked| !secret(&asked.line)), "a Secret was read");
    assert!(bed.kept().written().is_empty());
}

#[test]
fn unreadable_part_is_named_in_errors() {
    let bed = bed();
    bed.kept().refuses = Some(("/nodepools", "see password=hunter2-of-vcenter"));
    bed.kept().logs.remove("late");
    let report = bed.json(4, &format!("support --to-file b.tar.gz --port {}", bed.port));
    let errors = report["errors"].as_array().unwrap();
    let parts: Vec<&str> = errors.iter().map(|error| error["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["objects/nodepools.json", "logs/kaas-system/late/app.txt"]);
    assert_eq!(report["path"], "b.tar.gz");
    assert_eq!(report["size"].as_u64().unwrap(), fs::metadata(bed.path("b.tar.gz")).unwrap().len());
    let files = files(&bed.path("b.tar.gz"));
    let errors = &files["errors.txt"];
    assert!(errors.starts_with("objects/nodepools.json: the API server refuses it: ") && !errors.contains(PASSWORD));
    assert!(!files.contains_key("objects/nodepools.json") && files.contains_key("nodes/cp1.json"));
    let (_, err) = bed.says(4, &format!("support --to-file c.tar.gz --port {}", bed.port));
    assert!(err.starts_with("error: the bundle is incomplete\nobjects/nodepools.json: "), "{err}");
}

#[test]
fn silent_node_is_asked_for_one_log() {
    let bed = bed();
    for (pod, node) in [("api", "cp2"), ("late", "cp1"), ("web", "cp2")] {
        bed.kept().object("pods", pod)["spec"]["nodeName"] = node.into();
    }
    bed.kept().fails = Some(("/pods/api/log", "dial tcp 192.168.10.12:10250: i/o timeout"));
    let report = bed.json(4, &format!("support --to-file b.tar.gz --port {}", bed.port));
    let parts: Vec<&str> =
        report["errors"].as_array().unwrap().iter().map(|error| error["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["logs/kaas-system/api/app.txt", "logs/kaas-system/web/app.txt"]);
    assert!(report["errors"][1]["reason"].as_str().unwrap().contains("the node cp2 did not answer in time"));
    assert!(bed.kept().asked.iter().all(|asked| !asked.line.contains("/pods/web/log")));
    assert!(files(&bed.path("b.tar.gz")).contains_key("logs/kaas-system/late/app.txt"));
}

#[test]
fn late_command_writes_the_parts_read() {
    let bed = bed();
    let report = bed.json(4, &format!("support --to-file b.tar.gz --timeout 0s --port {}", bed.port));
    let errors = report["errors"].as_array().unwrap();
    let late = "not read: the time of the command was over";
    assert!(errors.len() > 5 && errors.iter().all(|error| error["reason"] == late), "{errors:?}");
    let files = files(&bed.path("b.tar.gz"));
    assert!(files["errors.txt"].contains("kubernetes/events.json: not read") && files.contains_key("README.txt"));
    assert_eq!(bed.kept().asked.len(), 1, "only the version is asked for");
}

#[test]
fn existing_file_and_silent_server_write_nothing() {
    let bed = bed();
    let file = bed.file("bundle.tar.gz", "of yesterday");
    let (_, err) = bed.says(1, &format!("support --to-file {file}"));
    assert!(err.contains("the file exists") && bed.kept().asked.is_empty(), "{err}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "of yesterday");
    bed.kept().breaks = true;
    let (_, err) = bed.says(1, "support --to-file other.tar.gz");
    assert!(err.contains("does not answer") && err.contains("`kaas-agent support-bundle`"), "{err}");
    assert!(!bed.path("other.tar.gz").exists());
}

#[test]
fn long_log_keeps_its_newest_lines() {
    let bed = bed();
    let mut state = 7_u64;
    let mut line = |number: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("line {number} {state:016x} {:016x}\n", state.rotate_left(17))
    };
    let log: String = (0..60_000).map(&mut line).collect();
    bed.kept().logs.insert("web".to_owned(), log);
    let report = bed.json(0, &format!("support --to-file b.tar.gz --limit 1 --port {}", bed.port));
    assert!(report["size"].as_u64().unwrap() <= 1 << 20, "{report}");
    let files = files(&bed.path("b.tar.gz"));
    let log = &files["logs/kaas-system/web/app.txt"];
    assert!(log.contains("line 59999 ") && !log.contains("line 1 "), "{}", log.len());
    assert!(files["README.txt"].contains("logs/kaas-system/web/app.txt  CUT: "));
}
