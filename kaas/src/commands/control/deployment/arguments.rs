//! The command line of deployments. Pure.

use std::path::PathBuf;

use clap::Args;

use crate::output::Output;
use crate::work::Work;

#[derive(Args)]
pub struct ClusterFileArgs {
    /// File that describes the cluster. `kaas control create --example` prints one
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Args)]
pub struct Create {
    /// File that describes the cluster. `kaas control create --example` prints one
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["example", "schema"])]
    pub(super) file: Option<PathBuf>,
    /// Print an example of a description for a vCenter, and do nothing else
    #[arg(long, exclusive = true)]
    pub(super) example: bool,
    /// Print the JSON Schema of descriptions, with which editors complete and check them, and do nothing else
    #[arg(long, exclusive = true)]
    pub(super) schema: bool,
    /// Show what would be created, and create nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) work: Work,
}

#[derive(Args)]
pub struct Kubeconfig {
    /// File that describes the cluster
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: PathBuf,
    /// File for the kubeconfig. Default: the one that the description names. An existing file is replaced only if this command
    /// wrote it for this cluster, or if its certificate has expired
    #[arg(long, value_name = "FILE")]
    pub(super) to_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Args)]
pub struct Delete {
    /// File that describes the cluster
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Name of the cluster, as the confirmation. Without it, the command asks for the name
    #[arg(long, value_name = "CLUSTER")]
    pub(super) confirm: Option<String>,
    /// Also remove the data disks, with all data of the cluster
    #[arg(long)]
    pub(super) data_disks: bool,
    /// Also remove the VM with this BIOS UUID, though the journal has no record of it: it was adopted, or replaced
    /// another VM by hand. It must carry the deployment's stamp. Give the option once for each VM. The VMs are shown before
    /// they are removed. Name them again if you repeat the command
    #[arg(long, value_name = "UUID")]
    pub(super) also_vm: Vec<uuid::Uuid>,
    /// Only show what would be deleted, without a confirmation
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) work: Work,
}
