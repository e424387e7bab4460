//! A node leaves its work to the others before its VM is stopped: prepared for its swap on the way forward, evacuated
//! in a rollback.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::node::Node;
use contract::swap::{self, Stage};
use tokio::time::Instant;
use uuid::Uuid;

use super::Taken;
use super::failure_threshold::FailureThreshold;
use super::gate::missing;
use super::reach::Says;
use crate::engine::Reason;
use crate::hypervisor::{PowerState, Vm};
use crate::upgrade::context::{MOMENT, StepContext};
use crate::upgrade::judge::drain_deletes;
use crate::upgrade::nodes::{Asked, NodeRequest, Nodes as _};
use crate::upgrade::notice::Notice;
use crate::upgrade::plan::{Plan, PlannedNode};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason;
use crate::upgrade::refusal::{MEMBER_UNHEALTHY, NODE_SILENT};
use crate::upgrade::step_error::{StepError, Wait};

/// How long a node may take beyond the drain.
const EVACUATING: Duration = Duration::from_secs(180);
/// After so many looks a refusal is final.
const LOOKS_TO_SETTLE: u32 = 60;

enum Evacuate {
    Swap(swap::Request),
    Evacuation(swap::EvacuationRequest),
}

struct EvacuationProgress {
    id: Uuid,
    stage: Stage,
    error: Option<String>,
    code: Option<String>,
}

impl Evacuate {
    fn id(&self) -> Uuid {
        match self {
            Self::Swap(swap) => swap.id,
            Self::Evacuation(evacuation) => evacuation.id,
        }
    }

    fn progress_in(&self, facts: Node) -> Option<EvacuationProgress> {
        let progress = match self {
            Self::Swap(_) => facts.swap.map(|swap::SwapState { id, stage, error, code, .. }| (id, stage, error, code)),
            Self::Evacuation(_) => {
                facts.evacuation.map(|swap::EvacuationState { id, stage, error, code, .. }| (id, stage, error, code))
            }
        };
        progress
            .map(|(id, stage, error, code)| EvacuationProgress { id, stage, error, code })
            .filter(|progress| progress.id == self.id())
    }
}

