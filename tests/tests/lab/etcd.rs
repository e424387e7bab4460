//! etcd's maintenance on the container engine: snapshots, a restore after the quorum
//! is lost, and the replacement of a lost node.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::properties::RECOVERY_PUBLIC_KEY;
use fleet::hypervisor::PowerState;
use scenarios::by_hand::refuses;
use scenarios::endpoint;
use scenarios::lost_node::{agent, lose, power_on_blank, replace, take_out, three_members};
use scenarios::network_outsider::beside;
use scenarios::places;
use scenarios::put_server::PutServer;
use scenarios::scenario::{ALL, FORMING, MOMENT, Scenario, Setting};
use serde_json::Value;

use crate::wire::traffic_does_not_contain;

/// The agent's refusal of a command on a node.
fn refused(scenario: &Scenario, node: &str, arguments: &[&str]) -> String {
    let command = [&["kaas-agent"], arguments].concat();
    match scenario.lab().run_inside(node, &command, MOMENT) {
        Ok(said) => panic!("{command:?} was not refused: {said}"),
        Err(error) => format!("{error:#}"),
    }
}

/// Copies a file of this machine into a VM.
fn copy_into(scenario: &Scenario, node: &str, from: &Path, to: &str) {
    let text = BASE64_STANDARD.encode(fs::read(from).unwrap());
    scenario.inside(node, &["sh", "-ec", &format!(": >{to}")]);
    // A command line has its limit.
    for part in text.as_bytes().chunks(96 << 10) {
        let part = str::from_utf8(part).unwrap();
        scenario.inside(node, &["sh", "-ec", &format!("printf %s '{part}' | base64 --decode >>{to}")]);
    }
}

/// An operator's key pair.
const OPERATORS_PRIVATE: &str = include_str!("../../../contract/src/recovery/fixtures/key.pem");
const OPERATORS_PUBLIC: &str = "MCowBQYDK2VuAyEA/DoJm6hfsJqbEyg0JLDi0H2Awpo3L9imdu1DxxLkqDs=";

/// A word that no file of etcd and no snapshot may contain.
const PLANTED: &str = "planted-4c1f9e7d2b6a8053";

fn plant(scenario: &Scenario) {
    scenario.kubectl(&["create", "secret", "generic", "planted", &format!("--from-literal=word={PLANTED}")]);
}

fn planted(scenario: &Scenario) -> String {
    let word = scenario.kubectl(&["get", "secret", "planted", "--output=jsonpath={.data.word}"]);
    String::from_utf8(BASE64_STANDARD.decode(word).unwrap()).unwrap()
}

/// Snapshots at a snapshot target have the word of the ConfigMap, and not that of the Secret.
fn nowhere_in_what_is_sent_away(scenario: &Scenario) {
    let server = PutServer::start(scenario, beside(endpoint::address(scenario, "cp1"), 1));
    agent(scenario, "cp1", &["snapshot", "save"]);
    let configure = |value: &str| {
        let configure = format!("printf 'snapshot-target=%s\\n' '{value}' | kaas-agent configure --from -");
        scenario.inside("cp1", &["sh", "-ec", &configure]);
    };
    configure(&server.url);
    let sent = server.took();
    let holds = |word: &str| sent.windows(word.len()).any(|part| part == word.as_bytes());
    assert!(holds(SHOWN) && !holds(PLANTED), "{} bytes were sent", sent.len());
    configure("");
    scenario.reached("the snapshot target has no Secret");
}

/// The word in a ConfigMap.
const SHOWN: &str = "shown-4c1f9e7d2b6a8053";

