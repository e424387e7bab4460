//! Steps on VMs: off, disconnected, without the disk, with it, on. Each forbidden state is ruled out right before.

use super::Taken;
use super::reach::Says;
use crate::engine::{Call, Scope, guarded};
use crate::hypervisor::{self, DiskRef, PowerState, SHUTTING_DOWN, ShutDown, Vm, doubles};
use crate::upgrade::context::{MOMENT, StepContext};
use crate::upgrade::moved::may_be_its;
use crate::upgrade::nodes::Nodes as _;
use crate::upgrade::plan::{Plan, PlannedNode};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason::{DISK_HELD, VM_COPIED, VM_STATE, VM_UNASKABLE};
use crate::upgrade::refusal::VM_SNAPSHOT;
use crate::upgrade::step_error::{StepError, Wait};

impl<'a> StepContext<'a> {
    /// Shuts a VM down. Its power is cut only if it was asked and is still on at the limit. Then it looks up whether
    /// the VM is off.
    pub(super) async fn stop(&self, plan: &Plan, node: &PlannedNode, vm: &Vm, progress: &Progress) -> Taken {
        match vm.power {
            PowerState::Off => return Ok(format!("{} is off", vm.name)),
            PowerState::On => {}
            PowerState::Suspended | PowerState::Unknown => return Err(state(format!("{vm} is {}", vm.power))),
        }
        let mut asked = self.hypervisor.shut_down(vm, SHUTTING_DOWN, &self.open(vm)?).await?;
        if asked == ShutDown::CannotBeAsked {
            self.is_silent(plan, node, vm, progress).await?;
            let now = self.current(vm).await?;
            if now.power == PowerState::Off {
                return Ok(format!("{} is off", vm.name));
            }
            asked = self.hypervisor.shut_down(&now, SHUTTING_DOWN, &self.open(&now)?).await?;
        }
        let limit = SHUTTING_DOWN.as_secs();
        let how = match asked {
            ShutDown::Off => "shut down".to_owned(),
            ShutDown::StillOn => {
                self.cut_power(vm).await?;
                format!("power cut: it was still on after {limit} s")
            }
            ShutDown::CannotBeAsked => {
                self.cut_power(vm).await?;
                format!("power cut: it could not be asked to shut down, and did not answer for {limit} s")
            }
        };
        match self.current(vm).await?.power {
            PowerState::Off => Ok(format!("{how}, proved off: {}", vm.uuid())),
            power => Err(state(format!("{vm} is {power}, after it was asked to shut down"))),
        }
    }

    async fn cut_power(&self, vm: &Vm) -> Result<(), StepError> {
        let now = self.current(vm).await?;
        Ok(self.hypervisor.cut_power(&now, &self.open(&now)?).await?)
    }

