//! What nodes are asked for around their stop: to be well, to withdraw, to commit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use contract::swap::Stage;

use super::{LOOKS_TO_BELIEVE, Taken, Vms};
use crate::hypervisor::{DiskRef, PowerState, Vm};
use crate::upgrade::judge::members_wrong;
use crate::upgrade::nodes::{Asked, Nodes as _};
use crate::upgrade::notice::Notice;
use crate::upgrade::plan::{Action, Mode, Plan, PlannedNode, Step};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason::{self, Reason};
use crate::upgrade::refusal::{MEMBER_UNHEALTHY, NODE_NOT_READY};
use crate::upgrade::run::Run;
use crate::upgrade::trouble::{Trouble, Wait};

/// How long a node that answers may take for what is done in a moment.
pub(super) const MOMENT: Duration = Duration::from_secs(120);

impl Run<'_> {
    /// Shuts the old VM down. What was judged when the plan was made is hours old: right before, the node must still
    /// be prepared and everybody else well.
    pub(super) async fn shut_down_old(&self, plan: &Plan, node: &PlannedNode, old: &Vm, progress: &Progress) -> Taken {
        // All at once: before the first one, all must be well; then they are to be off.
        let first = (0..plan.nodes.len()).all(|node| !progress.is_done(Step::of(Action::ShutDown, node)));
        if plan.options.mode == Mode::AllAtOnce && first && old.power == PowerState::On {
            self.wait("all nodes to be well", MOMENT, || self.others_are_well(plan, node)).await?;
        }
        if old.power == PowerState::On && plan.options.mode == Mode::Rolling {
            let off = self
                .wait(&format!("{} to be prepared and the others to be well", node.name), MOMENT, || async {
                    // An interrupted command may have asked it to shut down.
                    if self.again(old).await.is_ok_and(|vm| vm.power == PowerState::Off) {
                        return Ok(true);
                    }
                    let facts = self.nodes.facts(node.address).await?;
                    match facts.swap {
                        Some(swap) if swap.id == node.swap && swap.stage == Stage::Prepared => {}
                        _ => {
                            let words = format!("{} is not prepared any more", node.name);
                            return Err(Wait::again(reason::WAITING, words));
                        }
                    }
                    self.others_are_well(plan, node).await?;
                    Ok(false)
                })
                .await;
            match off {
                Ok(true) => return Ok(format!("{} is off", old.name)),
                Ok(false) => {}
                // It is prepared again, and all is looked at anew.
                Err(trouble @ Trouble::Cannot(_)) => {
                    self.prepare(plan, node, old).await?;
                    return Err(trouble);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        self.stop(node, old).await
    }

    /// Fails unless every other control node is good and sees all members of etcd well. An unknown answer is not a
    /// good one.
    async fn others_are_well(&self, plan: &Plan, node: &PlannedNode) -> Result<(), Wait> {
        for member in plan.members.iter().filter(|member| member.name != node.name) {
            let name = &member.name;
            let facts = self.nodes.facts(member.address).await.map_err(|error| error.context(name.clone()))?;
            if !facts.ready || facts.good.is_none() {
                return Err(Wait::again(NODE_NOT_READY, format!("{name} is not good")));
            }
            let wrong = match &facts.etcd {
                Some(etcd) => members_wrong(etcd, plan.members.len()).into_iter().next(),
                None => return Err(Wait::again(MEMBER_UNHEALTHY, format!("etcd of {name} does not answer"))),
            };
            if let Some(wrong) = wrong {
                return Err(Wait::again(MEMBER_UNHEALTHY, format!("{wrong}, seen from {name}")));
            }
        }
        Ok(())
    }

    pub(super) async fn cancel(&self, node: &PlannedNode, old: &Vm) -> Taken {
        if old.power == PowerState::Off {
            self.power_on(node, old, None).await?;
        }
        let asked = self
            .wait(&format!("{} to withdraw its swap", node.name), MOMENT, || async {
                match self.nodes.cancel_swap(node.address, node.swap).await? {
                    Asked::Begun => Err(Wait::again(reason::WAITING, "it is at it")),
                    asked => Ok(asked),
                }
            })
            .await?;
        match asked {
            Asked::Refused(why) => Err(Reason::from(why).of(format!("{} refuses", node.name)).into()),
            _ => Ok("withdrawn".to_owned()),
        }
    }

    /// Stops a VM on the way back. One that does its part well is not stopped while another node does not: etcd
    /// would lose its quorum. One that is ill is stopped at once.
    pub(super) async fn stop_member(&self, plan: &Plan, node: &PlannedNode, vm: &Vm) -> Taken {
        if plan.options.mode == Mode::Rolling && vm.power == PowerState::On {
            let limit = Duration::from_secs(plan.options.gate_seconds);
            let looks = AtomicU32::new(0);
            self.wait("the other members of etcd", limit, || async {
                let looks = looks.fetch_add(1, Ordering::Relaxed) + 1;
                // One answer that did not come is no proof that it is ill.
                let facts = self.nodes.facts(node.address).await.ok();
                let well = facts.as_ref().filter(|facts| facts.good.is_some()).and_then(|facts| facts.etcd.as_ref());
                let etcd = match well {
                    Some(etcd) => etcd,
                    None if looks < LOOKS_TO_BELIEVE => {
                        return Err(Wait::again(NODE_NOT_READY, format!("{} is not well itself", node.name)));
                    }
                    None => return Ok(()),
                };
                match members_wrong(etcd, plan.members.len()).into_iter().next() {
                    Some(wrong) => {
                        let words = format!("{wrong}, and {} must not leave before it is mended", node.name);
                        Err(Wait::again(MEMBER_UNHEALTHY, words))
                    }
                    None => Ok(()),
                }
            })
            .await?;
        }
        self.stop(node, vm).await
    }

    pub(super) async fn commit(&self, node: &PlannedNode) -> Taken {
        self.wait(&format!("{} to commit", node.name), MOMENT, || async {
            // Without a prepared swap the node itself has given it its name.
            let swap = self.nodes.facts(node.address).await?.swap.map(|swap| swap.id);
            match self.nodes.commit(node.address, swap).await? {
                Asked::Done => Ok(()),
                Asked::Begun => Err(Wait::again(reason::WAITING, "it is at it")),
                Asked::Refused(why) => Err(Reason::from(why).of("it refuses").into()),
                Asked::Unknown => Err(Wait::again(reason::NODE_IMAGE, "its image does not know of swaps")),
            }
        })
        .await?;
        Ok("final: its old VM can no longer take the disk".to_owned())
    }

    /// Leaves a node as it is: on the new image its swap is made final, so that the next upgrade finds none open.
    /// What cannot be done, seen or waited for is said: this is the way out, and leads out whatever is broken.
    pub(super) async fn keep(
        &self,
        plan: &Plan,
        node: &PlannedNode,
        vms: Result<Vms, Trouble>,
        disk: &DiskRef,
    ) -> Taken {
        let mut left = match vms {
            Ok(vms) => leftovers(&vms, disk),
            Err(error) => format!("look at its VMs: {error}"),
        };
        if let Err(error) = self.hypervisor.settle().await {
            left += &format!("; what was begun before may still be going on: {:#}", error.source);
        }
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
        let committed = match self.nodes.commit(node.address, facts.swap.map(|swap| swap.id)).await {
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
    let all = vms.old.iter().chain(&vms.new).chain(&vms.others);
    let idle: Vec<String> = all.filter(|vm| vm.power != PowerState::On).map(Vm::to_string).collect();
    let mut left =
        if idle.is_empty() { "no other VM of it is left".to_owned() } else { format!("left: {}", idle.join(", ")) };
    let mut all = vms.old.iter().chain(&vms.new).chain(&vms.others);
    if all.all(|vm| vm.disk(disk.uuid).is_none()) {
        left += &format!("; no VM holds its disk {} at {}", disk.uuid, disk.path);
    }
    left
}
