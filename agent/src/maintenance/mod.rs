//! Maintenance: tasks that recur as long as the node runs, each at its own pace. The boot flow begins each group once its
//! prerequisite is met, and runs it again and again. Nothing else calls it. The tables below have all tasks.

mod addons;
mod address;
mod admission;
mod certificates;
mod clock;
mod data_disk;
mod deployer;
mod encryption;
mod endpoint;
mod etcd;
mod firewall;
mod forming;
pub mod health;
mod job;
mod objects;
mod pod_security;
mod reachability;
mod registration;
mod renewal;
mod revoked;
mod runtime;
mod schedule;
mod snapshots;
pub(crate) mod space;
pub mod storage;
mod swap;
mod worker;
pub mod worker_health;

use std::time::{Duration, Instant};

use contract::finding::Findings;
use contract::role::Role;
use schedule::Work::{Background, Check, Lasting};
use schedule::{Scheduled, Task};

use crate::node::context::NodeContext;

const MINUTE: Duration = Duration::from_secs(60);

/// The part of the node that a task needs. A node that does not finish its boot, for example because its store is full, runs
/// the tasks whose prerequisites it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// The data disk is mounted, or a worker's counterpart of it.
    DataDisk,
    /// This node's etcd serves.
    Etcd,
    /// The worker belongs to its cluster.
    Membership,
    /// All steps of the boot are done.
    Node,
}

/// The tasks of a role that need this.
fn tasks(role: Role, needs: Prerequisite) -> &'static [Task] {
    match (role, needs) {
        (Role::ControlPlane | Role::TenantControlPlane, Prerequisite::DataDisk) => DISK,
        (Role::ControlPlane | Role::TenantControlPlane, Prerequisite::Etcd) => STORE,
        (Role::ControlPlane | Role::TenantControlPlane, Prerequisite::Node) => CONTROL_PLANE,
        (Role::ControlPlane | Role::TenantControlPlane, Prerequisite::Membership)
        | (Role::Worker, Prerequisite::Etcd) => &[],
        (Role::Worker, Prerequisite::DataDisk) => SCRATCH,
        (Role::Worker, Prerequisite::Membership) => MEMBER,
        (Role::Worker, Prerequisite::Node) => WORKER,
    }
}

#[rustfmt::skip]
const DISK: &[Task] = &[
    Task { what: "the room on the disks", every: MINUTE, work: Background(space::look) },
    Task { what: ROOM, every: space::RELIEVE, work: Lasting(space::relieve) },
];

#[rustfmt::skip]
const STORE: &[Task] = &[
    Task { what: "snapshots of etcd", every: MINUTE, work: Background(snapshots::prepare) },
    Task { what: "the copies of snapshots", every: MINUTE, work: Lasting(snapshots::prepare_copies) },
    Task { what: "etcd", every: Duration::from_secs(120), work: Background(etcd::prepare) },
    Task { what: "the revoked certificates", every: Duration::from_secs(10), work: Background(revoked::prepare) },
];

