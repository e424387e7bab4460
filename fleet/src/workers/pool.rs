//! The desired state of the workers of one pool.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::ensure;
use contract::minor::Minor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hypervisor::Size;
use crate::schema;

/// How long a join token is valid, in seconds, times the worker's timeout factor. A worker that comes later is created again.
pub(super) const TOKEN_SECONDS: u64 = 1800;
/// How long the creation of a worker's VM may take, in seconds, so that its token is valid long enough afterwards.
const MAKING_SECONDS: u64 = 300;
/// The first and the longest pause after a failed join, in seconds. Each failure in a row doubles the pause.
const FIRST_RETRY_SECONDS: u64 = 60;
const LONGEST_RETRY_SECONDS: u64 = 900;
/// The fewest failed joins in a row that end the retries.
pub(super) const LEAST_FAILED_JOINS: usize = 3;

/// Workers with the same settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    /// The prefix of its workers' names, before `-w` and a number.
    pub prefix: String,
    /// How many workers there should be.
    pub count: usize,
    /// The settings of new workers. A worker with other settings is outdated.
    pub template: Template,
    /// The OVA of the template's image, for a hypervisor that does not hold the image.
    pub ova: PathBuf,
    /// The minor versions of Kubernetes that the image carries. Empty if they are not known.
    pub carries: Vec<String>,
    /// The addresses of the workers. `None` if they use DHCP.
    pub addresses: Option<Addresses>,
    /// How outdated ones are replaced, and how any leaves.
    pub rollout: Rollout,
    /// The highest number that a worker was given: names are never used again.
    pub last_index: u64,
    /// Whether workers whose VM is off are powered on. A command that continues does that. No other command powers on a worker
    /// that was shut down.
    #[serde(default)]
    pub powers_on: bool,
    /// Whether a worker whose VM is gone stays, because the caller decides when it is replaced. Otherwise it is replaced at once.
    #[serde(default)]
    pub keeps_lost: bool,
    /// How many joins have failed since the last one that succeeded. `None` if only the operator has failed workers created again.
    #[serde(default)]
    pub failed_joins: Option<u32>,
    /// Workers that leave before all others if there are too many. A name without a worker is ignored.
    #[serde(default)]
    pub remove_first: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    pub image: Image,
    /// The minor version of Kubernetes that kubelets should run at least: the newest that the image carried and the cluster took
    /// at that time. For a worker that has joined, the one that it runs.
    pub kubernetes: String,
    /// Processors, memory and data disk.
    pub size: Size,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes, as `key=value:Effect`.
    #[serde(default)]
    pub taints: BTreeSet<String>,
}

impl Template {
    /// Whether a worker with another template is outdated by this one. An older minor version counts, a newer one does not.
    pub fn outdates(&self, made: &Self) -> bool {
        let minor = |template: &Self| template.kubernetes.parse::<Minor>().ok();
        let is_older = match (minor(made), minor(self)) {
            (Some(made), Some(wanted)) => made < wanted,
            _ => made.kubernetes != self.kubernetes,
        };
        is_older || !self.makes_like(made)
    }

    /// Whether VMs are created alike. Texts for messages do not count: another version of the command may word them differently.
    pub(super) fn makes_like(&self, other: &Self) -> bool {
        let Self { image: Image { digest, name: _ }, kubernetes: _, size, labels, taints } = self;
        *digest == other.image.digest && *size == other.size && *labels == other.labels && *taints == other.taints
    }
}

/// An image as an OVA brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OvaImage {
    pub image: Image,
    pub ova: PathBuf,
    /// The minor versions of Kubernetes that it carries.
    pub carries: Vec<String>,
}

/// The image of VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// SHA-256 over the digests of the OVA's manifest. Unset for VMs that were not created here.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "prefixed")]
    #[schemars(schema_with = "schema::digest")]
    pub digest: String,
    /// Name, version and build of the image, for operators.
    #[schemars(schema_with = "schema::word")]
    pub name: String,
}

/// A digest as objects write it: with its algorithm.
mod prefixed {
    use contract::deployer::Fingerprint;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(digits: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("sha256:{digits}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        Ok(Fingerprint::deserialize(deserializer)?.digits())
    }
}

/// Addresses of one subnet, the last one included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
    /// The prefix length of the subnet.
    pub prefix: u8,
}

impl Addresses {
    pub fn iter(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        (u32::from(self.first)..=u32::from(self.last)).map(Ipv4Addr::from)
    }
}

/// How workers are replaced, and how they leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// How many VMs there may be beyond the count.
    pub max_surge: usize,
    /// How many of the count may be missing while one is replaced.
    pub max_unavailable: usize,
    /// How long pods may take to move, in seconds. Nothing is forced after that: the operator must act.
    pub drain_seconds: u64,
    /// How long a worker may take to join, in seconds from its power-on, times its timeout factor.
    pub join_seconds: u64,
    /// Whether no outdated worker is replaced for now.
    #[serde(default)]
    pub paused: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { max_surge: 1, max_unavailable: 0, drain_seconds: 300, join_seconds: 900, paused: false }
    }
}

/// How long a failed worker waits before another one is created in its place, in seconds, after so many failed joins in a row.
pub(super) fn retry_seconds(failed_joins: u32) -> u64 {
    let doublings = failed_joins.saturating_sub(1).min(4);
    (FIRST_RETRY_SECONDS << doublings).min(LONGEST_RETRY_SECONDS)
}

impl Pool {
    /// Refuses settings that can never be reached.
    pub fn check(&self) -> anyhow::Result<()> {
        let Rollout { max_surge, max_unavailable, join_seconds, .. } = self.rollout;
        ensure!(
            max_surge > 0 || max_unavailable > 0,
            "with neither a further worker nor one that may be missing none can be replaced: raise one of both"
        );
        let longest = TOKEN_SECONDS - MAKING_SECONDS;
        ensure!(
            join_seconds <= longest,
            "a worker has at most {longest} s to join: its token is valid for {TOKEN_SECONDS} s, and its VM is made meanwhile"
        );
        Ok(())
    }

    pub fn machine_name(&self, number: u64) -> String {
        format!("{}-w{number}", self.prefix)
    }

    /// How many failed joins in a row end the retries: 10 % of the workers, and at least [`LEAST_FAILED_JOINS`].
    pub(super) fn most_failed_joins(&self) -> usize {
        self.count.div_ceil(10).max(LEAST_FAILED_JOINS)
    }

    /// How many workers must be available while one is replaced.
    pub fn floor(&self) -> usize {
        self.count.saturating_sub(self.rollout.max_unavailable)
    }
}
