//! The command line of image-swap upgrades, and what its words come to. Does nothing.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand};
use fleet::hypervisor::Placement;
use fleet::upgrade::{DescribedPublisher, Mode, OnFailure, Options};
use image::document::Mistakes;

use crate::cluster_file::ClusterFile;
use crate::output::Output;
use crate::publisher;
use crate::work::{PauseLimitArgs, TakeOverArgs};

/// Replaces the VMs of a control cluster by ones from a new image; the data disks move over.
#[derive(Subcommand)]
pub enum Upgrade {
    /// Says what an upgrade would do, step by step, or why it must not be. Changes nothing.
    Plan {
        #[command(flatten)]
        wanted: TargetArgs,
        #[command(flatten)]
        at: DeploymentArgs,
        #[command(flatten)]
        whose: OtherClusterArgs,
        /// How to say it.
        #[arg(long, default_value = "text")]
        output: Output,
    },
    /// Plans an upgrade and carries it out. A node that is not found good on the new image goes back to its old VM.
    Apply {
        #[command(flatten)]
        wanted: TargetArgs,
        #[command(flatten)]
        on: ResumeArgs,
    },
    /// Continues an upgrade that was interrupted or is paused. A node that went back alone is tried again.
    Resume {
        /// The OVA, if it is not where it was when the upgrade was planned. It must be the same one.
        #[arg(long, value_name = "FILE")]
        ova: Option<PathBuf>,
        #[command(flatten)]
        on: ResumeArgs,
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
        on: ResumeArgs,
    },
    /// Makes an upgrade final: the old VMs are removed and there is no way back.
    Commit(ResumeArgs),
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
        confirm: AbandonTarget,
        #[command(flatten)]
        at: DeploymentArgs,
        #[command(flatten)]
        whose: OtherClusterArgs,
        #[command(flatten)]
        over: TakeOverArgs,
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
        at: DeploymentArgs,
        #[command(flatten)]
        whose: OtherClusterArgs,
        #[command(flatten)]
        over: TakeOverArgs,
        /// How to say it.
        #[arg(long, default_value = "text", requires = "check")]
        output: Output,
    },
    /// Says how far an upgrade is. Changes nothing.
    Status {
        #[command(flatten)]
        at: DeploymentArgs,
        /// How to say it.
        #[arg(long, default_value = "text")]
        output: Output,
    },
}

/// The cluster, and where its VMs run.
#[derive(Args)]
pub struct DeploymentArgs {
    /// The lab that the VMs run in.
    #[arg(long, value_name = "NAME", required_unless_present = "file", conflicts_with = "file")]
    pub(super) lab: Option<String>,
    /// The file that describes the cluster, as `kaas deploy` takes it: its `[provider]` says what runs the VMs.
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// The cluster administrator's kubeconfig, if not the lab's own, or what the nodes give for the deployer's key that the
    /// file names, or the kubeconfig that it names.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// How progress is said: with JSON it goes to standard error.
    #[arg(skip = Output::Text)]
    pub(super) output: Output,
}

/// Which cluster the deployment's is.
#[derive(Args)]
pub struct OtherClusterArgs {
    /// The deployment's cluster is the one that calls itself UUID now, though it called itself otherwise at the last
    /// upgrade: what the Kubernetes API says of itself stops nobody who knows better.
    #[arg(long, value_name = "UUID")]
    pub(super) other_cluster: Option<uuid::Uuid>,
}

/// What is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbandonTarget {
    /// The upgrade with this identifier.
    Upgrade(uuid::Uuid),
    /// The one whose journal is that of this hold, and of which nothing can be read.
    Hold(u64),
}

impl FromStr for AbandonTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upgrade = text.parse().map(Self::Upgrade);
        upgrade.or_else(|_| text.parse().map(Self::Hold)).map_err(|_| "neither a UUID nor a hold's number".to_owned())
    }
}

