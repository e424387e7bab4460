//! The command line of tenant clusters. Pure.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::control::{NamespaceArgs, WaitArgs, candidates, name};
use crate::output::Output;

#[derive(Args)]
pub struct Create {
    /// Name of the cluster, unless `--file` is given
    #[arg(value_parser = name, required_unless_present = "file", conflicts_with = "file")]
    pub(super) name: Option<String>,
    /// YAML file with a TenantCluster and its NodePools. docs/reference/objects.md has the fields
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["provider", "kubernetes", "network", "endpoint", "endpoint_pool"])]
    pub(super) file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) said: NewClusterArgs,
    /// Only let the API server check the objects. With `--output yaml`, print them as `--file` reads them
    ///
    /// Checks that need other objects or the vCenter are left out.
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

/// A cluster by options. A file has all fields.
#[derive(Args, Default)]
pub struct NewClusterArgs {
    /// Provider that runs the VMs
    #[arg(long, value_parser = name, required_unless_present = "file", help_heading = "Cluster", add = candidates::providers())]
    pub(super) provider: Option<String>,
    /// Minor version of Kubernetes, such as 1.36
    #[arg(long, value_name = "MINOR", required_unless_present = "file", help_heading = "Cluster")]
    pub(super) kubernetes: Option<String>,
    /// NodeImage. Default: the newest supported one
    #[arg(long, value_parser = name, conflicts_with = "file", help_heading = "Cluster", add = candidates::images())]
    pub(super) image: Option<String>,
    /// Number of control-plane nodes: 1 or 3
    #[arg(long, value_name = "NUMBER", value_parser = ["1", "3"], conflicts_with = "file", help_heading = "Cluster")]
    pub(super) control_nodes: Option<String>,
    /// Network of the Provider for the nodes
    #[arg(long, value_parser = name, required_unless_present = "file", help_heading = "Cluster")]
    pub(super) network: Option<String>,
    /// Address of the Kubernetes API: an unused one in the subnet of the nodes
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["file", "endpoint_pool"], help_heading = "Cluster")]
    pub(super) endpoint: Option<Ipv4Addr>,
    /// IPPool that such an address is taken from
    #[arg(
        long,
        value_name = "POOL",
        value_parser = name,
        conflicts_with = "endpoint",
        help_heading = "Cluster",
        add = candidates::ip_pools()
    )]
    pub(super) endpoint_pool: Option<String>,
    /// Unused addresses in the subnet of the nodes for Services of the type LoadBalancer. Give the option once for each range.
    /// Without it, the cluster has no load balancer until its TenantCluster names such addresses
    #[arg(long, value_name = "FIRST-LAST", value_parser = range, conflicts_with = "file", help_heading = "Cluster")]
    pub(super) service_vips: Vec<Range>,
    /// File with public SSH keys, one a line. Their owners may log in to the nodes as `admin`. A cluster without keys needs a
    /// console password, which only `--file` can give
    #[arg(long, value_name = "FILE", conflicts_with = "file", help_heading = "Cluster")]
    pub(super) ssh_keys: Option<PathBuf>,
    /// Number of workers in the pool NAME-workers
    #[arg(long, value_name = "NUMBER", requires = "worker_class", conflicts_with = "file", help_heading = "Workers")]
    pub(super) workers: Option<u32>,
    /// VMClass of the workers
    #[arg(
        long,
        value_name = "CLASS",
        value_parser = name,
        requires = "workers",
        help_heading = "Workers",
        add = candidates::vm_classes()
    )]
    pub(super) worker_class: Option<String>,
    /// Zone for nodes. Give the option once for each zone. Default: all zones of the Provider
    #[arg(long, value_parser = name, conflicts_with = "file", help_heading = "Cluster")]
    pub(super) zone: Vec<String>,
}

/// The first and the last address, both included.
pub(super) type Range = (Ipv4Addr, Ipv4Addr);

/// Reads `FIRST-LAST`, or a single address. The controller checks the order and the subnet.
fn range(text: &str) -> Result<Range, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let address = |part: &str| {
        part.parse::<Ipv4Addr>().map_err(|_| format!("{part:?} is no IPv4 address: give FIRST-LAST, or a single one"))
    };
    Ok((address(first)?, address(last)?))
}

