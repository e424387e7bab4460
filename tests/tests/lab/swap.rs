//! The image swap by hand on the container engine, and the disks that are
//! refused instead.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agent::host::disk::{Identity, Slots, slots};
use lab::NewVm;
use scenarios::by_hand::{import, move_disk, refuses, shut_down};
use scenarios::endpoint;
use scenarios::lab_command::LabCommand;
use scenarios::other_image::OtherImage;
use scenarios::scenario::{FORMING, MOMENT, Scenario, Setting};
use scenarios::store::etcdctl;
use serde_json::Value;

use crate::image::{
    administrators_have_tools_and_others_no_rights, keys_at_the_console_restart_nothing,
    missing_container_image_is_imported_again, registry_mirror_changes_without_a_restart_of_containerd,
};

const STOPPING: Duration = Duration::from_secs(180);
/// The agent writes its standing each minute.
const TOLD: Duration = Duration::from_secs(150);

/// The node's answer at `/v1/node`.
fn node(scenario: &Scenario, vm: &str, node: &str) -> Value {
    endpoint::issue(scenario, vm, "administrator");
    let answer = endpoint::ask(scenario, vm, node, "/v1/node", true);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{answer}: {error}"))
}

/// Copies a disk's file.
fn copied(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("--sparse=always").args([from, to]).status().unwrap();
    assert!(status.success(), "cp ended with {status}");
}

pub mod short {
    use super::*;

    /// One node goes over to another image and back, by hand, with nothing but clean shutdowns. The form of the new VM stays
    /// as it comes.
    pub fn node_is_swapped_and_rolled_back_by_hand() {
        let other = OtherImage::make("99.0.0");
        let (scenario, kubeconfig, commands) = Scenario::by_command("swap");
        the_kubeconfig_opens_the_api_from_this_machine(&scenario, &kubeconfig);
        scenario.soon_says("cp1", "kaas: ready");
        administrators_have_tools_and_others_no_rights(&scenario);
        keys_at_the_console_restart_nothing(&scenario);
        registry_mirror_changes_without_a_restart_of_containerd(&scenario);
        missing_container_image_is_imported_again(&scenario);
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        a_secret_is_written_in_cipher(&scenario);
        let before = scenario.kept("cp1");
        let key = key_of_secrets(&scenario, "cp1");
        import(&scenario, "cp1-b", Some(other.source()));

        shut_down(&scenario, "cp1");
        move_disk(&scenario, "cp1", "cp1-b");
        scenario.power_on(&["cp1-b"]);
        scenario.says("cp1-b", "kaas: ready", FORMING);
        assert_eq!(scenario.kept("cp1-b"), before);
        assert_eq!((key_of_secrets(&scenario, "cp1-b"), the_secret(&scenario)), (key.clone(), "kept".to_owned()));
        let facts = node(&scenario, "cp1-b", "cp1");
        assert_eq!((&facts["generation"], &facts["image"]["version"]), (&2.into(), &"99.0.0".into()), "{facts:#}");
        assert_eq!(facts["swap"]["stage"], "taken", "{facts:#}");
        let written = ["get", "configmap", "before", "--output=jsonpath={.data.written}"];
        assert_eq!(scenario.kubectl(&written), "yes");

        commands.run("off", &["cp1-b"]);
        commands.run("move-disk", &["cp1-b", "cp1"]);
        commands.run("on", &["cp1"]);
        scenario.says("cp1", "kaas: ready", FORMING);
        assert_eq!(scenario.kept("cp1"), before);
        assert_eq!((key_of_secrets(&scenario, "cp1"), the_secret(&scenario)), (key, "kept".to_owned()));
        let facts = node(&scenario, "cp1", "cp1");
        assert_eq!((&facts["generation"], &facts["swap"]), (&3.into(), &Value::Null), "{facts:#}");
        assert_eq!(scenario.kubectl(&written), "yes");
        the_kubeconfig_opens_the_api_from_this_machine(&scenario, &kubeconfig);
        the_labs_commands_do_as_they_say(&scenario, &commands);
        scenario.end_by_command(commands);
    }

    /// A Secret that etcd has in cipher alone.
    fn a_secret_is_written_in_cipher(scenario: &Scenario) {
        scenario.kubectl(&["create", "secret", "generic", "before", "--from-literal=word=kept"]);
        let stored = etcdctl(scenario, "cp1", &["get", "--print-value-only", "/registry/secrets/default/before"]);
        assert!(stored.starts_with("k8s:enc:"), "{stored:?}");
    }

