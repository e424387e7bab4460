//! A member that ends at each start because its data are damaged.

use std::path::Path;

use contract::codes;
use contract::finding::Finding;
use serde_json::Value;

use super::{DATA, UNIT, member, snapshot};
use crate::cluster::REQUEST;
use crate::host::command::{Command, Runner};
use crate::host::disk;
use crate::host::files;
use crate::host::services::Services;
use crate::intake::config::ControlPlane;

/// The size of a segment of etcd's log, in bytes. With less free space etcd may end for lack of space.
const SEGMENT: u64 = 64 << 20;

/// Reports that this node's member ends at each start. A full disk or one that refuses writes also causes that: it has
/// its own finding.
pub fn look(
    config: &ControlPlane,
    root: &Path,
    services: &Services<'_>,
    runner: &dyn Runner,
) -> anyhow::Result<Option<Finding>> {
    let data = files::below(root, DATA);
    if !services.ends_at_each_start(UNIT)?
        || disk::refuses_writes(&data)
        || snapshot::room(&data)?.0 < SEGMENT
        || member::own_healthy(config.timeout(REQUEST))
    {
        return Ok(None);
    }
    let said = last_words(runner).map(|said| format!(": {said}")).unwrap_or_default();
    let action = match config.peers().next() {
        Some(_) => format!(
            "Power this VM off. On another control-plane node: `kaas-agent replace-member {}`; then deploy a VM with a blank \
             data disk and the code as its deployment secret. If no quorum is left, restore a snapshot (docs: Restore after \
             the quorum was lost)",
            config.node.name
        ),
        None => format!(
            "Choose a snapshot (`kaas-agent snapshot list`) and restore it: `kaas-agent restore FILE --confirm {} --alone`",
            config.cluster.name
        ),
    };
    Ok(Some(codes::ETCD_DAMAGED.finding(DATA, format!("etcd ends at each start{said}"), action)))
}

/// The reason that etcd logged before it ended.
fn last_words(runner: &dyn Runner) -> Option<String> {
    let journal = ["--unit", UNIT, "--lines=500", "--output=cat", "--no-pager"];
    let journal = runner.run(&Command::new("journalctl").args(journal)).ok()?;
    String::from_utf8_lossy(&journal).lines().rev().find_map(fatal)
}

/// The message of a line with which etcd or the Go runtime ends.
fn fatal(line: &str) -> Option<String> {
    if let Some(panic) = line.strip_prefix("panic: ") {
        return Some(panic.to_owned());
    }
    let said: Value = serde_json::from_str(line).ok()?;
    matches!(said["level"].as_str(), Some("fatal" | "panic")).then(|| {
        let parts = ["msg", "error"].iter().filter_map(|part| said[part].as_str());
        parts.collect::<Vec<_>>().join(": ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::Host;
    use crate::host::fake_systemd::FakeSystemd;
    use crate::host::fixture::small_file_system;
    use crate::intake::config::fixture::one_node;

    #[test]
    fn member_on_a_full_disk_is_not_damaged() {
        let test = || {
            let root = tempfile::tempdir().unwrap();
            let data = files::below(root.path(), DATA);
            std::fs::create_dir_all(&data).unwrap();
            let systemd = FakeSystemd::new(root.path());
            systemd.end_at_each_start(UNIT, &data);
            let bus = systemd.bus();
            let damaged = || look(&one_node(), root.path(), &Services::new(&bus), &Host).unwrap().is_some();
            assert!(damaged());
            let _disk = small_file_system(&data);
            std::fs::write(data.join("filling"), "full").unwrap();
            assert!(!damaged());
        };
        std::thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn last_line_of_etcd_is_found() {
        let fatal = |line| super::fatal(line).unwrap_or_default();
        assert_eq!(
            fatal("panic: freepages: failed to get all reachable pages"),
            "freepages: failed to get all reachable pages"
        );
        let snapshot =
            r#"{"level":"panic","ts":"2026-11-29","msg":"failed to recover","error":"snapshot file does not exist"}"#;
        assert_eq!(fatal(snapshot), "failed to recover: snapshot file does not exist");
        for other in ["goroutine 1 [running]:", r#"{"level":"info","msg":"opened backend db"}"#, ""] {
            assert_eq!(fatal(other), "", "{other}");
        }
    }
}