impl StepContext<'_> {
    pub(super) async fn prepare(&self, plan: &Plan, node: &PlannedNode, old: &Vm) -> Taken {
        if old.power != PowerState::On {
            return Err(StepError::pause(reason::VM_STATE, format!("{old} is {}", old.power)));
        }
        // Since the plan, pods may have come, and gone with the nodes before.
        self.tell_losses(node, self.nodes.facts(node.address).await.ok().as_ref());
        let request = Evacuate::Swap(swap::Request {
            id: node.swap,
            to: plan.target.image.clone(),
            drain_seconds: plan.options.drain_seconds,
            downgrade: plan.options.downgrade,
            publisher: plan.options.publisher.clone().filter(|key| Some(key) != node.pinned.as_ref()),
        });
        // A refusal just after another node's swap may pass in a moment.
        let patience = self.pace * LOOKS_TO_SETTLE;
        if !self.evacuated(plan, node, &request, "to be prepared", patience).await? {
            let words = format!("the image of {} does not know of swaps", node.name);
            return Err(StepError::pause(reason::NODE_IMAGE, words));
        }
        Ok("drained, no leader, without the virtual IP; it may be shut down".to_owned())
    }

    /// Lets a new VM that is healthy hand everything over before it is stopped. An unhealthy one is stopped as it is:
    /// waiting would not help.
    pub(super) async fn evacuate(
        &self,
        plan: &Plan,
        node: &PlannedNode,
        new: Option<&Vm>,
        progress: &Progress,
    ) -> Taken {
        let Some(new) = new.filter(|new| new.power == PowerState::On) else {
            return Ok("the new VM does not run".to_owned());
        };
        let belief = FailureThreshold::at(self.pace);
        let well = self
            .wait(&format!("{} to be healthy", node.name), MOMENT, || async {
                let mut says = Says::Facts;
                let facts = self.nodes.facts(node.address).await;
                let told = facts.as_ref().ok().cloned();
                let lacks = match facts {
                    // Begun before, it is cordoned already. An evacuation that failed was undone, and the node may be
                    // unhealthy now.
                    Ok(Node { evacuation: Some(evacuation), .. })
                        if evacuation.id == node.swap && evacuation.stage.is_under_way() =>
                    {
                        None
                    }
                    Ok(facts) => {
                        let lacks = missing(&facts, node, new, &plan.target.image, plan.members.len());
                        let is_well = facts.ready && facts.healthy.is_some() && facts.etcd.is_some();
                        match lacks {
                            // Others are unhealthy, not this one: it has to stay until they are repaired, and leaves
                            // then.
                            Some(lacks) if is_well && lacks.code == MEMBER_UNHEALTHY => return Err(lacks.into()),
                            lacks => lacks,
                        }
                    }
                    Err(error) => {
                        says = Says::of(&error);
                        let words = format!("it does not answer: {error:#}");
                        Some(Reason::new(NODE_SILENT, words))
                    }
                };
                match lacks {
                    Some(lacks) if !belief.look(true) => Err(lacks.into()),
                    Some(lacks) => {
                        if says != Says::Facts {
                            self.may_be_stopped(plan, node, says, progress).await?;
                        }
                        Ok(Err(lacks))
                    }
                    None => Ok(Ok(told)),
                }
            })
            .await?;
        match well {
            Ok(told) => self.tell_losses(node, told.as_ref()),
            Err(lacks) => return Ok(format!("not possible, for it does not do its part: {}", lacks.words)),
        }
        let drain_seconds = plan.options.drain_seconds;
        let request = Evacuate::Evacuation(swap::EvacuationRequest { id: node.swap, drain_seconds });
        Ok(match self.evacuated(plan, node, &request, "to hand everything over", Duration::MAX).await? {
            true => "drained, no leader, without the virtual IP".to_owned(),
            false => "its image does not know how; pods and leader move when it stops".to_owned(),
        })
    }

    /// Reports the data that the drain of a node deletes for good, as far as the node has said it.
    fn tell_losses(&self, node: &PlannedNode, told: Option<&Node>) {
        if let Some(words) = drain_deletes(told) {
            (self.watch)(&Notice::Losses { node: &node.name, words: &words });
        }
    }

    /// Lets a node leave, and waits until it has. A refusal that lasts for longer than `patience` is final. False if
    /// its image does not know how.
    async fn evacuated(
        &self,
        plan: &Plan,
        node: &PlannedNode,
        what: &Evacuate,
        until: &str,
        patience: Duration,
    ) -> Result<bool, StepError> {
        let limit = EVACUATING + Duration::from_secs(plan.options.drain_seconds);
        let (begun, since) = (&AtomicBool::new(false), Instant::now());
        self.wait(&format!("{} {until}", node.name), limit, || async move {
            if begun.load(Ordering::Relaxed) {
                match what.progress_in(self.nodes.facts(node.address).await?) {
                    // Asked again, it would begin again.
                    Some(EvacuationProgress { stage: Stage::Failed, error, code, .. }) => {
                        let code = code.as_deref().unwrap_or(reason::NODE_GAVE_UP);
                        let words = format!("{} gave up: {}", node.name, error.unwrap_or_default());
                        return Err(StepError::pause(code, words).into());
                    }
                    Some(EvacuationProgress { stage, .. }) if stage != Stage::Prepared => {
                        return Err(Wait::not_yet(reason::WAITING, words(stage)));
                    }
                    _ => {}
                }
            }
            let request = match what {
                Evacuate::Swap(swap) => NodeRequest::BeginSwap(swap),
                Evacuate::Evacuation(evacuation) => NodeRequest::Evacuate(evacuation),
            };
            match self.nodes.request(node.address, request).await? {
                Asked::Done => Ok(true),
                Asked::Unknown => Ok(false),
                Asked::Begun => {
                    begun.store(true, Ordering::Relaxed);
                    Err(Wait::not_yet(reason::WAITING, "begun"))
                }
                Asked::Refused(why) => {
                    let why = Reason::from(why).of(format!("{} refuses", node.name));
                    let stands = since.elapsed() >= patience;
                    Err(if stands { Wait::End(why.into()) } else { Wait::NotYet(why) })
                }
            }
        })
        .await
    }
}

fn words(stage: Stage) -> &'static str {
    match stage {
        Stage::Judging => "it checks whether it may leave",
        Stage::Yielding => "it hands the virtual IP over",
        Stage::MovingLeader => "it hands the lead of etcd over",
        Stage::Draining => "pods move away",
        Stage::Prepared => "prepared",
        Stage::Failed => "it failed",
        Stage::Taken => "another VM has its disk",
    }
}
