//! `kaas upgrade …`: the command line of image-swap upgrades.

mod adopt;
mod describe;
mod words;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::ova::signature::PublicKey;
use anyhow::Context;
use clap::{Args, Subcommand};
use fleet::authority::{Folder, TakeOver};
use fleet::hypervisor::Placement;
use fleet::node::Client;
use fleet::upgrade::{
    Arrived, Deployment, Direction, KubernetesOptions, Mode, Notice, OnFailure, Options, Outcome, UpgradeStatus, Verb,
};
use lab::{Lab, LabHypervisor, state_directory};
use tokio::sync::watch;

use crate::ova::Output;

/// Replaces the VMs of a control cluster by ones from a new image; the data disks move over.
#[derive(Subcommand)]
pub enum Upgrade {
    /// Says what an upgrade would do, step by step, or why it must not be. Changes nothing.
    Plan {
        #[command(flatten)]
        wanted: Wanted,
        #[command(flatten)]
        at: At,
        /// How to say it.
        #[arg(long, default_value = "text")]
        output: Output,
    },
    /// Plans an upgrade and carries it out. A node that is not found good on the new image goes back to its old VM.
    Apply {
        #[command(flatten)]
        wanted: Wanted,
        #[command(flatten)]
        on: GoingOn,
    },
    /// Continues an upgrade that was interrupted or is paused. A node that went back alone is tried again.
    Resume {
        /// The OVA, if it is not where it was when the upgrade was planned. It must be the same one.
        #[arg(long, value_name = "FILE")]
        ova: Option<PathBuf>,
        #[command(flatten)]
        on: GoingOn,
    },
    /// Gives every node its old VM back, with its data disk as it is now.
    Rollback(GoingOn),
    /// Makes an upgrade final: the old VMs are removed and there is no way back.
    Commit(GoingOn),
    /// Ends an upgrade where it stands, when it can neither go on nor back: a node was lost for good.
    ///
    /// No VM is moved, stopped or removed. Swaps of nodes that are good on the new image are made final; what is left
    /// over is listed for a person to remove. Another upgrade can be planned then.
    Abandon {
        /// The upgrade's identifier, as `kaas upgrade status` says it: the confirmation.
        #[arg(long, value_name = "UUID")]
        confirm: uuid::Uuid,
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        over: Over,
    },
    /// Takes the control nodes to the next Kubernetes minor that their image carries, one after the other.
    ///
    /// After an image swap is committed. When it was interrupted, give the command again; there is no
    /// way back but restoring the snapshot of etcd that is taken before.
    Kubernetes {
        /// The minor to go to, such as 1.36, if not the next one.
        #[arg(long, value_name = "MINOR")]
        to: Option<String>,
        /// Only say what would be done, or why it must not be.
        #[arg(long)]
        check: bool,
        /// How long pods may take to move away from a node, in seconds.
        #[arg(long, default_value_t = 300, value_name = "SECONDS")]
        drain: u64,
        /// How long one node may take in all, in seconds.
        #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
        limit: u64,
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        over: Over,
        /// How to say it.
        #[arg(long, default_value = "text", requires = "check")]
        output: Output,
    },
    /// Says how far an upgrade is. Changes nothing.
    Status {
        #[command(flatten)]
        at: At,
        /// How to say it.
        #[arg(long, default_value = "text")]
        output: Output,
    },
}

