//! Bad input: what is wrong is named on the console, all of it together, and nothing is formatted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use contract::properties as keys;
use lab::NewVm;
use scenarios::by_hand::{self, insert_cdrom};
use scenarios::scenario::{DATA_DISK, MOMENT, Scenario, Setting, with};
use uuid::Uuid;

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

/// A host that is no control-plane node has an address of the lab's network, for as long as `meanwhile` takes.
fn with_address_taken(scenario: &Scenario, address: std::net::Ipv4Addr, meanwhile: impl FnOnce()) {
    let taken = format!("{address}/24");
    let change = |verb: &str| {
        let changed = scenario.lab().outside("ip", ["address", verb, &taken, "dev", "lab"]).status().unwrap();
        assert!(changed.success(), "ip address {verb} {taken}");
    };
    change("add");
    meanwhile();
    change("delete");
}

pub mod short {
    use super::*;

    /// Values that the OVF's types and qualifiers refuse.
    const NOT_TAKEN: [(&str, &str); 3] =
        [(keys::ADDRESS, "192.168.77.eleven/24"), (keys::TIMEOUT_FACTOR, "much"), (keys::VXLAN_PORT, "70000")];

    /// The lab refuses the values that vCenter refuses, and creates no VM.
    fn an_import_with_what_the_form_does_not_take_is_refused(scenario: &Scenario) {
        let mut properties = scenario.properties("cp1");
        properties.extend(NOT_TAKEN.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let refused = format!("{:#}", scenario.lab().import(&scenario.vm("refused", properties)).unwrap_err());
        assert!(refused.contains("vCenter would refuse the properties"), "{refused}");
        assert!(NOT_TAKEN.iter().all(|(key, _)| refused.contains(&format!("property {key:?} must "))), "{refused}");
        assert!(!scenario.lab().vms().unwrap().contains(&"refused".to_owned()));
    }

    /// Environments and properties that cannot be used, one after the other, in the drive of a running VM. A CD-ROM that the operator
    /// has made may have values that vCenter would refuse.
    pub fn bad_properties_are_named_and_nothing_is_formatted() {
        let scenario = Scenario::prepare(&Setting::three("input"));
        let lab = scenario.lab();
        an_import_with_what_the_form_does_not_take_is_refused(&scenario);
        by_hand::import(&scenario, "untouched", None);
        let untouched = lab.environment("untouched").unwrap();
        let good = lab.environment("cp1").unwrap();
        let disk = lab.disk_file(lab.disks("cp1").unwrap()[0]);
        let bomb = "<!DOCTYPE b [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>";
        let declared = good.find("?>").map_or(0, |end| end + 2);
        let form = |values: &[(&str, &str)]| {
            values.iter().fold(good.clone(), |form, (property, value)| with(&form, property, value))
        };
        let cases: [(String, &[&str]); 7] = [
            (good[..good.len() / 2].to_owned(), &["environment.truncated"]),
            (good.replace("</Environment>", "</Environmen>"), &["environment.malformed"]),
            (format!("{}{bomb}{}", &good[..declared], &good[declared..]), &["environment.entities"]),
            // An empty form, on a new node.
            (
                untouched,
                &[
                    "property.missing: node-name",
                    "property.missing: address",
                    "property.missing: control-nodes",
                    "property.missing: deployment-secret",
                    "access.none: ssh-authorized-keys",
                ],
            ),
            // Values of one property.
            (
                form(&[[(keys::NODE_NAME, "")].as_slice(), &NOT_TAKEN].concat()),
                &[
                    "property.missing: node-name",
                    "property.malformed: address",
                    "property.malformed: timeout-factor",
                    "property.out-of-range: vxlan-port",
                ],
            ),
            // Values that contradict each other.
            (
                form(&[
                    (keys::API_VIP, "192.168.77.12"),
                    (keys::POD_CIDR, "192.168.0.0/16"),
                    (keys::DEPLOYMENT_SECRET, "password"),
                    (keys::ROUTES, "10.30.0.0/16 via 10.20.0.1"),
                ]),
                &["address.duplicate", "range.overlap", "deployment-secret.weak", "routes.gateway"],
            ),
            (
                form(&[(keys::API_VIP, "10.1.2.3"), (keys::SERVICE_CIDR, "10.244.128.0/20"), (keys::NODE_NAME, "cp9")]),
                &["api-vip.off-subnet", "range.overlap", "control-nodes.not-listed"],
            ),
        ];
        for (environment, findings) in &cases {
            insert_cdrom(&scenario, "cp1", environment);
            // Off before the first, on ever after.
            scenario.power_on(&["cp1"]);
            scenario.wait(&format!("cp1 to say {}, and nothing else", findings.join(", ")), MOMENT, || {
                Ok(said_last(&lab.console_text("cp1")?, findings))
            });
            assert_eq!(written(&disk), 0, "{findings:?}: something was written to the data disk");
        }
        scenario.cut("cp1");

        // An address for a second adapter, which the VM does not have.
        insert_cdrom(&scenario, "cp1", &with(&good, keys::DATA_ADDRESS, "10.20.0.11/24"));
        is_refused(&scenario, "cp1", "network.adapters");
        assert_eq!(written(&disk), 0, "network.adapters: something was written to the data disk");

        insert_cdrom(&scenario, "cp1", &good);
        with_address_taken(&scenario, lab.plan().api, || is_refused(&scenario, "cp1", "api-vip.in-use"));
        assert_eq!(written(&disk), 0, "api-vip.in-use: something was written to the data disk");
    }

    /// Whether the last errors on a console are these.
    fn said_last(console: &str, findings: &[&str]) -> bool {
        let said: Vec<&str> =
            console.lines().filter_map(|line| line.split_once("kaas: ").map(|(_, said)| said)).collect();
        let errors = said.rsplit(|line| line.starts_with("stopped: ")).next().unwrap_or_default();
        let errors: Vec<&str> = errors.iter().filter_map(|line| line.strip_prefix("error ")).collect();
        errors.len() == findings.len()
            && findings.iter().all(|finding| errors.iter().any(|error| error.starts_with(finding)))
    }

    /// An address for a second adapter waits for that adapter. Then the node has it with its routes. Servers that do not answer are
    /// named and stop nothing.
    pub fn a_second_adapter_gets_its_address_and_routes() {
        let scenario = Scenario::prepare(&Setting {
            properties: &[
                (keys::DATA_ADDRESS, "10.20.0.11/24"),
                (keys::ROUTES, "10.30.0.0/16 via 10.20.0.1"),
                (keys::DNS_SERVERS, "192.168.77.99"),
            ],
            ..Setting::one("data")
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

    /// Disks, networks and clocks that cannot be used.
    pub fn wrong_disks_networks_and_clocks_are_named() {
        let scenario = Scenario::prepare(&Setting::one("wrong"));
        let blank = scenario.lab().disks("cp1").unwrap()[0];
        wrong_disks_are_left_alone(&scenario, blank);

        let lab = scenario.lab();
        let bare = NewVm { network_interface: false, ..scenario.vm("bare", scenario.properties("cp1")) };
        lab.import(&bare).unwrap();
        is_refused(&scenario, "bare", "network.no-adapter");
        assert_eq!(written(&lab.disk_file(lab.disks("bare").unwrap()[0])), 0);

        // Another host on the network has the node's address already.
        let own = lab.plan().nodes[0].address;
        with_address_taken(&scenario, own, || is_refused(&scenario, "cp1", "address.in-use"));
        assert_eq!(written(&lab.disk_file(blank)), 0);

        a_clock_behind_the_last_known_time_is_named(&scenario);

        // The node's own disk, full.
        let _ = lab.run_inside("cp1", &["fallocate", "--length=4GiB", "/data/full"], MOMENT);
        scenario.inside("cp1", &["sh", "-c", "cat /dev/zero > /data/full || sync"]);
        scenario.cut("cp1");
        is_refused(&scenario, "cp1", "disk.full");
    }

    fn wrong_disks_are_left_alone(scenario: &Scenario, blank: Uuid) {
        let lab = scenario.lab();
        lab.detach_disk("cp1", blank).unwrap();
        is_refused(scenario, "cp1", "disk.absent");

        let foreign = lab.create_disk(DATA_DISK).unwrap();
        let file = lab.disk_file(foreign);
        assert!(Command::new("mkfs.ext4").arg("-q").arg(&file).status().unwrap().success());
        let before = written(&file);
        let copy = file.with_extension("copy");
        assert!(Command::new("cp").arg("--sparse=always").arg(&file).arg(&copy).status().unwrap().success());
        lab.attach_disk("cp1", foreign).unwrap();
        is_refused(scenario, "cp1", "disk.foreign");
        assert!(Command::new("cmp").arg(&file).arg(&copy).status().unwrap().success(), "a foreign disk was changed");
        assert_eq!(written(&file), before);
        fs::remove_file(&copy).unwrap();
        lab.detach_disk("cp1", foreign).unwrap();

        let other = lab.create_disk(DATA_DISK).unwrap();
        lab.attach_disk("cp1", blank).unwrap();
        lab.attach_disk("cp1", other).unwrap();
        is_refused(scenario, "cp1", "disk.ambiguous");
        for disk in [blank, other] {
            assert_eq!(written(&lab.disk_file(disk)), 0, "one of two blank disks was written to");
        }
        lab.detach_disk("cp1", other).unwrap();
    }

    /// A VM whose clock was lost, as far as a container can have one: its data disk has seen a later time.
    fn a_clock_behind_the_last_known_time_is_named(scenario: &Scenario) {
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
}
