//! The metrics: the status as numbers, in Prometheus' text format 0.0.4
//! (Prometheus documentation, "Exposition formats"). Names follow its
//! conventions: base units, one metric for one thing, `_info` for texts.

use std::fmt::Write as _;
use std::path::Path;

use contract::finding::Severity;
use contract::paths;
use nix::sys::statvfs::statvfs;

use crate::host::disk::is_mounted;
use crate::host::files;
use crate::status::{Phase, Status, Times};

pub(super) const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

type Labels<'a> = &'a [(&'a str, &'a str)];

pub(super) fn metrics(root: &Path, status: &Status) -> String {
    let mut text = Text::default();
    node(&mut text, status);
    cluster(&mut text, status);
    if let Some(certificates) = (!status.certificates.is_empty()).then_some(&status.certificates) {
        text.family("kaas_certificate_expiry_timestamp_seconds", "When a certificate of this node ends (Unix time).");
        for certificate in certificates {
            #[allow(clippy::cast_precision_loss)] // Exact for millions of years.
            text.sample(&[("certificate", &certificate.name)], certificate.ends as f64);
        }
    }
    text.family("kaas_finding", "Findings on this node; 1 while a finding lasts.");
    let mut said: Vec<(&str, &str, &str)> = Vec::new();
    for finding in status.findings.iter() {
        let severity = match finding.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        // There may be two findings with one code and subject. Samples must be unique.
        let one = (finding.code.as_str(), severity, finding.subject.as_str());
        if !said.contains(&one) {
            said.push(one);
            text.sample(&[("code", one.0), ("severity", one.1), ("subject", one.2)], 1.0);
        }
    }
    let data = files::below(root, paths::DATA);
    // If the disk is not mounted, this would measure another file system.
    if is_mounted(&data).unwrap_or(false) {
        disk(&mut text, &data);
    }
    boot(&mut text, &status.times);
    text.0
}

fn node(text: &mut Text, status: &Status) {
    text.family("kaas_build_info", "The agent and the image that it runs in; always 1.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION")), ("image", &status.image)], 1.0);
    text.family("kaas_node_info", "This node and its cluster; always 1.");
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    text.sample(&[("node", &name(&status.node)), ("cluster", &name(&status.cluster))], 1.0);
    text.single("kaas_node_ready", "Whether this node does its part of the cluster.", truth(status.is_ready()));
    text.single("kaas_plan_done", "Whether all steps of this boot are done.", truth(status.phase == Phase::Done));
}