#[rustfmt::skip]
const CONTROL_PLANE: &[Task] = &[
    Task { what: "the container runtime", every: MINUTE, work: Check(runtime::look) },
    Task { what: "the certificates", every: Duration::from_secs(600), work: Check(certificates::look) },
    Task { what: "the renewal of certificates that was asked for", every: Duration::from_secs(2), work: Check(renewal::look) },
    Task { what: "the firewall", every: Duration::from_secs(10), work: Background(firewall::prepare) },
    Task { what: "the status endpoint", every: MINUTE, work: Check(endpoint::look) },
    Task { what: "the deployer's rights", every: Duration::from_secs(5), work: Background(deployer::prepare) },
    Task { what: SURROUNDINGS, every: MINUTE, work: Check(reachability::look) },
    Task { what: "the size of the data disk", every: MINUTE, work: Check(data_disk::look) },
    Task { what: "the clock", every: MINUTE, work: Check(clock::look) },
    Task { what: "the requests of pods", every: MINUTE, work: Check(pod_security::look) },
    Task { what: "the Node object of this node", every: Duration::from_secs(10), work: Background(registration::prepare) },
    Task { what: "the cluster's record of this node", every: MINUTE, work: Background(swap::prepare) },
    Task { what: "the encryption of Secrets", every: MINUTE, work: Background(encryption::prepare) },
    Task { what: ADD_ONS, every: MINUTE, work: Background(addons::prepare) },
    Task { what: "the network policies", every: MINUTE, work: Background(objects::network_policies) },
    Task { what: "the cordon of a swap", every: Duration::from_secs(5), work: Background(swap::uncordon) },
    Task { what: "the upgrade of Kubernetes", every: Duration::from_secs(2), work: Lasting(swap::upgrade) },
    Task { what: "the nodes that have not joined yet", every: Duration::from_secs(5), work: Lasting(forming::prepare) },
    Task { what: worker::CERTIFICATES, every: Duration::from_secs(2), work: Background(worker::approve) },
    Task { what: "the workers that there are", every: Duration::from_secs(20), work: Background(worker::follow) },
    Task { what: "the node that is replaced", every: Duration::from_secs(5), work: Lasting(admission::prepare) },
];

#[rustfmt::skip]
const SCRATCH: &[Task] = &[
    Task { what: "the room on the disks", every: MINUTE, work: Background(space::look_on_worker) },
];

#[rustfmt::skip]
const MEMBER: &[Task] = &[
    Task { what: "the lease of the address", every: Duration::from_secs(10), work: Check(address::look) },
];

#[rustfmt::skip]
const WORKER: &[Task] = &[
    Task { what: "the container runtime", every: MINUTE, work: Check(runtime::look) },
    Task { what: "the certificates", every: Duration::from_secs(600), work: Check(worker::certificates) },
    Task { what: "the firewall", every: Duration::from_secs(10), work: Background(firewall::prepare) },
    Task { what: SURROUNDINGS, every: MINUTE, work: Check(reachability::look) },
    Task { what: "the size of the data disk", every: MINUTE, work: Check(data_disk::look) },
    Task { what: "the clock", every: MINUTE, work: Check(clock::look) },
    Task { what: "the settings of the cluster", every: MINUTE, work: Background(worker::settings) },
];

/// The boot flow has run this check before.
const SURROUNDINGS: &str = "the network around";

/// The task that applies the add-ons. In a new cluster none of them runs before.
const ADD_ONS: &str = "the add-ons";

/// The pause before its first run. The last node that joins finds all others ready.
const SOON: Duration = Duration::from_secs(5);

/// The task that makes room on the data disk.
const ROOM: &str = "the room for etcd";

/// All tasks that have begun, with their times and last findings.
#[derive(Default)]
pub struct Maintenance(Vec<Scheduled>);

impl Maintenance {
    /// Begins the tasks of this role that need this. Each is due for the first time after its pause. The add-ons are due
    /// earlier.
    pub fn begin(&mut self, role: Role, needs: Prerequisite, now: Instant) {
        self.0.extend(tasks(role, needs).iter().map(|task| match task.what {
            ADD_ONS => Scheduled::eager(task, SOON, now),
            _ => Scheduled::new(task, now),
        }));
    }

    /// Takes over the boot flow's findings about the network and the clock until the next look.
    pub fn remember(&mut self, passing: &Findings) {
        for scheduled in self.0.iter().filter(|scheduled| scheduled.task.what == SURROUNDINGS) {
            scheduled.report.set(passing.clone());
        }
    }

    /// Runs the tasks that are due. Returns whether findings have changed.
    pub fn run(&mut self, node: &NodeContext, now: Instant) -> bool {
        let mut news = false;
        for scheduled in &mut self.0 {
            news |= scheduled.run(node, now);
        }
        news
    }

    #[cfg(test)]
    pub(crate) fn has_begun(&self, what: &str) -> bool {
        self.0.iter().any(|scheduled| scheduled.task.what == what)
    }

