//! The conditions of a cluster, from its control-plane nodes, its pools and its obstacles. All conditions are written each time,
//! so that none is outdated.

use fleet::control_plane::DeployStatus;
use fleet::workers::NodeSeen;

use super::observed::Observed;
use super::obstacle::Obstacle;
use super::text::joined;
use crate::objects::{
    ConditionStatus, ControlPlaneStatus, NodePool, NodePoolReason, NodesStatus, Reason, TenantClusterReason,
};

/// A condition's reason, with its message.
pub type ClusterCondition = (TenantClusterReason, String);

/// The reason of `Progressing` with that of a lost node about which nothing is done now, or of a request for one that is ignored.
/// Other reasons stay.
pub fn with_lost(doing: ClusterCondition, lost: Option<ClusterCondition>) -> ClusterCondition {
    use TenantClusterReason::{Blocked, Idle, NodeLost, NodeLostAwaitingOperator, OperationRuns, Paused};
    let Some((reason, words)) = lost else { return doing };
    let (doing, said) = doing;
    let both = format!("{words}; {said}");
    match doing {
        Idle => (reason, words),
        Paused => (reason, format!("{words}; {}", Paused.help())),
        NodeLost | NodeLostAwaitingOperator => (NodeLostAwaitingOperator, both),
        OperationRuns | Blocked => (doing, both),
        _ => (doing, said),
    }
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
        _ if paused => {
            vec![preflight, control_plane, (Paused, none()), (NotReady, "it is paused".to_owned())]
        }
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
    /// The nodes that its own API lists.
    pub api: &'a Observed<Vec<NodeSeen>>,
    pub pools: &'a [NodePool],
    /// The reason of `Progressing`. Workers may change while nothing else does.
    pub doing: ClusterCondition,
    /// Why it differs from the spec, if it does.
    pub differs: Option<ClusterCondition>,
    /// The obstacle of a change, if there is one.
    pub obstacle: Option<Obstacle>,
    /// Why the adoption that the operator asked for waits, if it does.
    pub adopts: Option<String>,
    /// Whether its kubeconfig is available to users, and has not expired.
    pub is_handed_over: bool,
}

impl Health<'_> {
    /// Numbers of its control-plane nodes. `None` if nothing is known of them.
    pub fn control_plane(&self) -> Option<ControlPlaneStatus> {
        if self.serves().0 == TenantClusterReason::ControlPlaneNotReached {
            return None;
        }
        let nodes = &self.control_plane.nodes;
        let ready = nodes.iter().filter(|node| node.ready).count();
        let updated = if self.differs.is_none() { nodes.len() } else { 0 };
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        Some(ControlPlaneStatus { replicas: number(nodes.len()), ready: number(ready), updated: number(updated) })
    }

    pub fn nodes(&self) -> NodesStatus {
        workers_of(self.pools)
    }

    pub fn conditions(&self) -> Vec<ClusterCondition> {
        use TenantClusterReason::{Current, Idle, Passed, ProviderNotReached, WorkersChange};
        let (none, nodes) = (String::new(), self.nodes());
        let up_to_date = self.differs.clone().unwrap_or((Current, none.clone()));
        let preflight = match &self.obstacle {
            None if !self.control_plane.looked => (ProviderNotReached, joined(&self.control_plane.waits)),
            None => (Passed, none.clone()),
            Some(obstacle) => (obstacle.reason, obstacle.message.clone()),
        };
        let progressing = match &self.doing {
            (Idle, _) if nodes.replicas != nodes.desired => (WorkersChange, of_pools(self.pools)),
            doing => doing.clone(),
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
        let (is_by_api, silence) = match self.api {
            Observed::Known(_) => (true, String::new()),
            Observed::Unknown(why) if why.is_empty() => (false, waits()),
            Observed::Unknown(why) => (false, format!("{}; the cluster's API: {why}", waits())),
        };
        let waits = || if status.looked { waits() } else { unready(status) };
        match (ready, status.nodes.len()) {
            _ if !status.looked && !is_by_api => (ControlPlaneNotReached, silence),
            (ready, all) if ready == all => (ControlNodesReady, String::new()),
            // Its VMs were seen, and no node answered: the API may be served all the same.
            (0, _) if !gives => (ControlPlaneNotReached, silence),
            (ready, all) if ready > all / 2 => (Degraded, waits()),
            _ => (NoQuorum, waits()),
        }
    }

    fn nodes_ready(&self) -> ClusterCondition {
        use TenantClusterReason::{NodesNotReached, WorkersMissing, WorkersReady};
        let unknown: Vec<String> = self.pools.iter().filter(|pool| is_unknown(pool)).map(of_pool).collect();
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
                let words = "its kubeconfig is not written yet, or has expired: a control-plane node has to give one";
                (Provisioning, words.to_owned())
            }
            ControlNodesReady | Degraded if nodes.desired > 0 => match self.ready_workers(nodes) {
                Observed::Known(0) => (NotReady, format!("no worker is Ready: {}", of_pools(self.pools))),
                Observed::Known(_) => (Available, String::new()),
                Observed::Unknown(words) => (NotReached, words),
            },
            ControlNodesReady | Degraded => (Available, String::new()),
            _ => (NotReady, words.clone()),
        }
    }

    /// The number of Ready workers: by its pools, or by its own API while a look at a pool fails.
    fn ready_workers(&self, nodes: &NodesStatus) -> Observed<usize> {
        let by_pools = usize::try_from(nodes.ready).unwrap_or_default();
        match self.api {
            _ if !self.pools.iter().any(is_unknown) => Observed::Known(by_pools),
            Observed::Known(listed) => {
                Observed::Known(listed.iter().filter(|node| !node.control && node.ready).count())
            }
            Observed::Unknown(_) => Observed::Unknown(self.nodes_ready().1),
        }
    }
}