fn cluster(text: &mut Text, status: &Status) {
    let Some(health) = &status.health else { return };
    text.single("kaas_api_serving", "Whether the Kubernetes API on this node serves.", truth(health.api));
    if let Some(address) = &health.virtual_address {
        text.single("kaas_virtual_address_held", "Whether this node holds the virtual IP.", truth(address.held));
    }
    if !health.etcd.is_empty() {
        text.family("kaas_etcd_member_healthy", "Whether an etcd member answers and sees a leader, seen from here.");
        for member in &health.etcd {
            text.sample(&[("member", &member.name)], truth(member.healthy));
        }
    }
    if let Some(nodes) = &health.nodes {
        text.family("kaas_cluster_node_ready", "Whether Kubernetes calls a node of the cluster ready.");
        for node in nodes {
            text.sample(&[("node", &node.name)], truth(node.ready));
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Nine petabytes are exact.
fn disk(text: &mut Text, data: &Path) {
    let Ok(space) = statvfs(data) else { return };
    let bytes = |blocks| (blocks * space.fragment_size()) as f64;
    text.single("kaas_data_disk_size_bytes", "The size of the data partition's file system.", bytes(space.blocks()));
    text.single(
        "kaas_data_disk_available_bytes",
        "The space on it that is free for users other than root.",
        bytes(space.blocks_available()),
    );
}

#[allow(clippy::cast_precision_loss)] // Seconds since power-on.
fn boot(text: &mut Text, times: &Times) {
    text.family("kaas_boot_seconds", "Seconds from power-on until this boot reached a phase.");
    let phases = [
        ("verdict", times.verdict),
        ("etcd", times.etcd),
        ("api", times.api),
        ("ready", times.ready),
        ("done", times.done),
    ];
    for (phase, seconds) in phases {
        if let Some(seconds) = seconds {
            text.sample(&[("phase", phase)], seconds as f64);
        }
    }
}

fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

/// Writes the format. All metrics are gauges.
#[derive(Default)]
struct Text(String, &'static str);

impl Text {
    /// Begins a metric, whose samples follow.
    fn family(&mut self, name: &'static str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge");
        self.1 = name;
    }

    fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.0.push_str(self.1);
        for (index, (name, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{name}=\"{value}\"", if index == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn single(&mut self, name: &'static str, help: &str, value: f64) {
        self.family(name, help);
        self.sample(&[], value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cluster::certificates::Certificate;
    use crate::cluster::kubernetes::api::Node;
    use crate::status::{Health, Member};
    use contract::codes;
    use contract::finding::Findings;
    use contract::node::VirtualAddress;

    fn formed() -> Status {
        let mut findings = Findings::default();
        let mut finding = codes::DISK_SPARE.finding("disk", "seen", "do");
        // As from an agent that does not clean up findings.
        finding.subject = "a \"quoted\\\nname\"".to_owned();
        findings.push(finding.clone());
        findings.push(finding);
        findings.push(codes::DISK_FULL.finding("disk", "seen", "do"));
        Status {
            image: "kaas-control-plane 0.1.0 (development image)".into(),
            node: Some("node1".into()),
            cluster: Some("lab".into()),
            phase: Phase::Done,
            findings,
            certificates: vec![Certificate { name: "ca".into(), ends: 2_111_111_111, begins: 0 }],
            health: Some(Health {
                api: true,
                nodes: Some(vec![Node { name: "node1".into(), ready: true }]),
                etcd: vec![
                    Member { name: "node1".into(), healthy: true },
                    Member { name: "node2".into(), healthy: false },
                ],
                virtual_address: Some(VirtualAddress { address: [10, 0, 0, 10].into(), held: false }),
            }),
            times: Times { verdict: Some(3), ..Times::default() },
            ..Status::default()
        }
    }

    #[test]
    fn the_metrics_of_a_formed_node() {
        // No such directory: the numbers of a disk differ per machine.
        insta::assert_snapshot!(metrics(Path::new("/nonexistent"), &formed()));
    }

    /// A sample's metric, its labels as written, and its value.
    fn sample(line: &str) -> (String, String, f64) {
        let (series, value) = line.rsplit_once(' ').expect(line);
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let mut rest = labels.strip_suffix('}').expect(line);
        while !rest.is_empty() {
            let (label, value) = rest.split_once("=\"").expect(line);
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            let mut escaped = false;
            let end = value
                .find(|c| {
                    let end = c == '"' && !escaped;
                    assert!(!escaped || ['\\', '"', 'n'].contains(&c), "{line}");
                    escaped = c == '\\' && !escaped;
                    end
                })
                .expect(line);
            rest = value[end + 1..].strip_prefix(',').unwrap_or(&value[end + 1..]);
        }
        (name.to_owned(), labels.to_owned(), value.parse().expect(line))
    }

    #[test]
    fn the_format_keeps_its_rules() {
        let root = tempfile::tempdir().unwrap();
        let mut mounted = Text(String::new(), "");
        disk(&mut mounted, root.path());
        for status in [Status::default(), formed()] {
            let text = metrics(root.path(), &status);
            assert!(!text.contains("kaas_data_disk"), "none is mounted");
            let text = text + &mounted.0;
            assert!(text.ends_with('\n'));
            let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
            let mut current = String::new();
            let mut lines = text.lines();
            while let Some(line) = lines.next() {
                if let Some(help) = line.strip_prefix("# HELP ") {
                    current = help.split(' ').next().unwrap().to_owned();
                    assert!(current.starts_with("kaas_") && !current.ends_with("_total"), "{current}");
                    assert!(families.insert(current.clone()), "{current} is there twice");
                    assert_eq!(lines.next().unwrap(), format!("# TYPE {current} gauge"));
                } else {
                    let (name, labels, value) = sample(line);
                    assert_eq!(name, current, "samples stand together below their metric");
                    assert!(series.insert((name, labels)), "{line} is there twice");
                    assert!(value.is_finite() && value >= 0.0);
                }
            }
            assert!(families.contains("kaas_data_disk_available_bytes"));
        }
    }
}
