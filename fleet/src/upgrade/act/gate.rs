//! Whether a node is healthy: the gate in each direction, and the look before the commit. A node that lacks something
//! may be at fault itself, or another node is.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contract::node::{Member, Node};
use contract::swap::Image;
use uuid::Uuid;

use super::failure_attribution::{FailureAttribution, Health};
use super::{Taken, Vms};
use crate::engine::Reason;
use crate::hypervisor::{Error, PowerState, Vm, named_twice, uuids_of};
use crate::upgrade::context::StepContext;
use crate::upgrade::judge::members_wrong;
use crate::upgrade::moved::may_be_its;
use crate::upgrade::nodes::Nodes as _;
use crate::upgrade::plan::{Plan, PlannedNode};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason::{self, NODE_DIFFERS};
use crate::upgrade::refusal::{MEMBER_UNHEALTHY, NODE_NOT_READY, NODE_SILENT};
use crate::upgrade::step_error::Wait;

impl StepContext<'_> {
    /// The gate on the way forward: a node that does not pass it goes back, unless another node is at fault. That time
    /// does not count, up to as much again.
    pub(super) async fn gate_new(&self, plan: &Plan, node: &PlannedNode, new: &Vm, progress: &Progress) -> Taken {
        let (image, limit) = (&plan.target.image, Duration::from_secs(plan.options.gate_seconds));
        let blame = &Mutex::new(FailureAttribution::new(limit, self.most_of_a_look(), self.pace));
        let what = &format!("{} to be healthy", node.name);
        let facts = self
            .wait(what, Duration::MAX, || async move {
                let lacks = match self.nodes.facts(node.address).await {
                    Ok(facts) => match missing(&facts, node, new, image, plan.members.len()) {
                        Some(lacks) => lacks,
                        None => return Ok(facts),
                    },
                    Err(error) => Reason::new(NODE_SILENT, format!("{error:#}")),
                };
                let others = self.look_at_others(plan, node, progress).await;
                Err(blame.lock().unwrap_or_else(PoisonError::into_inner).judge(what, lacks, others))
            })
            .await?;
        Ok(good(node, image, &facts))
    }

    /// The health of the other nodes, which should be healthy all the time.
    async fn look_at_others(&self, plan: &Plan, node: &PlannedNode, progress: &Progress) -> Vec<(String, Health)> {
        let mut seen = Vec::new();
        for (name, address) in others(plan, node) {
            if plan.nodes.iter().position(|node| node.name == name).is_some_and(|at| progress.is_away(at)) {
                continue;
            }
            seen.push((name.to_owned(), Health::of(self.nodes.facts(address).await)));
        }
        seen
    }

    /// The gate of a rollback. It waits for no node that the rollback leaves out.
    pub(super) async fn gate_back(&self, plan: &Plan, node: &PlannedNode, old: &Vm, progress: &Progress) -> Taken {
        let limit = Duration::from_secs(plan.options.gate_seconds);
        let members = plan.members.len() - progress.left_out.len();
        let facts = self
            .wait(&format!("{} to be healthy", node.name), limit, || async {
                let mut facts = self.nodes.facts(node.address).await?;
                if let Some(etcd) = &mut facts.etcd {
                    etcd.members.retain(|member| !is_left_out(member, plan, progress));
                }
                match missing(&facts, node, old, &node.from, members) {
                    Some(missing) => Err(Wait::NotYet(missing)),
                    None => Ok(facts),
                }
            })
            .await?;
        Ok(good(node, &node.from, &facts))
    }

    /// Whether all nodes are healthy on the new image. Each is in the VM that was made for it, or in one that an
    /// operator has made for a lost node.
    pub(in crate::upgrade) async fn check(&self, plan: &Plan, progress: &Progress) -> Taken {
        let limit = Duration::from_secs(plan.options.gate_seconds);
        for (index, node) in plan.nodes.iter().enumerate() {
            self.wait(&format!("{} to be good", node.name), limit, || async move {
                let facts = self.nodes.facts(node.address).await?;
                let made = progress.noted(index);
                let uuids = made.into_iter().chain(facts.holder.into_iter().flat_map(uuids_of));
                let vms = self.with_one_of(plan, node, uuids.collect()).await?;
                if let Some(twice) = named_twice(&vms, facts.holder) {
                    return Err(Wait::not_yet(NODE_DIFFERS, twice));
                }
                let vms = Vms::of(node, vms, made)?;
                let image = &plan.target.image;
                let other = vms.others.iter().find(|vm| vm.is_named(facts.holder));
                match (&vms.new, other) {
                    (_, Some(_)) if facts.image.build == image.build && facts.ready && facts.healthy.is_some() => {
                        Ok(())
                    }
                    (_, Some(other)) => {
                        let words = format!("it runs {} in {other} and is not good there", facts.image.build());
                        Err(Wait::not_yet(NODE_NOT_READY, words))
                    }
                    (Some(new), None) => {
                        missing(&facts, node, new, image, plan.members.len()).map_or(Ok(()), |lacks| Err(lacks.into()))
                    }
                    (None, None) => Err(Wait::not_yet(reason::VM_GONE, format!("the VM {} is gone", node.new_name))),
                }
            })
            .await?;
        }
        Ok(format!("all {} are healthy on {}", plan.nodes.len(), plan.target.image))
    }

    /// The deployment's VMs with one of these BIOS UUIDs, but for replicas of one of them that is on.
    async fn with_one_of(&self, plan: &Plan, node: &PlannedNode, uuids: BTreeSet<Uuid>) -> Result<Vec<Vm>, Error> {
        let mut vms = Vec::new();
        for uuid in uuids {
            let found = self.hypervisor.with_bios_uuid(uuid).await;
            let mut found = found.map_err(|error| error.context("looking for a VM by its BIOS UUID"))?;
            found.retain(|vm| vm.is_of(plan.deployment));
            let is_any_on = found.iter().any(|vm| vm.power != PowerState::Off);
            vms.extend(found.into_iter().filter(|vm| !is_any_on || may_be_its(node, vm)));
        }
        Ok(vms)
    }
}