/// The word is found by the same search where it is, in a ConfigMap, and nowhere in the Secret's form.
fn nowhere_in_clear(scenario: &Scenario) {
    scenario.kubectl(&["create", "configmap", "shown", &format!("--from-literal=word={SHOWN}")]);
    for node in ALL {
        let count = |word: &str| {
            let search = format!("grep --recursive --text --files-with-matches {word} /var/lib/etcd | wc --lines");
            scenario.inside(node, &["sh", "-c", &search]).trim().parse::<u32>().unwrap()
        };
        scenario.wait(&format!("etcd on {node} to have the ConfigMap"), MOMENT, || Ok(count(SHOWN) > 0));
        assert_eq!(count(PLANTED), 0, "etcd's files on {node} hold a Secret");
    }
}

/// From one key to the next, with a node away in the midst of it.
fn a_new_key_is_taken_up(scenario: &Scenario) {
    let status = || -> Value {
        serde_json::from_str(&agent(scenario, "cp1", &["encryption", "status", "--output", "json"])).unwrap()
    };
    let before = status()["write"].clone();
    assert!(before.is_string(), "a new cluster has a key");
    scenario.cut("cp3");
    agent(scenario, "cp1", &["encryption", "rotate"]);
    let again = agent(scenario, "cp2", &["encryption", "rotate"]);
    assert!(again.contains("already"), "{again}");
    scenario.wait("the change to wait for cp3 alone", MOMENT, || {
        let status = status();
        assert_eq!(status["write"], before, "written with a key that cp3 does not have");
        Ok(status["waiting"] == serde_json::json!(["cp3"]))
    });
    scenario.power_on(&["cp3"]);
    scenario.wait("the new key to be the only one", FORMING, || {
        let status = status();
        Ok(status["write"] != before && status["under-way"] == false)
    });
    assert_eq!(planted(scenario), PLANTED);
    scenario.all_ready(FORMING);
}

fn written(scenario: &Scenario, name: &str) -> String {
    scenario.kubectl(&["get", "configmap", name, "--ignore-not-found", "--output=jsonpath={.data.written}"])
}

pub mod long {
    use super::*;

    /// A node loses its data disk: the survivors admit a blank one, the first of
    /// the list here, with a code that opens nothing afterwards.
    pub fn lost_node_is_replaced_with_a_code() {
        let scenario = Scenario::formed("replace");
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        let identity = scenario.cluster_identity();

        let why = refused(&scenario, "cp2", &["replace-member", "cp1"]);
        assert!(why.contains("still answers on cp1"), "{why}");
        let why = refused(&scenario, "cp2", &["replace-member", "cp2"]);
        assert!(why.contains("cp2 is this node"), "{why}");

        let lost = lose(&scenario, "cp1");
        let code = replace(&scenario, "cp1", "cp2", None);
        scenario.reached("cp1 is a blank VM with a code");
        three_members(&scenario, "cp2");
        scenario.all_ready(FORMING);
        scenario.soon_says("cp1", "kaas: ready");
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(written(&scenario, "before"), "yes");
        scenario.wait("the code to be forgotten", MOMENT, || {
            let ports = scenario.inside("cp2", &["ss", "--listening", "--tcp", "--numeric", "--no-header"]);
            let kept = scenario.lab().run_inside("cp2", &["test", "-e", "/data/kaas/admission.json"], MOMENT);
            Ok(!ports.contains(":9443 ") && kept.is_err())
        });

        // The same code again opens nothing.
        lose(&scenario, "cp1");
        power_on_blank(&scenario, "cp1", &code);
        refuses(&scenario, "cp1", "kaas: error cluster.exists: ");

        // The lost disk is found, and attached to the node again.
        scenario.cut("cp1");
        take_out(&scenario, "cp1");
        scenario.lab().attach_disk("cp1", lost).unwrap();
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: error disk.held-elsewhere: ");
        agent(&scenario, "cp1", &["force-adopt", "--confirm", "cp1"]);
        // It restarts. A container is off then, and the test powers it on.
        let off = || Ok(scenario.lab().power_state("cp1")? == PowerState::Off);
        scenario.wait("cp1 to go down for its restart", MOMENT, off);
        scenario.power_on(&["cp1"]);
        refuses(&scenario, "cp1", "kaas: error disk.superseded: ");

        // With two members left, one of them dead, there is no quorum without it.
        scenario.cut("cp3");
        let why = refused(&scenario, "cp2", &["replace-member", "cp1"]);
        assert!(why.contains("quorum"), "{why}");
    }

