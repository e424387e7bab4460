//! In which order nodes go back, one by one, when a person asks for it: those that are ill come first. A node that does
//! its part must not leave before they are mended, and only their own way back mends them.

use super::belief::Belief;
use super::blame::Health;
use crate::upgrade::context::{MOMENT, StepContext};
use crate::upgrade::entry::Order;
use crate::upgrade::nodes::Nodes as _;
use crate::upgrade::plan::{Mode, Plan};
use crate::upgrade::progress::Progress;
use crate::upgrade::refusal::NODE_NOT_READY;
use crate::upgrade::step_error::{StepError, Wait};

impl StepContext<'_> {
    /// The order for the nodes as they are now. Without a quorum of etcd all are off anyway, and go back at once: a node
    /// has to say so, and no Kubernetes API speak against it. When no node can be reached nobody knows, and the order
    /// stays.
    pub(in crate::upgrade) async fn order_back(&self, plan: &Plan, progress: &Progress) -> Result<Order, StepError> {
        let left = progress.going_back(plan);
        // Whoever went back before stays out of it.
        let stays = || match &progress.order {
            Order::First(nodes) => Order::first(left.iter().copied().filter(|node| nodes.contains(node)).collect()),
            order => order.clone(),
        };
        if plan.options.mode == Mode::AllAtOnce || progress.order == Order::AtOnce || plan.members.len() == 1 {
            return Ok(stays());
        }
        let ill: &Vec<Belief> = &plan.members.iter().map(|_| Belief::at(self.pace)).collect();
        let seen = self.wait("certainty about which nodes are ill", MOMENT, || self.look_at_all(plan, ill)).await;
        let seen = match seen {
            Err(StepError::Cannot(_)) => return Ok(stays()),
            seen => seen?,
        };
        let answers = seen.iter().any(|(_, health, _)| *health != Health::Silent);
        let stands = seen.iter().any(|(_, _, stands)| *stands);
        if answers && !stands && self.nodes.cluster().await.is_err() {
            return Ok(Order::AtOnce);
        }
        if !answers {
            return Ok(stays());
        }
        let is_ill = |node: &usize| {
            seen.iter().any(|(name, health, _)| *name == plan.nodes[*node].name && *health != Health::Well)
        };
        Ok(Order::first(left.into_iter().filter(is_ill).collect()))
    }

    /// How all control nodes do, by name, and whether each says that etcd has a quorum. Not yet, while one look more may
    /// find one otherwise.
    async fn look_at_all<'p>(&self, plan: &'p Plan, ill: &[Belief]) -> Result<Vec<(&'p str, Health, bool)>, Wait> {
        let (mut seen, mut unsure) = (Vec::new(), None);
        for (member, belief) in plan.members.iter().zip(ill) {
            let facts = self.nodes.facts(member.address).await;
            // Without a quorum etcd cannot say which members there are.
            let stands = facts.as_ref().is_ok_and(|facts| facts.etcd.is_some());
            let health = Health::of(facts);
            if health != Health::Well && !belief.look(true) {
                unsure = Some(&*member.name);
            } else if health == Health::Well {
                belief.look(false);
            }
            seen.push((&*member.name, health, stands));
        }
        match unsure {
            Some(name) => Err(Wait::not_yet(NODE_NOT_READY, format!("{name} is not well"))),
            None => Ok(seen),
        }
    }
}