/// Whether a member of etcd is that of a node that the rollback leaves out.
fn is_left_out(member: &Member, plan: &Plan, progress: &Progress) -> bool {
    let mut left_out = progress.left_out.iter().map(|index| &plan.nodes[*index]);
    left_out.any(|node| node.name == member.name || node.member == member.id)
}

/// All other control-plane nodes, by name and address.
pub(super) fn others<'p>(plan: &'p Plan, node: &'p PlannedNode) -> impl Iterator<Item = (&'p str, Ipv4Addr)> {
    let others = plan.members.iter().filter(move |member| member.name != node.name);
    others.map(|member| (&*member.name, member.address))
}

fn good(node: &PlannedNode, image: &Image, facts: &Node) -> String {
    let (member, generation) = (&node.member, facts.generation);
    format!("healthy on {image}: the same member of etcd ({member}), the same disk, holder number {generation}")
}

/// The reason why a node is not healthy in this VM, on this image. `None` if it is. `members` is the number of
/// control-plane nodes.
pub(super) fn missing(facts: &Node, node: &PlannedNode, vm: &Vm, image: &Image, members: usize) -> Option<Reason> {
    let differs = |words: String| Some(Reason::new(reason::NODE_DIFFERS, words));
    let lacks = |code: &str, words: &str| Some(Reason::new(code, words));
    if facts.image.build != image.build {
        return differs(format!("it runs {}", facts.image.build()));
    }
    if !facts.runs_in(vm.uuid()) {
        let holder = facts.holder.map_or_else(|| "no VM".to_owned(), |holder| holder.to_string());
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
    if facts.healthy.is_none() {
        return lacks(NODE_NOT_READY, "it is not healthy yet");
    }
    // An image that does not report its pods is taken at its word.
    let cordoned = facts.pods.as_ref().map_or(Some(false), |pods| pods.cordoned);
    match cordoned {
        _ if node.cordoned => None,
        Some(false) => None,
        Some(true) => lacks(reason::NODE_CORDONED, "it is cordoned, and takes no pods yet"),
        None => lacks(NODE_NOT_READY, "it does not report whether it takes pods"),
    }
}
