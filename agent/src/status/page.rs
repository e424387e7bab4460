//! The status as a page of plain text. Without side effects.

use std::fmt::Write as _;

use contract::finding::{Finding, Severity};

use super::{Phase, Status};

/// The page, without terminal control sequences.
pub(crate) fn page(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<18}{value}");
    };
    line("image", &status.image);
    line("node", status.node.as_deref().unwrap_or("not configured yet"));
    if let Some(address) = status.address {
        line("address", &address.to_string());
    }
    if let Some(cluster) = &status.cluster {
        line("cluster", cluster);
    }
    line("state", &status.summary());
    if let Some(fingerprints) = &status.fingerprints {
        line("cluster CA", &fingerprints.ca.to_string());
        line("endpoint", &fingerprints.endpoint.to_string());
    }
    if let Some(swap) = &status.swap {
        line("image swap", &swap.to_string());
    }
    if let Some(evacuation) = &status.evacuation {
        line("evacuation", &evacuation.to_string());
    }
    if let Some(health) = &status.health {
        line(status.api_row(), if health.api { "serving" } else { "not serving" });
        let list = |items: Vec<(&str, bool)>, good: &str, bad: &str| {
            let items: Vec<String> =
                items.into_iter().map(|(name, is)| format!("{name} {}", if is { good } else { bad })).collect();
            items.join(", ")
        };
        let etcd = health.etcd.iter().map(|member| (member.name.as_str(), member.healthy)).collect();
        if !health.etcd.is_empty() {
            line("etcd members", &list(etcd, "healthy", "NOT HEALTHY"));
        }
        match &health.nodes {
            Some(nodes) => {
                let nodes = nodes.iter().map(|node| (node.name.as_str(), node.ready)).collect();
                line("nodes", &list(nodes, "ready", "NOT READY"));
            }
            None => line("nodes", "unknown: the API does not answer"),
        }
        if let Some(virtual_address) = &health.virtual_address {
            let holder = if virtual_address.held { "held by this node" } else { "not held by this node" };
            line("virtual IP", &format!("{} ({holder})", virtual_address.address));
        }
    }
    if !status.findings.is_empty() {
        text.push('\n');
        for Finding { code, severity, subject, seen, action, .. } in status.findings.iter() {
            let mark = match severity {
                Severity::Error => "PROBLEM",
                Severity::Warning => "note",
            };
            let _ = writeln!(text, "  {mark:<9}{subject}: {seen}\n           {action}. [{code}]");
        }
    }
    if status.phase == Phase::Refused {
        let changed = if status.work.is_none() { "Nothing was changed. " } else { "" };
        let _ = writeln!(text, "\n  {changed}The appliance continues once this is corrected.");
    }
    text
}
