//! Bad input: each case is a good VM with one thing wrong. The finding is on
//! the console, and nothing was formatted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agent::properties as keys;
use scenarios::scenario::{Scenario, Setting, with};

const MOMENT: Duration = Duration::from_secs(90);
const DATA_DISK: u64 = 4 << 30;

/// Bytes of a sparse file that are really there.
fn written(file: &Path) -> u64 {
    fs::metadata(file).unwrap().blocks() * 512
}

/// Powers the VM on, waits for the finding on its console, and cuts its power.
fn is_refused(scenario: &Scenario, vm: &str, code: &str) {
    scenario.power_on(&[vm]);
    scenario.soon_says(vm, &format!("kaas: error {code}: "));
    scenario.cut(vm);
}

mod short {
    use super::*;

    /// Environments and properties that cannot be used.
    #[test]
    fn bad_properties_are_named_and_nothing_is_formatted() {
        let scenario = Scenario::prepare(&Setting { name: "input", nodes: 3, hardware: None, properties: &[] });
        let lab = scenario.lab();
        let good = lab.environment("cp1").unwrap();
        let bomb = "<!DOCTYPE b [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>";
        let declared = good.find("?>").map_or(0, |end| end + 2);
        let cases = [
            ("environment.truncated", good[..good.len() / 2].to_owned()),
            ("environment.malformed", good.replace("</Environment>", "</Environmen>")),
            ("environment.entities", format!("{}{bomb}{}", &good[..declared], &good[declared..])),
            ("property.missing", with(&good, keys::NODE_NAME, "")),
            ("property.malformed", with(&good, keys::ADDRESS, "192.168.77.eleven/24")),
            ("property.malformed", with(&good, keys::PATIENCE, "much")),
            ("property.out-of-range", with(&good, keys::VXLAN_PORT, "70000")),
            ("address.duplicate", with(&good, keys::VIRTUAL_ADDRESS, "192.168.77.12")),
            ("virtual-address.off-subnet", with(&good, keys::VIRTUAL_ADDRESS, "10.1.2.3")),
            ("range.overlap", with(&good, keys::POD_RANGE, "192.168.0.0/16")),
            ("range.overlap", with(&good, keys::SERVICE_RANGE, "10.244.128.0/20")),
            ("deployment-secret.weak", with(&good, keys::DEPLOYMENT_SECRET, "password")),
            ("control-nodes.not-listed", with(&good, keys::NODE_NAME, "cp9")),
            ("routes.gateway", with(&good, keys::ROUTES, "10.30.0.0/16 via 10.20.0.1")),
            // An address for a second adapter, which the VM does not have.
            ("network.adapters", with(&good, keys::DATA_ADDRESS, "10.20.0.11/24")),
        ];
        let disk = lab.disk_file(lab.disks("cp1").unwrap()[0]);
        for (code, environment) in &cases {
            lab.insert_environment("cp1", environment.as_bytes()).unwrap();
            is_refused(&scenario, "cp1", code);
            assert_eq!(written(&disk), 0, "{code}: something was written to the data disk");
        }

        // Somebody who is no control node has the virtual address.
        lab.insert_environment("cp1", good.as_bytes()).unwrap();
        let taken = format!("{}/24", lab.plan().api);
        let address = |verb: &str| {
            assert!(lab.outside("ip", ["address", verb, &taken, "dev", "lab"]).status().unwrap().success());
        };
        address("add");
        is_refused(&scenario, "cp1", "virtual-address.in-use");
        assert_eq!(written(&disk), 0, "virtual-address.in-use: something was written to the data disk");
        address("delete");

        // All of them together are reported together.
        let both = with(&with(&good, keys::DEPLOYMENT_SECRET, "password"), keys::VIRTUAL_ADDRESS, "10.1.2.3");
        lab.insert_environment("cp1", both.as_bytes()).unwrap();
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: error deployment-secret.weak: ");
        scenario.soon_says("cp1", "kaas: error virtual-address.off-subnet: ");
        scenario.soon_says("cp1", "2 problems must be mended");
        scenario.cut("cp1");
        assert_eq!(written(&disk), 0);
    }

