use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;
use crate::host::command::{Command, Error};

const SECRET: &str = "0123456789abcdef-deployment";
const HASH: &str = "$y$j9T$saltsaltsalt$hashhashhashhash";
const KEY: &str = "MHcCAQEEIGJhZGJhZGJhZGJhZGJhZGJhZGJhZGJhZGJhZGJhZGJhoAoGCCqGSM49";
const TOKEN: &str = "abcdef.0123456789abcdef";
const BEARER: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJlLWJ5dGVz";
const TARGET: &str = "https://backup/directory?signature=0a1b2c3d";
const PROXY: &str = "proxy-user:proxy-word";
/// A separate word, as an error may quote it.
const PASSWORD: &str = "proxy-word";
const PLANTED: [&str; 8] = [SECRET, HASH, KEY, TOKEN, BEARER, PROXY, TARGET, PASSWORD];

/// A text with each kind of secret, as programs write them.
fn planted() -> String {
    format!(
        "begin\nsecret was {SECRET} there\nadmin:{HASH}:1\n-----BEGIN EC PRIVATE KEY-----\n{KEY}\n\
         -----END EC PRIVATE KEY-----\njoin --token {TOKEN}\nAuthorization: Bearer {BEARER}\n\
         HTTP_PROXY=http://{PROXY}@proxy:3128/\ncopying to {TARGET}\nrefused {PASSWORD}\nend\n"
    )
}

/// Answers every program with planted secrets. Some programs fail, with a secret in the error.
struct Fake;

impl Runner for Fake {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        let line = command.to_string();
        assert_eq!(command.limit().as_secs(), 30, "{line}");
        assert!(line.starts_with("setpriv --pdeathsig=KILL "), "{line} outlives Ctrl-C");
        assert!(!line.contains(" sh "), "names of files are no program: {line}");
        if line.contains(" nft ") {
            let source = io::Error::other(format!("no such table at http://{PROXY}@proxy/"));
            return Err(Error::Start { command: line, source });
        }
        Ok(format!("{line}\n{}", planted()).into_bytes())
    }
}

fn node() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.extension().is_some_and(|end| end == "gz") {
            let mut encoder = GzEncoder::new(fs::File::create(path).unwrap(), Compression::default());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap();
        } else {
            fs::write(path, text).unwrap();
        }
    };
    let records = Records::new(root.path());
    let mut config = crate::intake::config::fixture::three_nodes();
    config.node.console_password_hash = Some(HASH.to_owned());
    config.snapshot_target = Some(Secret::new(TARGET.to_owned()));
    let proxy = Some(format!("http://{PROXY}@proxy:3128"));
    config.node.proxy = Some(crate::intake::config::Proxy { http: proxy, https: None, exclusions: Vec::new() });
    records.save_config(&crate::intake::config::Config::ControlPlane(config), &Secret::new(SECRET.to_owned())).unwrap();
    let mut status = Status { node: Some("cp-1".to_owned()), ..Status::default() };
    let seen = format!("the peer answered {SECRET}");
    status.findings.push(contract::codes::PEER_UNREACHABLE.finding("a peer", seen, "Look"));
    put("run/kaas/status.json", &serde_json::to_string(&status).unwrap());
    for path in [
        "run/kaas/plan.json",
        "data/kaas/progress.json",
        "usr/lib/kaas/image.json",
        "proc/cmdline",
        "var/log/kubernetes/audit.log",
        "var/log/kubernetes/audit-2026-11-21T10-00-00.000';reboot;'.log.gz",
        "var/log/kubernetes/audit-2026-11-20T10-00-00.000.log.gz",
        "var/log/pods/kube-system_a_1/app/0.log",
        "var/log/pods/kube-system_b_2/app/3.log",
    ] {
        put(path, &planted());
    }
    fs::create_dir_all(root.path().join("var/tmp")).unwrap();
    root
}

