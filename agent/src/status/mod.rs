//! The node's status: one document in a file, for programs and for `kaas-agent status`. The console page, systemd's
//! status line, the journal and guestinfo are made from it.
//!
//! All higher rooms report here through a [`Reporter`]. This room decides nothing and changes nothing on the node. It
//! uses [`crate::host`], the status in guestinfo of [`crate::intake`], and types of [`crate::cluster`].

mod console;
mod fingerprints;
mod page;
mod reporter;
mod statement;
#[cfg(test)]
mod tests;
mod watchdog;

use std::path::Path;
use std::{fs, io};

use contract::codes;
use contract::deployer::Fingerprints;
use contract::finding::Findings;
use contract::node::VirtualAddress;
use contract::role::Role;
pub use contract::statement::Phase;
use contract::swap::{EvacuationState, SwapState};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::cluster::certificates::Certificate;
use crate::cluster::kubernetes::api::Node;
use crate::host::files;

pub use reporter::Reporter;

/// File with the document. It is in memory, because it is about this boot.
pub const PATH: &str = "/run/kaas/status.json";

/// The plan's progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    /// The step under way, counted from 1.
    pub number: usize,
    pub total: usize,
    pub step: String,
    /// The event that the step waits for, or the failure after which it will be tried again.
    pub waiting: Option<String>,
}

/// The health of the services at the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Whether the API server on this node is ready; on a worker, whether the cluster's is.
    pub api: bool,
    /// The cluster's nodes in the API. Only this node on a worker, or if the list cannot be read. `None` if the API
    /// could not be asked.
    pub nodes: Option<Vec<Node>>,
    /// The etcd members, in list order.
    pub etcd: Vec<Member>,
    pub virtual_address: Option<VirtualAddress>,
}

/// An etcd member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// The name of the control-plane node.
    pub name: String,
    pub healthy: bool,
}

/// When the boot reached certain states, in seconds since the system's first process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// The agent had a plan or reported an error.
    pub verdict: Option<u64>,
    /// etcd had a quorum.
    pub etcd: Option<u64>,
    /// The API on this node was ready.
    pub api: Option<u64>,
    /// Kubernetes reported this node as ready.
    pub ready: Option<u64>,
    /// The last step had run.
    pub done: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The image's name, version and publisher.
    pub image: String,
    /// This and the next three are set once they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    pub node: Option<String>,
    pub address: Option<std::net::Ipv4Addr>,
    pub cluster: Option<String>,
    pub phase: Phase,
    /// How many times in succession the current step was refused in this process.
    #[serde(skip)]
    pub refusals: u32,
    /// The public half of the token that this worker has tried to join with since the agent's start.
    #[serde(skip)]
    pub token: Option<String>,
    /// Identifies the key that this worker has requested a certificate for, or has joined with, since the agent's
    /// start.
    #[serde(skip)]
    pub key: Option<String>,
    pub work: Option<Work>,
    pub findings: Findings,
    /// The health of the services, after they have started.
    pub health: Option<Health>,
    #[serde(default)]
    pub certificates: Vec<Certificate>,
    /// The fingerprints of the cluster's CA and of this node's endpoint, once they exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprints: Option<Fingerprints>,
    /// The image swap that is under way, or not committed yet.
    #[serde(default)]
    pub swap: Option<SwapState>,
    /// The evacuation that was requested since power-on.
    #[serde(default)]
    pub evacuation: Option<EvacuationState>,
    pub times: Times,
}

/// The JSON Schema of the document, for the reference.
pub fn schema() -> Schema {
    SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<Status>()
}

impl Status {
    /// Reads the document below `root`. `NotFound` if the agent has not run since power-on.
    pub fn read(root: &Path) -> io::Result<Self> {
        serde_json::from_slice(&fs::read(files::below(root, PATH))?).map_err(io::Error::from)
    }

    /// Whether the API of this node is ready, and Kubernetes reports the node as ready.
    pub fn is_ready(&self) -> bool {
        self.health.as_ref().is_some_and(|health| {
            health.api && health.nodes.iter().flatten().any(|node| Some(&node.name) == self.node.as_ref() && node.ready)
        })
    }

    /// The page's name for the API on a node of this role.
    pub fn api_row(&self) -> &'static str {
        match self.role {
            Some(Role::Worker) => "Kubernetes API",
            _ => "API on this node",
        }
    }

    pub fn page(&self) -> String {
        page::page(self)
    }

    /// One line with the most important fact. Parts of it may come from other machines.
    pub fn summary(&self) -> String {
        codes::plain(self.in_words())
    }

    fn in_words(&self) -> String {
        let errors = self.findings.iter().filter(|one| one.severity == contract::finding::Severity::Error).count();
        match (self.phase, &self.work) {
            (Phase::Looking, _) => "looking at disks and configuration".to_owned(),
            (Phase::Refused, _) => match errors {
                1 => "stopped: one problem must be corrected".to_owned(),
                _ => format!("stopped: {errors} problems must be corrected"),
            },
            (Phase::Done, _) if self.is_ready() => "ready".to_owned(),
            (Phase::Done, _) => "running, but not ready".to_owned(),
            (_, Some(Work { number, total, step, waiting })) => match waiting {
                Some(waiting) => format!("{step} ({number}/{total}): {waiting}"),
                None => format!("{step} ({number}/{total})"),
            },
            (_, None) => "deciding what to do".to_owned(),
        }
    }
}

/// Seconds since the system's first process started: in a container its own start, not the host's (proc(5),
/// `starttime`).
pub fn since_power_on() -> Option<u64> {
    let first = fs::read_to_string("/proc/1/stat").ok()?;
    let started: f64 = first.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let up: f64 = fs::read_to_string("/proc/uptime").ok()?.split_ascii_whitespace().next()?.parse().ok()?;
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    // The seconds fit into 64 bits, and are never negative.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    Some((up - started / ticks as f64).max(0.0) as u64)
}