    /// The fence of a call that changes a VM.
    pub(super) fn open(&self, vm: &Vm) -> hypervisor::Result<Call<'a>> {
        self.hypervisor.open(Scope::Vm(vm))
    }

    /// Waits whether a guest that cannot be asked to shut down does anything at all. Passes for a new VM in a rollback
    /// that does not answer for as long as a guest may take to shut down. It is as good as a guest that was asked and
    /// is still on. That this machine cannot see the nodes must be ruled out. Every other VM may be at work, and is
    /// left to the operator.
    async fn is_silent(&self, plan: &Plan, node: &PlannedNode, vm: &Vm, progress: &Progress) -> Result<(), StepError> {
        let at_work = || {
            let words = format!(
                "the guest of {vm} cannot be asked to shut down: VMware Tools do not run in it. Shut it down by hand; its \
                 power is not cut from here"
            );
            StepError::elsewhere(VM_UNASKABLE, words)
        };
        if !vm.is_of_swap(node.swap) {
            return Err(at_work());
        }
        let what = format!("{} to answer, for the guest of {vm} cannot be asked to shut down", node.name);
        let answers = || async {
            match self.nodes.facts(node.address).await {
                Err(error) if Says::of(&error) == Says::Nothing => Err(Wait::from(error)),
                _ => Ok(()),
            }
        };
        match self.wait(&what, SHUTTING_DOWN, answers).await {
            Ok(()) => Err(at_work()),
            Err(StepError::Cannot(_)) => {
                let stands = || self.may_be_stopped(plan, node, Says::Nothing, progress);
                self.wait(
                    &format!("another control-plane node to report that {} may be stopped", node.name),
                    MOMENT,
                    stands,
                )
                .await
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Disconnects all network adapters of a VM that is off. One that was powered on since is left as it is. Before it
    /// is stopped in a rollback, unless all go at once, the others are asked whether etcd has a quorum without it.
    pub(super) async fn fence(&self, vm: &Vm) -> Taken {
        off(vm)?;
        self.connect(vm, false, |_| true).await
    }

    /// Connects those adapters again that were connected when the plan was made.
    pub(super) async fn reconnect(&self, node: &PlannedNode, vm: &Vm) -> Taken {
        self.connect(vm, true, |key| node.adapters.iter().any(|known| known == key)).await
    }

    async fn connect(&self, vm: &Vm, connected: bool, chosen: impl Fn(&str) -> bool) -> Taken {
        let state = if connected { "connected" } else { "not connected, at power-on neither" };
        let mut changed = 0;
        for key in vm.adapters.iter().filter(|adapter| adapter.connected != connected).map(|adapter| &*adapter.key) {
            if chosen(key) {
                // To the hypervisor, each change makes another VM of it.
                let now = self.current(vm).await?;
                if !connected {
                    off(&now)?;
                }
                self.hypervisor.connect(&now, key, connected, &self.open(&now)?).await?;
                changed += 1;
            }
        }
        let now = if changed > 0 { "now " } else { "" };
        Ok(format!("the network adapters of {} are {now}{state}", vm.name))
    }

    /// Takes the disk, which the journal has at `place`, from a VM.
    pub(super) async fn detach(&self, node: &PlannedNode, vm: &Vm, place: &DiskRef) -> Taken {
        let Some(disk) = vm.disk(node.disk.uuid) else {
            return Ok(format!("{} does not hold the disk {}", vm.name, node.disk.uuid));
        };
        if let Some(parent) = &disk.parent {
            let words = format!(
                "the disk {} is a difference to {parent}, made by a snapshot of {vm}: it cannot be detached",
                node.disk.uuid
            );
            return Err(StepError::elsewhere(VM_SNAPSHOT, words));
        }
        off(vm)?;
        if disk.reference != *place {
            let words = format!("the disk {} has just moved to {}", node.disk.uuid, disk.reference.path);
            return Err(StepError::pause(DISK_HELD, words));
        }
        let call = self.open(vm)?;
        guarded(&call, self.hypervisor.detach(vm, place, &call)).await??;
        Ok(format!("no VM holds the disk {} now", node.disk.uuid))
    }

    /// Gives the disk, which is at `place`, to a VM.
    pub(super) async fn attach(&self, node: &PlannedNode, vm: &Vm, place: &DiskRef) -> Taken {
        if vm.disk(node.disk.uuid).is_some() {
            return Ok(format!("{} holds the disk {}", vm.name, node.disk.uuid));
        }
        off(vm)?;
        let holds = |other: &&Vm| other.disk(node.disk.uuid).is_some_and(|disk| disk.reference.path == place.path);
        if let Some(other) = self.vms().await?.iter().find(holds) {
            return Err(StepError::pause(DISK_HELD, format!("{other} holds the disk {}", node.disk.uuid)));
        }
        let call = self.open(vm)?;
        guarded(&call, self.hypervisor.attach(vm, place, &call)).await??;
        Ok(format!("{} holds the disk {} now", vm.name, node.disk.uuid))
    }

    /// Powers a VM on that is the sole holder of the disk; every other VM of the node is off and disconnected.
    pub(super) async fn power_on(&self, node: &PlannedNode, vm: &Vm) -> Taken {
        if vm.power == PowerState::On {
            return Ok(format!("{} is on", vm.name));
        }
        off(vm)?;
        let all = self.vms().await?;
        // Another file under its UUID is a copy.
        let own = vm.disk(node.disk.uuid).map(|disk| &disk.reference.path);
        let is_it = |path: &String| own.is_none_or(|own| own == path);
        let holds = |vm: &&Vm| vm.disk(node.disk.uuid).is_some_and(|disk| is_it(&disk.reference.path));
        let holders: Vec<&Vm> = all.iter().filter(holds).collect();
        if !matches!(holders.as_slice(), [only] if only.reference == vm.reference) {
            let held = holders.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
            let held = if held.is_empty() { "no VM".to_owned() } else { held };
            let words = format!("{held} holds the disk {}, not {vm} alone", node.disk.uuid);
            return Err(StepError::pause(DISK_HELD, words));
        }
        let is_its = |vm: &Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node.name);
        let others = all.iter().filter(|other| is_its(other) && other.reference != vm.reference);
        others.into_iter().try_for_each(|other| no_rival(node, other))?;
        self.is_alone(node, vm).await?;
        let call = self.open(vm)?;
        guarded(&call, self.hypervisor.power_on(vm, &call)).await??;
        Ok(format!("{} is on now", vm.name))
    }

    /// Proof that no other VM has a VM's BIOS UUID, wherever that is: the inventory may show a copy of the running VM.
    /// A VM that is off and does not hold the node's disk does not count: backup software keeps such replicas.
    async fn is_alone(&self, node: &PlannedNode, vm: &Vm) -> Result<(), StepError> {
        let attempt = "looking for a VM by its BIOS UUID";
        let doubles = async { doubles(&*self.hypervisor, vm).await.map_err(|error| error.context(attempt)) };
        match self.look(doubles).await?.iter().find(|other| may_be_its(node, other)) {
            None => Ok(()),
            Some(other) => {
                let words = format!(
                    "{vm} and {other}, which is {} and is not where VMs are searched, carry the same identity: one is a copy of the other; \
                     remove it",
                    other.power
                );
                Err(StepError::blocked(VM_COPIED, words))
            }
        }
    }
}

/// Proof that another VM of a node can do nothing: it is off and disconnected.
pub(super) fn no_rival(node: &PlannedNode, other: &Vm) -> Result<(), StepError> {
    let words = if other.power != PowerState::Off {
        format!("{other} is {}, and must be off", other.power)
    } else if !other.is_fenced() {
        format!("a network adapter of {other} is connected: both could come up")
    } else {
        return Ok(());
    };
    // A VM that the plan does not know blocks the rollback as well.
    let is_known = other.uuid() == node.old || other.is_of_swap(node.swap);
    Err(if is_known { state(words) } else { StepError::elsewhere(VM_STATE, words) })
}

/// Proof that a VM is off.
fn off(vm: &Vm) -> Result<(), StepError> {
    if vm.power == PowerState::Off { Ok(()) } else { Err(state(format!("{vm} is {}, and must be off", vm.power))) }
}

/// A VM is not as it has to be; it may be the next time.
fn state(words: String) -> StepError {
    StepError::pause(VM_STATE, words)
}

#[cfg(test)]
mod tests;
