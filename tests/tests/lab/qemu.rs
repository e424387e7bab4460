//! One control-plane node from the OVA in a virtual machine: firmware, kernel image, verity, disks.

use std::time::{Duration, Instant};

use contract::properties::TIMEOUT_FACTOR;
use lab::Hardware;
use scenarios::by_hand;
use scenarios::earlier_ova;
use scenarios::guest_cuts;
use scenarios::scenario::{Scenario, Setting};
use scenarios::upgrade::Upgrade;
use scenarios::workload::Workload;
use serde_json::json;

use crate::maintenance::a_data_disk_is_made_larger;

/// Emulated processors are slow, and the machine may be busy.
const FORMING: Duration = Duration::from_secs(30 * 60);
const WORK: Duration = Duration::from_secs(15 * 60);

pub mod short {
    use super::*;

    /// A node of the earlier image forms its cluster and runs a pod that is reached by its service's name. It is
    /// swapped to the image under test in a VM with vSphere's devices. It is the same node of the same cluster, and finds
    /// its adapter and its disks. The old node is a container, which saves minutes: only the new image boots in a VM.
    pub fn a_node_is_swapped_onto_vspheres_devices() {
        let replacements = Some(Hardware::Vsphere);
        let setting = Setting { replacements, properties: &[(TIMEOUT_FACTOR, "5")], ..Setting::one("vm") };
        let scenario = Scenario::prepare_from(&setting, earlier_ova::source());
        // Whether KVM runs guests is asked with the same guest: one that runs nowhere would always say no.
        assert!(lab::emulation_runs_guests(&scenario.lab().tools(), WORK).unwrap());
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        let workload = Workload::start(&scenario, "cp1", WORK);
        workload.is_reached_by_name_from("cp1");
        let upgrade = Upgrade::of(&scenario);
        let (identity, kept, kubernetes) = (scenario.cluster_identity(), upgrade.kept(), upgrade.kubernetes());

        upgrade.run(&["apply"]);
        let new = scenario.vm_of("cp1");
        assert_ne!(new, "cp1");
        has_vsphere_drivers(&scenario, &new);
        containers_are_confined(&scenario, &new);
        assert_eq!((scenario.cluster_identity(), upgrade.kept()), (identity, kept));
        assert_ne!(upgrade.kubernetes(), kubernetes);
        workload.is_reached_by_name_from("cp1");
    }
}

fn quick(name: &'static str) -> Setting {
    Setting { hardware: Some(Hardware::Quick), ..Setting::one(name) }
}

fn has_vsphere_drivers(scenario: &Scenario, vm: &str) {
    let drivers = ["ls", "/sys/bus/pci/drivers/vmxnet3", "/sys/bus/pci/drivers/vmw_pvscsi"];
    scenario.wait("the drivers of both devices", WORK, || {
        Ok(scenario.lab().run_inside(vm, &drivers, WORK)?.matches("0000:").count() == 2)
    });
}

/// Prints the AppArmor profile of the container of this name.
const PROFILE: &str = r#"
container=$(crictl ps --quiet --name "^$1\$")
pid=$(crictl inspect --output go-template --template '{{.info.pid}}' "$container")
cat "/proc/$pid/attr/current""#;

/// Containers run with containerd's AppArmor profile: the workload's and the API server's. A privileged one runs without.
fn containers_are_confined(scenario: &Scenario, vm: &str) {
    scenario.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "privileged", "namespace": "kube-system"},
        "spec": {
            "nodeName": "cp1",
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "privileged", "image": scenario.carried("cp1", "pause"), "imagePullPolicy": "Never",
                "securityContext": {"privileged": true},
            }],
        },
    }));
    let confined = "cri-containerd.apparmor.d (enforce)";
    for (container, profile) in [("web", confined), ("kube-apiserver", confined), ("privileged", "unconfined")] {
        scenario.wait(&format!("{container} to be {profile}"), WORK, || {
            let said = scenario.lab().run_inside(vm, &["sh", "-ec", PROFILE, "profile", container], WORK)?;
            Ok(said.trim() == profile)
        });
    }
}

