//! Files that a power cut has damaged, and storage that was away: afterwards the nodes serve again, without an operator.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fleet::hypervisor::PowerState;
use scenarios::lost_node::{lose, replace, three_members};
use scenarios::scenario::{FORMING, MOMENT, Scenario};
use scenarios::workload::Workload;

use crate::maintenance::{CHECK, has};

/// A node restarts itself at most once in this time.
const BOUND: Duration = Duration::from_secs(600);

/// What a power cut can damage on a node and the node makes again, with a script that damages it.
const DAMAGES: [(&str, &str); 2] = [
    (
        "containerd's database",
        "systemctl stop containerd.service
         dd if=/dev/urandom of=/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db bs=4096 count=16 conv=notrunc",
    ),
    (
        "the database of containerd's snapshots",
        "systemctl stop containerd.service
         truncate --size=0 /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/metadata.db
         dd if=/dev/urandom of=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/metadata.db bs=4096 count=4",
    ),
];

/// Damages what the kubelet keeps: certificates, checkpoints and static pods; and what CNI plugins returned for pods.
const KUBELET: &str = r#"systemctl stop kubelet.service
    cd /var/lib/kubelet
    truncate --size=0 pki/kubelet-client-*.pem pki/kubelet.crt pki/kubelet.key /etc/kubernetes/manifests/*.yaml
    mkdir -p device-plugins
    for file in cpu_manager_state memory_manager_state device-plugins/kubelet_internal_checkpoint; do
        echo '{"damaged' >$file
    done
    truncate --no-create --size=0 /var/lib/cni/results/*
    sync"#;

/// Damages what the kubelet of a control node keeps, before its power is cut.
pub fn damage_what_the_kubelet_keeps(scenario: &Scenario, node: &str) {
    scenario.inside(node, &["sh", "-ec", KUBELET]);
}

/// The node has made that again.
pub fn the_kubelet_keeps_nothing_damaged(scenario: &Scenario, node: &str) {
    let empty = ["find", "/var/lib/kubelet/pki/kubelet.crt", "/etc/kubernetes/manifests/", "-type", "f", "-empty"];
    assert_eq!(scenario.inside(node, &empty), "", "{node}");
}

pub mod long {
    use super::*;

    /// Each kind of damage that a node heals by itself, then a damaged member of etcd, which it names with the command that
    /// replaces it.
    pub fn files_that_a_power_cut_has_damaged_are_made_again() {
        let scenario = Scenario::formed("damage");
        let workload = Workload::start(&scenario, "cp1", MOMENT);
        for (what, damage) in DAMAGES {
            scenario.inside("cp1", &["sh", "-ec", &format!("{damage}\nsync")]);
            comes_back_after_a_cut(&scenario, "cp1", what);
            workload.is_reached_by_name_from("cp2");
            scenario.wait("cp1 to say that it has removed it", CHECK, || has(&scenario, "cp1", "runtime.recreated"));
        }

        damage_what_the_kubelet_keeps(&scenario, "cp1");
        comes_back_after_a_cut(&scenario, "cp1", "what the kubelet keeps");
        the_kubelet_keeps_nothing_damaged(&scenario, "cp1");
        workload.is_reached_by_name_from("cp2");

        scenario.inside(
            "cp2",
            &[
                "sh",
                "-ec",
                "systemctl stop etcd.service
                 dd if=/dev/urandom of=/var/lib/etcd/member/snap/db bs=4096 count=16 conv=notrunc,fsync",
            ],
        );
        scenario.cut("cp2");
        scenario.power_on(&["cp2"]);
        scenario.wait("cp2 to name its damaged etcd", CHECK, || has(&scenario, "cp2", "etcd.damaged"));
        let status = scenario.lab().status("cp2").unwrap().to_string();
        assert!(status.contains("kaas-agent replace-member cp2"), "{status}");
        lose(&scenario, "cp2");
        replace(&scenario, "cp2", "cp1", None);
        three_members(&scenario, "cp1");
        scenario.all_ready(FORMING);
    }

    /// The file systems of one, two and three nodes refuse writes. Each node restarts by itself, and none twice in ten minutes.
    pub fn nodes_whose_storage_was_away_restart_and_serve_again() {
        let scenario = Scenario::formed("away");
        let rounds: [&[_]; 3] = [
            &[("cp1", "/data")],
            &[("cp2", "/var"), ("cp3", "/data")],
            &[("cp1", "/data"), ("cp2", "/data"), ("cp3", "/var")],
        ];
        let mut restarted = BTreeMap::new();
        for round in rounds {
            for (node, mount) in round {
                fail(&scenario, node, mount);
            }
            for (node, mount) in round {
                let off = || Ok::<_, anyhow::Error>(scenario.lab().power_state(node)? == PowerState::Off);
                scenario.wait(&format!("{node} to restart for {mount}"), BOUND + CHECK, off);
                // A container that restarts is off then: the lab does not start it again by itself.
                scenario.cut(node);
                scenario.power_on(&[*node]);
                if let Some(last) = restarted.insert(node, Instant::now()) {
                    assert!(last.elapsed() >= BOUND, "{node} has restarted twice in {} s", last.elapsed().as_secs());
                }
            }
            scenario.all_ready(FORMING);
            for (node, _) in round {
                scenario.soon_says(node, "kaas: ready");
                assert!(!has(&scenario, node, "disk.read-only").unwrap(), "{node}");
            }
        }
        scenario.kubectl(&["create", "configmap", "afterwards", "--from-literal=written=yes"]);
    }
}

/// Cuts a node's power and waits until it is ready again.
fn comes_back_after_a_cut(scenario: &Scenario, node: &str, what: &str) {
    scenario.cut(node);
    scenario.power_on(&[node]);
    scenario.reached(&format!("{node} is on again with damage: {what}"));
    scenario.says(node, "kaas: ready", FORMING);
    scenario.all_ready(FORMING);
}

/// Has a node's file system behave as after an error of its storage. The kernel is this machine's own: the device must be a loop
/// device over a file of this lab.
fn fail(scenario: &Scenario, node: &str, mount: &str) {
    let numbers = scenario.inside(node, &["findmnt", "--noheadings", "--first-only", "--output=MAJ:MIN", mount]);
    let device: PathBuf = fs::canonicalize(Path::new("/sys/dev/block").join(numbers.trim())).unwrap();
    let disk = if device.join("partition").exists() { device.parent().unwrap() } else { device.as_path() };
    let file = fs::read_to_string(disk.join("loop/backing_file")).unwrap_or_else(|error| {
        panic!("{mount} of {node} is on {}, which is no loop device: {error}", device.display());
    });
    let lab = scenario.lab().directory().canonicalize().unwrap();
    assert!(
        Path::new(file.trim_end()).starts_with(&lab),
        "{} is over {file}, not a file of this lab",
        device.display()
    );
    let name = device.file_name().unwrap();
    // With `errors=panic` this machine would restart.
    let options = fs::read_to_string(Path::new("/proc/fs/ext4").join(name).join("options")).unwrap();
    assert!(options.lines().any(|option| option == "errors=remount-ro"), "{mount} of {node}: {options}");
    fs::write(Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error"), "tried by a scenario").unwrap();
    scenario.reached(&format!("{mount} of {node} refuses writes"));
}
