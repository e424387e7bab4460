//! `kaas upgrade …`: the command line of image-swap upgrades.

mod adopt;
mod describe;
mod signals;
mod words;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ::ova::signature::PublicKey;
use anyhow::Context;
use clap::{Args, Subcommand};
use fleet::authority::{DirectoryStore, TakeOver};
use fleet::hypervisor::Placement;
use fleet::node::Client;
use fleet::upgrade::{
    Arrived, Cancelled, Deployment, Direction, KubernetesOptions, Mode, Nodes, Notice, OnFailure, Options, Outcome,
    Unasked, UpgradeStatus, Verb,
};
use lab::{Lab, LabHypervisor, state_directory};
use tokio::sync::watch;

use self::signals::{Ending, Signals};
use crate::output::{json, result, say, warn};
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
        #[command(flatten)]
        whose: Whose,
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
    ///
    /// One after the other; those that are ill come first, as they are found each time that the command is given. Where a
    /// node says that etcd has no quorum, all go back at once.
    Rollback {
        /// All off, all on, whatever the nodes say: when none can be reached, or they keep each other from going back. The
        /// Kubernetes API is away meanwhile.
        #[arg(long)]
        all_at_once: bool,
        #[command(flatten)]
        on: GoingOn,
    },
    /// Makes an upgrade final: the old VMs are removed and there is no way back.
    Commit(GoingOn),
    /// Ends an upgrade where it stands, when it can neither go on nor back: a node was lost for good.
    ///
    /// No VM is moved, stopped or removed. Swaps of nodes that are good on the new image are made final. VMs that are off
    /// and hold no data disk are listed for a person to remove; one that holds the node's disk is named to be powered
    /// on. Another upgrade can be planned then. It works whatever the hypervisor, the nodes and the journal say: what is
    /// not known then is named. With --other-cluster no node is asked.
    Abandon {
        /// The upgrade's identifier, as `kaas upgrade status` says it: the confirmation. When nothing of the journal can be
        /// read, the number of the damaged hold, as every command says it then.
        #[arg(long, value_name = "UUID|NUMBER")]
        confirm: Confirmed,
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        whose: Whose,
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
        whose: Whose,
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

/// Which cluster the deployment's is.
#[derive(Args)]
pub struct Whose {
    /// The deployment's cluster is the one that calls itself UUID now, though it called itself otherwise at the last
    /// upgrade: what the Kubernetes API says of itself stops nobody who knows better.
    #[arg(long, value_name = "UUID")]
    other_cluster: Option<uuid::Uuid>,
}

/// What is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// The upgrade with this identifier.
    Upgrade(uuid::Uuid),
    /// The one whose journal is that of this hold, and of which nothing can be read.
    Hold(u64),
}

impl FromStr for Confirmed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upgrade = text.parse().map(Self::Upgrade);
        upgrade.or_else(|_| text.parse().map(Self::Hold)).map_err(|_| "neither a UUID nor a hold's number".to_owned())
    }
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
    whose: Whose,
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

