//! The hypervisor of the fakes: strict.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use contract::deployer::Fingerprints;
use tokio::time::Instant;
use uuid::Uuid;

use super::fault::{Call, CallKind, Fault, Late};
use super::{DEPLOYMENT, DiskCopied, HOME, Ill, Machine, State, Template, World, data, new};
use crate::hypervisor::{
    CloneRequest, CloneSettings, DiskKind, DiskRef, Error, ErrorKind, Fence, Hypervisor, ImageTemplate, Placement,
    PowerState, Result, ShutDown, Stamp, Vm, VmRef,
};
use crate::lease::MARGIN;

fn changed(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Changed, anyhow::anyhow!("{why}"))
}

fn failing(name: &str, kind: ErrorKind) -> Error {
    Error::new(kind, anyhow::anyhow!("the hypervisor: {kind:?} at {name}"))
}

fn late(name: &'static str, vm: Option<&Vm>, effect: Box<dyn FnOnce(&mut State) + Send>) -> Late {
    let until = Instant::now() + MARGIN;
    // A guest takes its time, whether looked at or not; of a task the hypervisor knows.
    match name {
        "shut_down" => Late { left: Some(6), until, task: None, settles: false, effect },
        _ => Late { left: Some(40), until, task: vm.map(|vm| (vm.reference.id.clone(), name)), settles: true, effect },
    }
}

impl World {
    async fn look<T: Send>(&self, name: &'static str, look: impl FnOnce(&mut State) -> Result<T> + Send) -> Result<T> {
        let (fault, seen) = {
            let mut state = self.lock();
            state.pass();
            (state.faults.count(Call { name, kind: CallKind::Look }), look(&mut state))
        };
        match fault {
            Some(Fault::Error(kind)) => Err(failing(name, kind)),
            Some(fault) if fault.kills() => self.die(fault).await,
            _ => seen,
        }
    }

    /// One change of a VM: `may` says whether the hypervisor accepts the request, `effect` is the change.
    async fn change<T: Send>(
        &self,
        (name, vm, permit): (&'static str, &Vm, &dyn Fence),
        may: impl FnOnce(&mut State) -> Result<()> + Send,
        effect: impl FnOnce(&mut State, bool) -> T + Send + 'static,
    ) -> Result<T> {
        self.requested((name, Some(vm), permit), |state| state.is_ours(name, vm).and_then(|()| may(state)), effect)
            .await
    }

    /// One request that changes something. A call may make several.
    async fn requested<T: Send>(
        &self,
        (name, vm, permit): (&'static str, Option<&Vm>, &dyn Fence),
        may: impl FnOnce(&mut State) -> Result<()> + Send,
        effect: impl FnOnce(&mut State, bool) -> T + Send + 'static,
    ) -> Result<T> {
        permit.still().await?;
        let (fault, done) = {
            let mut state = self.lock();
            state.pass();
            let fault = state.faults.count(Call { name, kind: CallKind::Change });
            assert!(!state.overtaken, "{name}: changed by a command that was overtaken");
            let taken = may(&mut state);
            let done = match fault {
                Some(Fault::CutBefore | Fault::Error(_)) => None,
                _ if taken.is_err() => Some(taken.map(|()| unreachable!())),
                Some(Fault::Late | Fault::CutLate) => {
                    let effect = Box::new(move |state: &mut State| {
                        effect(state, false);
                        state.check();
                    });
                    state.faults.late.push(late(name, vm, effect));
                    None
                }
                Some(Fault::CutOnTheWay) => {
                    state.send(move |state| {
                        effect(state, false);
                        state.check();
                    });
                    None
                }
                fault => Some(Ok(effect(&mut state, fault.is_none()))),
            };
            state.check();
            (fault, done)
        };
        match fault {
            None => done.expect("an effect"),
            Some(fault) if fault.kills() => self.die(fault).await,
            // A call that the hypervisor did not even accept is no matter of doubt.
            Some(Fault::Done | Fault::Late) if matches!(done, Some(Err(_))) => done.expect("an error"),
            Some(Fault::Error(kind)) => Err(failing(name, kind)),
            Some(_) => Err(failing(name, ErrorKind::InDoubt)),
        }
    }
}

impl State {
    /// Panics when the VM is not the deployment's; refuses it when it is not as it was seen.
    fn is_ours(&self, name: &str, vm: &Vm) -> Result<()> {
        let Some(machine) = self.machine(&vm.reference.id).filter(|machine| machine.vm.reference == vm.reference)
        else {
            return Err(Error::not_found(format!("there is no VM {vm}")));
        };
        assert!(machine.ours, "{name}: a VM that is not ours is touched: {machine:?}");
        let stamped = machine.vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == DEPLOYMENT);
        assert!(stamped || name == "stamp", "{name}: a VM without our stamp is touched: {machine:?}");
        if vm.version != machine.version.to_string() {
            return Err(changed(format!("{vm} is not as it was seen")));
        }
        if let Some(task) = self.seen(machine).tasks.first() {
            return Err(Error::transient(anyhow::anyhow!("{vm}: another task is in progress: {task}")));
        }
        Ok(())
    }

    fn is(&self, vm: &Vm, power: PowerState) -> Result<()> {
        let now = self.machine(&vm.reference.id).expect("a VM").vm.power;
        if now == power { Ok(()) } else { Err(changed(format!("{vm} is {now}"))) }
    }
}

/// Changes a VM's settings.
fn reconfigure(state: &mut State, id: &str, change: impl FnOnce(&mut Machine)) {
    if let Some(machine) = state.machine_mut(id) {
        change(machine);
        machine.version += 1;
    }
}

/// A template, in the words of the contract.
fn as_staged(template: &Template) -> ImageTemplate {
    ImageTemplate { digest: template.digest.clone(), reference: template.reference.clone() }
}

#[async_trait]
impl Hypervisor for World {
    fn deployment(&self) -> Uuid {
        DEPLOYMENT
    }