    /// Restores a snapshot that the operator's command had pulled over TLS, on each of the three nodes. The first node prints the
    /// code for the others.
    pub fn cluster_is_restored_on_all_nodes() {
        let scenario = Scenario::formed("backup");
        let lab = scenario.lab();
        let (identity, members) = (scenario.cluster_identity(), scenario.etcd_members("cp1").len());
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        traffic_does_not_contain(&scenario, PLANTED, || {
            plant(&scenario);
            assert_eq!(planted(&scenario), PLANTED);
        });
        let directory = tempfile::tempdir().unwrap();
        let backup = directory.path().join("control.db");
        let kubeconfig = lab.kubeconfig().unwrap();
        let pull = |node: &str, kubeconfig: &Path| {
            let address = endpoint::address(&scenario, node).to_string();
            let mut command = lab.outside(&places::kaas(), ["control", "backup", "--node", &address, "--to-file"]);
            command.arg(&backup).arg("--kubeconfig").arg(kubeconfig).output().unwrap()
        };
        // Another cluster's administrator gets nothing.
        let stranger = directory.path().join("stranger.conf");
        fs::write(&stranger, strangers(&fs::read_to_string(&kubeconfig).unwrap())).unwrap();
        let refused = pull("cp2", &stranger);
        assert!(!refused.status.success() && !backup.exists(), "{refused:?}");
        let pulled = pull("cp2", &kubeconfig);
        assert!(pulled.status.success(), "{pulled:?}");
        scenario.reached(&String::from_utf8_lossy(&pulled.stdout));
        let snapshot = fs::read(&backup).unwrap();
        assert!(!snapshot.windows(PLANTED.len()).any(|part| part == PLANTED.as_bytes()), "a Secret is in the snapshot");
        nowhere_in_clear(&scenario);
        nowhere_in_what_is_sent_away(&scenario);
        a_new_key_is_taken_up(&scenario);
        scenario.kubectl(&["create", "configmap", "after", "--from-literal=written=yes"]);

        let properties = scenario.properties("cp1");
        let name = properties.get("cluster-name").map_or("control", String::as_str);
        let mut code: Option<String> = None;
        for node in ALL {
            copy_into(&scenario, node, &backup, "/var/tmp/control.db");
            let mut command = vec!["restore", "/var/tmp/control.db", "--confirm", name];
            if let Some(code) = &code {
                command.extend(["--as", code]);
            }
            let said = agent(&scenario, node, &command);
            scenario.reached(&format!("{node} has restored the backup"));
            let told = said.split_once("--as ").and_then(|(_, rest)| rest.split_whitespace().next());
            code = code.or_else(|| told.map(str::to_owned));
            assert!(code.is_some(), "{said}");
        }
        let is_there = |name: &str| -> anyhow::Result<bool> {
            Ok(lab.kubectl(&["get", "configmap", name, "--output=jsonpath={.data.written}"])? == "yes")
        };
        scenario.wait("the API to answer again", FORMING, || is_there("before"));
        scenario.all_ready(FORMING);
        assert_eq!(written(&scenario, "after"), "");
        // With the key that the snapshot was made with, which was rotated out since.
        assert_eq!(planted(&scenario), PLANTED);
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(scenario.etcd_members("cp1").len(), members);
        scenario.kubectl(&["create", "configmap", "since", "--from-literal=written=yes"]);
        for node in ALL {
            scenario.cut(node);
        }
        scenario.power_on(&ALL);
        scenario.wait("the cluster to be the restored one after a power cut of all", FORMING, || is_there("since"));
    }