/// What a command does that cannot ask nodes: without credentials, or in a lab that is off.
#[derive(Clone, Copy)]
enum Lacking {
    /// It fails.
    Fails,
    /// It goes on without them.
    Goes,
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
    let what = command.what();
    match command {
        Upgrade::Plan { wanted, at, whose, output } => at.looking(what, Some(&whose), async |deployment| {
            let plan = deployment.plan(&lab::find_ova(&wanted.ova)?, &wanted.options()?).await?;
            match output {
                Output::Json => json(&plan)?,
                Output::Text => result(&describe::text(&plan))?,
            }
            Ok(ExitCode::SUCCESS)
        }),
        Upgrade::Apply { wanted, on } => on.with(what, async |deployment| {
            let went = deployment.apply(&lab::find_ova(&wanted.ova)?, &wanted.options()?, on.over.take()).await?;
            Ok(arrived(&went, Some(Outcome::Upgraded)))
        }),
        Upgrade::Resume { ova, on } => on.with(what, async |deployment| {
            // Resumed on the way back, or of the commit, it is to end there.
            let wanted = match deployment.status().await?.direction {
                Direction::Back | Direction::Abandon => None,
                Direction::Forward => Some(Outcome::Upgraded),
                Direction::Commit => Some(Outcome::Committed),
            };
            Ok(arrived(&deployment.go_on(Verb::Resume, ova, on.over.take()).await?, wanted))
        }),
        Upgrade::Rollback { all_at_once, on } => on.with(what, async |deployment| {
            let verb = if all_at_once { Verb::RollbackAtOnce } else { Verb::Rollback };
            Ok(arrived(&deployment.go_on(verb, None, on.over.take()).await?, Some(Outcome::RolledBack)))
        }),
        Upgrade::Commit(on) => on.with(what, async |deployment| {
            Ok(arrived(&deployment.go_on(Verb::Commit, None, on.over.take()).await?, Some(Outcome::Committed)))
        }),
        Upgrade::Abandon { confirm, at, whose, over } => {
            let ending = Ending::WhereItCanBeContinued;
            at.with(what, Some(&whose), Duration::ZERO, Lacking::Goes, ending, async |deployment| match confirm {
                Confirmed::Upgrade(id) => {
                    Ok(arrived(&deployment.abandon(id, over.take()).await?, Some(Outcome::Abandoned)))
                }
                Confirmed::Hold(number) => {
                    let end = deployment.abandon_unread(number, over.take()).await?;
                    say(&words::abandoned_unread(&end));
                    Ok(ExitCode::SUCCESS)
                }
            })
        }
        Upgrade::Kubernetes { to, check, drain, limit, at, whose, over, output } => {
            let options = KubernetesOptions { to, drain_seconds: drain, limit: Duration::from_secs(limit) };
            if check {
                return at.looking(what, Some(&whose), async |deployment| {
                    let plan = deployment.plan_kubernetes(&options).await?;
                    match output {
                        Output::Json => json(&plan)?,
                        Output::Text => result(&words::kubernetes(&plan))?,
                    }
                    Ok(ExitCode::SUCCESS)
                });
            }
            at.changing(what, Some(&whose), Duration::ZERO, async |deployment| {
                let done = deployment.upgrade_kubernetes(&options, over.take()).await?;
                say(&format!("all control nodes run Kubernetes {}", done.to));
                Ok(ExitCode::SUCCESS)
            })
        }
        Upgrade::Status { at, output } => {
            at.with(what, None, Duration::ZERO, Lacking::Goes, Ending::AtOnce, async |deployment| {
                let status = deployment.status().await?;
                match output {
                    Output::Json => json(&status)?,
                    Output::Text => result(&words::status(&status))?,
                }
                Ok(ExitCode::SUCCESS)
            })
        }
    }
}

/// `kaas adopt`: takes VMs that were imported by hand into the deployment.
///
/// # Errors
/// As [`Deployment::adoptable`] and [`Deployment::adopt`], or the operator does not confirm.
pub fn adopt(arguments: &Adopt) -> anyhow::Result<ExitCode> {
    arguments
        .at
        .looking("adopt", None, async |deployment| adopt::run(deployment, arguments.yes, arguments.over.take()).await)
}

/// Takes VMs that were imported by hand into a deployment, so that upgrades may change them.
#[derive(Args)]
pub struct Adopt {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    over: Over,
    /// Do not ask: what is shown is right. What must be so is judged all the same: each VM is on, the only one with its
    /// BIOS UUID, without a stamp, and holds one data disk.
    #[arg(long)]
    yes: bool,
}