/// The status of control-plane nodes. If a look through vCenter found none that answers, it is what the cluster's own API says.
pub fn with_api(seen: &DeployStatus, api: &Observed<Vec<NodeSeen>>) -> DeployStatus {
    let mut seen = seen.clone();
    let is_known = !seen.formed || (seen.looked && seen.nodes.iter().any(|node| node.formed));
    if let Observed::Known(listed) = api
        && !is_known
    {
        for node in &mut seen.nodes {
            let listed = listed.iter().find(|listed| listed.control && listed.name == node.name);
            (node.formed, node.ready) = (listed.is_some(), listed.is_some_and(|listed| listed.ready));
        }
    }
    seen
}

/// The control-plane nodes that are not Ready by the cluster's own API.
fn unready(status: &DeployStatus) -> String {
    let names = status.nodes.iter().filter(|node| !node.ready).map(|node| node.name.as_str());
    format!("not Ready by the cluster's API: {}", names.collect::<Vec<_>>().join(", "))
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

/// Whether the last look at a pool failed: its numbers are older.
fn is_unknown(pool: &NodePool) -> bool {
    standing_of(pool).is_some_and(|(standing, _)| standing == ConditionStatus::Unknown)
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

    use fleet::control_plane::NodeStatus;
    use fleet::hypervisor::PowerState;

    use super::*;
    use crate::objects::{NodePoolSpec, NodePoolStatus, TenantClusterReason as Why, set};

    static SILENT: Observed<Vec<NodeSeen>> = Observed::Unknown(String::new());

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
            formed: true,
            looked: true,
            nodes: (1..).zip(ready).map(node).collect(),
            done: ready.iter().all(|ready| *ready),
            ..DeployStatus::default()
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
        let (api, doing) = (&SILENT, (Why::Idle, String::new()));
        Health { control_plane, api, pools, doing, differs: None, obstacle: None, adopts: None, is_handed_over: true }
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
        let drifted = Health { doing: (Why::AdoptionRequired, "x".to_owned()), ..of(&all, &[]) };
        assert_eq!(about(&drifted.conditions(), "Progressing"), (Why::AdoptionRequired, "x".to_owned()));
        assert_eq!(reason(&drifted.conditions(), "Ready"), Why::Available, "it serves on");
        let adopts = Health { adopts: Some("y".to_owned()), ..of(&all, &[]) };
        assert_eq!(about(&adopts.conditions(), "Progressing"), (Why::Idle, "y".to_owned()));
        let adopts = Health { adopts: Some("y".to_owned()), ..drifted };
        assert_eq!(about(&adopts.conditions(), "Progressing"), (Why::AdoptionRequired, "y; x".to_owned()));
    }

    fn listed(name: &str, control: bool, ready: bool) -> NodeSeen {
        NodeSeen {
            name: name.to_owned(),
            uid: String::new(),
            provider: String::new(),
            ready,
            cordoned: false,
            address: None,
            excluded: false,
            control,
            kubelet: "v1.36.2".to_owned(),
            heard: String::new(),
        }
    }

    // While another Operation was open, no condition named a lost node.
    #[test]
    fn lost_node_is_named_in_each_state() {
        let (a, b) = (|| "a".to_owned(), || "b".to_owned());
        let both = || "b; a".to_owned();
        for (doing, shown) in [
            ((Why::Idle, String::new()), (Why::NodeLost, b())),
            // The pause was not named.
            ((Why::Paused, String::new()), (Why::NodeLost, "b; set `spec.paused` to false to continue".to_owned())),
            ((Why::OperationRuns, a()), (Why::OperationRuns, both())),
            ((Why::Blocked, a()), (Why::Blocked, both())),
        ] {
            assert_eq!(with_lost(doing.clone(), Some((Why::NodeLost, b()))), shown);
            assert_eq!(with_lost(doing.clone(), None), doing);
        }
        let ignored = Some((Why::NodeLostAwaitingOperator, b()));
        assert_eq!(with_lost((Why::NodeLost, a()), ignored), (Why::NodeLostAwaitingOperator, both()));
    }

    #[test]
    fn false_conditions_say_what_helps() {
        let pools = [pool(3, 0)];
        for ready in [[true; 3], [true, true, false], [true, false, false]] {
            for (formed, doing) in [
                (true, (Why::Idle, String::new())),
                (true, (Why::Paused, String::new())),
                (true, (Why::NodeLost, "shop-cp2".to_owned())),
                (false, (Why::Idle, String::new())),
            ] {
                let seen = DeployStatus { formed, ..status(&ready) };
                let differs = Some((Why::Changing, "image".to_owned()));
                let said = Health { doing, differs, ..of(&seen, &pools) }.conditions();
                for (reason, words) in said.iter().filter(|(why, _)| why.standing() == ConditionStatus::False) {
                    let mut conditions = Vec::new();
                    set(&mut conditions, *reason, words, 1, &super::super::fixture::now());
                    let (help, message) = (reason.help(), &conditions[0].message);
                    assert!(!help.is_empty() && message.ends_with(help), "{reason:?}: {message}");
                }
            }
        }
    }

    /// Finding 6 of controller.md: vCenter is away, and the cluster's own API answers.
    #[test]
    fn api_says_whether_a_cluster_serves() {
        let unseen = DeployStatus { looked: false, ..status(&[false; 3]) };
        let by = |ready: [bool; 3], worker: bool, pools: &[NodePool]| {
            let control = (1..).zip(ready).map(|(number, ready)| listed(&format!("shop-cp{number}"), true, ready));
            let api = Observed::Known(control.chain([listed("shop-general-w1", false, worker)]).collect());
            let seen = with_api(&unseen, &api);
            let said = Health { api: &api, ..of(&seen, pools) }.conditions();
            [reason(&said, "Preflight"), reason(&said, "ControlPlaneReady"), reason(&said, "Ready")]
        };
        let away = Why::ProviderNotReached;
        assert_eq!(by([true; 3], true, &[]), [away, Why::ControlNodesReady, Why::Available]);
        assert_eq!(by([true, false, true], true, &[]), [away, Why::Degraded, Why::Available]);
        let mut silent = pool(2, 2);
        let conditions = &mut silent.status.as_mut().unwrap().conditions;
        set(conditions, NodePoolReason::NotReached, "", 1, &super::super::fixture::now());
        let pools = [silent];
        assert_eq!(by([true; 3], true, &pools)[2], Why::Available);
        assert_eq!(by([true; 3], false, &pools)[2], Why::NotReady, "its API says so");
    }

    /// Finding 10 of controller.md: an unknown number of workers is not zero.
    #[test]
    fn unknown_pools_are_no_reason_for_false() {
        let (all, mut silent) = (status(&[true; 3]), pool(2, 0));
        let conditions = &mut silent.status.as_mut().unwrap().conditions;
        set(conditions, NodePoolReason::NotReached, "", 1, &super::super::fixture::now());
        assert_eq!(ready_by(&all, &[silent]), (Why::ControlNodesReady, Why::NotReached));
        let unseen = DeployStatus { looked: false, ..status(&[false; 3]) };
        assert_eq!(of(&unseen, &[]).control_plane(), None);
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
        assert_eq!(health.control_plane(), Some(ControlPlaneStatus { replicas: 3, ready: 2, updated: 0 }));
        assert_eq!(health.nodes(), NodesStatus { desired: 5, replicas: 4, ready: 4 });
        assert_eq!(reason(&health.conditions(), "UpToDate"), Why::ChangeNotSupported);
    }
}
