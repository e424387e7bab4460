//! The steps themselves. Each looks first, then acts, and says whether it
//! changed anything, so that it can be taken again after a crash at any point.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use contract::node::Node;
use contract::swap::{self, Image, Stage};
use uuid::Uuid;

use super::hypervisor::PowerState;
use super::journal::Journal;
use super::nodes::Asked;
use super::plan::{Action, Plan, PlannedNode, Step};
use super::run::{Done, Failure, Run};
use super::{ReplacementVm, Vm};

/// How long a guest may take to shut down before its power is cut.
const SHUTTING_DOWN: Duration = Duration::from_secs(240);
/// How long a node may take beyond the drain to prepare itself.
const PREPARING: Duration = Duration::from_secs(180);
/// How long a node that answers may take for what is done in a moment.
const MOMENT: Duration = Duration::from_secs(120);
/// So many looks a refusal may stand before it is taken for the last word.
const LOOKS_TO_SETTLE: u32 = 60;

type Taken = Result<Done, Failure>;

impl Run<'_> {
    /// Takes a step.
    pub(super) fn act(&self, plan: &Plan, journal: &Journal, step: Step, again: bool) -> Taken {
        let Some(index) = step.node else {
            return match step.action {
                Action::Verify => self.verify(plan),
                Action::Snapshot => self.snapshot(plan),
                Action::Check => self.check(plan, journal),
                other => Err(anyhow!("{other:?} is a node's").into()),
            };
        };
        let node = &plan.nodes[index];
        let new = || self.its_new_vm(journal, node, index);
        match step.action {
            Action::Import => self.import(plan, journal, index, again),
            Action::Prepare => self.prepare(plan, node),
            Action::ShutDown | Action::StopOld => self.stop(&self.old_vm(node)?),
            Action::Fence => self.connect(&self.old_vm(node)?, false),
            Action::Detach => self.detach(&self.old_vm(node)?, node.disk),
            Action::Attach => self.attach(&new()?, node.disk),
            Action::PowerOn => self.power_on(&new()?),
            Action::Gate => self.gate(plan, node, new()?.uuid, &plan.target.image),
            Action::Cancel => self.cancel(node),
            Action::StopNew => match self.new_vm(journal, node, index)? {
                Some(new) => self.stop_new(plan, node, &new),
                None => Ok(Done::note("there is none")),
            },
            Action::FenceNew => match self.new_vm(journal, node, index)? {
                Some(new) => self.connect(&new, false),
                None => Ok(Done::note("there is none")),
            },
            Action::DetachNew => match self.new_vm(journal, node, index)? {
                Some(new) => self.detach(&new, node.disk),
                None => Ok(Done::note("there is none")),
            },
            Action::AttachOld => self.attach(&self.old_vm(node)?, node.disk),
            Action::ReconnectOld => self.connect(&self.old_vm(node)?, true),
            Action::PowerOnOld => self.power_on(&self.old_vm(node)?),
            Action::GateOld => self.gate(plan, node, node.old, &node.from),
            Action::DestroyNew => self.destroy(self.new_vm(journal, node, index)?),
            Action::Commit => self.commit(node),
            Action::DestroyOld => {
                let vms = self.hypervisor.vms()?;
                self.destroy(vms.into_iter().find(|vm| vm.uuid == node.old))
            }
            Action::Verify | Action::Snapshot | Action::Check => Err(anyhow!("{:?} is no node's", step.action).into()),
        }
    }

    fn verify(&self, plan: &Plan) -> Taken {
        plan.target.verify(self.ova(plan))?;
        Ok(Done::note(match &plan.target.signer {
            Some(signer) => format!("whole, signed with {signer}"),
            None => "whole; not signed".to_owned(),
        }))
    }

    fn ova<'p>(&'p self, plan: &'p Plan) -> &'p std::path::Path {
        self.ova.as_deref().unwrap_or(plan.ova())
    }

    fn snapshot(&self, plan: &Plan) -> Taken {
        let file = self.directory.join(format!("before-{}.db", plan.id));
        if file.exists() {
            return Ok(Done::note(format!("{} is there", file.display())));
        }
        // Any node's will do; a leader has the most to do.
        let node = plan.nodes.iter().find(|node| !node.leads).unwrap_or(&plan.nodes[0]);
        let size = self.nodes.snapshot(node.address, &file)?;
        Ok(Done::note(format!("{}: {size} bytes, SHA-256 verified", file.display())))
    }

    /// A VM of this name that a crash has left is not to be trusted to be whole: it is made anew.
    fn import(&self, plan: &Plan, journal: &Journal, index: usize, again: bool) -> Taken {
        let node = &plan.nodes[index];
        if let Some(left) = self.new_vm(journal, node, index)? {
            if !again {
                return Err(anyhow!("there is a VM {} already; remove it if nobody needs it", node.new_name).into());
            }
            self.hypervisor.destroy(left.uuid).with_context(|| format!("removing half of {}", node.new_name))?;
        }
        let replacement = ReplacementVm { name: &node.new_name, ova: self.ova(plan), like: node.old, node: &node.name };
        let uuid = self.hypervisor.import(&replacement)?;
        Ok(Done { note: format!("{} ({uuid}), off, without a data disk", node.new_name), vm: Some(uuid) })
    }

    fn prepare(&self, plan: &Plan, node: &PlannedNode) -> Taken {
        if self.hypervisor.power_state(node.old)? == PowerState::Off {
            return Err(anyhow!("{} is off", node.old_name).into());
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
        let prepared = self.wait(&format!("{} to be prepared", node.name), limit, || {
            let swap = if begun { self.facts(node.address)?.swap.filter(|swap| swap.id == node.swap) } else { None };
            match swap {
                // Asked again, it would begin anew.
                Some(swap) if swap.stage == Stage::Failed => {
                    return Ok(Err(anyhow!("{} gave up: {}", node.name, swap.error.unwrap_or_default())));
                }
                Some(swap) if swap.stage != Stage::Prepared => bail!("{}", stage(swap.stage)),
                _ => {}
            }
            match self.nodes.begin_swap(node.address, &request)? {
                Asked::Done => Ok(Ok(())),
                Asked::Begun => {
                    begun = true;
                    bail!("begun")
                }
                Asked::Refused(why) if Instant::now() < patience => bail!("it refuses: {why}"),
                Asked::Refused(why) => Ok(Err(anyhow!("{} refuses: {why}", node.name))),
            }
        })?;
        prepared?;
        Ok(Done::note("drained, no leader, without the virtual IP; it may be shut down"))
    }

    fn cancel(&self, node: &PlannedNode) -> Taken {
        if self.hypervisor.power_state(node.old)? == PowerState::Off {
            self.hypervisor.power_on(node.old)?;
        }
        let asked = self.wait(&format!("{} to withdraw its swap", node.name), MOMENT, || {
            match self.nodes.cancel_swap(node.address, node.swap)? {
                Asked::Begun => bail!("it is at it"),
                asked => Ok(asked),
            }
        })?;
        match asked {
            Asked::Refused(why) => Err(anyhow!("{} refuses: {why}", node.name).into()),
            _ => Ok(Done::note("withdrawn")),
        }
    }

    /// Shuts a VM down, or cuts its power when it does not end; off is what is then looked up.
    fn stop(&self, vm: &Vm) -> Taken {
        if self.hypervisor.power_state(vm.uuid)? == PowerState::Off {
            return Ok(Done::note(format!("{} is off", vm.name)));
        }
        let asked = self.hypervisor.shut_down(vm.uuid, SHUTTING_DOWN);
        let how = match &asked {
            Ok(()) => "shut down".to_owned(),
            Err(error) => format!("power cut ({error:#})"),
        };
        if asked.is_err() {
            self.hypervisor.cut_power(vm.uuid)?;
        }
        match self.hypervisor.power_state(vm.uuid)? {
            PowerState::Off => Ok(Done::note(format!("{}, proved off: {}", how, vm.uuid))),
            PowerState::On => Err(anyhow!("{} is still on", vm.name).into()),
        }
    }

    /// A new VM that does its part well is not stopped while another node does not: etcd
    /// would lose its quorum. One that is ill is stopped at once.
    fn stop_new(&self, plan: &Plan, node: &PlannedNode, new: &Vm) -> Taken {
        if plan.options.mode == super::Mode::Rolling && new.power == PowerState::On {
            let limit = Duration::from_secs(plan.options.gate_seconds);
            self.wait("the other members of etcd", limit, || {
                let Ok(facts) = self.facts(node.address) else { return Ok(()) };
                match (&facts.good, others_ill(&facts)) {
                    (Some(_), Some(ill)) => {
                        bail!("{ill} is not healthy, and {} must not leave before it is", node.name)
                    }
                    _ => Ok(()),
                }
            })?;
        }
        self.stop(new)
    }

    fn connect(&self, vm: &Vm, connected: bool) -> Taken {
        let state = if connected { "connected" } else { "not connected, at power-on neither" };
        if vm.nic_connected == connected {
            return Ok(Done::note(format!("the network interface of {} is {state}", vm.name)));
        }
        self.hypervisor.connect_nic(vm.uuid, connected)?;
        Ok(Done::note(format!("the network interface of {} is now {state}", vm.name)))
    }

    fn detach(&self, vm: &Vm, disk: Uuid) -> Taken {
        if !vm.disks.contains(&disk) {
            return Ok(Done::note(format!("{} does not hold the disk {disk}", vm.name)));
        }
        self.hypervisor.detach_disk(vm.uuid, disk)?;
        Ok(Done::note(format!("no VM holds the disk {disk} now")))
    }

    fn attach(&self, vm: &Vm, disk: Uuid) -> Taken {
        if vm.disks.contains(&disk) {
            return Ok(Done::note(format!("{} holds the disk {disk}", vm.name)));
        }
        self.hypervisor.attach_disk(vm.uuid, disk)?;
        Ok(Done::note(format!("{} holds the disk {disk} now", vm.name)))
    }

    fn power_on(&self, vm: &Vm) -> Taken {
        if vm.power == PowerState::On {
            return Ok(Done::note(format!("{} is on", vm.name)));
        }
        self.hypervisor.power_on(vm.uuid)?;
        Ok(Done::note(format!("{} is on now", vm.name)))
    }

    fn gate(&self, plan: &Plan, node: &PlannedNode, vm: Uuid, image: &Image) -> Taken {
        let limit = Duration::from_secs(plan.options.gate_seconds);
        let facts = self.wait(&format!("{} to be found good", node.name), limit, || {
            let facts = self.facts(node.address)?;
            let missing = is_good(&facts, node, vm, image);
            missing.map_or(Ok(facts), |missing| Err(anyhow!("{missing}")))
        })?;
        Ok(Done::note(format!(
            "good on {image}: the same member of etcd ({}), the same disk, holder number {}",
            node.member, facts.generation
        )))
    }

    fn check(&self, plan: &Plan, journal: &Journal) -> Taken {
        let limit = Duration::from_secs(plan.options.gate_seconds);
        for (index, node) in plan.nodes.iter().enumerate() {
            let new = self.its_new_vm(journal, node, index)?;
            self.wait(&format!("{} to be good", node.name), limit, || {
                let facts = self.facts(node.address)?;
                is_good(&facts, node, new.uuid, &plan.target.image).map_or(Ok(()), |missing| Err(anyhow!("{missing}")))
            })?;
        }
        Ok(Done::note(format!("all {} good on {}", plan.nodes.len(), plan.target.image)))
    }

    fn commit(&self, node: &PlannedNode) -> Taken {
        let asked =
            self.wait(&format!("{} to commit", node.name), MOMENT, || match self.nodes.commit(node.address)? {
                Asked::Done => Ok(()),
                Asked::Begun => bail!("it is at it"),
                Asked::Refused(why) => bail!("it refuses: {why}"),
            });
        asked.map(|()| Done::note("final: its old VM can no longer take the disk"))
    }

    fn destroy(&self, vm: Option<Vm>) -> Taken {
        let Some(vm) = vm else { return Ok(Done::note("there is none")) };
        self.hypervisor.destroy(vm.uuid)?;
        Ok(Done::note(format!("{} is removed", vm.name)))
    }
}