/// Says where a run has come to, and with which status to end.
fn arrived((arrived, status): &(Arrived, UpgradeStatus), wanted: Option<Outcome>) -> ExitCode {
    let text = words::status(status);
    match arrived {
        Arrived::Ended(outcome) if wanted.is_none_or(|wanted| wanted == *outcome) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Arrived::Ended(_) | Arrived::NodeIsBack(_) => {
            warn(&format!("error: {text}"));
            ExitCode::from(WENT_BACK)
        }
        Arrived::Paused(_) | Arrived::Cancelled => {
            warn(&text);
            ExitCode::from(PAUSED)
        }
    }
}

impl Upgrade {
    /// The command's name: what others are told of whoever holds the deployment.
    fn what(&self) -> &'static str {
        match self {
            Self::Plan { .. } => "upgrade plan",
            Self::Apply { .. } => "upgrade apply",
            Self::Resume { .. } => "upgrade resume",
            Self::Rollback { .. } => "upgrade rollback",
            Self::Commit(_) => "upgrade commit",
            Self::Abandon { .. } => "upgrade abandon",
            Self::Kubernetes { .. } => "upgrade kubernetes",
            Self::Status { .. } => "upgrade status",
        }
    }
}

impl Over {
    fn take(&self) -> TakeOver {
        if self.take_over { TakeOver::FromAnyone } else { TakeOver::FromTheDead }
    }
}

impl GoingOn {
    fn with(
        &self,
        what: &str,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.at.changing(what, Some(&self.whose), Duration::from_secs(self.waiting.pause_limit), act)
    }
}

