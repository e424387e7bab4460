//! Maintenance: tasks that recur as long as the node runs, each at its own pace. The boot flow begins it once the node
//! runs and goes through it again and again; nothing else calls it. The table below is all that a node does by itself.

mod addons;
mod admission;
mod certificates;
mod clock;
mod data_disk;
mod encryption;
mod endpoint;
mod etcd;
mod external_ips;
mod firewall;
mod forming;
pub mod health;
mod job;
mod network_policies;
mod pod_security;
mod runtime;
mod schedule;
mod snapshots;
pub(crate) mod space;
mod surroundings;
mod swap;

use std::time::{Duration, Instant};

use contract::finding::Findings;
use contract::role::Role;
use schedule::Work::{Background, Check};
use schedule::{Scheduled, Task};

use crate::node::context::NodeContext;

const MINUTE: Duration = Duration::from_secs(60);

/// What a node of a role does.
fn tasks(role: Role) -> &'static [Task] {
    match role {
        Role::ControlPlane | Role::TenantControlPlane => CONTROL_PLANE,
    }
}

#[rustfmt::skip]
const CONTROL_PLANE: &[Task] = &[
    Task { what: "the container runtime", every: MINUTE, work: Check(runtime::look) },
    Task { what: "the certificates", every: Duration::from_secs(600), work: Check(certificates::look) },
    Task { what: "the firewall", every: Duration::from_secs(10), work: Background(firewall::prepare) },
    Task { what: "the status endpoint", every: MINUTE, work: Check(endpoint::look) },
    Task { what: SURROUNDINGS, every: MINUTE, work: Check(surroundings::look) },
    Task { what: "the size of the data disk", every: MINUTE, work: Check(data_disk::look) },
    Task { what: "the room on the disks", every: MINUTE, work: Check(space::look) },
    Task { what: "the room for etcd", every: Duration::from_secs(5), work: Check(space::relieve) },
    Task { what: "the clock", every: MINUTE, work: Check(clock::look) },
    Task { what: "what pods may ask for", every: MINUTE, work: Check(pod_security::look) },
    Task { what: "snapshots of etcd", every: MINUTE, work: Background(snapshots::prepare) },
    Task { what: "etcd", every: Duration::from_secs(120), work: Background(etcd::prepare) },
    Task { what: "the cluster's record of this node", every: MINUTE, work: Background(swap::prepare) },
    Task { what: "the encryption of Secrets", every: MINUTE, work: Background(encryption::prepare) },
    Task { what: "the add-ons", every: MINUTE, work: Background(addons::prepare) },
    Task { what: "the network policies", every: MINUTE, work: Background(network_policies::prepare) },
    Task { what: "the external IPs of Services", every: Duration::from_secs(600), work: Background(external_ips::prepare) },
    Task { what: "the cordon of a swap", every: Duration::from_secs(5), work: Background(swap::uncordon) },
    Task { what: "the upgrade of Kubernetes", every: Duration::from_secs(2), work: Background(swap::upgrade) },
    Task { what: "the nodes that have not joined yet", every: Duration::from_secs(5), work: Background(forming::prepare) },
    Task { what: "the node that is replaced", every: Duration::from_secs(5), work: Background(admission::prepare) },
];

/// The check that the boot flow has done for the first time.
const SURROUNDINGS: &str = "the network around";

/// When each task is due, and what it has last found.
pub struct Maintenance(Vec<Scheduled>);

impl Maintenance {
    /// Begins now on a node of this role: each task is due for the first time after its pause.
    pub fn begin(role: Role, now: Instant) -> Self {
        Self(tasks(role).iter().map(|task| Scheduled::new(task, now)).collect())
    }

    /// Takes over what the boot flow has found of the network and the clock,
    /// until they are looked at again.
    pub fn remember(&mut self, passing: &Findings) {
        for scheduled in self.0.iter().filter(|scheduled| scheduled.task.what == SURROUNDINGS) {
            scheduled.report.set(passing.clone());
        }
    }

    /// Does what is due. Says whether findings have changed.
    pub fn run(&mut self, node: &NodeContext, now: Instant) -> bool {
        let mut news = false;
        for scheduled in &mut self.0 {
            news |= scheduled.run(node, now);
        }
        news
    }

    /// What everything has last found.
    pub fn findings(&self) -> Findings {
        let mut all = Findings::default();
        for scheduled in &self.0 {
            all.extend(scheduled.report.findings());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::codes;

    #[test]
    fn nothing_is_due_at_once() {
        let now = Instant::now();
        for role in Role::ALL {
            let maintenance = Maintenance::begin(role, now);
            assert!(maintenance.0.iter().all(|scheduled| scheduled.due >= now + Duration::from_secs(1)));
            assert!(maintenance.findings().is_empty());
        }
    }

    #[test]
    fn what_the_boot_flow_found_stands_until_the_next_look() {
        let passing = Findings::from(codes::GATEWAY_SILENT.finding("gateway", "no answer", "Correct it"));
        for role in Role::ALL {
            let mut maintenance = Maintenance::begin(role, Instant::now());
            maintenance.remember(&passing);
            assert_eq!(maintenance.findings(), passing, "{role}");
        }
    }
}