/// What a node lacks to be good in this VM, on this image; none if nothing.
fn is_good(facts: &Node, node: &PlannedNode, vm: Uuid, image: &Image) -> Option<String> {
    if facts.image.build != image.build {
        return Some(format!("it runs {}", facts.image.build()));
    }
    if facts.holder != Some(vm) {
        let holder = facts.holder.map_or_else(|| "nobody".to_owned(), |holder| holder.to_string());
        return Some(format!("{holder} holds its disk, not {vm}"));
    }
    if facts.disk != node.identity {
        return Some("it has another data disk than before".to_owned());
    }
    let Some(etcd) = &facts.etcd else { return Some("its etcd does not answer".to_owned()) };
    if etcd.member != node.member {
        return Some(format!("it is etcd's member {}, before it was {}", etcd.member, node.member));
    }
    if let Some(ill) = others_ill(facts) {
        return Some(format!("etcd's member {ill} is not healthy"));
    }
    if !facts.ready {
        return Some("it is not ready".to_owned());
    }
    facts.good.is_none().then(|| "it was not found good yet".to_owned())
}

/// A member of etcd other than the node's that is not healthy.
fn others_ill(facts: &Node) -> Option<String> {
    let etcd = facts.etcd.as_ref()?;
    let ill = etcd.members.iter().find(|member| member.id != etcd.member && !member.healthy)?;
    Some(ill.name.clone())
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