    /// The content of the Secret by the API: the API server that answers has the key.
    fn the_secret(scenario: &Scenario) -> String {
        scenario.kubectl(&["get", "secret", "before", "--output=go-template={{.data.word | base64decode}}"])
    }

    /// A hash that identifies the key of Secrets.
    fn key_of_secrets(scenario: &Scenario, vm: &str) -> String {
        scenario.inside(vm, &["sha256sum", "/etc/kubernetes/pki/encryption.json"])
    }

    /// A separate process forwards to the API. It runs on after `kaas-dev lab up`.
    fn the_kubeconfig_opens_the_api_from_this_machine(scenario: &Scenario, kubeconfig: &Path) {
        let mut kubectl = Command::new(scenario.lab().kubectl_program().unwrap());
        kubectl.arg(format!("--kubeconfig={}", kubeconfig.display())).args(["get", "nodes", "--output=name"]);
        scenario.wait("kubectl on this machine to see the node", MOMENT, || {
            let output = kubectl.output()?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(said.trim() == "node/cp1")
        });
    }

    /// On a lab whose second VM is off and has no data disk.
    fn the_labs_commands_do_as_they_say(scenario: &Scenario, commands: &LabCommand) {
        let state_of = |vm: &str| {
            let status = commands.run("status", &[]);
            let line = status.lines().map(|line| line.split('\t').collect::<Vec<_>>()).find(|line| line[0] == vm);
            line.unwrap_or_else(|| panic!("no {vm} in {status}"))[1].to_owned()
        };
        assert_eq!((state_of("cp1"), state_of("cp1-b")), ("on".to_owned(), "off".to_owned()));
        scenario.wait("`kaas-dev lab status` to call the node Ready", MOMENT, || {
            Ok(commands.run("status", &[]).contains("Ready: cp1"))
        });
        assert_eq!(commands.run("exec", &["cp1", "--", "hostname"]).trim(), "cp1");
        assert_eq!(commands.run("kubectl", &["--", "get", "nodes", "--output=name"]).trim(), "node/cp1");
        assert!(commands.run("console", &["cp1"]).contains("kaas: ready"));
        commands.run("destroy", &["cp1-b"]);
        assert_eq!(scenario.lab().vms().unwrap(), ["cp1"]);
        commands.run("cut", &["cp1"]);
        assert_eq!(state_of("cp1"), "off");
    }
}

pub mod long {
    use super::*;

    /// A swap that was prepared and committed: only the named image adopts the disk, and the pods return. After the commit the
    /// former VM is refused.
    pub fn prepared_swap_is_for_one_image() {
        let other = OtherImage::make("99.0.0");
        let scenario = Scenario::ready_one(&Setting::one("commit"));
        scenario.soon_says("cp1", "kaas: ready");
        let prepare = |arguments: &[&str]| {
            scenario.lab().run_inside("cp1", &[&["kaas-agent", "prepare-swap"], arguments].concat(), STOPPING)
        };
        let to = ["--to-version", other.version.as_str(), "--to-build", other.build.as_str()];
        let older = prepare(&["--to-version", "0.0.1", "--to-build", &other.build]).unwrap_err();
        assert!(format!("{older:#}").contains("image.downgrade"), "{older:#}");
        prepare(&to).unwrap_or_else(|error| panic!("{error:#}"));
        let cordoned = ["get", "node", "cp1", "--output=jsonpath={.spec.unschedulable}"];
        assert_eq!(scenario.kubectl(&cordoned), "true");
        prepare(&["--cancel"]).unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(scenario.kubectl(&cordoned), "");
        prepare(&to).unwrap_or_else(|error| panic!("{error:#}"));
        scenario.reached("the swap is prepared");
        shut_down(&scenario, "cp1");

        import(&scenario, "cp1-x", None);
        move_disk(&scenario, "cp1", "cp1-x");
        scenario.power_on(&["cp1-x"]);
        refuses(&scenario, "cp1-x", "disk.other-image");
        // The form is empty, and the node asks for no values.
        assert!(!scenario.lab().console_text("cp1-x").unwrap().contains("property.missing"));
        scenario.cut("cp1-x");
        import(&scenario, "cp1-b", Some(other.source()));
        move_disk(&scenario, "cp1-x", "cp1-b");
        scenario.power_on(&["cp1-b"]);
        scenario.says("cp1-b", "kaas: ready", FORMING);
        scenario.wait("the node to take pods again", MOMENT, || Ok(scenario.lab().kubectl(&cordoned)?.is_empty()));
        scenario.wait("the boot to be good", MOMENT, || {
            Ok(scenario.lab().run_inside("cp1-b", &["test", "-e", "/run/kaas/good.json"], MOMENT).is_ok())
        });
        scenario.inside("cp1-b", &["kaas-agent", "commit-swap"]);
        assert_eq!(node(&scenario, "cp1-b", "cp1")["swap"], Value::Null);
        scenario.cut("cp1-b");
        move_disk(&scenario, "cp1-b", "cp1");
        scenario.power_on(&["cp1"]);
        refuses(&scenario, "cp1", "disk.held-elsewhere");
    }

