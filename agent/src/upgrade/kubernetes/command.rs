//! `kaas-agent upgrade-kubernetes`: sends the request to the running agent over the node's endpoint, and follows the upgrade.

use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use contract::kubernetes_upgrade::Request;
use contract::minor::Minor;

use crate::upgrade::swap::command::Agent;

/// How long the agent may be away while it restarts with the new version.
const AWAY: Duration = Duration::from_secs(15 * 60);
const PACE: Duration = Duration::from_secs(1);

/// `kaas-agent upgrade-kubernetes`
#[derive(Args)]
pub struct Options {
    /// Minor version to upgrade to, such as 1.36; by default the next one
    #[arg(long, value_name = "MINOR")]
    to: Option<String>,
    /// How long pods may take to move away, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    drain: u64,
    /// Only say whether it may be done
    #[arg(long)]
    check: bool,
}

/// Upgrades this node, or reports why not. After an error the node stays at its version.
pub fn command(root: &Path, options: &Options, out: &mut impl Write) -> anyhow::Result<()> {
    let agent = Agent::of(root)?;
    let runs = minor(&agent.node()?.kubernetes.version)?;
    let to = options.to.clone().unwrap_or_else(|| runs.next().to_string());
    agent.ask("/v1/kubernetes", &Request { to: to.clone(), drain_seconds: options.drain, check: options.check })?;
    if options.check {
        writeln!(out, "nothing blocks the upgrade to Kubernetes {to}")?;
        return Ok(());
    }
    writeln!(out, "upgrading this node from Kubernetes {runs} to {to}")?;
    let mut seen = Instant::now();
    loop {
        match agent.node() {
            Ok(node) => {
                seen = Instant::now();
                match node.kubernetes.upgrade {
                    Some(upgrade) => {
                        if let Some(error) = upgrade.error {
                            bail!("it was cancelled: {error}");
                        }
                    }
                    None if minor(&node.kubernetes.version)?.to_string() == to => {
                        writeln!(out, "this node runs Kubernetes {}", node.kubernetes.version)?;
                        return Ok(());
                    }
                    None => bail!("the node runs Kubernetes {} and no upgrade", node.kubernetes.version),
                }
            }
            // The agent restarts during the upgrade.
            Err(error) if seen.elapsed() > AWAY => return Err(error),
            Err(_) => {}
        }
        thread::sleep(PACE);
    }
}

fn minor(version: &str) -> anyhow::Result<Minor> {
    let end = version.rfind('.').unwrap_or(version.len());
    version[..end].parse().ok().with_context(|| format!("{version} is no version of Kubernetes"))
}