/// The cluster, and where its VMs run.
#[derive(Args)]
pub struct At {
    /// The lab that the VMs run in.
    #[arg(long, value_name = "NAME")]
    lab: String,
    /// The cluster administrator's kubeconfig, if not the lab's own.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// From whom the deployment may be taken.
#[derive(Args)]
pub struct Over {
    /// Take over from a command that has not given the deployment back, on another machine or hanging. It does nothing
    /// more then; this one begins after it can have begun nothing more, and what it began has ended.
    #[arg(long)]
    take_over: bool,
}

/// How long a run waits.
#[derive(Args)]
pub struct Waiting {
    /// How long to wait for what cannot be done now, such as a drain that a PodDisruptionBudget blocks, in seconds. Then
    /// the command ends with status 3, and `kaas upgrade resume` goes on.
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    pause_limit: u64,
}

/// What every command needs that goes on with an upgrade.
#[derive(Args)]
pub struct GoingOn {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    over: Over,
    #[command(flatten)]
    waiting: Waiting,
}

/// What is wanted.
#[derive(Args)]
pub struct Wanted {
    /// The OVA with the new image, or a directory with one.
    #[arg(long, value_name = "FILE")]
    ova: PathBuf,
    /// The publisher's certificate or public key in PEM: the OVA must be signed with it, whatever key is pinned; the
    /// commit pins this one.
    #[arg(long, value_name = "FILE")]
    publisher: Option<PathBuf>,
    /// Swap all nodes at once instead of one after the other; the Kubernetes API is away meanwhile.
    #[arg(long)]
    all_at_once: bool,
    /// How long a swapped node may take to be found good, in seconds; then it goes back.
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    gate_limit: u64,
    /// When a node is not found good, take all nodes back, not that one alone.
    #[arg(long)]
    all_back: bool,
    /// How long pods may take to move away from a node, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    drain: u64,
    /// Go to an older image.
    #[arg(long)]
    downgrade: bool,
    /// The datastore that new VMs are put on, if not that of the VM whose place each takes. Data disks stay where they
    /// are.
    #[arg(long, value_name = "NAME")]
    datastore: Option<String>,
    /// The resource pool that new VMs are put into, if not that of the VM whose place each takes.
    #[arg(long, value_name = "NAME")]
    resource_pool: Option<String>,
    /// The folder of the inventory that new VMs are put into, if not that of the VM whose place each takes.
    #[arg(long, value_name = "NAME")]
    folder: Option<String>,
}

/// Ended otherwise than was asked for; exit status 4.
const WENT_BACK: u8 = 4;
/// Not at an end; resuming goes on; exit status 3.
const PAUSED: u8 = 3;

/// Runs one of the commands. Exit statuses: 0 when it is done, 3 when it waits for something or somebody, 4 when
/// nodes went back.
///
/// # Errors
/// Why it was refused or could not go on.
pub fn run(command: Upgrade) -> anyhow::Result<ExitCode> {
    match command {
        Upgrade::Plan { wanted, at, output } => at.with(None, async |deployment| {
            let plan = deployment.plan(&lab::find_ova(&wanted.ova)?, &wanted.options()?).await?;
            match output {
                Output::Json => println!("{}", serde_json::to_string_pretty(&plan)?),
                Output::Text => print!("{}", describe::text(&plan)),
            }
            Ok(ExitCode::SUCCESS)
        }),
        Upgrade::Apply { wanted, on } => on.with(async |deployment| {
            let went = deployment.apply(&lab::find_ova(&wanted.ova)?, &wanted.options()?, on.over.take()).await?;
            Ok(arrived(&went, Some(Outcome::Upgraded)))
        }),
        Upgrade::Resume { ova, on } => on.with(async |deployment| {
            // Resumed on the way back, or of the commit, it is to end there.
            let wanted = match deployment.status().await?.direction {
                Direction::Back | Direction::Abandon => None,
                Direction::Forward => Some(Outcome::Upgraded),
                Direction::Commit => Some(Outcome::Committed),
            };
            Ok(arrived(&deployment.go_on(Verb::Resume, ova, on.over.take()).await?, wanted))
        }),
        Upgrade::Rollback(on) => on.with(async |deployment| {
            Ok(arrived(&deployment.go_on(Verb::Rollback, None, on.over.take()).await?, Some(Outcome::RolledBack)))
        }),
        Upgrade::Commit(on) => on.with(async |deployment| {
            Ok(arrived(&deployment.go_on(Verb::Commit, None, on.over.take()).await?, Some(Outcome::Committed)))
        }),
        Upgrade::Abandon { confirm, at, over } => at.with(None, async |deployment| {
            Ok(arrived(&deployment.abandon(confirm, over.take()).await?, Some(Outcome::Abandoned)))
        }),
        Upgrade::Kubernetes { to, check, drain, limit, at, over, output } => at.with(None, async |deployment| {
            let options = KubernetesOptions { to, drain_seconds: drain, limit: Duration::from_secs(limit) };
            if check {
                let plan = deployment.plan_kubernetes(&options).await?;
                match output {
                    Output::Json => println!("{}", serde_json::to_string_pretty(&plan)?),
                    Output::Text => print!("{}", words::kubernetes(&plan)),
                }
                return Ok(ExitCode::SUCCESS);
            }
            let done = deployment.upgrade_kubernetes(&options, over.take()).await?;
            println!("all control nodes run Kubernetes {}", done.to);
            Ok(ExitCode::SUCCESS)
        }),
        Upgrade::Status { at, output } => at.with(None, async |deployment| {
            let status = deployment.status().await?;
            match output {
                Output::Json => println!("{}", serde_json::to_string_pretty(&status)?),
                Output::Text => println!("{}", words::status(&status)),
            }
            Ok(ExitCode::SUCCESS)
        }),
    }
}

/// `kaas adopt`: takes VMs that were imported by hand into the deployment.
///
/// # Errors
/// As [`Deployment::adoptable`] and [`Deployment::adopt`], or the operator does not confirm.
pub fn adopt(arguments: &Adopt) -> anyhow::Result<ExitCode> {
    arguments.at.with(None, async |deployment| adopt::run(deployment, arguments.yes, arguments.over.take()).await)
}

/// Takes VMs that were imported by hand into a deployment, so that upgrades may change them.
#[derive(Args)]
pub struct Adopt {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    over: Over,
    /// Do not ask: what is shown is right.
    #[arg(long)]
    yes: bool,
}

/// Says where a run has come to, and with which status to end.
fn arrived((arrived, status): &(Arrived, UpgradeStatus), wanted: Option<Outcome>) -> ExitCode {
    let text = words::status(status);
    match arrived {
        Arrived::Ended(outcome) if wanted.is_none_or(|wanted| wanted == *outcome) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Arrived::Ended(_) | Arrived::NodeIsBack(_) => {
            eprintln!("error: {text}");
            ExitCode::from(WENT_BACK)
        }
        Arrived::Paused(_) | Arrived::Cancelled => {
            eprintln!("{text}");
            ExitCode::from(PAUSED)
        }
    }
}

impl Over {
    fn take(&self) -> TakeOver {
        if self.take_over { TakeOver::FromAnyone } else { TakeOver::FromTheDead }
    }
}

impl GoingOn {
    fn with(&self, act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
        self.at.with(Some(&self.waiting), act)
    }
}

impl At {
    fn with(
        &self,
        waiting: Option<&Waiting>,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let lab = Arc::new(Lab::open(&state_directory()?, &self.lab)?);
        let kubeconfig = self.kubeconfig.clone().map_or_else(|| lab.kubeconfig(), Ok)?;
        let nodes = Client::from_inside(&kubeconfig, lab.network_namespace())?;
        let store = Folder::at(lab.upgrades());
        let (cancel, cancelled) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let acted = runtime.block_on(async {
            let deployment = Deployment {
                hypervisor: &LabHypervisor::new(lab),
                nodes: &nodes,
                store: &store,
                snapshots: &store,
                watch: &|notice: &Notice<'_>| words::tell(notice),
                pace: Duration::from_secs(1),
                pause_limit: waiting.map_or(Duration::ZERO, |waiting| Duration::from_secs(waiting.pause_limit)),
                cancelled,
            };
            let asked_to_end = async {
                if tokio::signal::ctrl_c().await.is_ok() && waiting.is_some() {
                    eprintln!("ending at the next moment at which it can be continued; press Ctrl-C again to end now");
                    // Nobody listens any more when it has ended meanwhile.
                    let _ = cancel.send(true);
                    let _ = tokio::signal::ctrl_c().await;
                }
                std::process::exit(130)
            };
            tokio::select! {
                acted = act(&deployment) => acted,
                () = asked_to_end => unreachable!("the process has ended"),
            }
        });
        acted.map_err(words::advised)
    }
}

impl Wanted {
    fn options(&self) -> anyhow::Result<Options> {
        let publisher = self.publisher.as_deref().map(|file| -> anyhow::Result<String> {
            let pem = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            let key = PublicKey::from_pem(&pem);
            Ok(key
                .with_context(|| format!("using {} as the publisher's key", file.display()))?
                .fingerprint()
                .to_string())
        });
        Ok(Options {
            mode: if self.all_at_once { Mode::AllAtOnce } else { Mode::Rolling },
            gate_seconds: self.gate_limit,
            on_failure: if self.all_back { OnFailure::All } else { OnFailure::Node },
            placement: Placement {
                datastore: self.datastore.clone(),
                resource_pool: self.resource_pool.clone(),
                folder: self.folder.clone(),
            },
            drain_seconds: self.drain,
            downgrade: self.downgrade,
            publisher: publisher.transpose()?,
        })
    }
}