#[derive(Args)]
pub struct Get {
    /// Name of the cluster. Without it, all clusters of the namespace are listed
    #[arg(value_parser = name, add = candidates::clusters())]
    pub(super) name: Option<String>,
    /// List the clusters of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["name", "namespace"])]
    pub(super) all_namespaces: bool,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
}

#[derive(Args)]
pub struct Describe {
    /// Name of the cluster
    #[arg(value_parser = name, add = candidates::clusters())]
    pub(super) name: String,
    /// Also show conditions that hold
    #[arg(long)]
    pub(super) all_conditions: bool,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
}

#[derive(Args)]
pub struct Upgrade {
    /// Name of the cluster
    #[arg(value_parser = name, add = candidates::clusters())]
    pub(super) name: String,
    /// NodeImage to upgrade to. The former one, given before the commit, rolls the upgrade back
    #[arg(long, value_parser = name, add = candidates::images())]
    pub(super) image: Option<String>,
    /// Minor version of Kubernetes to upgrade to: the next one
    #[arg(long, value_name = "MINOR")]
    pub(super) kubernetes: Option<String>,
    /// Request for the current upgrade, in place of another upgrade
    #[arg(long = "do", value_enum, value_name = "WHAT", conflicts_with_all = ["image", "kubernetes"])]
    pub(super) asks: Option<OperationRequest>,
    /// Only print what would change. The API server checks the request
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

/// A request for the current upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OperationRequest {
    /// Try the failed step again
    Resume,
    /// Return to the former image
    Rollback,
    /// Make the upgrade final
    Commit,
    /// End the upgrade where it is
    Abandon,
}

impl OperationRequest {
    /// The word in the annotation.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Rollback => "rollback",
            Self::Commit => "commit",
            Self::Abandon => "abandon",
        }
    }
}

#[derive(Args)]
pub struct Kubeconfig {
    /// Name of the cluster
    #[arg(value_parser = name, add = candidates::clusters())]
    pub(super) name: String,
    /// File for the kubeconfig, which contains an administrator's key. Default: NAME.kubeconfig in the current directory. An
    /// existing file is replaced only if this command wrote it for this cluster, or if its certificate has expired
    #[arg(long, value_name = "FILE")]
    pub(super) to_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
}

#[derive(Args)]
pub struct Adopt {
    /// Name of the cluster
    #[arg(value_parser = name, add = candidates::clusters())]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

#[derive(Args)]
pub struct ReplaceNode {
    /// Name of the cluster
    #[arg(value_parser = name, add = candidates::clusters())]
    pub(super) name: String,
    /// Name of the lost control-plane node
    #[arg(value_parser = name)]
    pub(super) node: String,
    /// Name of the host of the lost VM, if its state is unknown and the cluster names this host. Switch the host off first
    #[arg(long, value_name = "HOST")]
    pub(super) host_is_off: Option<String>,
    /// Name of the node, as the confirmation. Without it, the command asks for the name
    #[arg(long, value_name = "NODE")]
    pub(super) confirm: Option<String>,
    /// Only print what would be changed, without a confirmation. The API server checks the request
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

#[derive(Args)]
pub struct Delete {
    /// Name of the cluster
    #[arg(value_parser = name, add = candidates::clusters())]
    pub(super) name: String,
    /// Name of the cluster, as the confirmation. Without it, the command asks for the name
    #[arg(long, value_name = "CLUSTER")]
    pub(super) confirm: Option<String>,
    /// Only print what would be deleted, without a confirmation. The API server checks the request
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) within: NamespaceArgs,
    #[command(flatten)]
    pub(super) until: WaitArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_two_addresses_or_one() {
        let address = |last: u8| Ipv4Addr::new(192, 168, 10, last);
        assert_eq!(range("192.168.10.200-192.168.10.209"), Ok((address(200), address(209))));
        assert_eq!(range("192.168.10.200"), Ok((address(200), address(200))));
        for wrong in ["", "192.168.10.200-", "192.168.10.0/24", "192.168.10.200-209"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