    /// A node with another secret than the others: both sides name it and
    /// nothing is formed, until its property is right.
    #[test]
    fn a_wrong_secret_is_named_on_both_sides_and_mended_in_the_form() {
        let scenario = Scenario::prepare(&Setting { name: "secret", nodes: 3, hardware: None, properties: &[] });
        let lab = scenario.lab();
        let all = ["cp1", "cp2", "cp3"];
        let good = lab.environment("cp2").unwrap();
        let wrong = with(&good, keys::DEPLOYMENT_SECRET, "J7r&quot;uQ$x%2Kd&lt;W9z&amp;m!Tp'vB ü4");
        lab.insert_environment("cp2", wrong.as_bytes()).unwrap();
        scenario.power_on(&all);
        for (node, other) in [("cp1", "cp2"), ("cp2", "cp1"), ("cp2", "cp3"), ("cp3", "cp2")] {
            scenario.soon_says(node, &format!("kaas: error peer.secret-mismatch: {other} ("));
        }
        for node in all {
            let etcd = lab.run_inside(node, &["systemctl", "is-active", "etcd.service"], MOMENT);
            assert!(etcd.is_err(), "{node} has started etcd beside a node with another secret");
            assert_eq!(scenario.inside(node, &["stat", "--format=%a %U", "/data/kaas/secret"]).trim(), "600 root");
            // The pattern comes from the file, so that the search does not find itself.
            let search = "cd /; {
                grep --fixed-strings --files-with-matches --no-messages --recursive --devices=skip -f data/kaas/secret run/!(host);
                grep --fixed-strings --files-with-matches --no-messages -f data/kaas/secret \
                    proc/[0-9]*/cmdline proc/[0-9]*/environ;
                journalctl --output=cat | grep --fixed-strings -f data/kaas/secret; } || true";
            assert_eq!(
                scenario.inside(node, &["bash", "-O", "extglob", "-c", search]),
                "",
                "the secret of {node} shows"
            );
        }

