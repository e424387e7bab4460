//! The command line of tenants. Pure.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use contract::minor::Minor;
use kaas::output::Output;
use kaas::work::{TakeOverArgs, TimeoutArgs, Work, duration};

use super::super::key_value;
use super::worker_arguments::{DiscardArgs, WorkerArgs, WorkerChangeArgs};
use crate::labs::Engine;

/// The name of the tenant appliance.
pub const TENANT_OVA: &str = "kaas-tenant";

/// Commands on tenant clusters.
#[derive(Subcommand)]
pub enum Tenant {
    /// Start a tenant cluster on the network of a control cluster, and join its workers
    ///
    /// If the command was ended, or after a power cut, run it again to continue. A pause is kept, and failed workers remain
    /// failed, until `kaas-dev lab tenant resume`. The tenant is a lab too: `kaas-dev lab` and `kaas-dev control upgrade` accept its name.
    #[command(after_help = "Example: `kaas-dev lab tenant up --ova build --workers 2 --name tenant`")]
    Up(UpArguments),
    /// Create more workers
    #[command(after_help = "Example: `kaas-dev lab tenant add-worker --count 2 --name tenant`")]
    AddWorker {
        /// Number of new workers
        #[arg(long, default_value_t = 1)]
        count: usize,
        /// Engine that runs them and all later workers. Default: the current one
        #[arg(long, value_enum)]
        worker_engine: Option<Engine>,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Create or remove workers until their number is COUNT
    ///
    /// A repeated command changes nothing. Failed workers are removed first, then outdated ones, then the newest. Each is
    /// removed as with `remove-worker`.
    #[command(after_help = "Example: `kaas-dev lab tenant scale-workers 3 --name tenant`")]
    ScaleWorkers {
        /// Wanted number of workers
        count: usize,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Drain a worker, shut its VM down and remove its node and its VM
    ///
    /// PodDisruptionBudgets are respected. A budget that blocks the drain is named, and nothing is forced.
    #[command(after_help = "Example: `kaas-dev lab tenant remove-worker tenant-w1 --name tenant`")]
    RemoveWorker {
        /// Name of the worker
        worker: String,
        #[command(flatten)]
        lost: DiscardArgs,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Join a worker again after its certificate has expired, with a new token in its VM
    ///
    /// The VM is powered off meanwhile, unless the worker is Ready.
    #[command(after_help = "Example: `kaas-dev lab tenant rejoin-worker tenant-w1 --name tenant`")]
    RejoinWorker {
        /// Name of the worker
        worker: String,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Replace workers by new ones with another image, another size, or the next Kubernetes minor version
    ///
    /// A new worker joins, then an old one leaves. Options that are not given keep their values. The Kubernetes version has no
    /// such value: workers run the newest minor version that both their image and the control-plane nodes permit. Workers with
    /// an older one are replaced. A pause is kept, until `kaas-dev lab tenant resume`.
    #[command(after_help = "Example: `kaas-dev lab tenant replace-workers --ova build --name tenant`")]
    ReplaceWorkers {
        /// Tenant OVA, or a directory with one. Default: the current image
        #[arg(long, value_name = "FILE")]
        ova: Option<PathBuf>,
        /// Minor version of Kubernetes that the workers must run, such as 1.36. If they would run another one, the command is
        /// refused before it creates a worker. `kaas-dev control upgrade kubernetes` upgrades the control-plane nodes first
        #[arg(long, value_name = "MINOR")]
        kubernetes: Option<Minor>,
        #[command(flatten)]
        changed: WorkerChangeArgs,
        #[command(flatten)]
        lost: DiscardArgs,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Pause the replacement of workers
    #[command(after_help = "Example: `kaas-dev lab tenant pause --name tenant`")]
    Pause(TenantArgs),
    /// Continue work that was interrupted, paused, blocked or has failed
    ///
    /// A worker that did not join is created again. One that had joined and failed to join again gets another token: only
    /// `remove-worker` removes it.
    #[command(after_help = "Example: `kaas-dev lab tenant resume --name tenant`")]
    Resume(TenantArgs),
    /// Show the state of the workers
    #[command(after_help = "Example: `kaas-dev lab tenant status --name tenant`")]
    Status(StatusArgs),
    /// Replace one of three control-plane nodes, which is off for good, by a blank VM
    #[command(after_help = "Example: `kaas-dev lab tenant replace-control-plane tenant-cp1 --name tenant`")]
    ReplaceControlPlane {
        /// Name of the control-plane node
        node: String,
        /// Tenant OVA, or a directory with one. Default: the image of the other control-plane nodes
        #[arg(long, value_name = "FILE")]
        ova: Option<PathBuf>,
        /// Property that differs from that of the lost node and from the cluster's current one. Give the option several times
        /// for several properties
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
        properties: Vec<(String, String)>,
        /// Size of its data disk in MiB. Default: that of the other control-plane nodes
        #[arg(long, value_name = "MIB")]
        data_disk: Option<u64>,
        /// How long to wait for the node
        #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration)]
        ready_timeout: Duration,
        #[command(flatten)]
        at: TenantArgs,
    },
}

impl Tenant {
    /// The command's name. Other commands show it as the holder of the lease.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Up(_) => "lab tenant up",
            Self::AddWorker { .. } => "lab tenant add-worker",
            Self::ScaleWorkers { .. } => "lab tenant scale-workers",
            Self::RemoveWorker { .. } => "lab tenant remove-worker",
            Self::RejoinWorker { .. } => "lab tenant rejoin-worker",
            Self::ReplaceWorkers { .. } => "lab tenant replace-workers",
            Self::Pause(_) => "lab tenant pause",
            Self::Resume(_) => "lab tenant resume",
            Self::Status(_) => "lab tenant status",
            Self::ReplaceControlPlane { .. } => "lab tenant replace-control-plane",
        }
    }
}

/// The tenant, and the format of the output.
#[derive(Args)]
pub struct TenantArgs {
    /// Name of the tenant, at most 15 characters
    #[arg(long, default_value = "tenant")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) work: Work,
}

/// The options of `tenant status`.
#[derive(Args)]
pub struct StatusArgs {
    /// Name of the tenant
    #[arg(long, default_value = "tenant")]
    name: String,
    #[command(flatten)]
    output: Output,
}

impl From<StatusArgs> for TenantArgs {
    fn from(StatusArgs { name, output }: StatusArgs) -> Self {
        let (waiting, over) = (TimeoutArgs { timeout: Duration::ZERO }, TakeOverArgs { take_over: false });
        Self { name, work: Work { output, waiting, over } }
    }
}

/// The options of `tenant up`.
#[derive(Args)]
pub struct UpArguments {
    #[command(flatten)]
    pub(super) at: TenantArgs,
    /// Lab whose network the tenant uses
    #[arg(long, value_name = "LAB", default_value = "lab")]
    pub(super) beside: String,
    /// Tenant OVA, or a directory with one
    #[arg(long, value_name = "FILE")]
    pub(super) ova: PathBuf,
    /// Tools tree to use in place of the image builder's one
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) tools: Option<PathBuf>,
    /// Number of control-plane nodes: 1 or 3
    #[arg(long, default_value_t = 1)]
    pub(super) control_planes: usize,
    /// Number of workers for a new tenant. Default: 2. `scale-workers` changes it later
    #[arg(long)]
    pub(super) workers: Option<usize>,
    /// Source of the workers' addresses, for a new tenant. It also applies to later workers
    #[arg(long, value_enum, default_value = "static")]
    pub(super) worker_addresses: WorkerAddresses,
    /// Engine that runs the control-plane nodes
    #[arg(long, value_enum, default_value = "container")]
    pub(super) engine: Engine,
    /// Engine that runs the workers. Default: that of the control-plane nodes
    #[arg(long, value_enum)]
    pub(super) worker_engine: Option<Engine>,
    /// Property of all control-plane nodes. Give the option several times for several properties. Workers get those that
    /// concern the site
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) properties: Vec<(String, String)>,
    /// Memory of each control-plane node in MiB
    #[arg(long, default_value_t = 2048)]
    pub(super) memory: u32,
    /// Size of each control-plane node's data disk in MiB
    #[arg(long, default_value_t = 8192)]
    pub(super) data_disk: u64,
    #[command(flatten)]
    pub(super) made: WorkerArgs,
    /// How long to wait for the control-plane nodes
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration)]
    pub(super) ready_timeout: Duration,
}

/// The source of the workers' addresses.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkerAddresses {
    /// An address of the tenant's range, in the properties of each worker
    Static,
    /// A DHCP server of the lab leases addresses of the same range and announces the gateway: dnsmasq, of Debian's dnsmasq-base
    Dhcp,
}
