//! Checks this node's resources before anything is changed: processors, memory, the data disk's size, the clock, the
//! certificates. [`crate::system::network`] checks whether addresses are free before it claims them.
//! [`crate::cluster::reachability`] checks the network around the node.
//!
//! [`judge`] has no side effects, and [`Facts::of`] reads the facts. Nothing is changed here.

mod clock;
mod facts;

use contract::codes::{self, Code};
use contract::finding::Findings;
use contract::properties::EXTRA_CA_CERTIFICATES;
use contract::properties::parse::certificates;
use contract::role::Role;

use crate::intake::config::Config;

pub use clock::{Clock, show};
pub use facts::Facts;

struct Minima {
    /// The VM in a sentence: "a control-plane node".
    vm: &'static str,
    /// Recommended number of processors.
    processors: usize,
    /// Required memory, in bytes.
    least_memory: u64,
    /// Recommended memory, in bytes: that of the smallest size in the deployment form, without the kernel's own.
    memory: u64,
    /// The memory to give the VM, in words.
    advice: &'static str,
    /// Recommended size of the data disk, in bytes. [`crate::host::disk::examine`] refuses disks below its own minimum.
    data_disk: u64,
}

/// kubeadm's minima of processors and memory (`ControlPlaneNumCPU` and `ControlPlaneMem` in cmd/kubeadm/app/constants).
/// The quota of etcd is a share of the data disk: 1.7 GiB of 8 GiB, near etcd's own default of 2 GiB.
const CONTROL_NODE: Minima = Minima {
    vm: "a control-plane node",
    processors: 2,
    least_memory: 1700 << 20,
    memory: 3500 << 20,
    advice: "4 GiB",
    data_disk: 8 << 30,
};

/// The kubelet reserves memory for the system by the VM's size, at least 400 MiB, and evicts pods below 100 MiB. The
/// rest is for pods. The space of a data disk is for pods too.
const WORKER: Minima =
    Minima { vm: "a worker", processors: 2, least_memory: 900 << 20, memory: 7 << 30, advice: "8 GiB", data_disk: 0 };

fn minima(role: Role) -> &'static Minima {
    match role {
        Role::ControlPlane | Role::TenantControlPlane => &CONTROL_NODE,
        Role::Worker => &WORKER,
    }
}