/// What every command needs that goes on with an upgrade.
#[derive(Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub(super) at: DeploymentArgs,
    #[command(flatten)]
    pub(super) over: TakeOverArgs,
    #[command(flatten)]
    pub(super) whose: OtherClusterArgs,
    #[command(flatten)]
    pub(super) waiting: PauseLimitArgs,
}

/// What is wanted.
#[derive(Args)]
pub struct TargetArgs {
    /// The OVA with the new image, or a directory with one.
    #[arg(long, value_name = "FILE")]
    pub(super) ova: PathBuf,
    /// The publisher's certificate or public key in PEM: the OVA must be signed with it, whatever key is pinned or named by
    /// the file that describes the cluster; the commit pins this one.
    #[arg(long, value_name = "FILE")]
    pub(super) publisher: Option<PathBuf>,
    /// Swap all nodes at once instead of one after the other; the Kubernetes API is away meanwhile.
    #[arg(long)]
    pub(super) all_at_once: bool,
    /// How long a swapped node may take to be found good, in seconds; then it goes back.
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    pub(super) gate_limit: u64,
    /// When a node is not found good, take all nodes back, not that one alone.
    #[arg(long)]
    pub(super) all_back: bool,
    /// How long pods may take to move away from a node, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub(super) drain: u64,
    /// Go to an older image.
    #[arg(long)]
    pub(super) downgrade: bool,
    /// Copy each data disk, as the old image has left it, before the new VM gets it: beside it, with room for its provisioned size. The
    /// node is off meanwhile. The commit removes the copies; nothing puts one back by itself.
    #[arg(long)]
    pub(super) copy_disks: bool,
    /// The datastore that new VMs are put on, if not that of the VM whose place each takes. Data disks stay where they
    /// are.
    #[arg(long, value_name = "NAME")]
    pub(super) datastore: Option<String>,
    /// The resource pool that new VMs are put into, if not that of the VM whose place each takes.
    #[arg(long, value_name = "NAME")]
    pub(super) resource_pool: Option<String>,
    /// The folder of the inventory that new VMs are put into, if not that of the VM whose place each takes.
    #[arg(long, value_name = "NAME")]
    pub(super) folder: Option<String>,
}

/// Takes VMs that were imported by hand into a deployment, so that upgrades may change them.
#[derive(Args)]
pub struct Adopt {
    #[command(flatten)]
    pub(super) at: DeploymentArgs,
    #[command(flatten)]
    pub(super) over: TakeOverArgs,
    /// Do not ask: what is shown is right. What must be so is judged all the same: each VM is on, the only one with its
    /// BIOS UUID, without a stamp, and holds one data disk.
    #[arg(long)]
    pub(super) yes: bool,
}