    pub fn findings(&self) -> Findings {
        let mut all = Findings::default();
        for scheduled in &self.0 {
            all.extend(scheduled.findings());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{codes, properties};

    fn whole(role: Role, now: Instant) -> Maintenance {
        let mut maintenance = Maintenance::default();
        for needs in [Prerequisite::DataDisk, Prerequisite::Etcd, Prerequisite::Membership, Prerequisite::Node] {
            maintenance.begin(role, needs, now);
        }
        maintenance
    }

    #[test]
    fn each_task_begins_once() {
        for role in Role::ALL {
            let maintenance = whole(role, Instant::now());
            let mut names: Vec<_> = maintenance.0.iter().map(|scheduled| scheduled.task.what).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{role}");
        }
    }

    #[test]
    fn nothing_is_due_at_once() {
        let now = Instant::now();
        for role in Role::ALL {
            let maintenance = whole(role, now);
            assert!(maintenance.0.iter().all(|scheduled| scheduled.due >= now + Duration::from_secs(1)));
            assert!(maintenance.findings().is_empty());
        }
    }

    /// A new cluster has no add-ons before, and waits for nothing else.
    #[test]
    fn add_ons_are_due_soon_after_boot() {
        for role in [Role::ControlPlane, Role::TenantControlPlane] {
            let now = Instant::now();
            let maintenance = whole(role, now);
            let add_ons = maintenance.0.iter().find(|scheduled| scheduled.task.what == ADD_ONS).unwrap();
            assert!(add_ons.due < now + Duration::from_secs(10), "{role}");
        }
    }

    /// A pace as the documentation writes it.
    fn pace(every: Duration) -> String {
        match every.as_secs() {
            60 => "each minute".to_owned(),
            hours if hours % 3600 == 0 => format!("every {} hours", hours / 3600),
            minutes if minutes % 60 == 0 => format!("every {} minutes", minutes / 60),
            seconds => format!("every {seconds} seconds"),
        }
    }

    #[test]
    fn the_documentation_has_each_task_with_its_pace() {
        let page = include_str!("../../../docs/reference/maintenance.md");
        let (_, table) = page.split_once("# Automatic maintenance").unwrap();
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip_while(|line| !line.starts_with("|---"))
            .skip(1)
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect())
            .collect();
        let said = |task: &Task| match task.what {
            // It checks each minute whether one is due.
            "snapshots of etcd" => {
                let property = properties::find(properties::SNAPSHOT_EVERY).unwrap();
                let default = property.parse(property.default(Role::ControlPlane).unwrap()).unwrap();
                let every = properties::Period::try_from(default).unwrap();
                format!("{}, or `{}`", pace(every.duration()), property.key)
            }
            ROOM => format!("{}, and before etcd starts", pace(task.every)),
            // The rendezvous, which it opens, has a separate pace.
            "the nodes that have not joined yet" => "every 10 seconds, on the first node".to_owned(),
            _ => pace(task.every),
        };
        let mut tasks: Vec<&Task> = [DISK, STORE, CONTROL_PLANE].into_iter().flatten().collect();
        // Tasks that workers share have the same pace.
        for task in [SCRATCH, MEMBER, WORKER].into_iter().flatten() {
            match tasks.iter().find(|other| other.what == task.what) {
                Some(other) => assert_eq!(other.every, task.every, "a worker looks at {} at another pace", task.what),
                None => tasks.push(task),
            }
        }
        for task in &tasks {
            let name = task.what.trim_start_matches("the ").to_lowercase();
            let row = rows.iter().find(|row| row[0].to_lowercase() == name);
            let row = row.unwrap_or_else(|| panic!("docs/reference/maintenance.md has no pace of {name}"));
            assert_eq!(row[1], said(task), "{name}");
        }
        assert_eq!(rows.len(), tasks.len(), "docs/reference/maintenance.md has other rows than there are tasks");
    }

    #[test]
    fn findings_of_boot_last_until_the_next_look() {
        let passing = Findings::from(codes::GATEWAY_SILENT.finding("gateway", "no answer", "Correct it"));
        for role in Role::ALL {
            let mut maintenance = whole(role, Instant::now());
            maintenance.remember(&passing);
            assert_eq!(maintenance.findings(), passing, "{role}");
        }
    }
}
