//! Files that a power cut has damaged, and storage that was away: afterwards the nodes serve again, without an operator.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fleet::hypervisor::PowerState;
use scenarios::lost_node::{lose, replace, three_members};
use scenarios::scenario::{FORMING, MOMENT, Scenario};
use scenarios::workload::Workload;

use crate::maintenance::{CHECK, has};

/// A node restarts itself at most once in this time.
const BOUND: Duration = Duration::from_secs(600);

/// Within this time a node looks at its storage more than twice.
const LOOKS: Duration = Duration::from_secs(60);

/// The storage of a node is away for this time.
const AWAY: Duration = Duration::from_secs(300);

/// The state that a power cut can damage and a node makes again, with a script that damages it.
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

/// Damages the files that the kubelet of a control-plane node keeps, before its power is cut.
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
    pub fn files_damaged_by_a_power_cut_are_recreated() {
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

    /// The storage of one, two and three nodes gives errors for at least five minutes, and until one of these nodes may restart.
    /// No node restarts before its storage answers, or before it has been on for ten minutes.
    pub fn nodes_wait_for_their_storage_and_restart() {
        let scenario = Scenario::formed("away");
        // A container does not see the device behind /var: its agent asks for that of /data alone.
        let rounds: [&[_]; 3] = [
            &[("cp1", &["/data"] as &[_])],
            &[("cp2", &["/data", "/var"]), ("cp3", &["/data"])],
            &[("cp1", &["/data", "/var"]), ("cp2", &["/data"]), ("cp3", &["/data", "/var"])],
        ];
        let mut on_since = BTreeMap::from(["cp1", "cp2", "cp3"].map(|node| (node, Instant::now())));
        for round in rounds {
            let away: Vec<_> = round
                .iter()
                .flat_map(|(node, mounts)| mounts.iter().map(|mount| Storage::of(&scenario, node, mount)))
                .collect();
            away.iter().for_each(Storage::fail);
            let began = Instant::now();
            scenario.wait("a node that may restart but for its storage", AWAY + BOUND + CHECK, || {
                for (node, _) in round {
                    ensure!(!off(&scenario, node)?, "{node} restarts while its storage is away");
                    if !has(&scenario, node, "disk.read-only")? {
                        return Ok(false);
                    }
                }
                let may_restart = round.iter().any(|(node, _)| on_since[node].elapsed() >= BOUND + LOOKS);
                Ok(may_restart && began.elapsed() >= AWAY)
            });
            for storage in away {
                assert!(storage.is_away(), "{} has its size again", storage.what);
                storage.answer().unwrap();
                scenario.reached(&format!("the storage behind {} answers", storage.what));
            }
            for (node, _) in round {
                scenario.wait(&format!("{node} to restart"), BOUND + CHECK, || off(&scenario, node));
                let on = on_since[node].elapsed();
                assert!(on >= BOUND, "{node} restarts after {} s", on.as_secs());
                // A container that restarts is off then: the lab does not start it again by itself.
                scenario.cut(node);
                on_since.insert(node, Instant::now());
                scenario.power_on(&[*node]);
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

fn off(scenario: &Scenario, node: &str) -> anyhow::Result<bool> {
    Ok(scenario.lab().power_state(node)? == PowerState::Off)
}

/// The device of a node's file system. The kernel is this machine's own: it is a loop device over a file of this lab.
struct Storage<'a> {
    scenario: &'a Scenario,
    what: String,
    disk: PathBuf,
    /// Its number on the disk, if it is a partition.
    partition: Option<String>,
    /// The size of the disk and of the file system's device.
    sectors: [String; 2],
}

impl<'a> Storage<'a> {
    fn of(scenario: &'a Scenario, node: &str, mount: &str) -> Self {
        let numbers = scenario.inside(node, &["findmnt", "--noheadings", "--first-only", "--output=MAJ:MIN", mount]);
        let device = fs::canonicalize(Path::new("/sys/dev/block").join(numbers.trim())).unwrap();
        let partition = fs::read_to_string(device.join("partition")).ok().map(|number| number.trim().to_owned());
        let disk = if partition.is_some() { device.parent().unwrap() } else { device.as_path() };
        let file = fs::read_to_string(disk.join("loop/backing_file")).unwrap_or_else(|error| {
            panic!("{mount} of {node} is on {}, which is no loop device: {error}", device.display());
        });
        let lab = scenario.lab().directory().canonicalize().unwrap();
        assert!(
            Path::new(file.trim_end()).starts_with(&lab),
            "{} is over {file}, not a file of this lab",
            device.display()
        );
        // With `errors=panic` this machine would restart.
        let options = Path::new("/proc/fs/ext4").join(device.file_name().unwrap()).join("options");
        let options = fs::read_to_string(options).unwrap();
        assert!(options.lines().any(|option| option == "errors=remount-ro"), "{mount} of {node}: {options}");
        Self {
            scenario,
            what: format!("{mount} of {node}"),
            sectors: [disk, device.as_path()].map(sectors),
            disk: Path::new("/dev").join(disk.file_name().unwrap()),
            partition,
        }
    }

    /// Linux gives an error for each request beyond the end of a device. The partition ends before its disk does: the node would
    /// make it as large as the disk again.
    fn fail(&self) {
        self.end_partition_at("1").and_then(|()| self.end_disk_at("1")).unwrap();
        self.scenario.reached(&format!("the storage behind {} is away", self.what));
    }

    fn is_away(&self) -> bool {
        let name = self.disk.file_name().unwrap();
        sectors(&Path::new("/sys/block").join(name)) == "1"
    }

    fn answer(&self) -> anyhow::Result<()> {
        self.end_disk_at(&self.sectors[0])?;
        self.end_partition_at(&self.sectors[1])
    }

    fn end_partition_at(&self, sectors: &str) -> anyhow::Result<()> {
        let Some(number) = &self.partition else { return Ok(()) };
        run(Command::new("resizepart").arg(&self.disk).args([number, sectors]))
    }

    fn end_disk_at(&self, sectors: &str) -> anyhow::Result<()> {
        // LOOP_GET_STATUS64 and LOOP_SET_STATUS64 with another `lo_sizelimit` (linux/loop.h).
        const LIMIT: &str = r#"open(my $d, "+<", $ARGV[0]) or die "$!"; my $i = "\0" x 232; ioctl($d, 0x4c05, $i) or die "$!";
            substr($i, 32, 8) = pack("Q", 512 * $ARGV[1]); ioctl($d, 0x4c04, $i) or die "$!""#;
        run(Command::new("perl").args(["-e", LIMIT]).arg(&self.disk).arg(sectors))
    }
}

/// The storage of a failed scenario answers too: its evidence is on it.
impl Drop for Storage<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.answer() {
            eprintln!("the storage behind {}: {error:#}", self.what);
        }
    }
}

fn sectors(device: &Path) -> String {
    fs::read_to_string(device.join("size")).unwrap().trim().to_owned()
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
