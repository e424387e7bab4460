//! The conditions of a cluster, from its control-plane nodes, its pools and its obstacles. All conditions are written each time,
//! so that none is outdated.

use fleet::control_plane::DeployStatus;

use super::obstacle::Obstacle;
use super::text::joined;
use crate::objects::{
    ConditionStatus, ControlPlaneStatus, NodePool, NodePoolReason, NodesStatus, Reason, TenantClusterReason,
};

/// A condition's reason, with its message.
pub type ClusterCondition = (TenantClusterReason, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationPhase {
    /// The cluster's `paused` is set.
    Paused,
    /// Its control-plane nodes are being created or powered on; the text has what is awaited.
    Provisioning(String),
    /// A lost control-plane node is being replaced; the text has the step.
    Replacing(String),
    /// A control-plane node is lost; the text says when it is replaced, or what is waited for.
    NodeLost(String),
    /// As `NodeLost`, and the operator has to act; the text has the command.
    NodeLostAwaitingOperator(String),
    /// An Operation runs; the text has its state.
    Operating(String),
    /// The operator has to act; the text says why.
    Blocked(String),
    /// VMs are newer than their records; the text names them.
    Drifted(String),
    Idle,
}

/// The conditions of a cluster without a VM. An unknown state, such as that of a silent vCenter, may pass by itself, and needs no
/// action.
pub fn before(obstacle: Option<&Obstacle>, paused: bool) -> Vec<ClusterCondition> {
    use TenantClusterReason::{
        Blocked, ControlPlaneChanges, Forming, NotReady, Passed, Paused, PreflightNotKnown, Provisioning,
    };
    let none = String::new;
    let preflight = match obstacle {
        Some(obstacle) => (obstacle.reason, obstacle.message.clone()),
        None if paused => (PreflightNotKnown, "it is not checked while the cluster is paused".to_owned()),
        None => (Passed, none()),
    };
    let control_plane = (Forming, "no control-plane node was created yet".to_owned());
    match obstacle {
        _ if paused => vec![preflight, control_plane, (Paused, none()), (NotReady, "it is paused".to_owned())],
        Some(obstacle) if obstacle.reason == PreflightNotKnown => {
            let words = || obstacle.message.clone();
            vec![preflight, control_plane, (ControlPlaneChanges, words()), (Provisioning, words())]
        }
        Some(obstacle) => {
            vec![preflight, control_plane, (Blocked, obstacle.message.clone()), (NotReady, obstacle.message.clone())]
        }
        None => vec![preflight, control_plane, (ControlPlaneChanges, none()), (Provisioning, none())],
    }
}

#[derive(Clone, Debug)]
pub struct Health<'a> {
    pub control_plane: &'a DeployStatus,
    pub pools: &'a [NodePool],
    pub doing: OperationPhase,
    /// Why it differs from the spec, if it does.
    pub differs: Option<ClusterCondition>,
    /// The obstacle of a change, if there is one.
    pub obstacle: Option<Obstacle>,
    /// Why the adoption that the operator asked for waits, if it does.
    pub adopts: Option<String>,
    /// Whether its kubeconfig is available to users.
    pub is_handed_over: bool,
}

