//! The order in which nodes go back, one by one, when an operator asks for it: unhealthy ones come first. A node that
//! does its part must not leave before they are repaired, and only their own rollback repairs them.

use contract::node::Etcd;

use super::failure_attribution::Health;
use super::failure_threshold::FailureThreshold;
use crate::hypervisor::PowerState;
use crate::upgrade::context::{MOMENT, StepContext};
use crate::upgrade::nodes::Nodes as _;
use crate::upgrade::order::{IllNodes, Order};
use crate::upgrade::plan::{Mode, Plan, PlannedNode};
use crate::upgrade::progress::Progress;
use crate::upgrade::refusal::NODE_NOT_READY;
use crate::upgrade::step_error::{StepError, Wait};

/// A control-plane node as it was seen.
struct Seen<'p> {
    name: &'p str,
    health: Health,
    /// Its statement about etcd. Without a quorum etcd cannot say which members there are.
    etcd: Option<Etcd>,
}

impl StepContext<'_> {
    /// The order for the nodes as they are now. Without a quorum of etcd nothing works anyway, and all go back at once.
    /// For that, a majority must be shown not to do its part, each by its own word or by a VM that is off. No
    /// Kubernetes API may contradict it. Nodes that are out of sight may be at work, and no order stops them unasked.
    /// If no node can be reached, the state is unknown, and the order stays.
    pub(in crate::upgrade) async fn order_back(&self, plan: &Plan, progress: &Progress) -> Result<Order, StepError> {
        let left = progress.going_back(plan);
        // A node that went back before stays out of it.
        let stays = || match &progress.order {
            Order::First(ill) => {
                let of = |nodes: &[usize]| left.iter().copied().filter(|node| nodes.contains(node)).collect();
                Order::first(IllNodes { together: of(&ill.together), one_by_one: of(&ill.one_by_one) })
            }
            order => order.clone(),
        };
        let at_it = progress.is_at_once(plan) && progress.has_stopped_new(plan);
        if plan.options.mode == Mode::AllAtOnce || at_it || plan.members.len() == 1 {
            return Ok(stays());
        }
        let ill: &Vec<FailureThreshold> = &plan.members.iter().map(|_| FailureThreshold::at(self.pace)).collect();
        let seen = self.wait("certainty about which nodes are unhealthy", MOMENT, || self.look_at_all(plan, ill)).await;
        let seen = match seen {
            Err(StepError::Cannot(_)) => return Ok(stays()),
            seen => seen?,
        };
        let answers = seen.iter().any(|node| node.health != Health::Silent);
        let stands = seen.iter().any(|node| node.etcd.is_some());
        if answers && !stands && self.has_no_quorum(plan, &seen).await? && self.nodes.cluster().await.is_err() {
            return Ok(Order::WithoutQuorum);
        }
        if !answers {
            return Ok(stays());
        }
        let is_ill =
            |node: &usize| seen.iter().any(|seen| seen.name == plan.nodes[*node].name && seen.health != Health::Well);
        let ill = left.into_iter().filter(is_ill);
        let (one_by_one, together) = ill.partition(|node| is_part_of_etcd(&plan.nodes[*node], &seen));
        Ok(Order::first(IllNodes { together, one_by_one }))
    }

    /// Whether a majority of etcd's members is shown not to do its part, by nodes that answer and by VMs that are off.
    /// For the case that no node says that etcd has a quorum.
    async fn has_no_quorum(&self, plan: &Plan, seen: &[Seen<'_>]) -> Result<bool, StepError> {
        let vms = self.vms().await?;
        let is_off = |name: &str| {
            let node = plan.nodes.iter().find(|node| node.name == name);
            node.is_some_and(|node| {
                vms.iter().all(|vm| vm.power == PowerState::Off || vm.disk(node.disk.uuid).is_none())
            })
        };
        let down = seen.iter().filter(|node| node.health != Health::Silent || is_off(node.name)).count();
        Ok(2 * down > plan.members.len())
    }

    /// The health of all control-plane nodes. Not yet, while one look more may find one otherwise.
    async fn look_at_all<'p>(&self, plan: &'p Plan, ill: &[FailureThreshold]) -> Result<Vec<Seen<'p>>, Wait> {
        let (mut seen, mut unsure) = (Vec::new(), None);
        for (member, belief) in plan.members.iter().zip(ill) {
            let facts = self.nodes.facts(member.address).await;
            let etcd = facts.as_ref().ok().and_then(|facts| facts.etcd.clone());
            let health = Health::of(facts);
            if health != Health::Well && !belief.look(true) {
                unsure = Some(&*member.name);
            } else if health == Health::Well {
                belief.look(false);
            }
            seen.push(Seen { name: &member.name, health, etcd });
        }
        match unsure {
            Some(name) => Err(Wait::not_yet(NODE_NOT_READY, format!("{name} is unhealthy"))),
            None => Ok(seen),
        }
    }
}

/// Whether the member of etcd of a node does its part, whatever else the node lacks. Another node has to say so, as
/// before a node is stopped. Of two such nodes the second could not be stopped while the first one is off.
fn is_part_of_etcd(node: &PlannedNode, seen: &[Seen<'_>]) -> bool {
    let others = seen.iter().filter(|other| other.name != node.name);
    let mut members = others.filter_map(|other| other.etcd.as_ref()).flat_map(|etcd| &etcd.members);
    members.any(|member| {
        let is_its = member.id == node.member || member.name == node.name;
        is_its && member.healthy && !member.learner
    })
}
