//! etcd filled up to its quota on the container engine.

use std::time::Duration;

use scenarios::lost_node::agent;
use scenarios::scenario::{ALL, FORMING, MOMENT, Scenario, Setting};
use scenarios::store::{ETCDCTL, etcdctl};

use crate::maintenance::has;

/// How long a slow disk may take for a store of 0.7 GiB.
const FILLING: Duration = Duration::from_secs(1200);

/// The alarm is lifted at the third look, one each two minutes: compacted, defragmented, lifted.
const HEALING: Duration = Duration::from_secs(900);

/// Each of three nodes is defragmented by a separate check.
const HEALING_THREE: Duration = Duration::from_secs(1800);

/// Plants files that pass for snapshots of long ago until less than a seventh of the data disk is free.
const FILL_WITH_SNAPSHOTS: &str = "
    day=10
    while set -- $(stat --file-system --format='%S %b %a' /data); [ $(( $3 * 7 )) -gt $2 ]; do
        fallocate --length 200MiB /data/snapshots/control-201001${day}T000000Z.db
        day=$(( day + 1 ))
    done";

/// Writes a mebibyte at a time until etcd refuses, and returns its message. A write that fails for another reason, as on a
/// busy machine, is tried again.
fn fill() -> String {
    let put = ETCDCTL.join(" ");
    format!(
        "head --bytes=700000 /dev/urandom | base64 --wrap=0 >/run/filling
         number=0
         until [ $number -eq 5000 ]; do
             if {put} put /filling/$number </run/filling >/dev/null 2>/run/refusal; then
                 number=$(( number + 1 ))
             elif grep 'database space exceeded' /run/refusal; then
                 break
             fi
         done
         rm /run/filling
         echo after $number values"
    )
}

/// The status of a node's condition Ready.
fn says_ready(scenario: &Scenario, node: &str) -> String {
    let path = r#"--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    scenario.kubectl(&["get", "node", node, path])
}

/// Fills the store through a node's member.
fn fill_up(scenario: &Scenario, node: &str) {
    let filled = scenario.inside_for(node, &["sh", "-ec", &fill()], FILLING);
    assert!(filled.contains("database space exceeded"), "{filled}");
    scenario.reached(&format!("etcd refuses writes: {}", filled.trim()));
    assert!(!etcdctl(scenario, node, &["alarm", "list"]).trim().is_empty());
}

/// Deletes what filled the store, and waits until the nodes have lifted its alarm.
fn free(scenario: &Scenario, node: &str) {
    etcdctl(scenario, node, &["del", "--prefix", "/filling/"]);
    scenario.wait("the alarm to be lifted", HEALING_THREE, || {
        Ok(etcdctl(scenario, node, &["alarm", "list"]).trim().is_empty() && !has(scenario, node, "etcd.no-space")?)
    });
}

fn written(scenario: &Scenario, name: &str) -> String {
    scenario.kubectl(&["get", "configmap", name, "--output=jsonpath={.data.written}"])
}

pub mod long {
    use super::*;

    /// The test fills etcd on the smallest data disk. etcd raises its alarm long before the disk is full. The node removes old
    /// snapshots meanwhile. All data can be read as before, also after a power cut. Once objects are deleted, the agent compacts,
    /// defragments and lifts the alarm by itself.
    pub fn full_store_serves_again_after_deletions() {
        let scenario = Scenario::ready_one(&Setting::one("store"));
        let lab = scenario.lab();
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        agent(&scenario, "cp1", &["snapshot", "save"]);
        let snapshots = || scenario.inside("cp1", &["sh", "-ec", "ls /data/snapshots"]);
        let taken = snapshots().lines().filter(|name| name.ends_with(".db")).count();
        // Old snapshots, until a seventh of the disk is free.
        scenario.inside("cp1", &["sh", "-ec", FILL_WITH_SNAPSHOTS]);
        let planted = snapshots().lines().count() - taken;
        assert!(planted > 2, "{planted} snapshots were planted");

        let starts = || scenario.inside("cp1", &["systemctl", "show", "--property=NRestarts,MainPID", "etcd.service"]);
        let before = starts();
        fill_up(&scenario, "cp1");
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

        // On a node that waits for a healthy etcd, no client could delete anything.
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

    /// The store is full while one of three nodes is off, which Kubernetes reports as not ready. The other two nodes lift the
    /// alarm. The store is filled again before the third node returns. Its kubelet cannot report that it is ready, and its boot
    /// waits. It does its part for the store nevertheless.
    pub fn full_store_heals_while_a_node_is_away() {
        let scenario = Scenario::formed("store3");
        scenario.cut("cp3");
        scenario.wait("cp3 to count as lost", FORMING, || Ok(says_ready(&scenario, "cp3") == "Unknown"));
        fill_up(&scenario, "cp1");
        free(&scenario, "cp1");
        scenario.kubectl(&["create", "configmap", "without", "--from-literal=written=yes"]);

        fill_up(&scenario, "cp1");
        scenario.power_on(&["cp3"]);
        // It has what was written while it was away.
        scenario.wait("etcd on cp3 to serve", FORMING, || {
            let get = [&ETCDCTL[..], &["get", "--keys-only", "/filling/0"]].concat();
            Ok(scenario.lab().run_inside("cp3", &get, MOMENT).is_ok_and(|said| said.contains("/filling/0")))
        });
        assert_eq!(says_ready(&scenario, "cp3"), "Unknown");
        free(&scenario, "cp1");
        scenario.all_ready(FORMING);
        for node in ALL {
            scenario.soon_says(node, "kaas: ready");
        }
        scenario.kubectl(&["create", "configmap", "with", "--from-literal=written=yes"]);
        assert_eq!((written(&scenario, "without"), written(&scenario, "with")), ("yes".to_owned(), "yes".to_owned()));
    }
}
