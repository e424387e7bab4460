//! The time in which the first node gives the CAs' keys to a control-plane node that has not joined. It lasts an hour from
//! the moment at which the cluster works, and an hour from each `kaas-agent await NODE`. The deployment secret is in the
//! VM's properties for as long as the VM exists. Without a limit, a reader of the secret could take the missing node's
//! address and control the cluster.
//!
//! The seconds that are left are saved and counted by the time since power-on, so a change of the clock has no effect.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cluster::records::{Entry, Records};
use crate::intake::config::Output;

/// How long the keys are given out, in seconds.
const HOUR: u64 = 60 * 60;

/// How long each node that has not joined may still get the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinWindows {
    /// The seconds that were left at the last count, by the node's name. A node whose hour is over has none.
    #[serde(default)]
    left: BTreeMap<String, u64>,
    /// The time of the last count, in seconds since power-on.
    #[serde(default)]
    counted: u64,
}

impl Entry for JoinWindows {
    const FILE: &'static str = "awaited.json";
    const WHAT: &'static str = "the hours for joining";
}

impl JoinWindows {
    /// Begins the hour of these nodes, unless it has begun before. `uptime` comes from [`uptime`].
    ///
    /// # Errors
    /// An error of the file system.
    pub fn begin(records: &Records, nodes: &[&str], uptime: u64) -> anyhow::Result<()> {
        if nodes.is_empty() || matches!(records.entry::<Self>(), Ok(Some(_))) {
            return Ok(());
        }
        let left = nodes.iter().map(|node| ((*node).to_owned(), HOUR)).collect();
        records.begin_entry(&Self { left, counted: uptime }).map(drop)
    }

    /// Begins an hour for a node. A damaged entry is created again. Then the hours of other nodes are over.
    ///
    /// # Errors
    /// An error of the file system. Nothing has changed then.
    pub fn begin_again(records: &Records, node: &str, uptime: u64) -> anyhow::Result<()> {
        let _lock = records.lock()?;
        let known = records.entry::<Self>().unwrap_or_else(|error| {
            log::warn!("{error:#}: the hours for joining are over");
            None
        });
        let mut awaited = known.unwrap_or_default().counted_at(uptime);
        awaited.left.insert(node.to_owned(), HOUR);
        records.begin_entry(&awaited).map(drop)
    }

    /// Saves and returns the time that is left now.
    ///
    /// # Errors
    /// The entry cannot be read or understood, or an error of the file system.
    pub fn count(records: &Records, uptime: u64) -> anyhow::Result<Self> {
        let _lock = records.lock()?;
        let known = records.entry::<Self>()?.unwrap_or_default();
        if known.left.is_empty() {
            return Ok(known);
        }
        let awaited = known.counted_at(uptime);
        records.update_entry(&awaited)?;
        Ok(awaited)
    }

    fn counted_at(mut self, uptime: u64) -> Self {
        // The node may have started again since. Its uptime began at 0 then.
        let passed = uptime.checked_sub(self.counted).unwrap_or(uptime);
        self.left.values_mut().for_each(|left| *left = left.saturating_sub(passed));
        self.left.retain(|_, left| *left > 0);
        Self { counted: uptime, ..self }
    }

    /// The seconds that are left for a node. `None` if its hour is over.
    pub fn left(&self, node: &str) -> Option<u64> {
        self.left.get(node).copied()
    }
}

/// Seconds since power-on.
///
/// # Errors
/// An error of the kernel.
pub fn uptime() -> anyhow::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).context("reading the time since power-on")?;
    Ok(Duration::from(now).as_secs())
}

/// Whether a node may get the CAs' keys now.
///
/// # Errors
/// The entry cannot be read, understood or saved.
pub fn is_open(records: &Records, node: &str, uptime: u64) -> anyhow::Result<bool> {
    // There is no limit before the cluster works.
    Ok(!records.progress()?.formed || JoinWindows::count(records, uptime)?.left(node).is_some())
}

