//! The command line of deployments. Does nothing.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::output::Output;
use crate::work::Work;

/// A cluster as its file describes it.
#[derive(Args)]
pub struct ClusterFileArgs {
    /// The file that describes the cluster. `kaas deploy --example` prints one.
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: PathBuf,
    /// How to say it. With JSON, progress goes to standard error.
    #[arg(long, default_value = "text")]
    pub(super) output: Output,
}

/// What `deploy` is told.
#[derive(Args)]
pub struct Deploy {
    /// The file that describes the cluster. `kaas deploy --example` prints one.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["example", "schema"])]
    pub(super) file: Option<PathBuf>,
    /// Print a description to begin with, and do nothing.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "three", exclusive = true)]
    pub(super) example: Option<Example>,
    /// Print the JSON Schema of descriptions, by which editors complete and check them, and do nothing.
    #[arg(long, exclusive = true)]
    pub(super) schema: bool,
    /// Say what would be made, and make nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) work: Work,
}

/// What an example describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// One control node in a lab of this machine.
    #[value(alias = "1")]
    One,
    /// Three, for high availability, in a lab.
    #[value(alias = "3")]
    Three,
    /// Three on a vCenter.
    Vsphere,
}

/// What `destroy` is told.
#[derive(Args)]
pub struct Destroy {
    /// The file that describes the cluster.
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: PathBuf,
    /// The cluster's name, as the confirmation. Without it a person is asked to type it.
    #[arg(long, value_name = "CLUSTER")]
    pub(super) confirm: Option<String>,
    /// Remove the data disks as well, with all that the cluster knows.
    #[arg(long)]
    pub(super) data_disks: bool,
    /// A VM that goes as well though nothing is noted of how it was made, by its BIOS UUID: one that was adopted, or took another
    /// one's place by hand. It must carry the deployment's stamp. Once for each; they are shown before they go, and named again where the command is given again.
    #[arg(long, value_name = "UUID")]
    pub(super) also_vm: Vec<uuid::Uuid>,
    #[command(flatten)]
    pub(super) work: Work,
}