    /// The audit log of the new VM has the requests from before a swap, and continues in the same file.
    pub fn audit_log_survives_a_swap() {
        let other = OtherImage::make("99.0.0");
        let scenario = Scenario::ready_one(&Setting::one("audit"));
        scenario.soon_says("cp1", "kaas: ready");
        let noted = |vm: &str, what: &str| {
            scenario.wait(&format!("{what} to be in the audit log of {vm}"), MOMENT, || {
                let grep = ["grep", "--quiet", what, "/var/log/kubernetes/audit.log"];
                Ok(scenario.lab().run_inside(vm, &grep, MOMENT).is_ok())
            });
        };
        scenario.kubectl(&["create", "configmap", "noted-before-the-swap"]);
        noted("cp1", "noted-before-the-swap");
        import(&scenario, "cp1-b", Some(other.source()));
        shut_down(&scenario, "cp1");
        move_disk(&scenario, "cp1", "cp1-b");
        scenario.power_on(&["cp1-b"]);
        scenario.says("cp1-b", "kaas: ready", FORMING);
        noted("cp1-b", "noted-before-the-swap");
        scenario.kubectl(&["create", "configmap", "noted-after-the-swap"]);
        noted("cp1-b", "noted-after-the-swap");
    }

    /// Disks that are not the node's true one in this VM: exchanged ones, an old copy, none at all.
    pub fn disks_of_other_nodes_are_refused() {
        let scenario = Scenario::prepare(&Setting::three("disks"));
        let lab = scenario.lab();
        scenario.power_on(&["cp1", "cp2", "cp3"]);
        scenario.all_ready(FORMING);
        for node in ["cp1", "cp2", "cp3"] {
            scenario.soon_says(node, "kaas: ready");
        }
        let members = scenario.etcd_members("cp1");

        // Two nodes lose their power, and the operator attaches each disk to the other node.
        for node in ["cp2", "cp3"] {
            scenario.cut(node);
        }
        let (two, three) = (lab.disks("cp2").unwrap()[0], lab.disks("cp3").unwrap()[0]);
        lab.detach_disk("cp2", two).unwrap();
        move_disk(&scenario, "cp3", "cp2");
        lab.attach_disk("cp3", two).unwrap();
        scenario.power_on(&["cp2", "cp3"]);
        for node in ["cp2", "cp3"] {
            refuses(&scenario, node, "disk.held-elsewhere");
        }
        for node in ["cp2", "cp3"] {
            scenario.cut(node);
        }
        lab.detach_disk("cp2", three).unwrap();
        move_disk(&scenario, "cp3", "cp2");
        lab.attach_disk("cp3", three).unwrap();
        scenario.power_on(&["cp2"]);
        scenario.says("cp2", "kaas: ready", FORMING);

        // A copy of cp3's disk is made while it is off; the node goes on, and then the copy is taken for the disk.
        let copy = lab.disk_file(three).with_extension("copy");
        copied(&lab.disk_file(three), &copy);
        // As if it had been made after a clean shutdown: any VM may take it, as far as the copy itself knows.
        let identity = Slots::read(&copy).unwrap().newest().unwrap().clone();
        for _ in 0..2 {
            slots::write(&copy, &Identity { holder: None, ..identity.clone() }).unwrap();
        }
        scenario.power_on(&["cp3"]);
        scenario.says("cp3", "kaas: ready", FORMING);
        let standing = "etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/kubernetes/pki/etcd/ca.crt \
             --cert=/etc/kubernetes/pki/etcd/healthcheck-client.crt --key=/etc/kubernetes/pki/etcd/healthcheck-client.key \
             get --print-value-only /kaas/nodes/cp3";
        let counter = || -> anyhow::Result<u64> {
            let text = lab.run_inside("cp1", &["sh", "-ec", standing], MOMENT)?;
            Ok(serde_json::from_str::<Value>(&text)?["counter"].as_u64().unwrap_or_default())
        };
        let told = counter().unwrap();
        scenario.wait("cp3 to tell the cluster again", TOLD, || Ok(counter()? > told));
        for node in ["cp1", "cp2"] {
            scenario.wait(&format!("{node} to remember what cp3 has told"), TOLD, || {
                let text = lab.run_inside(node, &["cat", "/data/kaas/known-disks.json"], MOMENT)?;
                Ok(serde_json::from_str::<Value>(&text)?["nodes"]["cp3"]["counter"].as_u64() > Some(told))
            });
        }
        shut_down(&scenario, "cp3");
        let true_disk = lab.disk_file(three).with_extension("true");
        copied(&lab.disk_file(three), &true_disk);
        copied(&copy, &lab.disk_file(three));
        let found = Slots::read(&lab.disk_file(three)).unwrap();
        scenario.power_on(&["cp3"]);
        refuses(&scenario, "cp3", "disk.stale");
        scenario.cut("cp3");
        // No etcd runs when all start together: what its member knew last is what a node tells of the disk.
        for node in ["cp1", "cp2"] {
            scenario.cut(node);
        }
        scenario.power_on(&["cp1", "cp2", "cp3"]);
        refuses(&scenario, "cp3", "disk.stale");
        for node in ["cp1", "cp2"] {
            scenario.says(node, "kaas: ready", FORMING);
        }
        scenario.has_no_etcd("cp3");
        scenario.cut("cp3");
        // Its node, and the number of adoptions, are on it as before.
        assert_eq!(Slots::read(&lab.disk_file(three)).unwrap(), found);

        // The true one is taken as ever, and a VM without its disk claims nothing.
        copied(&true_disk, &lab.disk_file(three));
        import(&scenario, "cp3-b", None);
        move_disk(&scenario, "cp3", "cp3-b");
        scenario.power_on(&["cp3-b", "cp3"]);
        refuses(&scenario, "cp3", "disk.absent");
        scenario.says("cp3-b", "kaas: ready", FORMING);
        assert_eq!(scenario.etcd_members("cp1"), members);
        // The old VM comes back with a copy of the disk while the new one runs.
        scenario.cut("cp3");
        let again = lab.create_disk(4 << 30).unwrap();
        copied(&true_disk, &lab.disk_file(again));
        lab.attach_disk("cp3", again).unwrap();
        scenario.power_on(&["cp3"]);
        refuses(&scenario, "cp3", "address.in-use");
        for file in [copy, true_disk] {
            std::fs::remove_file(file).unwrap();
        }
    }

