//! The command line of tenants. Does nothing.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use contract::minor::Minor;

use super::super::{Engine, key_value};
use super::worker_arguments::{DiscardArgs, WorkerArgs, WorkerChangeArgs};
use crate::work::Work;

/// The appliance that tenants are made of.
pub const TENANT_OVA: &str = "kaas-tenant";

/// Commands on tenant clusters.
#[derive(Subcommand)]
pub enum Tenant {
    /// Starts a tenant cluster beside a control cluster, and lets its workers join.
    ///
    /// Given again after it was ended, or after a power cut, it goes on; a pause holds, and what has failed stays as it is,
    /// until `kaas lab tenant resume`. The tenant is a lab as well: `kaas lab` and `kaas upgrade` take its name.
    Up(UpArguments),
    /// Makes further workers.
    AddWorker {
        /// How many.
        #[arg(long, default_value_t = 1)]
        count: usize,
        /// What runs them, and all workers that are made later. Not said, it stays.
        #[arg(long, value_enum)]
        worker_engine: Option<Engine>,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Makes or removes workers until there are so many.
    ///
    /// Given again, it is nothing new. Where fewer are wanted than before, those that have failed go first, then outdated ones,
    /// then the youngest; each as with `remove-worker`.
    ScaleWorkers {
        /// How many workers there are to be.
        count: usize,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Drains a worker, shuts its VM down and removes both node and VM.
    ///
    /// PodDisruptionBudgets are respected: what blocks the drain is named, and nothing is forced.
    RemoveWorker {
        /// The worker.
        worker: String,
        #[command(flatten)]
        lost: DiscardArgs,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Lets a worker join again whose certificate has expired: with a new token, in its VM.
    ///
    /// The VM is powered off meanwhile, unless the worker is Ready.
    RejoinWorker {
        /// The worker.
        worker: String,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Replaces workers by ones from another image, of another size, or of the next Kubernetes minor: a new one joins, then
    /// an old one leaves.
    ///
    /// What is not said stays as the workers have it, but Kubernetes: workers run the newest minor that their image carries
    /// and the control nodes permit, and those that run an older one are replaced. A pause holds: `kaas lab tenant resume`
    /// lifts it.
    ReplaceWorkers {
        /// The tenants' OVA, or a directory with one. Not said, the image stays.
        #[arg(long, value_name = "FILE")]
        ova: Option<PathBuf>,
        /// The Kubernetes minor that the workers are to run, such as 1.36. If they would run another one, it is refused before
        /// any worker is made: `kaas upgrade kubernetes` takes the control nodes there first.
        #[arg(long, value_name = "MINOR")]
        kubernetes: Option<Minor>,
        #[command(flatten)]
        changed: WorkerChangeArgs,
        #[command(flatten)]
        lost: DiscardArgs,
        #[command(flatten)]
        at: TenantArgs,
    },
    /// Replaces no further worker for now.
    Pause(TenantArgs),
    /// Goes on with what was interrupted, paused, blocked or has failed.
    ///
    /// A worker that did not join is made anew. One that had joined and failed to join again is given another token: it goes
    /// only by `remove-worker`.
    Resume(TenantArgs),
    /// Says where the workers stand.
    Status(TenantArgs),
    /// Replaces a control node that is off for good by a blank VM; one of three.
    ReplaceControlPlane {
        /// The control node.
        node: String,
        /// The tenants' OVA, or a directory with one, if not the image of the other control nodes.
        #[arg(long, value_name = "FILE")]
        ova: Option<PathBuf>,
        /// A property that it is to have otherwise than the lost one had and the cluster goes by now; may be given several
        /// times.
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
        properties: Vec<(String, String)>,
        /// Size of its data disk in MiB, if not that of the other control nodes.
        #[arg(long, value_name = "MIB")]
        data_disk: Option<u64>,
        /// How long to wait for it, in minutes.
        #[arg(long, default_value_t = 15)]
        limit: u64,
        #[command(flatten)]
        at: TenantArgs,
    },
}

impl Tenant {
    /// The command's name: what others are told of whoever is at work on the workers.
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

/// Which tenant, and how to say what becomes of it.
#[derive(Args)]
pub struct TenantArgs {
    /// Name of the tenant: at most 15 characters.
    #[arg(long, default_value = "tenant")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) work: Work,
}

/// What `tenant up` is told.
#[derive(Args)]
pub struct UpArguments {
    #[command(flatten)]
    pub(super) at: TenantArgs,
    /// The lab on whose network it is.
    #[arg(long, value_name = "LAB", default_value = "lab")]
    pub(super) beside: String,
    /// The tenants' OVA, or a directory with one.
    #[arg(long, value_name = "FILE")]
    pub(super) ova: PathBuf,
    /// Tools tree to use in place of the image builder's own.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) tools: Option<PathBuf>,
    /// Number of control nodes: 1 or 3.
    #[arg(long, default_value_t = 1)]
    pub(super) control_planes: usize,
    /// Number of workers, if not 2: this counts when the tenant is made; `scale-workers` changes it.
    #[arg(long)]
    pub(super) workers: Option<usize>,
    /// Where the workers have their addresses from: this counts when the tenant is made, and holds for those that come later.
    #[arg(long, value_enum, default_value = "static")]
    pub(super) worker_addresses: WorkerAddresses,
    /// What runs the control nodes.
    #[arg(long, value_enum, default_value = "container")]
    pub(super) engine: Engine,
    /// What runs the workers; the same without it.
    #[arg(long, value_enum)]
    pub(super) worker_engine: Option<Engine>,
    /// A property for all control nodes; may be given several times. Workers get those that concern the site.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) properties: Vec<(String, String)>,
    /// Memory of each control node in MiB.
    #[arg(long, default_value_t = 2048)]
    pub(super) memory: u32,
    /// Size of each control node's data disk in MiB.
    #[arg(long, default_value_t = 8192)]
    pub(super) data_disk: u64,
    #[command(flatten)]
    pub(super) made: WorkerArgs,
    /// How long to wait for the control nodes, in minutes.
    #[arg(long, default_value_t = 15)]
    pub(super) limit: u64,
}

/// Where workers have their addresses from.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkerAddresses {
    /// Each is given one of the tenant's range in its properties.
    Static,
    /// A DHCP server of the lab leases those of the same range, and says the gateway: dnsmasq, of Debian's dnsmasq-base.
    Dhcp,
}
