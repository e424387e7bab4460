//! The command line of tenant clusters. Does nothing.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::control::{NamespaceArgs, WaitArgs, name};
use crate::output::Output;

/// What `create` is told.
#[derive(Args)]
pub struct Create {
    /// The cluster's name; in a file it stands there.
    #[arg(value_parser = name, required_unless_present = "file", conflicts_with = "file")]
    pub(super) name: Option<String>,
    /// A file with a TenantCluster and its NodePools, in YAML: docs/objects.md has their fields.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["provider", "kubernetes", "network", "endpoint", "endpoint_pool"])]
    pub(super) file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) said: ClusterArgs,
    /// Have the API server judge it, and make nothing. What needs a look at other objects or at the vCenter is not judged then.
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

/// A cluster in a few words. Whoever wants to say more writes a file.
#[derive(Args, Default)]
pub struct ClusterArgs {
    /// The Provider that runs its VMs.
    #[arg(long, value_parser = name, required_unless_present = "file")]
    pub(super) provider: Option<String>,
    /// Minor version of Kubernetes, such as 1.36.
    #[arg(long, value_name = "MINOR", required_unless_present = "file")]
    pub(super) kubernetes: Option<String>,
    /// The NodeImage, if not the newest one that is supported.
    #[arg(long, value_parser = name, conflicts_with = "file")]
    pub(super) image: Option<String>,
    /// How many control nodes: 1, or 3 of which one may be lost.
    #[arg(long, value_name = "NUMBER", value_parser = ["1", "3"], conflicts_with = "file")]
    pub(super) control_nodes: Option<String>,
    /// The network of the Provider that nodes are on.
    #[arg(long, value_parser = name, required_unless_present = "file")]
    pub(super) network: Option<String>,
    /// The address of the cluster's Kubernetes API: an unused one in the subnet of its nodes.
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["file", "endpoint_pool"])]
    pub(super) endpoint: Option<Ipv4Addr>,
    /// The IPPool that such an address is taken from.
    #[arg(long, value_name = "POOL", value_parser = name, conflicts_with = "endpoint")]
    pub(super) endpoint_pool: Option<String>,
    /// Unused addresses in the subnet of its nodes for Services of the type LoadBalancer, as FIRST-LAST or a single one; once for each
    /// range. Without any the cluster has no load balancer, and can have none later.
    #[arg(long, value_name = "FIRST-LAST", value_parser = range, conflicts_with = "file")]
    pub(super) service_vips: Vec<Range>,
    /// A file with the public SSH keys of those who may log in to its nodes as `admin`, a line each. Nodes that nobody could log in to are
    /// refused before the first VM; a file with the cluster may give a console password in place of keys.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(super) ssh_keys: Option<PathBuf>,
    /// How many workers, in one pool that is called as the cluster and `-workers`.
    #[arg(long, value_name = "NUMBER", requires = "worker_class", conflicts_with = "file")]
    pub(super) workers: Option<u32>,
    /// The VMClass of the workers.
    #[arg(long, value_name = "CLASS", value_parser = name, requires = "workers")]
    pub(super) worker_class: Option<String>,
    /// The zones that nodes are spread over, if not all of the Provider's; once for each.
    #[arg(long, value_parser = name, conflicts_with = "file")]
    pub(super) zone: Vec<String>,
}

/// A first and a last address, both included.
pub(super) type Range = (Ipv4Addr, Ipv4Addr);

/// Reads `FIRST-LAST`, or a single address. Whether they come in this order, and are the cluster's to have, is judged where all of it is.
fn range(text: &str) -> Result<Range, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let address = |part: &str| {
        part.parse::<Ipv4Addr>().map_err(|_| format!("{part:?} is no IPv4 address: give FIRST-LAST, or a single one"))
    };
    Ok((address(first)?, address(last)?))
}

/// What `get` is told.
#[derive(Args)]
pub struct Get {
    /// The cluster; without one all of the namespace are listed.
    #[arg(value_parser = name)]
    pub(super) name: Option<String>,
    /// List those of all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["name", "namespace"])]
    pub(super) all_namespaces: bool,
    /// How to say it. With JSON, the objects are printed as they are.
    #[arg(long, default_value = "text")]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
}

/// What `scale` is told.
#[derive(Args)]
pub struct Scale {
    /// The cluster.
    #[arg(value_parser = name)]
    pub(super) name: String,
    /// How many workers the pool is to have.
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(super) workers: u32,
    /// The pool, where the cluster has several.
    #[arg(long, value_parser = name)]
    pub(super) pool: Option<String>,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

/// What `upgrade` is told.
#[derive(Args)]
pub struct Upgrade {
    /// The cluster.
    #[arg(value_parser = name)]
    pub(super) name: String,
    /// The NodeImage to go to. The one before, named again before the upgrade is committed, is the way back.
    #[arg(long, value_parser = name)]
    pub(super) image: Option<String>,
    /// The minor of Kubernetes to go to, one up from the one that is reached.
    #[arg(long, value_name = "MINOR")]
    pub(super) kubernetes: Option<String>,
    /// Ask something of the upgrade that is under way, in place of another one.
    #[arg(long = "do", value_enum, value_name = "WHAT", conflicts_with_all = ["image", "kubernetes"])]
    pub(super) asks: Option<OperationRequest>,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

/// What a person may ask of an upgrade that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OperationRequest {
    /// Try a step again that failed.
    Resume,
    /// Take the way back.
    Rollback,
    /// End the way back: the new image is good.
    Commit,
    /// End it where it stands.
    Abandon,
}

impl OperationRequest {
    /// As the annotation has it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Rollback => "rollback",
            Self::Commit => "commit",
            Self::Abandon => "abandon",
        }
    }
}

/// What `kubeconfig` is told.
#[derive(Args)]
pub struct Kubeconfig {
    /// The cluster.
    #[arg(value_parser = name)]
    pub(super) name: String,
    /// The file to write; if it is not named, NAME.kubeconfig in the current directory. It holds a key of an administrator. One that
    /// is there must be of this command, and of this cluster or ended.
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
}

/// What `adopt` is told.
#[derive(Args)]
pub struct Adopt {
    /// The cluster.
    #[arg(value_parser = name)]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

/// What `delete` is told.
#[derive(Args)]
pub struct Delete {
    /// The cluster.
    #[arg(value_parser = name)]
    pub(super) name: String,
    /// The cluster's name, as the confirmation. Without it a person is asked to type it.
    #[arg(long, value_name = "CLUSTER")]
    pub(super) confirm: Option<String>,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_addresses_or_one() {
        let address = |last: u8| Ipv4Addr::new(192, 168, 10, last);
        assert_eq!(range("192.168.10.200-192.168.10.209"), Ok((address(200), address(209))));
        assert_eq!(range("192.168.10.200"), Ok((address(200), address(200))));
        for wrong in ["", "192.168.10.200-", "192.168.10.0/24", "192.168.10.200-209"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
