//! What nodes are asked for: to prepare, to withdraw, to be good, to commit.

use std::time::Duration;

use anyhow::{anyhow, bail};
use contract::node::Node;
use contract::swap::{self, Image, Stage};
use tokio::time::Instant;

use super::{Taken, Vms, missing};
use crate::hypervisor::{DiskRef, Error, PowerState, Vm};
use crate::upgrade::judge::members_wrong;
use crate::upgrade::nodes::Asked;
use crate::upgrade::notice::Notice;
use crate::upgrade::plan::{Action, Mode, Plan, PlannedNode, Step};
use crate::upgrade::progress::Progress;
use crate::upgrade::run::{Run, Trouble};

/// How long a node may take beyond the drain to prepare itself.
const PREPARING: Duration = Duration::from_secs(180);
/// How long a node that answers may take for what is done in a moment.
const MOMENT: Duration = Duration::from_secs(120);
/// So many looks a refusal may stand before it is taken for the last word.
const LOOKS_TO_SETTLE: u32 = 60;
/// So many looks in a row must find a node ill before it is taken for ill.
const LOOKS_TO_BELIEVE: u32 = 10;

impl Run<'_> {
    pub(super) async fn prepare(&self, plan: &Plan, node: &PlannedNode, old: &Vm) -> Taken {
        if old.power != PowerState::On {
            return Err(anyhow!("{old} is {}", old.power).into());
        }
        let request = swap::Request {
            id: node.swap,
            to: plan.target.image.clone(),
            drain_seconds: plan.options.drain_seconds,
            downgrade: plan.options.downgrade,
            publisher: plan.options.publisher.clone().filter(|key| Some(key) != node.pinned.as_ref()),
        };
        let limit = PREPARING + Duration::from_secs(plan.options.drain_seconds);
        // What stands against it just after another node's swap may be gone in a moment.
        let patience = Instant::now() + self.pace * LOOKS_TO_SETTLE;
        let mut begun = false;
        let prepared = self
            .wait(&format!("{} to be prepared", node.name), limit, async || {
                let swap = if begun { self.nodes.facts(node.address).await?.swap } else { None };
                match swap.filter(|swap| swap.id == node.swap) {
                    // Asked again, it would begin anew.
                    Some(swap) if swap.stage == Stage::Failed => {
                        return Ok(Err(anyhow!("{} gave up: {}", node.name, swap.error.unwrap_or_default())));
                    }
                    Some(swap) if swap.stage != Stage::Prepared => bail!("{}", stage(swap.stage)),
                    _ => {}
                }
                match self.nodes.begin_swap(node.address, &request).await? {
                    Asked::Done => Ok(Ok(())),
                    Asked::Begun => {
                        begun = true;
                        bail!("begun")
                    }
                    Asked::Refused(why) if Instant::now() < patience => bail!("it refuses: {why}"),
                    Asked::Refused(why) => Ok(Err(anyhow!("{} refuses: {why}", node.name))),
                    Asked::Unknown => Ok(Err(anyhow!("the image of {} does not know of swaps", node.name))),
                }
            })
            .await?;
        prepared?;
        Ok("drained, no leader, without the virtual IP; it may be shut down".to_owned())
    }

    /// Shuts the old VM down. What was judged when the plan was made is hours old: right before, the node must still
    /// be prepared and everybody else well.
    pub(super) async fn shut_down_old(&self, plan: &Plan, node: &PlannedNode, old: &Vm, progress: &Progress) -> Taken {
        // All at once: before the first one, all must be well; then they are to be off.
        let first = (0..plan.nodes.len()).all(|node| !progress.is_done(Step::of(Action::ShutDown, node)));
        if plan.options.mode == Mode::AllAtOnce && first && old.power == PowerState::On {
            self.wait("all nodes to be well", MOMENT, async || self.others_are_well(plan, node).await).await?;
        }
        if old.power == PowerState::On && plan.options.mode == Mode::Rolling {
            let off = self
                .wait(&format!("{} to be prepared and the others to be well", node.name), MOMENT, async || {
                    // An interrupted command may have asked it to shut down.
                    if self.again(old).await.is_ok_and(|vm| vm.power == PowerState::Off) {
                        return Ok(true);
                    }
                    let facts = self.nodes.facts(node.address).await?;
                    match facts.swap {
                        Some(swap) if swap.id == node.swap && swap.stage == Stage::Prepared => {}
                        _ => bail!("{} is not prepared any more", node.name),
                    }
                    self.others_are_well(plan, node).await?;
                    Ok(false)
                })
                .await;
            match off {
                Ok(true) => return Ok(format!("{} is off", old.name)),
                Ok(false) => {}
                // It is prepared again, and all is looked at anew.
                Err(Trouble::Pause(error)) => {
                    self.prepare(plan, node, old).await?;
                    return Err(Trouble::Pause(error));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        self.stop(node, old).await
    }

    /// Fails unless every other control node is good and sees all members of etcd well. An unknown answer is not a
    /// good one.
    async fn others_are_well(&self, plan: &Plan, node: &PlannedNode) -> anyhow::Result<()> {
        for member in plan.members.iter().filter(|member| member.name != node.name) {
            let name = &member.name;
            let facts = self.nodes.facts(member.address).await.map_err(|error| error.context(name.clone()))?;
            if !facts.ready || facts.good.is_none() {
                bail!("{name} is not good");
            }
            let Some(etcd) = &facts.etcd else { bail!("etcd of {name} does not answer") };
            if let Some(wrong) = members_wrong(etcd, plan.members.len()).into_iter().next() {
                bail!("{wrong}, seen from {name}");
            }
        }
        Ok(())
    }

    pub(super) async fn cancel(&self, node: &PlannedNode, old: &Vm) -> Taken {
        if old.power == PowerState::Off {
            self.power_on(node, old, None).await?;
        }
        let asked = self
            .wait(&format!("{} to withdraw its swap", node.name), MOMENT, async || {
                match self.nodes.cancel_swap(node.address, node.swap).await? {
                    Asked::Begun => bail!("it is at it"),
                    asked => Ok(asked),
                }
            })
            .await?;
        match asked {
            Asked::Refused(why) => Err(anyhow!("{} refuses: {why}", node.name).into()),
            _ => Ok("withdrawn".to_owned()),
        }
    }

    /// Lets a new VM that runs well hand everything over before it is stopped. One that does not is stopped as it is:
    /// waiting would help nobody.
    pub(super) async fn evacuate(&self, plan: &Plan, node: &PlannedNode, new: Option<&Vm>) -> Taken {
        let Some(new) = new.filter(|new| new.power == PowerState::On) else {
            return Ok("the new VM does not run".to_owned());
        };
        let mut looks = 0;
        let well = self
            .wait(&format!("{} to be well", node.name), MOMENT, async || {
                looks += 1;
                let lacks = match self.nodes.facts(node.address).await {
                    // Begun before, it is cordoned already.
                    Ok(Node { evacuation: Some(evacuation), .. }) if evacuation.id == node.swap => None,
                    Ok(facts) => missing(&facts, node, new, &plan.target.image, plan.members.len()),
                    Err(error) => Some(format!("it does not answer: {error:#}")),
                };
                match lacks {
                    Some(lacks) if looks < LOOKS_TO_BELIEVE => bail!("{lacks}"),
                    lacks => Ok(lacks),
                }
            })
            .await?;
        if let Some(lacks) = well {
            return Ok(format!("not possible, for it does not do its part: {lacks}"));
        }
        let request = swap::EvacuationRequest { id: node.swap, drain_seconds: plan.options.drain_seconds };
        let limit = PREPARING + Duration::from_secs(plan.options.drain_seconds);
        let mut begun = false;
        let evacuated = self
            .wait(&format!("{} to hand everything over", node.name), limit, async || {
                let evacuation = if begun { self.nodes.facts(node.address).await?.evacuation } else { None };
                match evacuation.filter(|evacuation| evacuation.id == node.swap) {
                    // Asked again, it would begin anew.
                    Some(failed) if failed.stage == Stage::Failed => {
                        return Ok(Err(anyhow!("{}: {failed}", node.name)));
                    }
                    Some(going) if going.stage != Stage::Prepared => bail!("{}", stage(going.stage)),
                    _ => {}
                }
                match self.nodes.evacuate(node.address, &request).await? {
                    Asked::Done => Ok(Ok("drained, no leader, without the virtual IP".to_owned())),
                    Asked::Begun => {
                        begun = true;
                        bail!("begun")
                    }
                    Asked::Unknown => {
                        Ok(Ok("its image does not know how; pods and leader move when it stops".to_owned()))
                    }
                    Asked::Refused(why) => bail!("it refuses: {why}"),
                }
            })
            .await?;
        Ok(evacuated?)
    }

    /// Stops a VM on the way back. One that does its part well is not stopped while another node does not: etcd
    /// would lose its quorum. One that is ill is stopped at once.
    pub(super) async fn stop_member(&self, plan: &Plan, node: &PlannedNode, vm: &Vm) -> Taken {
        if plan.options.mode == Mode::Rolling && vm.power == PowerState::On {
            let limit = Duration::from_secs(plan.options.gate_seconds);
            let mut looks = 0;
            self.wait("the other members of etcd", limit, async || {
                looks += 1;
                // One answer that did not come is no proof that it is ill.
                let facts = self.nodes.facts(node.address).await.ok();
                let well = facts.as_ref().filter(|facts| facts.good.is_some()).and_then(|facts| facts.etcd.as_ref());
                let etcd = match well {
                    Some(etcd) => etcd,
                    None if looks < LOOKS_TO_BELIEVE => bail!("{} is not well itself", node.name),
                    None => return Ok(()),
                };
                match members_wrong(etcd, plan.members.len()).into_iter().next() {
                    Some(wrong) => bail!("{wrong}, and {} must not leave before it is mended", node.name),
                    None => Ok(()),
                }
            })
            .await?;
        }
        self.stop(node, vm).await
    }

    /// The gate on the way forward: a node that does not pass it goes back.
    pub(super) async fn gate_new(&self, plan: &Plan, node: &PlannedNode, new: &Vm) -> Taken {
        match self.gate(plan, node, new, &plan.target.image).await {
            Err(Trouble::Pause(error)) if self.somebody_answers(plan).await => Err(Trouble::Unfit(error)),
            Err(Trouble::Pause(error)) => {
                Err(Trouble::Pause(error.context("no control node can be reached from here")))
            }
            taken => taken,
        }
    }

    /// Whether it is the node that does not answer, and not everybody: the way to them may be cut. Where all nodes are
    /// swapped at once, or there is one only, nobody can tell.
    async fn somebody_answers(&self, plan: &Plan) -> bool {
        if plan.options.mode == Mode::AllAtOnce || plan.members.len() == 1 {
            return true;
        }
        for member in &plan.members {
            if self.nodes.facts(member.address).await.is_ok() {
                return true;
            }
        }
        false
    }

    pub(super) async fn gate(&self, plan: &Plan, node: &PlannedNode, vm: &Vm, image: &Image) -> Taken {
        let limit = Duration::from_secs(plan.options.gate_seconds);
        let facts = self
            .wait(&format!("{} to be found good", node.name), limit, async || {
                let facts = self.nodes.facts(node.address).await?;
                let missing = missing(&facts, node, vm, image, plan.members.len());
                missing.map_or(Ok(facts), |missing| Err(anyhow!("{missing}")))
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
            self.wait(&format!("{} to be good", node.name), limit, async || {
                let vms = Vms::of(node, self.vms().await?, progress.made(index))?;
                let facts = self.nodes.facts(node.address).await?;
                let image = &plan.target.image;
                let other = vms.others.iter().find(|vm| Some(vm.uuid()) == facts.holder);
                match (&vms.new, other) {
                    (_, Some(_)) if facts.image.build == image.build && facts.ready && facts.good.is_some() => Ok(()),
                    (_, Some(other)) => bail!("it runs {} in {other} and is not good there", facts.image.build()),
                    (Some(new), None) => match missing(&facts, node, new, image, plan.members.len()) {
                        Some(missing) => bail!("{missing}"),
                        None => Ok(()),
                    },
                    (None, None) => bail!("the VM {} is gone", node.new_name),
                }
            })
            .await?;
        }
        Ok(format!("all {} good on {}", plan.nodes.len(), plan.target.image))
    }

    pub(super) async fn commit(&self, node: &PlannedNode) -> Taken {
        self.wait(&format!("{} to commit", node.name), MOMENT, async || {
            match self.nodes.commit(node.address).await? {
                Asked::Done => Ok(()),
                Asked::Begun => bail!("it is at it"),
                Asked::Refused(why) => bail!("it refuses: {why}"),
                Asked::Unknown => bail!("its image does not know of swaps"),
            }
        })
        .await?;
        Ok("final: its old VM can no longer take the disk".to_owned())
    }

    /// Leaves a node as it is: on the new image its swap is made final, so that the next upgrade finds none open.
    /// What cannot be done is said, not waited for: this is the way out.
    pub(super) async fn keep(&self, plan: &Plan, node: &PlannedNode, vms: Result<Vms, Error>, disk: &DiskRef) -> Taken {
        let left = match vms {
            Ok(vms) => leftovers(&vms, disk),
            Err(error) => format!("look at its VMs: {error}"),
        };
        let facts = match self.nodes.facts(node.address).await {
            Ok(facts) => facts,
            Err(error) => return Ok(format!("it does not answer and stays as it is: {error:#}; {left}")),
        };
        let runs = facts.image.build();
        if facts.swap.as_ref().is_some_and(|swap| swap.id == node.swap && swap.stage != Stage::Taken) {
            let withdrawn = withdrawn("its swap", self.nodes.cancel_swap(node.address, node.swap).await);
            return Ok(format!("it runs {runs} and stays as it is; {withdrawn}; {left}"));
        }
        // The way back may have begun to move its work away.
        if facts.evacuation.as_ref().is_some_and(|evacuation| evacuation.id == node.swap) {
            let asked = self.nodes.cancel_evacuation(node.address, node.swap).await;
            (self.watch)(&Notice::Done { note: &format!("{}: {}", node.name, withdrawn("its evacuation", asked)) });
        }
        if facts.image.build != plan.target.image.build || facts.good.is_none() {
            return Ok(format!("it runs {runs} and stays as it is; {left}"));
        }
        let committed = match self.nodes.commit(node.address).await {
            Ok(Asked::Done) => "its swap is final".to_owned(),
            Ok(Asked::Refused(why)) => format!("its swap stays open: {why}"),
            Ok(Asked::Begun | Asked::Unknown) => "its swap stays open".to_owned(),
            Err(error) => format!("its swap stays open: {error:#}"),
        };
        Ok(format!("it runs {runs}; {committed}; {left}"))
    }
}

/// How a request to withdraw something has ended, in words.
fn withdrawn(what: &str, asked: anyhow::Result<Asked>) -> String {
    match asked {
        Ok(Asked::Done | Asked::Begun) => format!("{what} is withdrawn"),
        Ok(Asked::Refused(why)) => format!("{what} stays open: {why}"),
        Ok(Asked::Unknown) => format!("{what} stays open: its image does not know how to withdraw it"),
        Err(error) => format!("{what} stays open: {error:#}"),
    }
}

/// The VMs of a node that do not run, for a person to remove.
fn leftovers(vms: &Vms, disk: &DiskRef) -> String {
    let all = vms.old.iter().chain(&vms.new).chain(&vms.left).chain(&vms.others);
    let idle: Vec<String> = all.filter(|vm| vm.power != PowerState::On).map(Vm::to_string).collect();
    let mut left =
        if idle.is_empty() { "no other VM of it is left".to_owned() } else { format!("left: {}", idle.join(", ")) };
    let mut all = vms.old.iter().chain(&vms.new).chain(&vms.left).chain(&vms.others);
    if all.all(|vm| vm.disk(disk.uuid).is_none()) {
        left += &format!("; no VM holds its disk {} at {}", disk.uuid, disk.path);
    }
    left
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Judging => "it judges whether it may leave",
        Stage::Yielding => "it hands the virtual IP over",
        Stage::MovingLeader => "it hands the lead of etcd over",
        Stage::Draining => "pods move away",
        Stage::Prepared => "prepared",
        Stage::Failed => "it gave up",
        Stage::Taken => "another VM has its disk",
    }
}
