//! The command line of image-swap upgrades, and its translation to the library's options. Pure.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand, value_parser};
use document::Mistakes;
use fleet::hypervisor::Placement;
use fleet::upgrade::{DescribedPublisher, Mode, OnFailure, Options};

use crate::cluster_file::{ClusterFile, added_provider};
use crate::control::contexts;
use crate::keys::publisher_fingerprint;
use crate::output::Output;
use crate::work::{TakeOverArgs, TimeoutArgs, UpgradeCommands, duration};

/// Upgrade a control cluster by replacing its VMs. The data disks move to the new VMs
#[derive(Subcommand)]
pub enum Upgrade {
    /// Show each step of an upgrade, or why it is refused. Changes nothing
    #[command(
        after_help = "Example: `kaas control upgrade plan --file cluster.toml --ova kaas-control-plane-0.2.0.ova`"
    )]
    Plan {
        #[command(flatten)]
        wanted: TargetArgs,
        #[command(flatten)]
        at: DeploymentArgs,
        #[command(flatten)]
        whose: OtherClusterArgs,
    },
    /// Plan an upgrade and run it. A node that is unhealthy on the new image returns to its old VM
    #[command(
        after_help = "Example: `kaas control upgrade apply --file cluster.toml --ova kaas-control-plane-0.2.0.ova`"
    )]
    Apply {
        #[command(flatten)]
        wanted: TargetArgs,
        #[command(flatten)]
        on: ResumeArgs,
    },
    /// Continue an upgrade that was interrupted or is paused. A node that was rolled back alone is tried again
    #[command(after_help = "Example: `kaas control upgrade resume --file cluster.toml`")]
    Resume {
        /// OVA, if its path differs from that in the plan. The content must be the same
        #[arg(long, value_name = "FILE")]
        ova: Option<PathBuf>,
        #[command(flatten)]
        on: ResumeArgs,
    },
    /// Return every node to its old VM, with its data disk as it is now
    ///
    /// The nodes are rolled back one after the other. Unhealthy nodes come first, as each run of the command finds them. If a
    /// node reports that etcd has no quorum, all nodes are rolled back at once.
    #[command(after_help = "Example: `kaas control upgrade rollback --file cluster.toml --dry-run`")]
    Rollback {
        /// Stop all nodes, then start all, whatever the nodes report. Use it if no node can be reached, or if nodes wait for
        /// each other. The Kubernetes API is unavailable meanwhile
        #[arg(long)]
        all_at_once: bool,
        #[command(flatten)]
        on: ResumeArgs,
    },
    /// Make an upgrade final: the old VMs are removed. After that, no rollback is possible
    #[command(after_help = "Example: `kaas control upgrade commit --file cluster.toml --dry-run`")]
    Commit(ResumeArgs),
    /// End an upgrade where it is, if a node was lost for good, so that it can neither continue nor be rolled back
    ///
    /// No VM is moved, stopped or removed. Swaps of nodes that are healthy on the new image are made final. VMs that are off
    /// and hold no data disk are listed, for the operator to remove. A VM that holds the node's disk is named, to be powered
    /// on. After that, another upgrade can be planned.
    ///
    /// The command works whatever the hypervisor, the nodes and the journal report. It names everything that is unknown. With
    /// --other-cluster no node is asked.
    #[command(
        after_help = "Example: `kaas control upgrade abandon --file cluster.toml --confirm 3f2504e0-4f89-41d3-9a0c-0305e82c3301 --dry-run`"
    )]
    Abandon {
        /// Identifier of the upgrade, as `kaas control upgrade status` shows it: the confirmation. If nothing of the journal can be
        /// read, the number of the damaged lease, which every command shows
        #[arg(long, value_name = "UUID|NUMBER")]
        confirm: AbandonTarget,
        /// Only show what would be given up, and the VMs that would be left
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        change: ChangeArgs,
        #[command(flatten)]
        whose: OtherClusterArgs,
    },
    /// Upgrade the control-plane nodes to the next Kubernetes minor version of their image, one after the other
    ///
    /// An image swap must be committed first. If the command was interrupted, run it again. No rollback is possible, except by
    /// restoring the etcd snapshot that the command takes first.
    #[command(after_help = "Example: `kaas control upgrade kubernetes --file cluster.toml --to 1.37`")]
    Kubernetes {
        /// Minor version to upgrade to, such as 1.36. Default: the next one
        #[arg(long, value_name = "MINOR")]
        to: Option<String>,
        /// Only show what would be done, or why it is refused
        #[arg(long)]
        dry_run: bool,
        /// How long pods may take to move away from a node
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
        drain_timeout: Duration,
        /// How long one node may take in total
        #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration)]
        timeout: Duration,
        #[command(flatten)]
        change: ChangeArgs,
        #[command(flatten)]
        whose: OtherClusterArgs,
    },
    /// Show the progress of an upgrade. Changes nothing
    #[command(after_help = "Example: `kaas control upgrade status --file cluster.toml`")]
    Status {
        #[command(flatten)]
        at: DeploymentArgs,
    },
}