/// The arguments of `kaas-agent await`.
#[derive(clap::Args)]
pub struct Options {
    /// The node's name in the list of control-plane nodes
    node: String,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Allows a node that has not joined to fetch its keys for another hour.
///
/// # Errors
/// This node gives no keys to that node, or an error of the file system. Nothing has changed then.
pub fn command(
    root: &Path,
    options: &Options,
    now: SystemTime,
    uptime: u64,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let (records, node) = (Records::new(root), options.node.as_str());
    let config = records.config()?.context("this node has no configuration yet")?;
    let config = config.control_plane()?;
    let first = config.cluster.control_nodes.first().map(|node| node.name.as_str()).unwrap_or_default();
    if !config.is_first() {
        bail!("this is {}, and {first} hands out the keys: run `kaas-agent await {node}` on {first}", config.node.name);
    }
    if !records.rendezvous()?.awaited().contains(&node) {
        bail!(
            "{node} is not awaited: it has joined, was removed, or is not in the list of control-plane nodes. If it has lost its \
             data disk, run `kaas-agent replace-member {node}`"
        );
    }
    if !records.progress()?.formed {
        bail!("the cluster does not work yet, and {node} may join at any time: see `kaas-agent status`");
    }
    JoinWindows::begin_again(&records, node, uptime)?;
    let shown = humantime::format_rfc3339_seconds(now + Duration::from_secs(HOUR));
    match options.output {
        Output::Json => writeln!(out, "{:#}", json!({"node": node, "until": shown.to_string()}))?,
        Output::Text => writeln!(
            out,
            "{node} may join until {shown}. Until then, the deployment secret and the address of {node} give the keys of the \
             cluster's CAs."
        )?,
    }
    log::info!("{node} may join until {shown}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::cluster::records::Progress;
    use crate::cluster::rendezvous::RendezvousRecord;
    use crate::intake::config::Config;
    use crate::intake::config::fixture::three_nodes;
    use contract::secret::Secret;

    /// The output of `kaas-agent await` at a time.
    fn asked(root: &Path, node: &str, uptime: u64) -> Result<String, String> {
        let mut out = Vec::new();
        let options = Options { node: node.to_owned(), output: Output::Text };
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let done = command(root, &options, now, uptime, &mut out);
        done.map(|()| String::from_utf8(out).unwrap()).map_err(|error| error.to_string())
    }

    /// The first node of three, which waits for the others.
    fn first_node() -> (tempfile::TempDir, Records) {
        let (root, config) = (tempfile::tempdir().unwrap(), three_nodes());
        let (records, now) = (Records::new(root.path()), SystemTime::now());
        let secret = Secret::new("secret".into());
        records.save_config(&Config::ControlPlane(config.clone()), &secret).unwrap();
        records.save_rendezvous(&RendezvousRecord::decide(&config.cluster, "node1", now).unwrap()).unwrap();
        (root, records)
    }

    fn works(records: &Records) {
        records.save_progress(Progress { formed: true, ..Progress::default() }).unwrap();
    }

    #[test]
    fn keys_are_given_out_for_an_hour() {
        let (root, records) = first_node();
        let open = |uptime| is_open(&records, "node3", uptime).unwrap();
        assert!(open(9 * HOUR), "there is no limit before the cluster works");
        assert!(asked(root.path(), "node3", 0).unwrap_err().contains("does not work yet"));
        JoinWindows::begin(&records, &["node2", "node3"], 100).unwrap();
        works(&records);
        assert!(open(100) && open(40 * 60));
        assert!(!is_open(&records, "node4", 40 * 60).unwrap(), "it was never awaited");
        // The step is done again, and the node starts again: 20 minutes and 100 s are left.
        JoinWindows::begin(&records, &["node2", "node3"], 40 * 60).unwrap();
        assert!(open(10) && open(20 * 60 + 99));
        assert!(!open(20 * 60 + 100));
        assert_eq!(records.entry::<JoinWindows>().unwrap().unwrap().left("node2"), None, "its hour is deleted");
    }

    #[test]
    fn earlier_images_first_node_waits_for_the_command() {
        let (root, records) = first_node();
        works(&records);
        assert!(!is_open(&records, "node3", 9 * HOUR).unwrap());
        asked(root.path(), "node3", 9 * HOUR).unwrap();
        assert!(is_open(&records, "node3", 10 * HOUR - 1).unwrap());
        assert!(!is_open(&records, "node3", 10 * HOUR).unwrap());
    }

    #[test]
    fn operator_opens_another_hour_even_after_damage() {
        let (root, records) = first_node();
        works(&records);
        JoinWindows::begin(&records, &["node2"], 0).unwrap();
        let (root, later) = (root.path(), 5 * HOUR);
        let said = asked(root, "node3", later).unwrap();
        assert!(
            said.starts_with("node3 may join until 2027-01-15T09:00:00Z. Until then, the deployment secret"),
            "{said}"
        );
        let open = |node: &str, uptime| is_open(&records, node, uptime);
        assert!(open("node3", later).unwrap() && !open("node2", later).unwrap());
        std::fs::write(root.join("data/kaas/awaited.json"), "{").unwrap();
        assert!(open("node3", later).is_err());
        asked(root, "node3", later).unwrap();
        assert!(open("node3", later).unwrap());

        assert!(asked(root, "node4", later).unwrap_err().starts_with("node4 is not awaited"));
        let mut second = three_nodes();
        second.node.name = "node2".into();
        records.update_config(&Config::ControlPlane(second), None).unwrap();
        assert!(asked(root, "node3", later).unwrap_err().contains("`kaas-agent await node3` on node1"));
    }
}
