//! Requests to nodes around their stop: to be healthy, to withdraw, to commit.

use std::time::Duration;

use contract::swap::Stage;

use super::failure_threshold::FailureThreshold;
use super::reach::Says;
use super::vm::no_rival;
use super::{Taken, Vms};
use crate::cancel::unless_cancelled;
use crate::engine::Reason;
use crate::hypervisor::{PowerState, Vm};
use crate::upgrade::context::{MOMENT, StepContext};
use crate::upgrade::inventory::disk_refusals;
use crate::upgrade::judge::members_wrong;
use crate::upgrade::nodes::{Asked, NodeRequest, Nodes as _};
use crate::upgrade::order::Order;
use crate::upgrade::plan::{Action, Mode, Plan, PlannedNode, Step};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason::{self, DISK_HELD, VM_GONE, VM_STATE, VM_UNASKABLE};
use crate::upgrade::refusal::{MEMBER_UNHEALTHY, NODE_NOT_READY, VM_BESIDE, VM_SNAPSHOT, VM_TASK};
use crate::upgrade::step_error::{Obstacle, StepError, Wait};

/// Obstacles to a shutdown that are a VM's own.
const IN_THE_VM: [&str; 7] = [VM_GONE, VM_TASK, VM_SNAPSHOT, VM_STATE, VM_UNASKABLE, DISK_HELD, VM_BESIDE];