/// The cluster, and the provider of its VMs.
#[derive(Args)]
pub struct DeploymentArgs {
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Kubeconfig of a cluster administrator. Default: one that a node issues for the file's deployer key, or the kubeconfig
    /// that the file names
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Without `--kubeconfig`, of the files that the variable KUBECONFIG lists, otherwise of
    /// ~/.kube/config
    #[arg(long, value_name = "NAME", add = contexts())]
    pub(super) context: Option<String>,
    #[command(flatten)]
    pub(super) output: Output,
}

impl DeploymentArgs {
    /// The commands on upgrades of this cluster.
    pub(super) fn commands(&self) -> UpgradeCommands {
        let added = added_provider();
        let place = added.zip(self.cluster.place.clone()).map(|(added, place)| (added.name, place));
        let files = [("file", self.cluster.file.as_deref()), ("kubeconfig", self.kubeconfig.as_deref())];
        let files = files.into_iter().filter_map(|(name, path)| Some((name, path?.display().to_string())));
        // Only the program for developers adds a provider.
        let program = if added.is_some() { "kaas-dev" } else { "kaas" };
        let context = self.context.clone().map(|context| ("context", context));
        UpgradeCommands::new(program, place.into_iter().chain(files).chain(context))
    }
}

/// The cluster, by the file that describes it. If the program has added a provider, also by the name of a place there.
pub struct ClusterArgs {
    pub(super) file: Option<PathBuf>,
    pub(super) place: Option<String>,
}

impl FromArgMatches for ClusterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let place = added_provider().and_then(|added| matches.get_one::<String>(added.name));
        Ok(Self { file: matches.get_one::<PathBuf>("file").cloned(), place: place.cloned() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ClusterArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("file").short('f').long("file").value_name("FILE").value_parser(value_parser!(PathBuf));
        let file =
            file.help("File that describes the cluster, as for `kaas control create`: its `[provider]` runs the VMs");
        let Some(added) = added_provider() else { return command.arg(file.required(true)) };
        let place = Arg::new(added.name).long(added.name).value_name("NAME").help(added.about);
        command.arg(place.required_unless_present("file").conflicts_with("file")).arg(file)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The deployment to change.
#[derive(Args)]
pub struct ChangeArgs {
    #[command(flatten)]
    pub(super) at: DeploymentArgs,
    #[command(flatten)]
    pub(super) over: TakeOverArgs,
}

/// Confirms the cluster of the deployment.
#[derive(Args)]
pub struct OtherClusterArgs {
    /// The cluster with this UUID is the deployment's cluster, though its UUID was another one at the last upgrade. The
    /// Kubernetes API reports the UUID
    #[arg(long, value_name = "UUID")]
    pub(super) other_cluster: Option<uuid::Uuid>,
}

/// The upgrade to abandon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbandonTarget {
    /// The upgrade with this identifier.
    Upgrade(uuid::Uuid),
    /// The upgrade with the journal of this lease, of which nothing can be read.
    Hold(u64),
}

impl FromStr for AbandonTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upgrade = text.parse().map(Self::Upgrade);
        upgrade
            .or_else(|_| text.parse().map(Self::Hold))
            .map_err(|_| "neither a UUID nor the number of a lease".to_owned())
    }
}