/// Each setting of the image holds on the node's own kernel, whatever other files and later programs set.
fn the_kernel_is_set_as_the_image_says(scenario: &Scenario, vm: &str) {
    let said = scenario.lab().run_inside(vm, &["cat", "/usr/lib/sysctl.d/60-kaas.conf"], WORK).unwrap();
    let lines = said.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let named = lines.map(|(name, value)| (name.trim_start_matches('-'), value.trim()));
    // A setting with a star is one for each adapter: the scenario of strangers reads those.
    let settings: Vec<_> = named.filter(|(name, _)| !name.contains('*')).collect();
    assert!(settings.contains(&("kernel.sysrq", "0")) && settings.len() > 20, "{settings:?}");
    let read = |name: &str| {
        let file = format!("/proc/sys/{}", name.replace('.', "/"));
        Ok::<_, anyhow::Error>(scenario.lab().run_inside(vm, &["cat", &file], WORK)?.trim().to_owned())
    };
    let lockdown = scenario.lab().run_inside(vm, &["cat", "/sys/kernel/security/lockdown"], WORK).unwrap();
    assert!(lockdown.contains("[integrity]"), "{lockdown}");
    let verity = scenario.lab().run_inside(vm, &["veritysetup", "status", "root"], WORK).unwrap();
    assert!(verity.contains("panic_on_corruption"), "a damaged block of the root goes unnoticed: {verity}");
    for (name, value) in settings {
        scenario.wait(&format!("{name} to be {value}"), WORK, || Ok(read(name)? == value));
    }
    // As a privileged pod may. The kubelet does not start with another value than its own.
    let change = "echo 0 >/proc/sys/vm/overcommit_memory; systemctl restart kubelet";
    scenario.lab().run_inside(vm, &["sh", "-ec", change], WORK).unwrap();
    assert_eq!(read("vm.overcommit_memory").unwrap(), "1");
}

pub mod long {
    use super::*;

    /// A node of the earlier image is swapped to the image under test, whose VM loses its power in its first boot. It loses its
    /// power once more and is rolled back. It stays the same node of the same cluster. The container engine cuts at every kind of
    /// moment. This scenario tests real disks and a real boot.
    pub fn node_cut_in_its_swap_is_rolled_back() {
        let scenario = Scenario::prepare_from(&quick("vmback"), earlier_ova::source());
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        let workload = Workload::start(&scenario, "cp1", WORK);
        let upgrade = Upgrade::of(&scenario);
        let before = (scenario.cluster_identity(), upgrade.kept(), upgrade.kubernetes());
        guest_cuts::in_the_first_boot(&scenario);
        assert_eq!((scenario.cluster_identity(), upgrade.kept()), (before.0.clone(), before.1.clone()));
        // A node whose second boot comes too late has gone back by itself.
        if upgrade.is_all_back() {
            upgrade.run(&["apply"]);
        }
        assert_ne!(upgrade.kubernetes(), before.2);
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);

