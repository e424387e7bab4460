//! Until when the first node hands the CAs' keys to a control-plane node that has not joined: an hour after the cluster works, and
//! an hour after each `kaas-agent await NODE`. The deployment secret is in the VM's properties for as long as the VM exists:
//! without a limit, a reader of them who takes the missing node's address gets the cluster.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cluster::records::{Entry, Records};
use crate::intake::config::Output;

/// For so long the keys are handed out.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// Until when each node that has not joined is handed the keys, by its name, in seconds since 1970. Without this entry the
/// cluster does not work yet, and there is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    #[serde(default)]
    pub until: BTreeMap<String, u64>,
}

impl Entry for Awaited {
    const FILE: &'static str = "awaited.json";
    const WHAT: &'static str = "the hours for joining";
}

impl Awaited {
    /// Begins the hour of these nodes, unless theirs has begun before.
    ///
    /// # Errors
    /// The file system's.
    pub fn begin(records: &Records, nodes: &[&str], now: SystemTime) -> anyhow::Result<Self> {
        if let Some(awaited) = records.entry::<Self>()? {
            return Ok(awaited);
        }
        let until = nodes.iter().map(|node| Ok(((*node).to_owned(), end(now)?)));
        let awaited = Self { until: until.collect::<anyhow::Result<_>>()? };
        records.begin_entry(&awaited)?;
        Ok(awaited)
    }

    /// When the node's hour ends; none if it is over. One that ends later than an hour from now was set by a clock that was
    /// ahead, and counts as over.
    pub fn ends(&self, node: &str, now: SystemTime) -> Option<SystemTime> {
        let until = UNIX_EPOCH + Duration::from_secs(*self.until.get(node)?);
        // A clock that is corrected by less is no reason to close.
        (now < until && until <= now + 2 * WINDOW).then_some(until)
    }
}

fn end(now: SystemTime) -> anyhow::Result<u64> {
    Ok((now + WINDOW).duration_since(UNIX_EPOCH).context("the clock shows a time before 1970")?.as_secs())
}

/// Whether a node is handed the CAs' keys now.
///
/// # Errors
/// The entry cannot be read or understood.
pub fn is_open(records: &Records, node: &str, now: SystemTime) -> anyhow::Result<bool> {
    Ok(records.entry::<Awaited>()?.is_none_or(|awaited| awaited.ends(node, now).is_some()))
}

/// What `kaas-agent await` is given.
#[derive(clap::Args)]
pub struct Options {
    /// The node's name in the list of control nodes
    node: String,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Lets a node that has not joined fetch its keys for another hour.
///
/// # Errors
/// This node hands no keys to that node, or the file system's: nothing has changed then.
pub fn command(root: &Path, options: &Options, now: SystemTime, out: &mut impl Write) -> anyhow::Result<()> {
    let (records, node) = (Records::new(root), options.node.as_str());
    let config = records.config()?.context("this node has no configuration yet")?;
    let config = config.control_plane()?;
    let first = config.cluster.control_nodes.first().map(|node| node.name.as_str()).unwrap_or_default();
    if !config.is_first() {
        bail!(
            "this is {}, and {first} hands out the keys: run `sudo kaas-agent await {node}` on {first}",
            config.node.name
        );
    }
    if !records.rendezvous()?.awaited().contains(&node) {
        bail!(
            "{node} is not awaited: it has joined, was removed, or is not in the list of control nodes. If it has lost its data \
             disk, run `sudo kaas-agent replace-member {node}`"
        );
    }
    if records.secret()?.is_none() {
        bail!(
            "the deployment secret that {node} would prove is gone from this node's data disk: run `sudo kaas-agent \
             replace-member {node}` on another control node"
        );
    }
    let Some(mut awaited) = records.entry::<Awaited>()? else {
        bail!("the cluster does not work yet, and {node} may join at any time: see `kaas-agent status`");
    };
    let until = end(now)?;
    awaited.until.insert(node.to_owned(), until);
    records.update_entry(&awaited)?;
    let shown = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(until));
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
    use super::*;
    use crate::cluster::rendezvous::Record;
    use crate::intake::config::Config;
    use crate::intake::config::fixture::three_nodes;
    use contract::secret::Secret;

    #[test]
    fn the_keys_are_handed_out_for_an_hour_and_for_another_one_on_request() {
        let (root, now) = (tempfile::tempdir().unwrap(), UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let (records, config) = (Records::new(root.path()), three_nodes());
        let secret = Secret::new("secret".into());
        records.save_config(&Config::ControlPlane(config.clone()), &secret).unwrap();
        let asked = |node: &str, at| {
            let mut out = Vec::new();
            let options = Options { node: node.to_owned(), output: Output::Text };
            let done = command(root.path(), &options, at, &mut out);
            done.map(|()| String::from_utf8(out).unwrap()).map_err(|error| error.to_string())
        };
        records.save_rendezvous(&Record::decide(&config.cluster, "node1", now).unwrap()).unwrap();
        let open = |at| is_open(&records, "node3", at).unwrap();
        assert!(open(now + 9 * WINDOW), "there is no limit before the cluster works");
        assert!(asked("node3", now).unwrap_err().contains("does not work yet"));
        Awaited::begin(&records, &["node2", "node3"], now).unwrap();
        let minute = Duration::from_secs(60);
        assert!(open(now) && open(now + WINDOW - minute) && open(now - minute));
        assert!(!open(now + WINDOW));
        // After a restart the hour does not begin again.
        Awaited::begin(&records, &["node2", "node3"], now + WINDOW).unwrap();
        assert!(!open(now + WINDOW) && !open(now - 2 * WINDOW));
        assert!(!is_open(&records, "node4", now).unwrap(), "it was never awaited");

        let later = now + 5 * WINDOW;
        let said = asked("node3", later).unwrap();
        assert!(
            said.starts_with("node3 may join until 2027-01-15T14:00:00Z. Until then, the deployment secret"),
            "{said}"
        );
        assert!(open(later) && !open(later + WINDOW) && !is_open(&records, "node2", later).unwrap());
        assert!(asked("node4", later).unwrap_err().starts_with("node4 is not awaited"));
        records.erase_secret().unwrap();
        assert!(asked("node3", later).unwrap_err().contains("replace-member node3"));
        let mut second = config;
        second.node.name = "node2".into();
        records.update_config(&Config::ControlPlane(second), None).unwrap();
        assert!(asked("node3", later).unwrap_err().contains("`sudo kaas-agent await node3` on node1"));
    }
}