    /// A blank disk in place of the node's own stays blank. An additional blank disk is not used. If the node has two of its disks,
    /// it uses neither.
    pub fn blank_and_additional_disks_are_not_used() {
        let scenario = Scenario::formed("spare");
        let lab = scenario.lab();
        let members = scenario.etcd_members("cp1");
        let identity = scenario.cluster_identity();
        shut_down(&scenario, "cp3");
        let own = lab.disks("cp3").unwrap()[0];
        let found = |disk| Slots::read(&lab.disk_file(disk)).unwrap();

        // The new VM as it was imported, with the OVA's own data disk and the node's properties.
        let properties = scenario.properties("cp3");
        lab.import(&NewVm { data_disk: Some(4 << 30), ..scenario.vm("cp3-b", properties) }).unwrap();
        let blank = lab.disks("cp3-b").unwrap()[0];
        scenario.power_on(&["cp3-b"]);
        refuses(&scenario, "cp3-b", "cluster.exists");
        scenario.cut("cp3-b");
        assert!(!found(blank).bears_our_mark, "the blank disk was written to");
        assert_eq!(scenario.cluster_identity(), identity);

        // Two disks of the node.
        let copy = lab.create_disk(4 << 30).unwrap();
        copied(&lab.disk_file(own), &lab.disk_file(copy));
        let before = found(own);
        lab.detach_disk("cp3", own).unwrap();
        lab.attach_disk("cp3-b", own).unwrap();
        lab.attach_disk("cp3-b", copy).unwrap();
        scenario.power_on(&["cp3-b"]);
        refuses(&scenario, "cp3-b", "disk.ambiguous");
        scenario.cut("cp3-b");
        assert_eq!((found(own), found(copy)), (before.clone(), before));

        // The node's own and the blank one.
        lab.detach_disk("cp3-b", copy).unwrap();
        scenario.power_on(&["cp3-b"]);
        scenario.says("cp3-b", "disk.spare", MOMENT);
        scenario.says("cp3-b", "kaas: ready", FORMING);
        assert!(!found(blank).bears_our_mark, "the blank disk was written to");
        assert_eq!(scenario.etcd_members("cp1"), members);
    }
}
