//! The steps of a plan, as they run on a machine. Each looks first, acts only where something differs, and returns
//! whether it changed anything. Running a plan again after a power cut therefore completes it.

#[cfg(test)]
mod cis;
mod cluster;
mod control_plane;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod damage_tests;
mod error;
mod etcd;
mod host;
mod join;
mod lease;
#[cfg(test)]
mod restarts;
mod volumes;
#[cfg(test)]
mod waits;

use std::time::{Duration, Instant, SystemTime};

use contract::finding::Findings;
use contract::secret::Secret;

use crate::boot::corrections::{self, EnvironmentCheck, Throttle};
use crate::boot::plan::{Plan, Step};
use crate::cluster::records::Progress;
use crate::cluster::rendezvous::Rendezvous;
use crate::host::disk::Identity;
use crate::maintenance::health::Watch;
use crate::node::context::NodeContext;

pub use error::StepError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    Unchanged,
    Changed,
}

impl From<bool> for StepOutcome {
    fn from(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Unchanged }
    }
}

pub struct StepContext {
    pub node: NodeContext,
    /// The role's one-time secret, while it is needed and known: the deployment secret, or a worker's join token.
    pub secret: Option<Secret>,
    /// The data disk's identity, after it is mounted.
    pub identity: Option<Identity>,
    pub progress: Progress,
    pub plan: Plan,
    /// Findings about the network and the clock. Valid until the next check, which maintenance makes.
    pub passing: Findings,
    /// Follows the health of the services after the kubelet has started.
    pub health: Option<Watch>,
    /// Detects a change of the clock since the last look, by a clock that time servers do not set.
    pub clock: ClockWatch,
    /// The fingerprint of the configuration's OVF environment, if it was read at this boot.
    pub environment: Option<String>,
    throttle: Throttle,
    time_asked: Option<Instant>,
    /// How often in a row the container runtime came up without its Kubernetes interface, or loaded no images.
    runtime_failures: u32,
    /// How often the cluster had no Node object of this node.
    unregistered: u32,
    /// Since when no other control-plane node has answered about the data disk.
    unanswered: Option<Instant>,
    rendezvous: Option<Rendezvous>,
    warnings: Findings,
}

/// Detects when the clock is set.
pub struct ClockWatch {
    look: fn() -> (SystemTime, Instant),
    last: (SystemTime, Instant),
}

/// The clock was set if it differs from the elapsed time by more than this.
const JUMP: Duration = Duration::from_secs(60);

impl ClockWatch {
    pub fn new(look: fn() -> (SystemTime, Instant)) -> Self {
        Self { look, last: look() }
    }

    /// Whether the clock was set since the last call.
    pub fn was_set(&mut self) -> bool {
        let (before, now) = (self.last, (self.look)());
        self.last = now;
        let expected = before.0 + now.1.duration_since(before.1);
        now.0.duration_since(expected).unwrap_or_else(|behind| behind.duration()) > JUMP
    }
}

impl StepContext {
    /// The state for running `plan` on `node`.
    pub fn new(node: NodeContext, secret: Option<Secret>, progress: Progress, plan: Plan) -> Self {
        Self {
            node,
            secret,
            identity: None,
            progress,
            plan,
            passing: Findings::default(),
            health: None,
            clock: ClockWatch::new(|| (SystemTime::now(), Instant::now())),
            environment: None,
            throttle: Throttle::default(),
            time_asked: None,
            runtime_failures: 0,
            unregistered: 0,
            unanswered: None,
            rendezvous: None,
            warnings: Findings::default(),
        }
    }

    /// It is always safe to run a step again.
    pub fn run(&mut self, step: &Step) -> Result<StepOutcome, StepError> {
        match step {
            Step::PrepareDataDisk { .. } => self.prepare_data_disk(),
            Step::MountDataDisk { .. } => self.mount_data_disk(),
            Step::KeepOnScratch => self.keep_on_scratch(),
            Step::LocalVolumes { .. } => self.local_volumes(),
            Step::SaveConfiguration => self.save_configuration(),
            Step::Scrub => self.scrub(),
            Step::HostName => self.host_name(),
            Step::Trust => self.trust(),
            Step::Proxy => self.proxy(),
            Step::Firewall => self.firewall(),
            Step::Network => self.network(),
            Step::Surroundings => self.check_reachability(),
            Step::Time => self.time(),
            Step::Access => self.access(),
            Step::Programs { minor, .. } => self.programs(minor),
            Step::Runtime => self.runtime(),
            Step::Images => self.images(),
            Step::Join => self.join(),
            Step::ProgramsOfCluster => self.programs_of_cluster(),
            Step::Meet => self.meet(),
            Step::EtcdCertificates => self.etcd_certificates(),
            Step::Endpoint => self.endpoint(),
            Step::Etcd => self.etcd(),
            Step::Encryption => self.encryption(),
            Step::Credentials => self.credentials(),
            Step::Manifests => self.manifests(),
            Step::VirtualAddress => self.virtual_address(),
            Step::Kubelet => self.kubelet(),
            Step::Api => self.wait_for_api(),
            Step::Rights => self.rights(),
            Step::ServiceNetwork => self.service_network(),
            Step::PodNetwork => self.pod_network(),
            Step::NodeReady => self.wait_for_node(),
            Step::EndUpgrade { version } => self.end_upgrade(version),
            Step::Register => self.register(),
            Step::ClusterDns => self.cluster_dns(),
            Step::Complete => self.complete(),
            Step::Finish => self.finish(),
        }
    }

    /// Whether the node's properties were corrected, so that it must start again with them. Cheap enough for frequent
    /// calls.
    pub fn sees_corrections(&self) -> bool {
        self.sight().another
    }

    /// Warnings about an OVF environment that the node cannot use.
    pub fn passed_over(&self) -> Findings {
        self.sight().passed_over
    }

    fn sight(&self) -> EnvironmentCheck {
        let look = || corrections::look(&self.node.platform, self.environment.as_deref());
        self.throttle.ask(Instant::now(), look)
    }

    fn save_progress(&mut self, change: impl FnOnce(&mut Progress)) -> anyhow::Result<bool> {
        let mut progress = self.progress;
        change(&mut progress);
        let changed = self.node.records.save_progress(progress)?;
        self.progress = progress;
        Ok(changed)
    }

    pub fn warn(&mut self, findings: Findings) {
        self.warnings.extend(findings.without(&self.warnings));
    }

    /// All present findings: the warnings of this boot, and findings about the network and the clock.
    pub fn findings(&self) -> Findings {
        let mut all = self.warnings.clone();
        all.extend(self.passing.clone());
        all
    }

    /// Warnings of the steps so far.
    pub fn warnings(&self) -> &Findings {
        &self.warnings
    }

    fn now() -> SystemTime {
        SystemTime::now()
    }
}
