//! `kaas upgrade …`: the command line of image-swap upgrades.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ::ova::signature::PublicKey;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use fleet::node::Client;
use fleet::upgrade::{Command, KubernetesOptions, KubernetesPlan, Mode, Options, Outcome, UpgradeStatus, describe};
use lab::{Lab, state_directory};

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
    /// Plans an upgrade and carries it out. When a step fails, all nodes go back to their old VMs.
    Apply {
        #[command(flatten)]
        wanted: Wanted,
        #[command(flatten)]
        at: At,
    },
    /// Continues an upgrade that was interrupted, here or on another machine.
    Resume {
        /// The OVA, if it is not where it was when the upgrade was planned.
        #[arg(long, value_name = "FILE")]
        ova: Option<PathBuf>,
        #[command(flatten)]
        at: At,
    },
    /// Gives every node its old VM back, with its data disk as it is now.
    Rollback(At),
    /// Makes an upgrade final: the old VMs are removed and there is no way back.
    Commit(At),
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
    /// Directory of the journal and of the snapshot that is taken before anything is changed.
    #[arg(long, value_name = "DIRECTORY")]
    journal: Option<PathBuf>,
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
    /// How long a swapped node may take to be found good, in seconds; then everything goes back.
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    gate_limit: u64,
    /// How long pods may take to move away from a node, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    drain: u64,
    /// Go to an older image.
    #[arg(long)]
    downgrade: bool,
}

/// Runs one of the commands.
///
/// # Errors
/// Why it was refused, interrupted, or went back.
pub fn run(command: Upgrade) -> anyhow::Result<()> {
    match command {
        Upgrade::Plan { wanted, at, output } => at.with(|site| {
            let plan = site.plan(&lab::find_ova(&wanted.ova)?, &wanted.options()?)?;
            match output {
                Output::Json => println!("{}", serde_json::to_string_pretty(&plan)?),
                Output::Text => print!("{}", describe::text(&plan)),
            }
            Ok(())
        }),
        Upgrade::Apply { wanted, at } => at.with(|site| {
            let state = site.apply(&lab::find_ova(&wanted.ova)?, &wanted.options()?)?;
            ended(&state, Outcome::Upgraded)
        }),
        Upgrade::Resume { ova, at } => at.with(|site| {
            let state = site.resume(ova)?;
            println!("{}", text(&state));
            Ok(())
        }),
        Upgrade::Rollback(at) => at.with(|site| ended(&site.rollback()?, Outcome::RolledBack)),
        Upgrade::Commit(at) => at.with(|site| ended(&site.commit()?, Outcome::Committed)),
        Upgrade::Kubernetes { to, check, drain, limit, at, output } => at.with(|site| {
            let options = KubernetesOptions { to, drain_seconds: drain, limit: Duration::from_secs(limit) };
            if check {
                let plan = site.plan_kubernetes(&options)?;
                match output {
                    Output::Json => println!("{}", serde_json::to_string_pretty(&plan)?),
                    Output::Text => print!("{}", kubernetes(&plan)),
                }
                return Ok(());
            }
            let done = site.upgrade_kubernetes(&options)?;
            println!("all control nodes run Kubernetes {}", done.to);
            Ok(())
        }),
        Upgrade::Status { at, output } => at.with(|site| {
            let state = site.status()?;
            match output {
                Output::Json => println!("{}", serde_json::to_string_pretty(&state)?),
                Output::Text => println!("{}", text(&state)),
            }
            Ok(())
        }),
    }
}

impl At {
    fn with(&self, act: impl FnOnce(&Command<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let lab = Lab::open(&state_directory()?, &self.lab)?;
        let kubeconfig = self.kubeconfig.clone().map_or_else(|| lab.kubeconfig(), Ok)?;
        let nodes = Client::of_kubeconfig(&kubeconfig)?.from_inside(lab.network_namespace());
        let directory = self.journal.clone().unwrap_or_else(|| lab.upgrades());
        act(&Command {
            hypervisor: &lab,
            nodes: &nodes,
            directory: &directory,
            say: &|line| println!("{line}"),
            pace: Duration::from_secs(1),
        })
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
            drain_seconds: self.drain,
            downgrade: self.downgrade,
            publisher: publisher.transpose()?,
        })
    }
}

fn kubernetes(plan: &KubernetesPlan) -> String {
    let mut text = format!("Upgrade of Kubernetes to {}\n\nIt rests on\n", plan.to);
    for ground in &plan.grounds {
        text += &format!("  {}: {}\n", ground.subject, ground.evidence);
    }
    text += "\nA snapshot of etcd is taken. Then, one node after the other,\n";
    for node in &plan.nodes {
        let begun = if node.begun { ", begun before" } else { "" };
        text += &format!("  {} ({}): from {}{begun}\n", node.name, node.address, node.runs);
    }
    text += "\nyields the virtual IP, moves its pods away, renews its certificates, starts its control plane and\n\
             kubelet in the new version and takes pods again. A node whose pods do not move away stays as it is.\n";
    text
}

/// Says where it ended; another end than the one that was asked for is a failure.
fn ended(state: &UpgradeStatus, wanted: Outcome) -> anyhow::Result<()> {
    if state.outcome == Some(wanted) {
        println!("{}", text(state));
        return Ok(());
    }
    bail!("{}", text(state))
}

fn text(state: &UpgradeStatus) -> String {
    let reason = state.reason.as_deref().unwrap_or("no reason was noted");
    let mut text = match state.outcome {
        Some(Outcome::Upgraded) => format!(
            "upgrade {}: all nodes run the new image; `kaas upgrade commit` makes it final, `rollback` takes it back",
            state.id
        ),
        Some(Outcome::RolledBack) => format!("upgrade {}: all nodes run what they ran before ({reason})", state.id),
        Some(Outcome::Committed) => format!("upgrade {}: the new image is final", state.id),
        None => format!(
            "upgrade {}: {} of {} steps {} are done; next: {}; `kaas upgrade resume` goes on, `rollback` turns back",
            state.id,
            state.done,
            state.total,
            match state.direction {
                fleet::upgrade::Direction::Forward => "forward",
                fleet::upgrade::Direction::Back => "back",
                fleet::upgrade::Direction::Commit => "of the commit",
            },
            state.next.as_deref().unwrap_or("nothing but to note the end"),
        ),
    };
    if let (None, Some(holder)) = (state.outcome, &state.locked_by) {
        text += &format!("\n{holder} is at work on it");
    }
    text
}