impl Health<'_> {
    /// Numbers of its control-plane nodes. Nodes that were not observed count as not Ready.
    pub fn control_plane(&self) -> ControlPlaneStatus {
        let nodes = &self.control_plane.nodes;
        let ready = nodes.iter().filter(|node| node.ready).count();
        let updated = if self.differs.is_none() { nodes.len() } else { 0 };
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        ControlPlaneStatus { replicas: number(nodes.len()), ready: number(ready), updated: number(updated) }
    }

    pub fn nodes(&self) -> NodesStatus {
        workers_of(self.pools)
    }

    pub fn conditions(&self) -> Vec<ClusterCondition> {
        use TenantClusterReason::{
            AdoptionRequired, Blocked, ControlPlaneChanges, Current, Idle, NodeLost, NodeLostAwaitingOperator,
            OperationRuns, Passed, Paused, ReplacingNode, WorkersChange,
        };
        let (none, nodes) = (String::new(), self.nodes());
        let up_to_date = self.differs.clone().unwrap_or((Current, none.clone()));
        let preflight = match &self.obstacle {
            None => (Passed, none.clone()),
            Some(obstacle) => (obstacle.reason, obstacle.message.clone()),
        };
        let workers_move = nodes.replicas != nodes.desired;
        let progressing = match &self.doing {
            OperationPhase::Paused => (Paused, none.clone()),
            OperationPhase::Provisioning(words) => (ControlPlaneChanges, words.clone()),
            OperationPhase::Replacing(words) => (ReplacingNode, words.clone()),
            OperationPhase::NodeLost(words) => (NodeLost, words.clone()),
            OperationPhase::NodeLostAwaitingOperator(words) => (NodeLostAwaitingOperator, words.clone()),
            OperationPhase::Operating(words) => (OperationRuns, words.clone()),
            OperationPhase::Blocked(words) => (Blocked, words.clone()),
            OperationPhase::Drifted(words) => (AdoptionRequired, words.clone()),
            OperationPhase::Idle if workers_move => (WorkersChange, of_pools(self.pools)),
            OperationPhase::Idle => (Idle, none.clone()),
        };
        let progressing = match (progressing, &self.adopts) {
            (said, None) => said,
            ((reason, words), Some(adopts)) if words.is_empty() => (reason, adopts.clone()),
            // Messages are cut at their end, and the rest is reported elsewhere too.
            ((reason, words), Some(adopts)) => (reason, format!("{adopts}; {words}")),
        };
        let control_plane = self.serves();
        let ready = self.ready(&control_plane, &nodes);
        vec![preflight, control_plane, self.nodes_ready(), up_to_date, progressing, ready]
    }

    fn serves(&self) -> ClusterCondition {
        use TenantClusterReason::{ControlNodesReady, ControlPlaneNotReached, Degraded, Forming, NoQuorum};
        let status = self.control_plane;
        let waits = || joined(&status.waits);
        if !status.formed {
            return (Forming, waits());
        }
        let ready = status.nodes.iter().filter(|node| node.ready).count();
        let gives = status.nodes.iter().any(|node| node.formed);
        match (ready, status.nodes.len()) {
            _ if !status.looked => (ControlPlaneNotReached, waits()),
            (ready, all) if ready == all => (ControlNodesReady, String::new()),
            // Its VMs were seen, and no node answered: the API may be served all the same.
            (0, _) if !gives => (ControlPlaneNotReached, waits()),
            (ready, all) if ready > all / 2 => (Degraded, waits()),
            _ => (NoQuorum, waits()),
        }
    }

    fn nodes_ready(&self) -> ClusterCondition {
        use TenantClusterReason::{NodesNotReached, WorkersMissing, WorkersReady};
        let is_unknown =
            |pool: &&NodePool| standing_of(pool).is_some_and(|(standing, _)| standing == ConditionStatus::Unknown);
        let unknown: Vec<String> = self.pools.iter().filter(is_unknown).map(of_pool).collect();
        if !unknown.is_empty() {
            return (NodesNotReached, unknown.join("; "));
        }
        // Each pool by itself: one may have more workers than it wants during a replacement.
        let lacks = |pool: &&NodePool| pool.metadata.deletion_timestamp.is_none() && !has_all(pool);
        let lacking: Vec<String> = self.pools.iter().filter(lacks).map(of_pool).collect();
        if lacking.is_empty() { (WorkersReady, String::new()) } else { (WorkersMissing, lacking.join("; ")) }
    }

    fn ready(&self, (control_plane, words): &ClusterCondition, nodes: &NodesStatus) -> ClusterCondition {
        use TenantClusterReason::{
            Available, ControlNodesReady, ControlPlaneNotReached, Degraded, Forming, NotReached, NotReady, Provisioning,
        };
        match control_plane {
            Forming => (Provisioning, words.clone()),
            ControlPlaneNotReached => (NotReached, words.clone()),
            ControlNodesReady | Degraded if !self.is_handed_over => {
                (Provisioning, "its kubeconfig is not written yet".to_owned())
            }
            ControlNodesReady | Degraded if nodes.desired > 0 && nodes.ready == 0 => {
                (NotReady, format!("no worker is Ready: {}", of_pools(self.pools)))
            }
            ControlNodesReady | Degraded => (Available, String::new()),
            _ => (NotReady, words.clone()),
        }
    }
}