impl StepContext<'_> {
    /// Shuts the old VM down. All at once, an obstacle does not leave the others off: when it lasts, all go back.
    pub(super) async fn shut_down_old(&self, plan: &Plan, node: &PlannedNode, vms: &Vms, progress: &Progress) -> Taken {
        match self.shut_down_if_well(plan, node, vms, progress).await {
            Err(StepError::Cannot(Obstacle { reason, .. }))
                if plan.options.mode == Mode::AllAtOnce && IN_THE_VM.contains(&&*reason.code) =>
            {
                Err(StepError::pause(&reason.code, reason.words))
            }
            taken => taken,
        }
    }

    /// The plan's judgement is hours old: right before, the node must still be prepared and all others healthy.
    async fn shut_down_if_well(&self, plan: &Plan, node: &PlannedNode, vms: &Vms, progress: &Progress) -> Taken {
        let old = vms.old_vm()?;
        if old.power == PowerState::On {
            unburdened(old, node)?;
            vms.others.iter().try_for_each(|other| no_rival(node, other))?;
            self.may_give_its_disk(old).await?;
        }
        // All at once: before the first one, all must be healthy; then they are to be off.
        let first = (0..plan.nodes.len()).all(|node| !progress.is_done(Step::of(Action::ShutDown, node)));
        if plan.options.mode == Mode::AllAtOnce && first && old.power == PowerState::On {
            let all = self.vms().await?;
            for planned in &plan.nodes {
                for vm in all.iter().filter(|vm| vm.uuid() == planned.old) {
                    unburdened(vm, planned)?;
                    self.may_give_its_disk(vm).await?;
                }
            }
            self.wait("all nodes to be healthy", MOMENT, || self.others_are_well(plan, node)).await?;
        }
        if old.power == PowerState::On && plan.options.mode == Mode::Rolling {
            let off = self
                .wait(&format!("{} to be prepared and the others to be healthy", node.name), MOMENT, || async {
                    // An interrupted command may have asked it to shut down.
                    if self.current(old).await.is_ok_and(|vm| vm.power == PowerState::Off) {
                        return Ok(true);
                    }
                    let facts = self.nodes.facts(node.address).await?;
                    match facts.swap {
                        Some(swap) if swap.id == node.swap && swap.stage == Stage::Prepared => {}
                        _ => {
                            let words = format!("{} is no longer prepared", node.name);
                            return Err(Wait::not_yet(reason::WAITING, words));
                        }
                    }
                    self.others_are_well(plan, node).await?;
                    Ok(false)
                })
                .await;
            match off {
                Ok(true) => return Ok(format!("{} is off", old.name)),
                Ok(false) => {}
                // It is prepared again, and all is looked at again.
                Err(trouble @ StepError::Cannot(_)) => {
                    self.prepare(plan, node, old).await?;
                    return Err(trouble);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        self.stop(plan, node, old, progress).await
    }

    /// Fails while another VM could not be given the data disk of this one, or holds it or a copy of it. Once this VM
    /// is off, its node waits for that.
    async fn may_give_its_disk(&self, vm: &Vm) -> Result<(), StepError> {
        let refusals = unless_cancelled(&self.cancelled, disk_refusals(&*self.hypervisor, vm)).await?;
        match refusals.into_iter().next().transpose()? {
            Some((code, words)) => Err(StepError::elsewhere(code, words)),
            None => Ok(()),
        }
    }

    /// Fails unless every other control-plane node is healthy and sees all members of etcd healthy. An unknown answer
    /// counts as unhealthy.
    async fn others_are_well(&self, plan: &Plan, node: &PlannedNode) -> Result<(), Wait> {
        for member in plan.members.iter().filter(|member| member.name != node.name) {
            let name = &member.name;
            let facts = self.nodes.facts(member.address).await.map_err(|error| error.context(name.clone()))?;
            if !facts.ready || facts.healthy.is_none() {
                return Err(Wait::not_yet(NODE_NOT_READY, format!("{name} is not good")));
            }
            let wrong = match &facts.etcd {
                Some(etcd) => members_wrong(etcd, plan.members.len()).into_iter().next(),
                None => return Err(Wait::not_yet(MEMBER_UNHEALTHY, format!("etcd of {name} does not answer"))),
            };
            if let Some(wrong) = wrong {
                return Err(Wait::not_yet(MEMBER_UNHEALTHY, format!("{wrong}, seen from {name}")));
            }
        }
        Ok(())
    }

    /// Lets the old VM withdraw its swap; it is powered on first if it is off.
    pub(super) async fn cancel(&self, node: &PlannedNode, vms: &Vms) -> Taken {
        self.back_on(node, vms).await?;
        self.withdraw(node).await
    }

    /// Lets a node withdraw its swap, for which it needs etcd and the API.
    async fn withdraw(&self, node: &PlannedNode) -> Taken {
        let asked = self
            .wait(&format!("{} to withdraw its swap", node.name), MOMENT, || async {
                match self.nodes.request(node.address, NodeRequest::CancelSwap(node.swap)).await? {
                    Asked::Begun => Err(Wait::not_yet(reason::WAITING, "it is at it")),
                    asked => Ok(asked),
                }
            })
            .await?;
        match asked {
            Asked::Refused(why) => Err(Reason::from(why).of(format!("{} refuses", node.name)).into()),
            _ => Ok("withdrawn".to_owned()),
        }
    }

    /// Powers the old VM on if it is off, though the rollback has not stopped it. A guest that was asked to shut down
    /// may do so late.
    async fn back_on(&self, node: &PlannedNode, vms: &Vms) -> Result<(), StepError> {
        let old = vms.old_vm()?;
        if old.power == PowerState::Off {
            if let Some(new) = vms.new.as_ref().filter(|new| new.power == PowerState::Off) {
                self.fence(new).await?;
            }
            self.power_on(node, old).await?;
        }
        Ok(())
    }

    /// The gate of a rollback. An old VM that was prepared and never stopped withdraws its swap before: the others are
    /// back on, and etcd can note it.
    pub(super) async fn gate_old(&self, plan: &Plan, index: usize, vms: &Vms, progress: &Progress) -> Taken {
        let node = &plan.nodes[index];
        self.back_on(node, vms).await?;
        let is_begun = |action| progress.is_begun(Step::of(action, index));
        if is_begun(Action::Prepare) && is_begun(Action::ShutDown) && !is_begun(Action::Fence) {
            self.withdraw(node).await?;
        }
        self.gate_back(plan, node, vms.old_vm()?, progress).await
    }

    /// Makes sure that the old VM is off, unless nothing was done to it yet. While it runs the node and says so, it is
    /// left on, its swap prepared until the gate.
    pub(super) async fn stop_old(&self, plan: &Plan, index: usize, vms: &Vms, progress: &Progress) -> Taken {
        let (node, old) = (&plan.nodes[index], vms.old_vm()?);
        let is_begun = |action| progress.is_begun(Step::of(action, index));
        let holds = old.power == PowerState::On && old.disk(node.disk.uuid).is_some() && !is_begun(Action::Fence);
        let answers = async || self.nodes.facts(node.address).await.is_ok_and(|facts| facts.runs_in(old.uuid()));
        if holds && answers().await {
            return Ok(format!("{} runs with its disk and stays on", old.name));
        }
        self.stop_member(plan, node, old, progress).await
    }

    /// Makes sure that the new VM is off.
    pub(super) async fn stop_new(&self, plan: &Plan, node: &PlannedNode, new: &Vm, progress: &Progress) -> Taken {
        if new.power == PowerState::On {
            unburdened(new, node)?;
            if progress.is_at_once(plan) && !progress.has_stopped_new(plan) {
                self.all_may_stop(plan, progress).await?;
            }
        }
        self.stop_member(plan, node, new, progress).await
    }

    /// Before the first of the nodes that go back at once is stopped while etcd has a quorum. No obstacle may exist for
    /// any of them, for it would leave the others off. They no longer go back at once for want of a quorum.
    async fn all_may_stop(&self, plan: &Plan, progress: &Progress) -> Result<(), StepError> {
        let Some(witness) = self.who_has_etcd(plan).await else { return Ok(()) };
        if progress.order == Order::WithoutQuorum {
            let words = format!("etcd has a quorum again, {witness} says: the nodes need not go back all at once");
            return Err(StepError::pause(reason::QUORUM, words));
        }
        let all = self.vms().await?;
        for (_, node) in plan.nodes.iter().enumerate().filter(|(index, _)| !progress.left_out.contains(index)) {
            let holds = |vm: &&Vm| vm.power == PowerState::On && vm.disk(node.disk.uuid).is_some();
            all.iter().filter(holds).try_for_each(|vm| unburdened(vm, node))?;
        }
        Ok(())
    }

    /// A control-plane node whose etcd answers, which it does with a quorum.
    async fn who_has_etcd<'p>(&self, plan: &'p Plan) -> Option<&'p str> {
        for member in &plan.members {
            if self.nodes.facts(member.address).await.is_ok_and(|facts| facts.etcd.is_some()) {
                return Some(&member.name);
            }
        }
        None
    }

    /// Stops a VM in a rollback. A healthy one is not stopped while another node is unhealthy: etcd would lose its
    /// quorum. An unhealthy one is stopped if etcd has a quorum without it.
    pub(super) async fn stop_member(&self, plan: &Plan, node: &PlannedNode, vm: &Vm, progress: &Progress) -> Taken {
        if !progress.is_at_once(plan) && vm.power == PowerState::On {
            // However short the gate's limit is: a node counts as unhealthy after some looks only.
            let limit = Duration::from_secs(plan.options.gate_seconds).max(MOMENT);
            let belief = FailureThreshold::at(self.pace);
            self.wait("the other members of etcd", limit, || async {
                let (facts, says) = match self.nodes.facts(node.address).await {
                    Ok(facts) => (Some(facts), Says::Facts),
                    Err(error) => (None, Says::of(&error)),
                };
                let good = facts.as_ref().is_some_and(|facts| facts.healthy.is_some() && facts.etcd.is_some());
                let etcd = facts.and_then(|facts| facts.etcd);
                let why = match etcd.and_then(|etcd| members_wrong(&etcd, plan.members.len()).into_iter().next()) {
                    Some(wrong) => {
                        let words = format!("{wrong}, and {} must not leave before it is repaired", node.name);
                        Reason::new(MEMBER_UNHEALTHY, words)
                    }
                    None if good => return Ok(()),
                    None => Reason::new(NODE_NOT_READY, format!("{} is not healthy itself", node.name)),
                };
                if !belief.look(!good) {
                    return Err(why.into());
                }
                self.may_be_stopped(plan, node, says, progress).await
            })
            .await?;
        }
        self.stop(plan, node, vm, progress).await
    }

    pub(super) async fn commit(&self, node: &PlannedNode) -> Taken {
        self.wait(&format!("{} to commit", node.name), MOMENT, || async {
            // Without a prepared swap the node itself has given it its name. One that has none open is done with it.
            let Some(swap) = self.nodes.facts(node.address).await?.swap.map(|swap| swap.id) else { return Ok(()) };
            match self.nodes.request(node.address, NodeRequest::Commit(swap)).await? {
                Asked::Done => Ok(()),
                Asked::Begun => Err(Wait::not_yet(reason::WAITING, "it is at it")),
                Asked::Refused(why) => Err(Reason::from(why).of("it refuses").into()),
                Asked::Unknown => Err(Wait::not_yet(reason::NODE_IMAGE, "its image does not know of swaps")),
            }
        })
        .await?;
        Ok("final: its old VM can no longer take the disk".to_owned())
    }
}

/// Fails while a VM that is to give its disk away has snapshots or running tasks, such as a backup. Once it is off, its
/// node waits for that.
fn unburdened(vm: &Vm, node: &PlannedNode) -> Result<(), StepError> {
    if !vm.tasks.is_empty() {
        let words = format!("{vm} is being worked on: {}", vm.tasks.join(", "));
        return Err(StepError::elsewhere(VM_TASK, words));
    }
    let in_snapshot = vm.disk(node.disk.uuid).is_some_and(|disk| disk.parent.is_some());
    if in_snapshot || !vm.snapshots.is_empty() {
        let words = format!("{vm} has snapshots ({}): its disk could not be detached", vm.snapshots.join(", "));
        return Err(StepError::elsewhere(VM_SNAPSHOT, words));
    }
    Ok(())
}