/// The findings about `facts`. Without a configuration, which the node may still wait for, only the machine is checked.
///
/// Errors stop a new node. For a node of a cluster they are warnings, because it loses nothing if it continues.
pub fn judge(facts: &Facts, config: Option<&Config>) -> Findings {
    let mut findings = Findings::default();
    let least = minima(facts.role);
    let mut say = |code: &Code, subject: &str, seen: String, action: &str| {
        let finding = code.finding(subject, seen, action);
        findings.push(if facts.blank { finding } else { finding.softened() });
    };
    if let Some(count) = facts.processors.filter(|count| *count < least.processors) {
        say(
            &codes::PROCESSORS_FEW,
            "processors",
            format!("the VM has {count}, and {} should have at least {}", least.vm, least.processors),
            "Power off, give the VM more virtual processors, power on; on a slow host raise the property timeout-factor",
        );
    }
    match facts.memory {
        Some(memory) if memory < least.least_memory => say(
            &codes::MEMORY_TOO_SMALL,
            "memory",
            format!(
                "the VM has {} MiB, and {} needs at least {} MiB",
                memory >> 20,
                least.vm,
                least.least_memory >> 20
            ),
            &format!("Power off, give the VM more memory, {} or more, power on", least.advice),
        ),
        Some(memory) if memory < least.memory => say(
            &codes::MEMORY_SMALL,
            "memory",
            format!("the VM has {} MiB, less than the smallest size of the deployment form", memory >> 20),
            &format!("Power off, give the VM {} or more, power on", least.advice),
        ),
        _ => {}
    }
    if let Some(size) = facts.data_disk.filter(|size| *size < least.data_disk) {
        say(
            &codes::DISK_SMALL,
            "data disk",
            format!("it has {} MiB, and should have at least {} MiB", size >> 20, least.data_disk >> 20),
            "Enlarge it in the hypervisor before the cluster grows",
        );
    }
    let Some(config) = config else { return findings };
    if let Some(finding) = facts.clock.implausible() {
        // A time server will correct the clock, and the node waits for it. A DHCP server may name one.
        let corrected = !config.node().ntp_servers.is_empty() || config.node().is_leased();
        findings.push(if facts.blank && !corrected { finding } else { finding.softened() });
    }
    for problem in certificates::validity(&config.node().extra_ca_certificates, facts.clock.now) {
        findings.push(problem.code.finding(EXTRA_CA_CERTIFICATES, problem.seen, problem.action));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::intake::config::fixture::one_node;
    use contract::finding::Severity;

    fn day(number: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(number * 24 * 60 * 60)
    }

    /// The smallest size of the form, without findings.
    fn facts() -> Facts {
        Facts {
            processors: Some(2),
            memory: Some(3900 << 20),
            data_disk: Some(32 << 30),
            clock: Clock { now: day(20_000), image: day(19_900) },
            blank: true,
            role: Role::ControlPlane,
        }
    }

    fn codes(findings: &Findings) -> Vec<(&str, Severity)> {
        findings.iter().map(|finding| (finding.code.as_str(), finding.severity)).collect()
    }

    #[test]
    fn smallest_size_of_the_form_gives_no_finding() {
        assert!(judge(&facts(), Some(&Config::ControlPlane(one_node()))).is_empty());
        assert!(judge(&facts(), None).is_empty());
    }

    #[test]
    fn slow_lab_gets_only_warnings() {
        let facts = Facts { processors: Some(1), memory: Some(1970 << 20), data_disk: Some(4 << 30), ..facts() };
        let findings = judge(&facts, Some(&Config::ControlPlane(one_node())));
        assert!(!findings.has_errors(), "{findings}");
        assert_eq!(
            codes(&findings).into_iter().map(|(code, _)| code).collect::<Vec<_>>(),
            ["processors.few", "memory.small", "disk.small"]
        );
    }

    #[test]
    fn too_little_memory_stops_only_a_new_node() {
        let mut facts = Facts { memory: Some(1600 << 20), ..facts() };
        assert_eq!(codes(&judge(&facts, None)), [("memory.too-small", Severity::Error)]);
        facts.blank = false;
        assert_eq!(codes(&judge(&facts, None)), [("memory.too-small", Severity::Warning)]);
    }

    #[test]
    fn implausible_clock_stops_a_new_node_without_servers() {
        let without = Config::ControlPlane(one_node());
        let mut config = one_node();
        config.node.ntp_servers = vec!["10.0.0.2".into()];
        let config = Config::ControlPlane(config);
        for now in [day(3), day(40_000)] {
            let facts = Facts { clock: Clock { now, image: day(19_900) }, ..facts() };
            assert!(judge(&facts, None).is_empty());
            assert_eq!(codes(&judge(&facts, Some(&without))), [("clock.implausible", Severity::Error)]);
            assert_eq!(codes(&judge(&facts, Some(&config))), [("clock.implausible", Severity::Warning)]);
            let member = Facts { blank: false, ..facts };
            assert_eq!(codes(&judge(&member, Some(&without))), [("clock.implausible", Severity::Warning)]);
        }
    }

    #[test]
    fn certificates_are_checked_at_every_boot() {
        let mut config = one_node();
        config.node.extra_ca_certificates = vec![include_str!("../config/fixtures/expired-ca.pem").to_owned()];
        assert_eq!(
            codes(&judge(&facts(), Some(&Config::ControlPlane(config)))),
            [("certificate.expired", Severity::Warning)]
        );
    }

    #[test]
    fn unknown_facts_give_no_finding() {
        let facts = Facts { processors: None, memory: None, data_disk: None, ..facts() };
        assert!(judge(&facts, Some(&Config::ControlPlane(one_node()))).is_empty());
    }
}