    /// A kubeconfig with the same server and CA, and a certificate that another CA has signed.
    fn strangers(kubeconfig: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let (key, certificate) = (directory.path().join("key"), directory.path().join("certificate"));
        let made = std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args(["-subj", "/O=system:masters/CN=stranger", "-days", "1", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let encoded = |path: &Path| BASE64_STANDARD.encode(fs::read(path).unwrap());
        let lines = kubeconfig.lines().map(|line| {
            for (name, path) in [("client-certificate-data", &certificate), ("client-key-data", &key)] {
                if let Some((before, _)) = line.split_once(name) {
                    let quote = if before.ends_with('"') { "\"" } else { "" };
                    let comma = if line.trim_end().ends_with(',') { "," } else { "" };
                    return format!("{before}{name}{quote}: {quote}{}{quote}{comma}\n", encoded(path));
                }
            }
            format!("{line}\n")
        });
        lines.collect()
    }

    /// The only node is gone for good. A new one, whose cluster has other CAs, restores the Secrets of a backup with the operator's
    /// key, and not without it.
    pub fn cluster_without_nodes_gets_its_secrets_back() {
        let setting = Setting { properties: &[(RECOVERY_PUBLIC_KEY, OPERATORS_PUBLIC)], ..Setting::one("worst") };
        let scenario = Scenario::ready_one(&setting);
        let lab = scenario.lab();
        plant(&scenario);
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let kaas = |arguments: &[&str]| lab.outside(&places::kaas(), arguments).output().unwrap();
        let kubeconfig = lab.kubeconfig().unwrap().display().to_string();
        let address = endpoint::address(&scenario, "cp1").to_string();
        let pulled = kaas(&[
            "control",
            "backup",
            "--node",
            &address,
            "--to-file",
            &path("control.db"),
            "--kubeconfig",
            &kubeconfig,
        ]);
        let said = String::from_utf8_lossy(&pulled.stdout).into_owned();
        assert!(pulled.status.success() && said.contains("sealed to "), "{pulled:?}");

        lose(&scenario, "cp1");
        scenario.reached("the only node is lost");
        let properties = scenario.properties("cp1");
        power_on_blank(&scenario, "cp1", &properties["deployment-secret"]);
        let ready = || Ok(lab.run_inside("cp1", &["kaas-agent", "status"], MOMENT).is_ok());
        scenario.wait("the new node to be ready", FORMING, ready);
        copy_into(&scenario, "cp1", Path::new(&path("control.db")), "/var/tmp/control.db");
        let name = properties.get("cluster-name").map_or("control", String::as_str);
        let restore = ["restore", "/var/tmp/control.db", "--confirm", name];
        agent(&scenario, "cp1", &restore);
        scenario.soon_says("cp1", "kaas: error encryption.key-missing: ");

        fs::write(path("operator.pem"), OPERATORS_PRIVATE).unwrap();
        let opened = kaas(&[
            "recovery-key",
            "open",
            "--key",
            &path("operator.pem"),
            "--to-file",
            &path("keys"),
            &path("control.db"),
        ]);
        assert!(opened.status.success(), "{opened:?}");
        copy_into(&scenario, "cp1", Path::new(&path("keys")), "/var/tmp/keys");
        agent(&scenario, "cp1", &[&restore[..], &["--recovered-keys", "/var/tmp/keys"]].concat());
        // The cluster no longer admits the administrator's credentials of the lost cluster. The test asks inside.
        let ask = ["kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "secret", "planted"];
        let ask = [&ask[..], &["--output=jsonpath={.data.word}"]].concat();
        scenario.wait("the Secret to be there again", FORMING, || {
            let word = lab.run_inside("cp1", &ask, MOMENT).unwrap_or_default();
            Ok(BASE64_STANDARD.decode(word.trim()).is_ok_and(|word| word == PLANTED.as_bytes()))
        });
        scenario.wait("the opened keys to be forgotten", MOMENT, || {
            Ok(lab.run_inside("cp1", &["test", "!", "-e", "/data/kaas/recovered-keys.json"], MOMENT).is_ok())
        });
    }

    /// A node loses its power while a restore stops its control plane. It starts again with what it had.
    fn is_cut_off_while_it_restores(scenario: &Scenario, node: &str, restore: &[&str]) {
        let command = format!("kaas-agent {} >/run/restore 2>&1", restore.join(" "));
        scenario.inside(node, &["systemd-run", "--quiet", "--collect", "sh", "-c", &command]);
        scenario.wait("the restore to stop the control plane", MOMENT, || {
            Ok(scenario
                .lab()
                .run_inside(node, &["cat", "/run/restore"], MOMENT)?
                .contains("stopping the control plane"))
        });
        scenario.cut(node);
        scenario.reached("the restore is cut off");
        scenario.power_on(&[node]);
        scenario.soon_says(node, "kaas: starting etcd");
    }

    /// Two data disks are gone: the third node restores a snapshot alone, after it was cut off while it did, and the others
    /// are replaced.
    pub fn cluster_without_quorum_is_restored() {
        let scenario = Scenario::formed("restore");
        scenario.wait("the leader's node to have taken a snapshot by itself", MOMENT * 2, || {
            let lists = |node: &&str| agent(&scenario, node, &["snapshot", "list", "--output", "json"]);
            Ok(ALL.iter().map(lists).any(|list| list.contains(".db")))
        });
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        let saved = agent(&scenario, "cp3", &["snapshot", "save", "--output", "json"]);
        let saved: Value = serde_json::from_str(&saved).unwrap_or_else(|error| panic!("{saved}: {error}"));
        let snapshot = saved["path"].as_str().expect("the snapshot's path").to_owned();
        scenario.kubectl(&["create", "configmap", "after", "--from-literal=written=yes"]);
        let identity = scenario.cluster_identity();

        lose(&scenario, "cp1");
        scenario.reached("cp1 is lost");
        let properties = scenario.properties("cp3");
        let name = properties.get("cluster-name").map_or("control", String::as_str);
        let why = refused(&scenario, "cp3", &["restore", &snapshot, "--confirm", name, "--alone"]);
        assert!(why.contains("etcd still runs on cp2"), "{why}");
        lose(&scenario, "cp2");
        scenario.reached("cp2 is lost, and with it the quorum");
        let why = refused(&scenario, "cp3", &["restore", &snapshot, "--confirm", "another", "--alone"]);
        assert!(why.contains("nothing was changed"), "{why}");

        is_cut_off_while_it_restores(&scenario, "cp3", &["restore", &snapshot, "--confirm", name, "--alone"]);
        let said = agent(&scenario, "cp3", &["restore", &snapshot, "--confirm", name, "--alone"]);
        assert!(said.contains("replace-member cp1") && said.contains("member.before-restore-"), "{said}");
        scenario.reached("the snapshot is restored");
        scenario.ready(&["cp3"], FORMING);
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!((written(&scenario, "before"), written(&scenario, "after")), ("yes".to_owned(), String::new()));
        scenario.kubectl(&["create", "configmap", "since", "--from-literal=written=yes"]);

        for node in ["cp1", "cp2"] {
            replace(&scenario, node, "cp3", None);
            scenario.soon_says(node, "kaas: ready");
        }
        three_members(&scenario, "cp1");
        scenario.all_ready(FORMING);
        let both = || (written(&scenario, "before"), written(&scenario, "since"));
        assert_eq!(both(), ("yes".to_owned(), "yes".to_owned()));
        assert_eq!(scenario.cluster_identity(), identity);

        // The node that replaced a lost one is part of the restored cluster: after a power cut its disk is no old copy.
        scenario.cut("cp1");
        scenario.reached("cp1, which was replaced, is cut off");
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: ready");
        three_members(&scenario, "cp1");
        scenario.all_ready(FORMING);
        assert_eq!(both(), ("yes".to_owned(), "yes".to_owned()));
    }
}