impl Upgrade {
    /// The command's name: what others are told of whoever holds the deployment.
    pub(super) fn what(&self) -> &'static str {
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

impl TargetArgs {
    /// As the library takes it. `description` is the file that describes the cluster: where no publisher is given, the OVA must
    /// be signed by the one that it names.
    ///
    /// # Errors
    /// The publisher's file cannot be read, or holds no key; or so the description.
    pub(super) fn options(&self, description: Option<&Path>) -> anyhow::Result<Options> {
        let publisher = self.publisher.as_deref().map(publisher::fingerprint).transpose()?;
        let named = description.filter(|_| publisher.is_none());
        Ok(Options {
            mode: if self.all_at_once { Mode::AllAtOnce } else { Mode::Rolling },
            gate_seconds: self.gate_limit,
            on_failure: if self.all_back { OnFailure::All } else { OnFailure::Node },
            size: None,
            copy_disks: self.copy_disks,
            placement: Placement {
                datastore: self.datastore.clone(),
                resource_pool: self.resource_pool.clone(),
                folder: self.folder.clone(),
            },
            drain_seconds: self.drain,
            downgrade: self.downgrade,
            publisher,
            described_publisher: named.map(described_publisher).transpose()?.flatten(),
        })
    }
}

/// The publisher that the description of a cluster names, if it names one.
fn described_publisher(path: &Path) -> anyhow::Result<Option<DescribedPublisher>> {
    let file = ClusterFile::read(path)?;
    let Some(publisher) = &file.publisher else { return Ok(None) };
    match publisher::fingerprint(&publisher.value) {
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
    fn the_vms_are_named_by_a_file_or_by_a_lab_and_by_one_of_them() {
        let parsed = |at: &[&str]| Line::try_parse_from(["upgrade", "status"].iter().chain(at)).is_ok();
        assert!(parsed(&["--lab", "l"]) && parsed(&["--file", "cluster.toml"]) && parsed(&["-f", "cluster.toml"]));
        assert!(!parsed(&[]) && !parsed(&["--lab", "l", "--file", "cluster.toml"]));
    }

    #[test]
    fn the_publisher_that_the_file_names_must_have_signed_where_none_is_given_and_is_not_pinned() {
        const ONE: &str = include_str!("../deploy/examples/one.toml");
        let directory = tempfile::tempdir().unwrap();
        let [described, other] = ["publisher.pem", "other.pem"].map(|name| directory.path().join(name));
        for path in [&described, &other] {
            std::fs::write(path, rcgen::KeyPair::generate().unwrap().public_key_pem()).unwrap();
        }
        let file = directory.path().join("cluster.toml");
        let written = ONE.replace("# publisher = ", "publisher = ");
        assert_ne!(written, ONE);
        let options = |text: &str, more: &[&str]| {
            std::fs::write(&file, text).unwrap();
            let line = ["upgrade", "plan", "--ova", "a.ova", "--file", file.to_str().unwrap()];
            let line = line.iter().chain(more);
            let Upgrade::Plan { wanted, at, .. } = Line::try_parse_from(line).unwrap().upgrade else { unreachable!() };
            wanted.options(at.file.as_deref())
        };
        let told = options(&written, &[]).unwrap();
        let named = told.described_publisher.unwrap();
        assert_eq!(named.key, publisher::fingerprint(&described).unwrap());
        assert!(named.by.ends_with("cluster.toml"), "{}", named.by);
        assert_eq!(told.publisher, None, "what the file names is not pinned for that");
        assert_eq!(options(ONE, &[]).unwrap().described_publisher, None);
        let given = options(&written, &["--publisher", other.to_str().unwrap()]).unwrap();
        assert_eq!(given.described_publisher, None);
        assert_eq!(given.publisher, Some(publisher::fingerprint(&other).unwrap()));
        std::fs::remove_file(&described).unwrap();
        let error = options(&written, &[]).unwrap_err().to_string();
        assert!(error.contains("cluster.publisher: reading "), "{error}");
    }

    #[test]
    fn disks_are_copied_where_that_is_asked_for() {
        for verb in ["plan", "apply"] {
            for (line, copied) in [("--lab l --ova a.ova", false), ("--lab l --ova a.ova --copy-disks", true)] {
                let words = ["upgrade", verb].into_iter().chain(line.split(' '));
                let upgrade = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).upgrade;
                let (Upgrade::Plan { wanted, .. } | Upgrade::Apply { wanted, .. }) = upgrade else { panic!("{verb}") };
                assert_eq!(wanted.options(None).unwrap().copy_disks, copied, "{verb} {line}");
            }
        }
    }

    #[test]
    fn an_upgrade_is_named_by_its_identifier_or_by_the_hold_whose_journal_is_damaged() {
        let id = uuid::Uuid::from_u128(12);
        assert_eq!(id.to_string().parse(), Ok(AbandonTarget::Upgrade(id)));
        assert_eq!("12".parse(), Ok(AbandonTarget::Hold(12)));
        for wrong in ["", "hold", "-1", "0x12", &id.to_string()[1..]] {
            assert!(wrong.parse::<AbandonTarget>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_operators_word_on_the_cluster_is_taken_by_every_verb_that_goes_by_a_journal_or_a_plan() {
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
