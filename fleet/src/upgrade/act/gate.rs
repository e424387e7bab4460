//! Whether a node is good: the gate on each way, and the look before the commit. What a node lacks may be its own
//! fault, or another node's.

use std::time::Duration;

use contract::node::Node;
use contract::swap::Image;

use super::{Taken, Vms};
use crate::hypervisor::Vm;
use crate::upgrade::judge::members_wrong;
use crate::upgrade::nodes::Nodes as _;
use crate::upgrade::plan::{Plan, PlannedNode};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason::{self, Reason};
use crate::upgrade::refusal::{MEMBER_UNHEALTHY, NODE_NOT_READY, NODE_SILENT};
use crate::upgrade::run::Run;
use crate::upgrade::trouble::{Obstacle, Trouble, Wait};

impl Run<'_> {
    /// The gate on the way forward: a node that does not pass it goes back, unless it is another node's fault.
    pub(super) async fn gate_new(&self, plan: &Plan, node: &PlannedNode, new: &Vm, progress: &Progress) -> Taken {
        let why = match self.gate(plan, node, new, &plan.target.image).await {
            Err(Trouble::Cannot(Obstacle { reason, .. })) => reason,
            taken => return taken,
        };
        let others = self.others_at_fault(plan, node, progress).await;
        // Whoever is the only one has nobody else to blame.
        let silent = !others.is_empty() && others.iter().all(|other| other.is_silent);
        if why.code == NODE_SILENT && silent && others.len() == not_away(plan, node, progress).count() {
            let words = format!("no control node can be reached from here: {}", why.words);
            return Err(Trouble::elsewhere(reason::UNREACHABLE, words));
        }
        // What it says of itself alone, and that it says nothing, no other node can cause.
        if others.is_empty() || [NODE_SILENT, reason::NODE_DIFFERS].contains(&&*why.code) {
            return Err(Trouble::refused(&why.code, why.words));
        }
        let ill: Vec<String> = others.into_iter().map(|other| other.words).collect();
        let words = format!("{}, which is to be mended first: {}", ill.join(" and "), why.words);
        Err(Trouble::elsewhere(reason::OTHER_NODE, words))
    }

    /// The other nodes that were to be well all the time and are not now.
    async fn others_at_fault(&self, plan: &Plan, node: &PlannedNode, progress: &Progress) -> Vec<Ill> {
        let mut ill = Vec::new();
        for (name, address) in not_away(plan, node, progress) {
            match self.nodes.facts(address).await {
                Ok(facts) if facts.ready && facts.good.is_some() && facts.etcd.is_some() => {}
                Ok(_) => ill.push(Ill { words: format!("{name} is not well"), is_silent: false }),
                Err(_) => ill.push(Ill { words: format!("{name} does not answer"), is_silent: true }),
            }
        }
        ill
    }

    pub(super) async fn gate(&self, plan: &Plan, node: &PlannedNode, vm: &Vm, image: &Image) -> Taken {
        let limit = Duration::from_secs(plan.options.gate_seconds);
        let facts = self
            .wait(&format!("{} to be found good", node.name), limit, || async {
                let facts = self.nodes.facts(node.address).await?;
                match missing(&facts, node, vm, image, plan.members.len()) {
                    Some(missing) => Err(Wait::Again(missing)),
                    None => Ok(facts),
                }
            })
            .await?;
        Ok(format!(
            "good on {image}: the same member of etcd ({}), the same disk, holder number {}",
            node.member, facts.generation
        ))
    }

    /// Whether all nodes are good on the new image: in the VM that was made for them, or in one that an operator has
    /// put in the place of a lost node.
    pub(super) async fn check(&self, plan: &Plan, progress: &Progress) -> Taken {
        let limit = Duration::from_secs(plan.options.gate_seconds);
        for (index, node) in plan.nodes.iter().enumerate() {
            self.wait(&format!("{} to be good", node.name), limit, || async move {
                let vms = Vms::of(node, self.vms().await?, progress.made(index))?;
                let facts = self.nodes.facts(node.address).await?;
                let image = &plan.target.image;
                let other = vms.others.iter().find(|vm| Some(vm.uuid()) == facts.holder);
                match (&vms.new, other) {
                    (_, Some(_)) if facts.image.build == image.build && facts.ready && facts.good.is_some() => Ok(()),
                    (_, Some(other)) => {
                        let words = format!("it runs {} in {other} and is not good there", facts.image.build());
                        Err(Wait::again(NODE_NOT_READY, words))
                    }
                    (Some(new), None) => {
                        missing(&facts, node, new, image, plan.members.len()).map_or(Ok(()), |lacks| Err(lacks.into()))
                    }
                    (None, None) => Err(Wait::again(reason::VM_GONE, format!("the VM {} is gone", node.new_name))),
                }
            })
            .await?;
        }
        Ok(format!("all {} good on {}", plan.nodes.len(), plan.target.image))
    }
}

/// A node that is not well.
struct Ill {
    words: String,
    is_silent: bool,
}

/// All other nodes that no step has taken away.
fn not_away<'p>(
    plan: &'p Plan,
    node: &'p PlannedNode,
    progress: &'p Progress,
) -> impl Iterator<Item = (&'p str, std::net::Ipv4Addr)> {
    let away = |name: &str| plan.nodes.iter().position(|node| node.name == name).is_some_and(|at| progress.is_away(at));
    let others = plan.members.iter().filter(move |member| member.name != node.name && !away(&member.name));
    others.map(|member| (&*member.name, member.address))
}

/// What a node lacks to be good in this VM, on this image; none if nothing. `members` is how many control nodes there
/// are.
pub(super) fn missing(facts: &Node, node: &PlannedNode, vm: &Vm, image: &Image, members: usize) -> Option<Reason> {
    let differs = |words: String| Some(Reason::new(reason::NODE_DIFFERS, words));
    let lacks = |code: &str, words: &str| Some(Reason::new(code, words));
    if facts.image.build != image.build {
        return differs(format!("it runs {}", facts.image.build()));
    }
    if facts.holder != Some(vm.uuid()) {
        let holder = facts.holder.map_or_else(|| "nobody".to_owned(), |holder| holder.to_string());
        return differs(format!("{holder} holds its disk, not {}", vm.uuid()));
    }
    if facts.disk != node.identity {
        return differs("it has another data disk than before".to_owned());
    }
    let Some(etcd) = &facts.etcd else { return lacks(MEMBER_UNHEALTHY, "its etcd does not answer") };
    if etcd.member != node.member {
        return differs(format!("it is etcd's member {}, before it was {}", etcd.member, node.member));
    }
    if let Some(wrong) = members_wrong(etcd, members).into_iter().next() {
        return lacks(MEMBER_UNHEALTHY, &wrong);
    }
    if !facts.ready {
        return lacks(NODE_NOT_READY, "it is not ready");
    }
    if facts.good.is_none() {
        return lacks(NODE_NOT_READY, "it was not found good yet");
    }
    // An image that does not tell of its pods is taken at its word.
    let cordoned = facts.pods.as_ref().map_or(Some(false), |pods| pods.cordoned);
    match cordoned {
        _ if node.cordoned => None,
        Some(false) => None,
        Some(true) => lacks(NODE_NOT_READY, "it is cordoned, and takes no pods yet"),
        None => lacks(NODE_NOT_READY, "it cannot say whether it takes pods"),
    }
}