    async fn preflight(&self, placement: &Placement) -> Result<()> {
        let known = placement.datastore.as_ref().is_none_or(|name| name.starts_with("datastore"));
        let answer = if known { Ok(()) } else { Err(Error::refused(format!("no place {placement}"))) };
        self.look("preflight", |_| answer).await
    }

    async fn may_change_own(&self) -> Result<()> {
        if self.lock().own_denied {
            return Err(Error::new(ErrorKind::Denied, anyhow::anyhow!("a privilege is missing")));
        }
        Ok(())
    }

    async fn vms(&self) -> Result<Vec<Vm>> {
        while self.lock().inventory_hangs {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.look("vms", |state| {
            let stamped = |machine: &&Machine| machine.vm.stamp.as_ref().is_some_and(|s| s.deployment == DEPLOYMENT);
            let listed = |machine: &&Machine| !state.unlisted.contains(&machine.vm.reference.id);
            Ok(state.machines.iter().filter(stamped).filter(listed).map(|machine| state.seen(machine)).collect())
        })
        .await
    }

    async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        self.look("vm", |state| {
            let found = state.machine(&vm.id).filter(|machine| machine.vm.reference == *vm);
            found.map(|machine| state.seen(machine)).ok_or_else(|| Error::not_found("there is no such VM"))
        })
        .await
    }

    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        self.look("with_bios_uuid", |state| {
            let found = |machine: &&Machine| machine.vm.uuid() == uuid && !state.unfound.contains(&uuid);
            let with = state.machines.iter().filter(found);
            Ok(with.map(|machine| state.seen(machine)).collect())
        })
        .await
    }

    /// Upgrades ask for none.
    async fn fingerprints(&self, _: &VmRef) -> Result<Option<Fingerprints>> {
        Ok(None)
    }