fn files(bundle: &[u8]) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(bundle));
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
fn bundle_has_all_sources_without_secrets() {
    let root = node();
    let mut said = Vec::new();
    let summary = write(root.path(), &Fake, None, 25 << 20, &mut |what| said.push(what.to_owned())).unwrap();
    let file = summary.file.clone().unwrap();
    assert!(file.starts_with(root.path().join("var/tmp")) && file.to_string_lossy().contains("kaas-support-cp-1-"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(root.path().join("var/tmp")).unwrap().count(), 1);
    assert_eq!(fs::metadata(&file).unwrap().len(), summary.bytes);
    let files = files(&fs::read(&file).unwrap());
    assert!(files.len() > 40, "{:?}", files.keys());
    for (name, text) in &files {
        for planted in PLANTED {
            assert!(!text.contains(planted), "{planted} is in {name}:\n{text}");
        }
    }
    for name in [
        "journal/etcd.txt",
        "journal/kaas-controller-end.txt",
        "plan.json",
        "kubernetes/pods.txt",
        "containers/kube-system_a_1/app/0.log",
    ] {
        assert!(files[name].contains("begin\n") && files[name].contains("end\n"), "{name}: {}", files[name]);
    }
    let audit: Vec<_> = files.iter().filter(|(name, _)| name.contains("audit")).collect();
    let names: Vec<_> = audit.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["kubernetes/audit-2026-11-21T10-00-00.000';reboot;'.log", "kubernetes/audit.log"]);
    assert!(audit.iter().all(|(_, text)| text.starts_with("begin\n") && text.ends_with("end\n")), "{audit:?}");
    assert!(files["config.json"].contains("\"console_password_hash\": \"[removed]\""), "{}", files["config.json"]);
    assert!(files["findings.txt"].contains("the peer answered [removed]"));
    assert!(said.contains(&"gathering: journal".to_owned()), "{said:?}");
}

#[test]
fn failed_source_is_only_noted_in_the_index() {
    let root = node();
    let summary = write(root.path(), &Fake, None, 25 << 20, &mut |_| ()).unwrap();
    let files = files(&fs::read(summary.file.as_ref().unwrap()).unwrap());
    let index = &files["README.txt"];
    let line = index.lines().find(|line| line.starts_with("network/rules.txt")).unwrap();
    assert!(line.contains("MISSING: ") && line.contains("http://[removed]@proxy/"), "{line}");
    assert!(!files.contains_key("network/rules.txt"));
    assert!(summary.incomplete().any(|name| name == "network/rules.txt"));
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["entries"][0], serde_json::json!({"name": "status.txt", "is": "whole"}));
}

#[test]
fn long_logs_are_cut_to_the_newest() {
    struct Talkative;
    impl Runner for Talkative {
        fn run(&self, _: &Command) -> Result<Vec<u8>, Error> {
            let mut state = 7_u64;
            let mut text = String::new();
            for line in 0..20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let _ = writeln!(text, "line {line} {state:x}");
            }
            Ok(text.into_bytes())
        }
    }
    let root = node();
    let summary = write(root.path(), &Talkative, None, 1 << 20, &mut |_| ()).unwrap();
    assert!(summary.bytes <= 1 << 20 && summary.bytes > 1 << 19, "{}", summary.bytes);
    let files = files(&fs::read(summary.file.as_ref().unwrap()).unwrap());
    assert!(files["journal/kubelet.txt"].contains("line 19999 "));
    assert!(!files["journal/kubelet.txt"].contains("line 1 "));
    assert!(files["network/routes.txt"].starts_with("line 0 "));
    assert!(files["README.txt"].contains("CUT: "));
    assert!(files["containers/kube-system_b_2/app/3.log"].contains("end\n"), "small sources are whole");
}

#[test]
fn error_names_a_file_that_cannot_be_written() {
    let root = node();
    let file = root.path().join("nowhere/bundle.tar.gz");
    let error = write(root.path(), &Fake, Some(&file), 1 << 20, &mut |_| ()).unwrap_err();
    assert!(format!("{error:#}").contains("nowhere/bundle.tar.gz"), "{error:#}");
}

#[test]
fn secrets_of_other_versions_configurations_are_removed() {
    for damaged in [false, true] {
        let root = node();
        for file in ["config.json", "config-copy.json"] {
            let path = root.path().join("data/kaas").join(file);
            let text = fs::read_to_string(&path).unwrap().replace("timeout_factor", "once_named_otherwise");
            fs::write(&path, if damaged { &text[..text.len() - 2] } else { &text }).unwrap();
        }
        assert!(Records::new(root.path()).config().is_err());
        let summary = write(root.path(), &Fake, None, 25 << 20, &mut |_| ()).unwrap();
        let config = &files(&fs::read(summary.file.as_ref().unwrap()).unwrap())["config.json"];
        for planted in [HASH, TARGET, PROXY, PASSWORD] {
            assert!(!config.contains(planted), "{planted} is in {config}");
        }
    }
}