        scenario.cut("cp2");
        lab.insert_environment("cp2", good.as_bytes()).unwrap();
        scenario.power_on(&["cp2"]);
        for node in all {
            scenario.soon_says(node, "kaas: starting etcd");
        }
    }

    /// A VM whose clock was lost, as far as a container can have one: its data
    /// disk has seen a later time.
    #[test]
    fn a_clock_behind_the_last_known_time_is_named() {
        let scenario = Scenario::prepare(&Setting { name: "clock", nodes: 1, hardware: None, properties: &[] });
        let lab = scenario.lab();
        scenario.power_on(&["cp1"]);
        scenario.wait("the time to be kept on the data disk", MOMENT, || {
            Ok(lab.run_inside("cp1", &["test", "-e", "/data/kaas/clock"], MOMENT).is_ok())
        });
        // The agent keeps it again when it stops in order.
        scenario.inside("cp1", &["touch", "--date=yesterday", "/data/kaas/clock"]);
        scenario.inside("cp1", &["systemctl", "stop", "kaas-agent.service"]);
        let kept = scenario.inside("cp1", &["find", "/data/kaas/clock", "-newermt", "1 hour ago"]);
        assert_eq!(kept.trim(), "/data/kaas/clock");
        scenario.inside("cp1", &["touch", "--date=5 years", "/data/kaas/clock"]);
        scenario.inside("cp1", &["sync"]);
        scenario.cut("cp1");
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: warning clock.behind: ");
        // It does not keep the node from its work, and the later time stays.
        scenario.soon_says("cp1", "kaas: starting etcd");
        let kept = scenario.inside("cp1", &["find", "/data/kaas/clock", "-newermt", "4 years"]);
        assert_eq!(kept.trim(), "/data/kaas/clock");
    }

    /// An address for a second adapter waits for that adapter; then it is there
    /// with its routes. Servers that do not answer are named and stop nothing.
    #[test]
    fn a_second_adapter_gets_its_address_and_routes() {
        let scenario = Scenario::prepare(&Setting {
            name: "data",
            nodes: 1,
            hardware: None,
            properties: &[
                (keys::DATA_ADDRESS, "10.20.0.11/24"),
                (keys::ROUTES, "10.30.0.0/16 via 10.20.0.1"),
                (keys::DNS_SERVERS, "192.168.77.99"),
            ],
        });
        let lab = scenario.lab();
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: error network.adapters: ");
        scenario.inside("cp1", &["ip", "link", "add", "eth1", "type", "veth", "peer", "name", "elsewhere"]);
        scenario.inside("cp1", &["ip", "link", "set", "elsewhere", "up"]);
        let routed = |network: &str, wanted: bool| {
            let route = format!("{network} via 10.20.0.1 dev eth1");
            scenario.wait(&format!("{route}: {wanted}"), MOMENT, || {
                Ok(lab.run_inside("cp1", &["ip", "route"], MOMENT)?.contains(&route) == wanted)
            });
        };
        routed("10.30.0.0/16", true);
        assert!(scenario.inside("cp1", &["ip", "-4", "address", "show", "dev", "eth1"]).contains("inet 10.20.0.11/24"));
        scenario.soon_says("cp1", "kaas: warning dns-servers.no-answer: ");
        scenario.soon_says("cp1", "kaas: starting the container runtime");
        let agent =
            scenario.inside("cp1", &["systemctl", "show", "--property=MainPID", "--value", "kaas-agent.service"]);
        let limits = scenario.inside("cp1", &["cat", &format!("/proc/{}/limits", agent.trim())]);
        let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap_or_default();
        assert_eq!(cores.split_whitespace().nth(4), Some("0"), "{cores}");

        scenario.inside("cp1", &["kaas-agent", "configure", "routes=10.31.0.0/16 via 10.20.0.1"]);
        routed("10.31.0.0/16", true);
        routed("10.30.0.0/16", false);
    }

    /// Disks and networks that cannot be used.
    #[test]
    fn wrong_disks_and_networks_are_named_and_nothing_is_formatted() {
        let scenario = Scenario::prepare(&Setting { name: "wrong", nodes: 1, hardware: None, properties: &[] });
        let lab = scenario.lab();
        let blank = lab.disks("cp1").unwrap()[0];

        lab.detach_disk("cp1", blank).unwrap();
        is_refused(&scenario, "cp1", "disk.absent");

        let foreign = lab.create_disk(DATA_DISK).unwrap();
        let file = lab.disk_file(foreign);
        assert!(Command::new("mkfs.ext4").arg("-q").arg(&file).status().unwrap().success());
        let before = written(&file);
        let copy = file.with_extension("copy");
        assert!(Command::new("cp").arg("--sparse=always").arg(&file).arg(&copy).status().unwrap().success());
        lab.attach_disk("cp1", foreign).unwrap();
        is_refused(&scenario, "cp1", "disk.foreign");
        assert!(Command::new("cmp").arg(&file).arg(&copy).status().unwrap().success(), "a foreign disk was changed");
        assert_eq!(written(&file), before);
        fs::remove_file(&copy).unwrap();
        lab.detach_disk("cp1", foreign).unwrap();

        let other = lab.create_disk(DATA_DISK).unwrap();
        lab.attach_disk("cp1", blank).unwrap();
        lab.attach_disk("cp1", other).unwrap();
        is_refused(&scenario, "cp1", "disk.ambiguous");
        for disk in [blank, other] {
            assert_eq!(written(&lab.disk_file(disk)), 0, "one of two blank disks was written to");
        }
        lab.detach_disk("cp1", other).unwrap();

        let mut bare = Scenario::vm("bare", scenario.properties("cp1"));
        bare.network_interface = false;
        lab.import(&bare).unwrap();
        is_refused(&scenario, "bare", "network.no-adapter");
        assert_eq!(written(&lab.disk_file(lab.disks("bare").unwrap()[0])), 0);

        // Somebody else on the network has the node's address already.
        let taken = format!("{}/24", lab.plan().nodes[0].address);
        let address = |verb: &str| {
            assert!(lab.outside("ip", ["address", verb, &taken, "dev", "lab"]).status().unwrap().success());
        };
        address("add");
        is_refused(&scenario, "cp1", "address.in-use");
        assert_eq!(written(&lab.disk_file(blank)), 0);
        address("delete");

        // The node's own disk, full.
        scenario.power_on(&["cp1"]);
        scenario.wait("the data disk to be in use", MOMENT, || {
            Ok(lab.run_inside("cp1", &["mountpoint", "--quiet", "/data"], MOMENT).is_ok())
        });
        let _ = lab.run_inside("cp1", &["fallocate", "--length=4GiB", "/data/full"], MOMENT);
        scenario.inside("cp1", &["sh", "-c", "cat /dev/zero > /data/full || sync"]);
        scenario.cut("cp1");
        is_refused(&scenario, "cp1", "disk.full");
    }
}
