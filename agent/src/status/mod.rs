//! How the node is, for everybody to read: one document in a file, for programs and for `kaas-agent status`. The console
//! page, systemd's status line, the journal and guestinfo are made from it.
//!
//! Everything above reports here through a [`Reporter`]; nothing here decides or changes anything on the node. Calls
//! [`crate::host`], the status in guestinfo of [`crate::intake`], and types of [`crate::cluster`].

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
use serde::{Deserialize, Serialize};

use crate::cluster::certificates::Certificate;
use crate::cluster::kubernetes::api::Node;
use crate::host::files;

pub use reporter::Reporter;

/// Where the document is kept: in memory, it is about this boot.
pub const PATH: &str = "/run/kaas/status.json";

/// The plan's progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The step under way, counted from 1.
    pub number: usize,
    /// How many steps there are.
    pub total: usize,
    /// The step in words.
    pub step: String,
    /// What it waits for, or why it failed and will be tried again.
    pub waiting: Option<String>,
}

/// The health of what runs, as last looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether the API server on this node serves; on a worker, whether that of its cluster does.
    pub api: bool,
    /// The cluster's nodes as the API lists them, on a worker and where the list cannot be read it alone; none if it could not be
    /// asked.
    pub nodes: Option<Vec<Node>>,
    /// The etcd members, in list order.
    pub etcd: Vec<Member>,
    /// The virtual IP, if the cluster has one.
    pub virtual_address: Option<VirtualAddress>,
}

/// An etcd member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The control node's name.
    pub name: String,
    pub healthy: bool,
}

/// When things were reached, in seconds since the system's first process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The agent knew what to do, or what is wrong.
    pub verdict: Option<u64>,
    /// etcd had a quorum.
    pub etcd: Option<u64>,
    /// The API on this node served.
    pub api: Option<u64>,
    /// Kubernetes called this node ready.
    pub ready: Option<u64>,
    /// The plan was done.
    pub done: Option<u64>,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The image's name, version and publisher.
    pub image: String,
    /// What this node is in its cluster, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// This node's name, once known.
    pub node: Option<String>,
    /// This node's address, once known.
    pub address: Option<std::net::Ipv4Addr>,
    /// The cluster's name, once known.
    pub cluster: Option<String>,
    /// How far this boot has come.
    pub phase: Phase,
    /// How many times in succession what is under way was refused; what this process has seen.
    #[serde(skip)]
    pub refusals: u32,
    /// The public half of the token that this worker has tried to join with since the agent's start.
    #[serde(skip)]
    pub token: Option<String>,
    /// What tells the key from others that this worker has asked a certificate for, or has joined with, since the agent's start.
    #[serde(skip)]
    pub key: Option<String>,
    /// The plan's progress, once there is a plan.
    pub work: Option<Work>,
    /// What is wrong, or worth knowing.
    pub findings: Findings,
    /// The health of what runs, once something does.
    pub health: Option<Health>,
    /// The node's certificates, once it has some.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
    /// What the cluster and this node's endpoint are known by, once there are authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprints: Option<Fingerprints>,
    /// The swap that is under way, or not committed yet.
    #[serde(default)]
    pub swap: Option<SwapState>,
    /// The evacuation that was asked for since power-on.
    #[serde(default)]
    pub evacuation: Option<EvacuationState>,
    /// When things were reached.
    pub times: Times,
}

impl Status {
    /// Reads the document below `root` (`/` outside of tests).
    ///
    /// # Errors
    /// There is none (`NotFound`): the agent has not run since power-on; or it is damaged.
    pub fn read(root: &Path) -> io::Result<Self> {
        serde_json::from_slice(&fs::read(files::below(root, PATH))?).map_err(io::Error::from)
    }

    /// Whether this node does its part of the cluster: its API serves and
    /// Kubernetes calls it ready.
    pub fn is_ready(&self) -> bool {
        self.health.as_ref().is_some_and(|health| {
            health.api && health.nodes.iter().flatten().any(|node| Some(&node.name) == self.node.as_ref() && node.ready)
        })
    }

    /// What is known of the API on a node of this role, as a row's name.
    pub fn api_row(&self) -> &'static str {
        match self.role {
            Some(Role::Worker) => "Kubernetes API",
            _ => "API on this node",
        }
    }

    /// The status as a page of plain text.
    pub fn page(&self) -> String {
        page::page(self)
    }

    /// One line that says what matters most now. Others may have chosen words of it.
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

/// Seconds since the system's first process started: in a container its own
/// start, not the host's (proc(5), `starttime`).
pub fn since_power_on() -> Option<u64> {
    let first = fs::read_to_string("/proc/1/stat").ok()?;
    let started: f64 = first.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let up: f64 = fs::read_to_string("/proc/uptime").ok()?.split_ascii_whitespace().next()?.parse().ok()?;
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    // Seconds since boot fit easily, and are never negative.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    Some((up - started / ticks as f64).max(0.0) as u64)
}