    async fn settle(&self, _permit: &dyn Fence) -> Result<()> {
        while self.lock().settling_hangs {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.look("settle", |_| Ok(())).await?;
        self.lock().settle();
        Ok(())
    }

    async fn may_be_replaced(&self, vm: &Vm) -> Result<()> {
        self.look("may_be_replaced", |state| match state.beside.contains(&vm.uuid()) {
            true => Err(Error::refused(format!("the disk of {vm} lies beside another's"))),
            false => Ok(()),
        })
        .await
    }

    async fn may_be_stamped(&self, vm: &Vm) -> Result<()> {
        self.look("may_be_stamped", |state| match state.unlisted.contains(&vm.reference.id) {
            true => Err(Error::refused(format!("{vm} would not be searched for"))),
            false => Ok(()),
        })
        .await
    }

    async fn stamp(&self, vm: &Vm, stamp: &Stamp, permit: &dyn Fence) -> Result<()> {
        let (id, stamp) = (vm.reference.id.clone(), stamp.clone());
        let may = |state: &mut State| match &state.machine(&vm.reference.id).expect("a VM").vm.stamp {
            Some(stamp) => Err(Error::refused(format!("it is stamped as {}", stamp.node))),
            None => Ok(()),
        };
        self.change(("stamp", vm, permit), may, move |state, _| reconfigure(state, &id, |m| m.vm.stamp = Some(stamp)))
            .await
    }

    async fn find_template(
        &self,
        digest: &str,
        _like: Option<&Vm>,
        placement: &Placement,
    ) -> Result<Option<ImageTemplate>> {
        let is_it = |template: &&Template| template.digest == digest && template.placement == *placement;
        self.look("staged", |state| Ok(state.templates.iter().find(is_it).filter(|t| t.whole).map(as_staged))).await
    }

    /// Two requests: one creates the template, and one marks it as whole.
    async fn import_template(
        &self,
        _ova: &Path,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
        permit: &dyn Fence,
    ) -> Result<ImageTemplate> {
        if let Some(ready) = self.find_template(digest, like, placement).await? {
            return Ok(ready);
        }
        let (digest, placement) = (digest.to_owned(), placement.clone());
        let make = move |state: &mut State, _| {
            state.templates.retain(|template| template.digest != digest || template.placement != placement);
            state.made += 1;
            let reference = format!("template-{}", state.made);
            state.templates.push(Template { digest, placement, reference: reference.clone(), whole: false });
            reference
        };
        let reference = self.requested(("stage.make", None, permit), |_| Ok(()), make).await?;
        let finish = move |state: &mut State, whole| {
            let template = state.templates.iter_mut().find(|template| template.reference == reference)?;
            template.whole = whole;
            Some(as_staged(template))
        };
        self.requested(("stage.finish", None, permit), |_| Ok(()), finish).await?.ok_or_else(|| Error::not_found("it"))
    }

    /// Two requests: one creates the VM, and one gives it the settings of the VM that it replaces.
    async fn clone_vm(&self, replacement: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        let CloneSettings::Replaces { vm: like, size } = replacement.settings else {
            panic!("each new VM of an upgrade replaces another one")
        };
        let may = |state: &mut State| {
            let ImageTemplate { digest, reference } = replacement.image;
            match state.templates.iter().find(|template| template.reference == *reference) {
                None => return Err(Error::not_found(format!("there is no {reference}"))),
                Some(template) if template.digest != *digest => {
                    return Err(Error::refused(format!("{reference} is another image now")));
                }
                Some(template) => assert!(template.whole, "a VM is made from half a template"),
            }
            let has_name = |machine: &&Machine| machine.folder == HOME && machine.vm.name == replacement.name;
            let taken = state.machines.iter().find(has_name);
            taken.map_or(Ok(()), |taken| Err(Error::refused(format!("the name is taken, by {}", taken.vm))))
        };
        let (stamp, name, uuid) = (replacement.stamp.clone(), replacement.name.to_owned(), replacement.uuid);
        let size = size.or(like.size);
        let make = move |state: &mut State, _| {
            state.newborn_takes(&name, uuid);
            let mut machine = state.machine_named(&name, uuid, new());
            for adapter in &mut machine.vm.adapters {
                adapter.connected = false;
            }
            machine.node.clone_from(&stamp.node);
            (machine.vm.stamp, machine.vm.size) = (Some(stamp), size);
            (machine.ours, machine.folder, machine.whole) = (true, HOME, false);
            let seen = state.seen(&machine);
            state.machines.push(machine);
            seen
        };
        let made = self.change(("import", like, permit), may, make).await?;
        let (id, like) = (made.reference.id.clone(), like.clone());
        let finish = move |state: &mut State, whole| {
            reconfigure(state, &id, |machine| {
                for (adapter, like) in machine.vm.adapters.iter_mut().zip(&like.adapters) {
                    adapter.connected = like.connected;
                }
                // The caller did not learn that it is whole.
                machine.whole = whole;
            });
        };
        self.change(("import.finish", &made, permit), |_| Ok(()), finish).await?;
        Ok(made.uuid())
    }

    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let id = vm.reference.id.clone();
        let may = |state: &mut State| {
            state.is(vm, PowerState::Off)?;
            if state.ill_of(state.machine(&vm.reference.id).expect("a VM")) == Ill::NoStart {
                return Err(Error::refused("the firmware finds nothing to start"));
            }
            Ok(())
        };
        self.change(("power_on", vm, permit), may, move |state, _| {
            if state.machine(&id).is_some_and(|machine| machine.vm.power == PowerState::Off) {
                state.boot(&id);
            }
        })
        .await
    }

