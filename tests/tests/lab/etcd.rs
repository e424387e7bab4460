//! etcd's care on the container engine: snapshots, a restore after the quorum
//! is lost, and the replacement of a lost node.

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fleet::hypervisor::PowerState;
use scenarios::by_hand::refuses;
use scenarios::endpoint;
use scenarios::lost_node::{agent, lose, power_on_blank, replace, take_out, three_members};
use scenarios::scenario::{self, ALL, FORMING, MOMENT, Scenario, Setting};
use scenarios::store::{ETCDCTL, etcdctl};
use serde_json::Value;

use crate::maintenance::has;

/// How long a slow disk may take for a store of 0.7 GiB.
const FILLING: Duration = Duration::from_secs(1200);

/// The alarm is lifted at the third look, one each two minutes: compacted, defragmented, lifted.
const HEALING: Duration = Duration::from_secs(900);

/// Plants files that pass for snapshots of long ago until less than a seventh of the data disk is free.
const FILL_WITH_SNAPSHOTS: &str = "
    day=10
    while set -- $(stat --file-system --format='%S %b %a' /data); [ $(( $3 * 7 )) -gt $2 ]; do
        fallocate --length 200MiB /data/snapshots/control-201001${day}T000000Z.db
        day=$(( day + 1 ))
    done";

/// Writes a mebibyte at a time until etcd refuses, and says what it says then.
fn fill() -> String {
    let put = ETCDCTL.join(" ");
    format!(
        "head --bytes=700000 /dev/urandom | base64 --wrap=0 >/run/filling
         number=0
         while {put} put /filling/$number </run/filling >/dev/null 2>/run/refusal; do
             number=$(( number + 1 ))
             [ $number -lt 5000 ]
         done
         rm /run/filling
         grep 'database space exceeded' /run/refusal | tail --lines=1
         echo after $number values"
    )
}

/// What the agent on a node refuses, and why.
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

fn written(scenario: &Scenario, name: &str) -> String {
    scenario.kubectl(&["get", "configmap", name, "--ignore-not-found", "--output=jsonpath={.data.written}"])
}

pub mod long {
    use super::*;

    /// A node loses its data disk: the survivors admit a blank one, the first of
    /// the list here, with a code that opens nothing afterwards.
    pub fn a_lost_node_is_replaced_with_a_one_time_code() {
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
        power_on_blank(&scenario, "cp1", &code, None);
        refuses(&scenario, "cp1", "kaas: error cluster.exists: ");

        // The lost disk turns up again, and somebody gives it back to the node.
        scenario.cut("cp1");
        take_out(&scenario, "cp1");
        scenario.lab().attach_disk("cp1", lost).unwrap();
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: error disk.held-elsewhere: ");
        agent(&scenario, "cp1", &["force-adopt", "--confirm", "cp1"]);
        // It restarts; a container is off then, and whoever runs it powers it on.
        let off = || Ok(scenario.lab().power_state("cp1")? == PowerState::Off);
        scenario.wait("cp1 to go down for its restart", MOMENT, off);
        scenario.power_on(&["cp1"]);
        refuses(&scenario, "cp1", "kaas: error disk.superseded: ");

        // With two members left, one of them dead, there is no quorum without it.
        scenario.cut("cp3");
        let why = refused(&scenario, "cp2", &["replace-member", "cp1"]);
        assert!(why.contains("quorum"), "{why}");
    }