impl At {
    /// Does what changes nothing that would have to be continued.
    fn looking(
        &self,
        what: &str,
        whose: Option<&Whose>,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, Duration::ZERO, Lacking::Fails, Ending::AtOnce, act)
    }

    /// Does what can be continued when it was asked to end.
    fn changing(
        &self,
        what: &str,
        whose: Option<&Whose>,
        pause_limit: Duration,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, pause_limit, Lacking::Fails, Ending::WhereItCanBeContinued, act)
    }

    /// How nodes are asked.
    fn client(&self, lab: &Lab) -> anyhow::Result<Client> {
        let kubeconfig = self.kubeconfig.clone().map_or_else(|| lab.kubeconfig(), Ok)?;
        Client::from_inside(&kubeconfig, lab.network_namespace())
    }

    fn with(
        &self,
        what: &str,
        whose: Option<&Whose>,
        pause_limit: Duration,
        lacking: Lacking,
        ending: Ending,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let lab = Arc::new(Lab::open(&state_directory()?, &self.lab)?);
        let nodes: Box<dyn Nodes> = match (self.client(&lab), lacking) {
            (Ok(client), _) => Box::new(client),
            (Err(error), Lacking::Goes) => {
                let because = format!("{error:#}");
                warn(&format!("warning: no node can be asked: {because}"));
                Box::new(Unasked::because(because))
            }
            (Err(error), Lacking::Fails) => return Err(error),
        };
        let store = DirectoryStore::at(lab.upgrades());
        let (cancel, cancelled) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let acted = runtime.block_on(async {
            let deployment = Deployment {
                hypervisor: &LabHypervisor::new(lab),
                nodes: &*nodes,
                store: &store,
                snapshots: &store,
                what,
                watch: &|notice: &Notice<'_>| words::tell(notice),
                pace: Duration::from_secs(1),
                pause_limit,
                other_cluster: whose.and_then(|whose| whose.other_cluster),
                cancelled,
            };
            let signals = Signals::taken()?;
            tokio::select! {
                acted = act(&deployment) => acted,
                // What is being done on other threads is not waited for.
                status = signals.ended(ending, &cancel) => std::process::exit(status.into()),
            }
        });
        match acted {
            Err(error) if error.is::<Cancelled>() => {
                warn(&format!("{error:#}"));
                Ok(ExitCode::from(PAUSED))
            }
            acted => acted.map_err(words::advised),
        }
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

#[cfg(test)]
mod tests {
    use fleet::upgrade::Reason;
    use serde_json::json;

    use super::*;

    /// A status as its JSON has it; what it says does not matter here.
    fn status() -> UpgradeStatus {
        let plan = describe::tests::plan("rolling", "node");
        UpgradeStatus {
            id: plan.id,
            direction: Direction::Forward,
            only: Some("cp1".to_owned()),
            left_out: Vec::new(),
            reason: None,
            outcome: None,
            waits_for_a_person: false,
            paused: None,
            done: 1,
            total: 10,
            next: None,
            held_by: None,
            plan,
            entries: Vec::new(),
        }
    }

    #[test]
    fn the_exit_status_says_done_paused_or_gone_back() {
        let reason: Reason = serde_json::from_value(json!({"code": "upgrade.waiting", "reason": "a test"})).unwrap();
        let ended = Arrived::Ended;
        for (arrived_at, wanted, expected) in [
            (ended(Outcome::Upgraded), Some(Outcome::Upgraded), 0),
            (ended(Outcome::Committed), Some(Outcome::Committed), 0),
            (ended(Outcome::RolledBack), Some(Outcome::RolledBack), 0),
            (ended(Outcome::Abandoned), Some(Outcome::Abandoned), 0),
            // Resumed on the way back it is to end wherever that ends.
            (ended(Outcome::RolledBack), None, 0),
            (ended(Outcome::RolledBack), Some(Outcome::Upgraded), 4),
            (ended(Outcome::Upgraded), Some(Outcome::RolledBack), 4),
            (Arrived::NodeIsBack(0), Some(Outcome::Upgraded), 4),
            (Arrived::NodeIsBack(0), None, 4),
            (Arrived::Paused(reason.clone()), Some(Outcome::Upgraded), 3),
            (Arrived::Paused(reason), None, 3),
            (Arrived::Cancelled, Some(Outcome::Upgraded), 3),
            (Arrived::Cancelled, None, 3),
        ] {
            let told = format!("{arrived_at:?} {wanted:?}");
            assert_eq!(arrived(&(arrived_at, status()), wanted), ExitCode::from(expected), "{told}");
        }
    }

    #[test]
    fn an_upgrade_is_named_by_its_identifier_or_by_the_hold_whose_journal_is_damaged() {
        let id = uuid::Uuid::from_u128(12);
        assert_eq!(id.to_string().parse(), Ok(Confirmed::Upgrade(id)));
        assert_eq!("12".parse(), Ok(Confirmed::Hold(12)));
        for wrong in ["", "hold", "-1", "0x12", &id.to_string()[1..]] {
            assert!(wrong.parse::<Confirmed>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_operators_word_on_the_cluster_is_taken_by_every_verb_that_goes_by_a_journal_or_a_plan() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(subcommand)]
            upgrade: Upgrade,
        }
        let id = uuid::Uuid::from_u128(0xbad).to_string();
        for line in [
            "plan --ova a.ova",
            "apply --ova a.ova",
            "resume",
            "rollback --all-at-once",
            "commit",
            "abandon --confirm 00000000-0000-0000-0000-000000000001",
            "kubernetes",
        ] {
            let name = line.split(' ').next().unwrap_or_default();
            let words = ["upgrade"].into_iter().chain(line.split(' ')).chain(["--lab", "l", "--other-cluster", &id]);
            let upgrade = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).upgrade;
            assert_eq!(upgrade.what(), format!("upgrade {name}"));
            let whose = match upgrade {
                Upgrade::Plan { whose, .. } | Upgrade::Abandon { whose, .. } | Upgrade::Kubernetes { whose, .. } => {
                    whose
                }
                Upgrade::Apply { on, .. }
                | Upgrade::Resume { on, .. }
                | Upgrade::Rollback { on, .. }
                | Upgrade::Commit(on) => on.whose,
                Upgrade::Status { .. } => unreachable!("{line}"),
            };
            assert_eq!(whose.other_cluster.unwrap().to_string(), id, "{line}");
        }
    }
}