/// The conditions of a cluster that is being deleted, with the reason of `Progressing`.
pub fn leaving(reason: TenantClusterReason, words: &str) -> Vec<ClusterCondition> {
    vec![(reason, words.to_owned()), (TenantClusterReason::ClusterDeleting, words.to_owned())]
}

pub fn workers_of(pools: &[NodePool]) -> NodesStatus {
    let mut all = NodesStatus::default();
    for pool in pools {
        let status = pool.status.clone().unwrap_or_default();
        let going = pool.metadata.deletion_timestamp.is_some();
        all.desired += if going { 0 } else { i32::try_from(pool.spec.replicas).unwrap_or(i32::MAX) };
        all.replicas += status.replicas;
        all.ready += status.ready_replicas;
    }
    all
}

/// The pools that do not have the wanted number of workers, as a message.
fn of_pools(pools: &[NodePool]) -> String {
    let is_other = |pool: &&NodePool| ready_of(pool) != i64::from(pool.spec.replicas);
    pools.iter().filter(is_other).map(of_pool).collect::<Vec<_>>().join("; ")
}

/// Whether at least as many workers of a pool are Ready as it wants.
fn has_all(pool: &NodePool) -> bool {
    ready_of(pool) >= i64::from(pool.spec.replicas)
}

fn ready_of(pool: &NodePool) -> i64 {
    pool.status.as_ref().map(|status| status.ready_replicas.into()).unwrap_or_default()
}

/// Status and reason of a pool's condition Ready. `None` before the pool was first observed.
fn standing_of(pool: &NodePool) -> Option<(ConditionStatus, String)> {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.about == NodePoolReason::AllReady.condition())?;
    Some((ready.status, ready.reason.clone()))
}