    /// Somebody fills etcd on the smallest data disk there is: it raises its alarm long before the disk is full, old
    /// snapshots make room meanwhile, and all is read as before, also after the node has lost its power. Once objects are
    /// deleted the agent compacts, defragments and lifts the alarm by itself.
    pub fn a_full_store_is_read_and_serves_again_once_objects_are_deleted() {
        let scenario = Scenario::prepare(&Setting::one("full-store"));
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        let lab = scenario.lab();
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        agent(&scenario, "cp1", &["snapshot", "save"]);
        let snapshots = || scenario.inside("cp1", &["sh", "-ec", "ls /data/snapshots"]);
        let taken = snapshots().lines().filter(|name| name.ends_with(".db")).count();
        // What is left of years, until a seventh of the disk is free.
        scenario.inside("cp1", &["sh", "-ec", FILL_WITH_SNAPSHOTS]);
        let planted = snapshots().lines().count() - taken;
        assert!(planted > 2, "{planted} snapshots were planted");

        let starts = || scenario.inside("cp1", &["systemctl", "show", "--property=NRestarts,MainPID", "etcd.service"]);
        let before = starts();
        let filled = scenario.inside_for("cp1", &["sh", "-ec", &fill()], FILLING);
        scenario.reached(&format!("etcd refuses writes: {}", filled.trim()));
        scenario.wait("the finding", MOMENT, || has(&scenario, "cp1", "etcd.no-space"));
        assert_eq!(starts(), before, "etcd was started again");
        let free: u64 =
            scenario.inside("cp1", &["sh", "-ec", "stat --file-system --format=%a /data"]).trim().parse().unwrap();
        assert!(free > 0, "the disk is full");
        let left = snapshots();
        assert!(left.lines().count() < taken + planted, "no snapshot made room: {left}");
        let is_full = || {
            assert_eq!(written(&scenario, "before"), "yes");
            let refused = lab.kubectl(&["create", "configmap", "meanwhile"]).unwrap_err();
            assert!(format!("{refused:#}").contains("database space exceeded"), "{refused:#}");
        };
        is_full();

        // Nobody could delete anything on a node that waits for etcd to be well.
        scenario.cut("cp1");
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: ready");
        is_full();

        etcdctl(&scenario, "cp1", &["del", "--prefix", "/filling/"]);
        scenario.wait("the alarm to be lifted", HEALING, || {
            Ok(etcdctl(&scenario, "cp1", &["alarm", "list"]).trim().is_empty()
                && !has(&scenario, "cp1", "etcd.no-space")?)
        });
        scenario.kubectl(&["create", "configmap", "after", "--from-literal=written=yes"]);
        assert_eq!((written(&scenario, "before"), written(&scenario, "after")), ("yes".to_owned(), "yes".to_owned()));
        let size = scenario.inside("cp1", &["stat", "--format=%s", "/var/lib/etcd/member/snap/db"]);
        assert!(size.trim().parse::<u64>().unwrap() < 100 << 20, "the database was not defragmented: {size}");
    }

    /// The cluster is turned back to a snapshot that the operator's command had pulled over TLS: on
    /// each of the three nodes, the others as the first one says.
    pub fn a_cluster_is_turned_back_to_a_backup_on_all_nodes() {
        let scenario = Scenario::formed("backup");
        let lab = scenario.lab();
        let (identity, members) = (scenario.cluster_identity(), scenario.etcd_members("cp1").len());
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        let directory = tempfile::tempdir().unwrap();
        let backup = directory.path().join("control.db");
        let kubeconfig = lab.kubeconfig().unwrap();
        let pull = |node: &str, kubeconfig: &Path| {
            let address = endpoint::address(&scenario, node).to_string();
            let mut command = lab.outside(&scenario::kaas(), ["backup", "--node", &address, "--output"]);
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
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(scenario.etcd_members("cp1").len(), members);
        scenario.kubectl(&["create", "configmap", "since", "--from-literal=written=yes"]);
        for node in ALL {
            scenario.cut(node);
        }
        scenario.power_on(&ALL);
        scenario.wait("the cluster to be the restored one after a power cut of all", FORMING, || is_there("since"));
    }

    /// A kubeconfig with the same server and authority and a certificate that another authority has signed.
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

    /// Two data disks are gone: the third node restores a snapshot alone, and
    /// the others are replaced.
    pub fn a_cluster_that_lost_its_quorum_is_restored_from_a_snapshot() {
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
        assert_eq!((written(&scenario, "before"), written(&scenario, "since")), ("yes".to_owned(), "yes".to_owned()));
        assert_eq!(scenario.cluster_identity(), identity);
    }
}