        scenario.cut(&scenario.vm_of("cp1"));
        upgrade.run(&["rollback"]);
        assert!(upgrade.is_all_back());
        assert_eq!((scenario.cluster_identity(), upgrade.kept(), upgrade.kubernetes()), before);
        let written = ["get", "configmap", "before", "--output=jsonpath={.data.written}"];
        assert_eq!(scenario.kubectl(&written), "yes");
        workload.is_reached_by_name_from("cp1");
    }

    /// Both engines share one network: a virtual machine forms a cluster with two containers. Pods on it reach those on the other
    /// nodes, and the other way round.
    pub fn vm_forms_a_cluster_with_two_containers() {
        let emulated = Some(Hardware::Quick);
        let setting =
            Setting { replacements: emulated, properties: &[(TIMEOUT_FACTOR, "5")], ..Setting::three("mixed") };
        let scenario = Scenario::prepare(&setting);
        by_hand::import_filled_in(&scenario, "cp3-vm", "cp3", None);
        by_hand::move_disk(&scenario, "cp3", "cp3-vm");
        scenario.power_on(&["cp1", "cp2", "cp3-vm"]);
        scenario.all_ready(FORMING);
        let kernel = |vm: &str| scenario.inside(vm, &["uname", "--kernel-release"]);
        assert_ne!(kernel("cp3-vm"), kernel("cp1"), "it has a kernel of its own");
        let workload = Workload::start(&scenario, "cp3", WORK);
        workload.is_reached_by_name_from("cp1");
        workload.is_reached_by_name_from("cp3");
    }

    /// A node on vSphere's devices does its part of a cluster. It uses the new size of an enlarged data disk. It restarts after its
    /// scratch partition was damaged.
    pub fn a_node_on_vsphere_hardware_forms_a_cluster() {
        let setting = Setting { hardware: Some(Hardware::Vsphere), ..Setting::one("vsphere") };
        let scenario = Scenario::prepare(&setting);
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        has_vsphere_drivers(&scenario, "cp1");
        the_kernel_is_set_as_the_image_says(&scenario, "cp1");
        let workload = Workload::start(&scenario, "cp1", WORK);
        workload.is_reached_by_name_from("cp1");
        a_data_disk_is_made_larger(&scenario, "cp1", WORK);

        let scratch = || scenario.lab().run_inside("cp1", &["findmnt", "--noheadings", "--output=UUID", "/var"], WORK);
        let before = scratch().unwrap();
        // Programs need the partition, and cannot end cleanly without it. The test does not wait for the command, and cuts the power.
        let damage = ["dd", "if=/dev/urandom", "of=/dev/disk/by-partlabel/kaas-var", "bs=1M", "count=64", "conv=fsync"];
        let _ = scenario.lab().run_inside("cp1", &damage, WORK);
        scenario.cut("cp1");
        scenario.power_on(&["cp1"]);
        scenario.wait("the VM to have a new scratch file system", FORMING, || {
            let now = scratch()?;
            Ok(!now.trim().is_empty() && now != before)
        });
        scenario.wait("the node to be ready", FORMING, || {
            Ok(scenario.lab().run_inside("cp1", &["kaas-agent", "status"], WORK).is_ok())
        });
        workload.is_reached_by_name_from("cp1");
    }

    /// How long the data disk is away.
    const AWAY: Duration = Duration::from_secs(300);

    /// The data disk of a virtual machine answers with errors for five minutes. The node waits for it, restarts once, and
    /// serves again with what was written before.
    pub fn node_restarts_after_its_disk_was_away() {
        let scenario = Scenario::prepare(&quick("vmaway"));
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        let boot = || scenario.lab().run_inside("cp1", &["cat", "/proc/sys/kernel/random/boot_id"], WORK);
        let before = boot().unwrap();
        // Linux gives an error for each request to a disk that is offline. The agent asks such a disk again, as after an outage.
        let outage = format!(
            "disk=$(lsblk --noheadings --output=PKNAME $(findmnt --noheadings --output=SOURCE /data))
             cat >/run/outage <<'END'
             end=$(( $(date +%s) + {} ))
             while [ $(date +%s) -lt $end ]; do echo offline >/sys/block/$1/device/state; sleep 1; done
END
             systemd-run --no-block --unit=scenario-outage sh /run/outage $disk",
            AWAY.as_secs()
        );
        scenario.lab().run_inside("cp1", &["sh", "-ec", &outage], WORK).unwrap();
        let began = Instant::now();
        scenario.wait("the node to restart", FORMING, || Ok(boot().is_ok_and(|now| now != before)));
        assert!(began.elapsed() >= AWAY, "it did not wait for its disk");
        scenario.wait("the node to be ready", FORMING, || {
            Ok(scenario.lab().run_inside("cp1", &["kaas-agent", "status"], WORK).is_ok())
        });
        let written = ["get", "configmap", "before", "--output=jsonpath={.data.written}"];
        scenario.wait("the API to have what was written", WORK, || Ok(scenario.lab().kubectl(&written)? == "yes"));
    }

    /// Numbers of steps at which the node loses its power: a seeded draw, so that every run cuts at the same ones. The
    /// container engine cuts at every step; here it is the real disks and the real boot that must bear it.
    const CUTS: [usize; 3] = [3, 11, 19];

    /// A node is cut off three times while it forms its cluster, and forms it.
    pub fn node_cut_while_forming_forms_its_cluster() {
        let scenario = Scenario::prepare(&Setting { hardware: Some(Hardware::Quick), ..Setting::one("vmcuts") });
        for cut in CUTS {
            scenario.power_on(&["cp1"]);
            let reached = scenario.obtain(&format!("step {cut}"), FORMING, || {
                let console = scenario.lab().console_text("cp1")?;
                Ok(console.lines().filter_map(step_number).find(|number| *number >= cut))
            });
            scenario.cut("cp1");
            scenario.reached(&format!("cut off at step {reached}"));
        }
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        assert_eq!(scenario.etcd_members("cp1").len(), 1);
        Workload::start(&scenario, "cp1", WORK).is_reached_by_name_from("cp1");
    }

    /// The number in a line such as `kaas: starting etcd (14/28)`.
    fn step_number(line: &str) -> Option<usize> {
        let (_, said) = line.split_once("kaas: ")?;
        let (_, number) = said.split_once(" (")?;
        number.split_once('/')?.0.parse().ok()
    }
}