fn of_pool(pool: &NodePool) -> String {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let why = standing_of(pool)
        .filter(|(standing, _)| *standing != ConditionStatus::True)
        .map(|(_, why)| format!(" ({why})"));
    format!("{name} has {} of {} workers Ready{}", ready_of(pool), pool.spec.replicas, why.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fleet::control_plane::{Lifecycle, NodeStatus};
    use fleet::hypervisor::PowerState;

    use super::*;
    use crate::objects::{NodePoolSpec, NodePoolStatus, TenantClusterReason as Why, set};

    fn status(ready: &[bool]) -> DeployStatus {
        let node = |(number, ready): (u8, &bool)| NodeStatus {
            name: format!("shop-cp{number}"),
            address: Ipv4Addr::new(192, 168, 10, 19 + number),
            vm: Some(format!("shop-cp{number}")),
            uuid: None,
            power: Some(PowerState::On),
            size: None,
            formed: *ready,
            ready: *ready,
        };
        DeployStatus {
            cluster: "shop".to_owned(),
            lifecycle: Lifecycle::Active,
            image: "a".to_owned(),
            formed: true,
            looked: true,
            nodes: (1..).zip(ready).map(node).collect(),
            left: Vec::new(),
            doubtful: Vec::new(),
            forgotten: Vec::new(),
            discarded: Vec::new(),
            copies: Vec::new(),
            replicas: Vec::new(),
            waits: Vec::new(),
            done: ready.iter().all(|ready| *ready),
            newer: Vec::new(),
        }
    }

    fn pool(wanted: u32, ready: i32) -> NodePool {
        let spec = serde_json::json!({"clusterRef": {"name": "shop"}, "vmClass": "medium", "replicas": wanted});
        let mut pool = NodePool::new("shop-general", serde_json::from_value::<NodePoolSpec>(spec).unwrap());
        pool.status = Some(NodePoolStatus { replicas: ready, ready_replicas: ready, ..NodePoolStatus::default() });
        pool
    }

    /// The condition of a type.
    fn about(said: &[ClusterCondition], condition: &str) -> ClusterCondition {
        let found = said.iter().find(|(reason, _)| reason.condition() == condition);
        found.unwrap_or_else(|| panic!("nobody says {condition}")).clone()
    }

    fn reason(said: &[ClusterCondition], condition: &str) -> Why {
        about(said, condition).0
    }

    fn of<'a>(control_plane: &'a DeployStatus, pools: &'a [NodePool]) -> Health<'a> {
        let doing = OperationPhase::Idle;
        Health { control_plane, pools, doing, differs: None, obstacle: None, adopts: None, is_handed_over: true }
    }

    fn ready_by(control_plane: &DeployStatus, pools: &[NodePool]) -> (Why, Why) {
        let said = of(control_plane, pools).conditions();
        (reason(&said, "ControlPlaneReady"), reason(&said, "Ready"))
    }

    #[test]
    fn cluster_is_ready_with_api_and_one_worker() {
        let all = status(&[true; 3]);
        assert_eq!(ready_by(&all, &[]), (Why::ControlNodesReady, Why::Available));
        assert_eq!(ready_by(&all, &[pool(2, 0)]), (Why::ControlNodesReady, Why::NotReady));
        assert_eq!(ready_by(&all, &[pool(2, 1)]), (Why::ControlNodesReady, Why::Available));
        assert_eq!(ready_by(&status(&[true, false, true]), &[]), (Why::Degraded, Why::Available));
        assert_eq!(ready_by(&status(&[true, false, false]), &[]), (Why::NoQuorum, Why::NotReady));
        assert_eq!(ready_by(&status(&[false]), &[]), (Why::ControlPlaneNotReached, Why::NotReached));
        let forming = DeployStatus { formed: false, ..status(&[false]) };
        assert_eq!(ready_by(&forming, &[]), (Why::Forming, Why::Provisioning));
        let unseen = DeployStatus { looked: false, ..all.clone() };
        assert_eq!(ready_by(&unseen, &[]), (Why::ControlPlaneNotReached, Why::NotReached), "nothing is known of it");
        let without = Health { is_handed_over: false, ..of(&all, &[]) };
        assert_eq!(reason(&without.conditions(), "Ready"), Why::Provisioning);
        let drifted = Health { doing: OperationPhase::Drifted("x".to_owned()), ..of(&all, &[]) };
        assert_eq!(about(&drifted.conditions(), "Progressing"), (Why::AdoptionRequired, "x".to_owned()));
        assert_eq!(reason(&drifted.conditions(), "Ready"), Why::Available, "it serves on");
        let adopts = Health { adopts: Some("y".to_owned()), ..of(&all, &[]) };
        assert_eq!(about(&adopts.conditions(), "Progressing"), (Why::Idle, "y".to_owned()));
        let adopts = Health { adopts: Some("y".to_owned()), ..drifted };
        assert_eq!(about(&adopts.conditions(), "Progressing"), (Why::AdoptionRequired, "y; x".to_owned()));
    }

    #[test]
    fn each_condition_is_set_once() {
        let (all, pools) = (status(&[true; 3]), [pool(3, 2)]);
        let paused = Obstacle::new(Why::AddressesMissing, "x");
        let health = of(&all, &pools);
        let said = [health.conditions(), before(None, false), before(Some(&paused), false), before(None, true)];
        for said in &said {
            let mut about: Vec<&str> = said.iter().map(|(reason, _)| reason.condition()).collect();
            let all = about.len();
            about.sort_unstable();
            about.dedup();
            assert_eq!(about.len(), all);
            let names = |what: &str| about.contains(&what);
            assert!(names("Preflight") && names("ControlPlaneReady") && names("Progressing") && names("Ready"));
        }
        assert_eq!(about(&said[2], "Preflight"), (Why::AddressesMissing, "x".to_owned()));
        assert!(
            said[1..]
                .iter()
                .flatten()
                .all(|(reason, _)| reason.condition() != "Ready" || reason.standing() == ConditionStatus::False)
        );
        let said = health.conditions();
        for (condition, expected) in
            [("NodesReady", Why::WorkersMissing), ("UpToDate", Why::Current), ("Progressing", Why::WorkersChange)]
        {
            assert_eq!(reason(&said, condition), expected);
        }
        assert_eq!(about(&said, "NodesReady").1, "shop-general has 2 of 3 workers Ready");
    }

    #[test]
    fn unknown_obstacle_needs_no_operator() {
        let said = |why| before(Some(&Obstacle::new(why, "the vCenter dc1 does not answer")), false);
        let words = "the vCenter dc1 does not answer".to_owned();
        let unknown = said(Why::PreflightNotKnown);
        assert_eq!(about(&unknown, "Preflight"), (Why::PreflightNotKnown, words.clone()));
        assert_eq!(about(&unknown, "Progressing"), (Why::ControlPlaneChanges, words.clone()));
        assert_eq!(about(&unknown, "Ready"), (Why::Provisioning, words.clone()));
        assert_eq!(about(&said(Why::AddressesMissing), "Progressing"), (Why::Blocked, words));
        let paused = before(Some(&Obstacle::new(Why::PreflightNotKnown, "x")), true);
        assert_eq!(reason(&paused, "Progressing"), Why::Paused);
    }

    #[test]
    fn workers_are_ready_if_every_pool_is() {
        let all = status(&[true; 3]);
        let said = |pools: &[NodePool]| about(&of(&all, pools).conditions(), "NodesReady");
        let with = |pool: &NodePool, reason: NodePoolReason| {
            let mut pool = pool.clone();
            set(&mut pool.status.as_mut().unwrap().conditions, reason, "", 1, &super::super::fixture::now());
            pool
        };
        assert_eq!(said(&[]).0, Why::WorkersReady);
        let good = with(&pool(2, 2), NodePoolReason::AllReady);
        assert_eq!(said(&[good.clone(), pool(0, 0)]).0, Why::WorkersReady);
        let scaling = with(&pool(3, 2), NodePoolReason::Scaling);
        let words = "shop-general has 2 of 3 workers Ready (Scaling)".to_owned();
        assert_eq!(said(&[good.clone(), scaling.clone()]), (Why::WorkersMissing, words));
        // The surplus of one pool does not count for another.
        let surge = with(&pool(2, 3), NodePoolReason::Scaling);
        assert_eq!(said(&[surge, scaling.clone()]).0, Why::WorkersMissing);
        let silent = with(&good, NodePoolReason::NotReached);
        let words = "shop-general has 2 of 2 workers Ready (NotReached)".to_owned();
        assert_eq!(said(&[scaling, silent]), (Why::NodesNotReached, words));
        let mut going = pool(3, 1);
        going.metadata.deletion_timestamp = Some(super::super::fixture::now());
        assert_eq!(said(&[going, good]).0, Why::WorkersReady, "nobody wants its workers any more");
    }

    #[test]
    fn numbers_come_from_nodes_and_pools() {
        let (all, pools) = (status(&[true, false, true]), [pool(3, 2), pool(2, 2)]);
        let differs = Some((Why::ChangeNotSupported, "vmClass".to_owned()));
        let health = Health { differs, ..of(&all, &pools) };
        assert_eq!(health.control_plane(), ControlPlaneStatus { replicas: 3, ready: 2, updated: 0 });
        assert_eq!(health.nodes(), NodesStatus { desired: 5, replicas: 4, ready: 4 });
        assert_eq!(reason(&health.conditions(), "UpToDate"), Why::ChangeNotSupported);
    }
}