    async fn shut_down(&self, vm: &Vm, _limit: Duration, permit: &dyn Fence) -> Result<ShutDown> {
        let id = vm.reference.id.clone();
        let may = |state: &mut State| {
            state.is(vm, PowerState::On)?;
            state.may_stop(&vm.reference.id);
            Ok(())
        };
        let unaskable =
            |state: &State| state.machine(&id).is_some_and(|machine| Some(&machine.image) == state.unaskable.as_ref());
        if unaskable(&self.lock()) {
            return self.look("shut_down", |_| Ok(ShutDown::CannotBeAsked)).await;
        }
        self.change(("shut_down", vm, permit), may, move |state, _| match state.shut_down(&id) {
            true => ShutDown::Off,
            false => ShutDown::StillOn,
        })
        .await
    }

    async fn cut_power(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let id = vm.reference.id.clone();
        let may = |state: &mut State| {
            state.is(vm, PowerState::On)?;
            state.may_stop(&vm.reference.id);
            let machine = state.machine(&vm.reference.id).expect("a VM");
            let unaskable = state.unaskable.as_ref() == Some(&machine.image) && state.ill_of(machine) == Ill::Silent;
            let may_be_cut = machine.still_on || unaskable;
            assert!(may_be_cut, "the power is cut of a VM that did not refuse to shut down: {machine:?}");
            Ok(())
        };
        self.change(("cut_power", vm, permit), may, move |state, _| state.power_off(&id)).await
    }

    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()> {
        let (id, key) = (vm.reference.id.clone(), adapter.to_owned());
        let may = |_: &mut State| match vm.adapters.iter().any(|known| known.key == adapter) {
            true => Ok(()),
            false => Err(Error::not_found(format!("{vm} has no adapter {adapter}"))),
        };
        self.change(("connect", vm, permit), may, move |state, _| {
            reconfigure(state, &id, |machine| {
                for adapter in machine.vm.adapters.iter_mut().filter(|adapter| adapter.key == key) {
                    adapter.connected = connected;
                }
            });
        })
        .await
    }

    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let (id, at) = (vm.reference.id.clone(), disk.clone());
        let may = |state: &mut State| {
            state.is(vm, PowerState::Off)?;
            match vm.disks.iter().find(|held| held.reference == *disk) {
                Some(held) if held.kind == DiskKind::Data && held.parent.is_none() => Ok(()),
                Some(held) => panic!("this disk must not be detached: {held:?}"),
                None => Err(Error::not_found(format!("{vm} holds no disk {}", disk.path))),
            }
        };
        self.change(("detach", vm, permit), may, move |state, _| {
            reconfigure(state, &id, |machine| machine.vm.disks.retain(|held| held.reference != at));
        })
        .await
    }

    async fn attach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let (id, at) = (vm.reference.id.clone(), disk.clone());
        let may = |state: &mut State| {
            state.is(vm, PowerState::Off)?;
            if !state.contents.iter().any(|content| content.at == *disk) {
                return Err(Error::not_found(format!("there is no disk {} at {}", disk.uuid, disk.path)));
            }
            let holds = |machine: &&Machine| machine.vm.disks.iter().any(|held| held.reference.path == disk.path);
            match state.machines.iter().find(holds) {
                Some(holder) => Err(Error::refused(format!("{} holds the disk {}", holder.vm, disk.path))),
                None => Ok(()),
            }
        };
        self.change(("attach", vm, permit), may, move |state, _| {
            reconfigure(state, &id, |machine| machine.vm.disks.push(data(at)));
        })
        .await
    }

    async fn has_disk(&self, disk: &DiskRef) -> Result<bool> {
        self.look("has_disk", |state| {
            let mut all =
                state.contents.iter().map(|content| &content.at).chain(state.copies.iter().map(|copy| &copy.at));
            Ok(all.any(|at| at == disk))
        })
        .await
    }

    /// Two requests if an incomplete copy is at the path: that is removed, and the disk copied.
    async fn copy_disk(&self, disk: &DiskRef, mark: &str, _: &[&str], permit: &dyn Fence) -> Result<DiskRef> {
        let path = disk.beside(mark);
        let lies_there = self.lock().copies.iter().any(|copy| copy.at.path == path);
        if lies_there {
            let path = path.clone();
            let remove = move |state: &mut State, _| state.copies.retain(|copy| copy.at.path != path);
            self.requested(("copy_disk.clear", None, permit), |_| Ok(()), remove).await?;
        }
        let may = |state: &mut State| {
            let holds = |machine: &&Machine| machine.vm.disks.iter().any(|held| held.reference.path == disk.path);
            if let Some(holder) = state.machines.iter().find(holds) {
                return Err(Error::refused(format!("{} holds the disk {}", holder.vm, disk.path)));
            }
            if !state.contents.iter().any(|content| content.at == *disk) {
                return Err(Error::not_found(format!("there is no disk {} at {}", disk.uuid, disk.path)));
            }
            Ok(())
        };
        let of = disk.clone();
        let copy = move |state: &mut State, heard| {
            state.made += 1;
            let own = Uuid::from_u128(0xc0_0000 + u128::from(state.made));
            let at = DiskRef { uuid: if state.copies_keep_uuid { of.uuid } else { own }, path };
            assert!(state.copies.iter().all(|copy| copy.at.path != at.path), "a copy is written over another: {at:?}");
            let content = state.contents.iter().find(|content| content.at == of).expect("the disk");
            let generation = content.generation;
            // The caller did not learn that it is whole.
            state.copies.push(DiskCopied { at: at.clone(), generation, whole: heard });
            at
        };
        self.requested(("copy_disk", None, permit), may, copy).await
    }

    async fn delete_disk(&self, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let at = disk.clone();
        let may = |state: &mut State| {
            assert!(
                state.contents.iter().all(|content| content.at.path != disk.path),
                "a node's disk is removed: {disk:?}"
            );
            let is_held = |held: &DiskRef| held.path == disk.path || held.uuid == disk.uuid;
            let holds = |machine: &&Machine| machine.vm.disks.iter().any(|held| is_held(&held.reference));
            if let Some(holder) = state.machines.iter().find(holds) {
                return Err(Error::refused(format!("{} holds the disk {}", holder.vm, disk.path)));
            }
            match state.copies.iter().any(|copy| copy.at == *disk) {
                true => Ok(()),
                false => Err(Error::not_found(format!("there is no disk {} at {}", disk.uuid, disk.path))),
            }
        };
        self.requested(("delete_disk", None, permit), may, move |state, _| state.copies.retain(|copy| copy.at != at))
            .await
    }

    async fn destroy(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let id = vm.reference.id.clone();
        let may = |state: &mut State| {
            state.is(vm, PowerState::Off)?;
            let disks = &state.machine(&vm.reference.id).expect("a VM").vm.disks;
            assert!(disks.iter().all(|disk| disk.kind == DiskKind::System), "a disk would go with {vm}: {disks:?}");
            Ok(())
        };
        self.change(("destroy", vm, permit), may, move |state, _| {
            state.machines.retain(|machine| machine.vm.reference.id != id);
        })
        .await
    }
}
