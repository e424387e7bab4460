//! `kaas control certificate`: renews the certificates of a cluster's control-plane nodes, one node after the other.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use fleet::upgrade::NotRenewed;
use schemars::JsonSchema;
use serde::Serialize;

use super::arguments::ChangeArgs;
use crate::output::{PAUSED, warn};
use crate::work::duration;

/// Commands for certificates.
#[derive(Subcommand)]
pub enum Certificate {
    /// Renew the certificates of all control-plane nodes now, one node after the other
    ///
    /// The node that leads etcd or holds the virtual IP comes last. On each node the control plane, the kubelet and the pod
    /// network start again; the next node is asked when that one is healthy. The agents renew certificates 90 days before they
    /// expire without this command. Exit status 0: all nodes run with new certificates. 3: a node was not healthy in time, or
    /// the command was asked to end. 1: it failed. The message names the nodes that have new certificates. Given again, the
    /// command renews all nodes.
    #[command(after_help = "Example: `kaas control certificate renew --file cluster.toml`")]
    Renew {
        #[command(flatten)]
        change: ChangeArgs,
        /// How long one node may take
        #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration)]
        timeout: Duration,
    },
}

/// The output of `renew`.
#[derive(Serialize, JsonSchema)]
pub struct RenewedNodes {
    /// Names of the nodes with new certificates.
    renewed: Vec<String>,
}

pub fn run(command: Certificate) -> anyhow::Result<ExitCode> {
    let Certificate::Renew { change: ChangeArgs { at, over }, timeout } = command;
    at.changing("control certificate renew", None, Duration::ZERO, async |deployment, _| {
        match deployment.renew_certificates(timeout, over.take()).await {
            Ok(renewed) => {
                let nodes = RenewedNodes { renewed };
                at.output.result(&nodes, || format!("renewed: {}", nodes.renewed.join(", ")))
            }
            Err(error) if error.is::<NotRenewed>() => {
                warn(&format!(
                    "{error:#}\nhelp: see `kaas-agent status` on the node, then run the command again: it renews all nodes"
                ));
                Ok(ExitCode::from(PAUSED))
            }
            Err(error) => Err(error),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::schemas::tests::fits;

    #[test]
    fn renewed_nodes_match_their_schema() {
        fits("control-certificate", &RenewedNodes { renewed: vec!["cp1".to_owned(), "cp2".to_owned()] });
    }
}