/// The options of every command that continues an upgrade.
#[derive(Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub(super) change: ChangeArgs,
    #[command(flatten)]
    pub(super) whose: OtherClusterArgs,
    #[command(flatten)]
    pub(super) waiting: TimeoutArgs,
    /// Only show what would be done, or why it is refused
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// The options of the target image.
#[derive(Args)]
pub struct TargetArgs {
    /// OVA with the new image, or a directory with one
    #[arg(long, value_name = "FILE", help_heading = "Image")]
    pub(super) ova: PathBuf,
    /// Publisher's certificate or public key in PEM: the OVA must be signed with it. It replaces the pinned key and the one
    /// that the cluster's file names. The commit pins this key
    #[arg(long, value_name = "FILE", help_heading = "Image")]
    pub(super) publisher: Option<PathBuf>,
    /// Swap all nodes at once. The Kubernetes API is unavailable meanwhile
    #[arg(long, help_heading = "Rollout")]
    pub(super) all_at_once: bool,
    /// How long a swapped node may take to become healthy. After that, it is rolled back
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration, help_heading = "Rollout")]
    pub(super) gate_timeout: Duration,
    /// If a node does not become healthy, roll back all nodes, not only that one
    #[arg(long, help_heading = "Rollout")]
    pub(super) all_back: bool,
    /// How long pods may take to move away from a node
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration, help_heading = "Rollout")]
    pub(super) drain_timeout: Duration,
    /// Allow an older image
    #[arg(long, help_heading = "Image")]
    pub(super) downgrade: bool,
    /// Copy each data disk, as the old image has left it, before the new VM gets it. The copy is next to the disk and needs its
    /// provisioned size. The node is off meanwhile. The commit removes the copies. No command restores one
    #[arg(long, help_heading = "Rollout")]
    pub(super) copy_disks: bool,
    /// Datastore of new VMs. Default: that of the VM which each replaces. Data disks are not moved
    #[arg(long, value_name = "NAME", help_heading = "Placement")]
    pub(super) datastore: Option<String>,
    /// Resource pool of new VMs. Default: that of the VM which each replaces
    #[arg(long, value_name = "NAME", help_heading = "Placement")]
    pub(super) resource_pool: Option<String>,
    /// Inventory folder of new VMs. Default: that of the VM which each replaces
    #[arg(long, value_name = "NAME", help_heading = "Placement")]
    pub(super) folder: Option<String>,
}

/// Adopt VMs that were imported by hand, so that upgrades may change them.
#[derive(Args)]
pub struct Adopt {
    #[command(flatten)]
    pub(super) change: ChangeArgs,
    /// Do not ask for a confirmation. The checks still run: each VM is on, is the only one with its BIOS UUID, has no stamp,
    /// and holds one data disk
    #[arg(long)]
    pub(super) yes: bool,
    /// Only show the VMs that would be adopted
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl Upgrade {
    /// The command's name. Other commands show it as the holder of the lease.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Plan { .. } => "control upgrade plan",
            Self::Apply { .. } => "control upgrade apply",
            Self::Resume { .. } => "control upgrade resume",
            Self::Rollback { .. } => "control upgrade rollback",
            Self::Commit(_) => "control upgrade commit",
            Self::Abandon { .. } => "control upgrade abandon",
            Self::Kubernetes { .. } => "control upgrade kubernetes",
            Self::Status { .. } => "control upgrade status",
        }
    }
}

impl TargetArgs {
    /// The options of the library. `description` is the file that describes the cluster. Without `--publisher`, the OVA must be
    /// signed by the publisher that this file names.
    pub(super) fn options(&self, description: Option<&Path>) -> anyhow::Result<Options> {
        let publisher = self.publisher.as_deref().map(publisher_fingerprint).transpose()?;
        let named = description.filter(|_| publisher.is_none());
        Ok(Options {
            mode: if self.all_at_once { Mode::AllAtOnce } else { Mode::Rolling },
            gate_seconds: self.gate_timeout.as_secs(),
            on_failure: if self.all_back { OnFailure::All } else { OnFailure::Node },
            size: None,
            copy_disks: self.copy_disks,
            placement: Placement {
                datastore: self.datastore.clone(),
                resource_pool: self.resource_pool.clone(),
                folder: self.folder.clone(),
            },
            drain_seconds: self.drain_timeout.as_secs(),
            downgrade: self.downgrade,
            publisher,
            described_publisher: named.map(described_publisher).transpose()?.flatten(),
        })
    }
}

/// The publisher that a cluster's description names. `None` if it names none.
fn described_publisher(path: &Path) -> anyhow::Result<Option<DescribedPublisher>> {
    let file = ClusterFile::read(path)?;
    let Some(publisher) = &file.publisher else { return Ok(None) };
    match publisher_fingerprint(&publisher.value) {
        Ok(key) => Ok(Some(DescribedPublisher { key, by: format!("`publisher` in {}", path.display()) })),
        Err(error) => Err(Mistakes(vec![file.mistake(publisher, format!("{error:#}"))]).into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        upgrade: Upgrade,
    }

    #[test]
    fn file_is_required() {
        let parsed = |at: &[&str]| Line::try_parse_from(["upgrade", "status"].iter().chain(at)).is_ok();
        assert!(parsed(&["--file", "cluster.toml"]) && parsed(&["-f", "cluster.toml"]));
        assert!(!parsed(&[]) && !parsed(&["--lab", "l"]));
    }

    #[test]
    fn described_publisher_is_required_but_not_pinned() {
        const EXAMPLE: &str = include_str!("../control/deployment/examples/vsphere.toml");
        let directory = tempfile::tempdir().unwrap();
        let [described, other] = ["publisher.pem", "other.pem"].map(|name| directory.path().join(name));
        for path in [&described, &other] {
            std::fs::write(path, rcgen::KeyPair::generate().unwrap().public_key_pem()).unwrap();
        }
        let file = directory.path().join("cluster.toml");
        let written = EXAMPLE.replace("# publisher = ", "publisher = ");
        assert_ne!(written, EXAMPLE);
        let options = |text: &str, more: &[&str]| {
            std::fs::write(&file, text).unwrap();
            let line = ["upgrade", "plan", "--ova", "a.ova", "--file", file.to_str().unwrap()];
            let line = line.iter().chain(more);
            let Upgrade::Plan { wanted, at, .. } = Line::try_parse_from(line).unwrap().upgrade else { unreachable!() };
            wanted.options(at.cluster.file.as_deref())
        };
        let told = options(&written, &[]).unwrap();
        let named = told.described_publisher.unwrap();
        assert_eq!(named.key, publisher_fingerprint(&described).unwrap());
        assert!(named.by.ends_with("cluster.toml"), "{}", named.by);
        assert_eq!(told.publisher, None, "what the file names is not pinned for that");
        assert_eq!(options(EXAMPLE, &[]).unwrap().described_publisher, None);
        let given = options(&written, &["--publisher", other.to_str().unwrap()]).unwrap();
        assert_eq!(given.described_publisher, None);
        assert_eq!(given.publisher, Some(publisher_fingerprint(&other).unwrap()));
        std::fs::remove_file(&described).unwrap();
        let error = options(&written, &[]).unwrap_err().to_string();
        assert!(error.contains("cluster.publisher: reading "), "{error}");
    }

    #[test]
    fn copy_disks_option_enables_copies() {
        for verb in ["plan", "apply"] {
            for (line, copied) in [("-f c.toml --ova a.ova", false), ("-f c.toml --ova a.ova --copy-disks", true)] {
                let words = ["upgrade", verb].into_iter().chain(line.split(' '));
                let upgrade = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).upgrade;
                let (Upgrade::Plan { wanted, .. } | Upgrade::Apply { wanted, .. }) = upgrade else { panic!("{verb}") };
                assert_eq!(wanted.options(None).unwrap().copy_disks, copied, "{verb} {line}");
            }
        }
    }

    #[test]
    fn abandon_accepts_an_identifier_or_a_lease_number() {
        let id = uuid::Uuid::from_u128(12);
        assert_eq!(id.to_string().parse(), Ok(AbandonTarget::Upgrade(id)));
        assert_eq!("12".parse(), Ok(AbandonTarget::Hold(12)));
        for wrong in ["", "hold", "-1", "0x12", &id.to_string()[1..]] {
            assert!(wrong.parse::<AbandonTarget>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_changing_command_has_a_dry_run() {
        for line in
            ["apply --ova a.ova", "resume", "rollback --all-at-once", "commit", "abandon --confirm 12", "kubernetes"]
        {
            for (options, expected) in [(&[][..], false), (&["--dry-run"][..], true)] {
                let words = ["upgrade"].into_iter().chain(line.split(' ')).chain(["-f", "c.toml"]);
                let words = words.chain(options.iter().copied());
                let upgrade = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).upgrade;
                let is_dry = match upgrade {
                    Upgrade::Abandon { dry_run, .. } | Upgrade::Kubernetes { dry_run, .. } => dry_run,
                    Upgrade::Apply { on, .. }
                    | Upgrade::Resume { on, .. }
                    | Upgrade::Rollback { on, .. }
                    | Upgrade::Commit(on) => on.dry_run,
                    Upgrade::Plan { .. } | Upgrade::Status { .. } => unreachable!("{line}"),
                };
                assert_eq!(is_dry, expected, "{line}");
            }
        }
    }

    #[test]
    fn changing_commands_and_plans_accept_other_cluster() {
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
            let words =
                ["upgrade"].into_iter().chain(line.split(' ')).chain(["--file", "c.toml", "--other-cluster", &id]);
            let upgrade = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).upgrade;
            assert_eq!(upgrade.what(), format!("control upgrade {name}"));
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
