//! The hypervisor.

use std::path::Path;

use super::*;
use crate::hypervisor::{Host, Hypervisor, ImageTemplate, Placement, ShutDown};

/// The error of a later request of a call: an earlier one has had its effect.
pub fn doubtful(error: Error) -> Error {
    Error::new(if error.kind == ErrorKind::Fenced { ErrorKind::Fenced } else { ErrorKind::InDoubt }, error.source)
}

impl<P: Part> World<P> {
    /// The reads of a call before it is permitted anything.
    async fn looks_first(&self, name: &str) {
        while self.lock().hangs == Some(name) {
            self.lock().hung = true;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// A call that changes something.
    pub async fn change<T: Send>(
        &self,
        name: &'static str,
        permit: &dyn Fence,
        act: impl FnOnce(&mut State<P>) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.looks_first(name).await;
        permit.still().await?;
        if self.lock().loses(name) {
            return Err(Error::new(ErrorKind::InDoubt, Lost));
        }
        self.call(name, Does::ChangesVm, act).await.map_err(|error| {
            let kind = if error.is::<Lost>() { ErrorKind::InDoubt } else { ErrorKind::Transient };
            error.downcast().unwrap_or_else(|error| Error::new(kind, error))
        })
    }

    pub async fn look<T: Send>(
        &self,
        name: &'static str,
        act: impl FnOnce(&mut State<P>) -> T + Send + 'static,
    ) -> Result<T> {
        self.looks_first(name).await;
        self.call(name, Does::Looks, |state| Ok(act(state))).await.map_err(Error::transient)
    }
}

impl<P: Part> State<P> {
    /// Whether a call is lost on its way.
    fn loses(&mut self, name: &str) -> bool {
        let Some((_, times)) = self.lost.as_mut().filter(|(lost, times)| *lost == name && *times > 0) else {
            return false;
        };
        *times -= 1;
        true
    }
}

#[async_trait]
impl<P: Part> Hypervisor for World<P> {
    fn deployment(&self) -> Uuid {
        DEPLOYMENT
    }

    async fn preflight(&self, _: &Placement) -> Result<()> {
        if self.lock().no_place {
            return Err(Error::new(ErrorKind::Transient, anyhow::anyhow!("the datastore ds takes no VMs now")));
        }
        Ok(())
    }

    async fn vms(&self) -> Result<Vec<Vm>> {
        while self.lock().inventory_hangs {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.look("vms", |state| {
            let is_seen = |vm: &Vm| is_ours(vm) && !state.away.contains(&vm.reference.id);
            state.machines.iter().map(|machine| machine.vm.clone()).filter(is_seen).collect()
        })
        .await
    }

    async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        let wanted = vm.clone();
        let found = self.look("vm", move |state| {
            state.machines.iter().find(|machine| machine.vm.reference == wanted).map(|machine| machine.vm.clone())
        });
        found.await?.ok_or_else(|| Error::not_found("no such VM"))
    }

    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        if self.lock().unreadable == Some(uuid) {
            return Err(Error::transient(anyhow::anyhow!("a disk of a VM has no file")));
        }
        self.look("with_bios_uuid", move |state| {
            let vms = state.machines.iter().map(|machine| machine.vm.clone());
            vms.filter(|vm| vm.uuid() == uuid).collect()
        })
        .await
    }

    async fn host(&self, vm: &VmRef) -> Result<Host> {
        let id = vm.id.clone();
        self.look("host", move |state| Host { name: "esx1".to_owned(), responds: !state.cut_off.contains(&id) }).await
    }

    async fn absence(&self, uuid: Uuid, _: &[&str], seen: LastSeen<'_>) -> Result<Absence> {
        P::absence(self, uuid, seen).await
    }

    async fn fingerprints(&self, vm: &VmRef) -> Result<Option<Fingerprints>> {
        P::fingerprints(self, vm).await
    }

    async fn statement(&self, vm: &VmRef) -> Result<Option<Statement>> {
        P::statement(self, vm).await
    }

    async fn settle(&self, permit: &dyn Fence) -> Result<()> {
        self.change("settle", permit, |state| {
            for effect in std::mem::take(&mut state.late) {
                effect(state);
            }
            Ok(())
        })
        .await
    }

    async fn stamp(&self, _: &Vm, _: &Stamp, _: &dyn Fence) -> Result<()> {
        panic!("VMs are stamped from their first moment")
    }

    async fn find_template(&self, digest: &str, like: Option<&Vm>, _: &Placement) -> Result<Option<ImageTemplate>> {
        assert!(like.is_none() || !P::IS_FIRST, "the place is empty");
        let staged = ImageTemplate { digest: digest.to_owned(), reference: digest.to_owned() };
        self.look("staged", move |state| (!P::IS_FIRST || state.template == Some(true)).then_some(staged)).await
    }

    /// Two requests: the template is created, and then marked as complete.
    async fn import_template(
        &self,
        _: &Path,
        digest: &str,
        _: Option<&Vm>,
        _: &Placement,
        permit: &dyn Fence,
    ) -> Result<ImageTemplate> {
        assert!(P::IS_FIRST, "the template exists");
        let set = |is_complete: bool| {
            move |state: &mut State<P>| {
                state.template = Some(is_complete);
                Ok(())
            }
        };
        self.change("stage", permit, set(false)).await?;
        self.change("stage.end", permit, set(true)).await.map_err(doubtful)?;
        Ok(ImageTemplate { digest: digest.to_owned(), reference: digest.to_owned() })
    }

    async fn clone_vm(&self, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        P::clone_vm(self, request, permit).await
    }

    async fn set_properties(&self, vm: &Vm, properties: &BTreeMap<String, String>, permit: &dyn Fence) -> Result<()> {
        let (seen, properties) = (vm.clone(), properties.clone());
        self.change("give", permit, move |state| P::set_properties(state, &seen, &properties)).await
    }

    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let (seen, now, age) = (vm.clone(), Instant::now(), self.age().as_secs());
        self.change("power_on", permit, move |state| {
            if state.stay_off {
                bail!(Error::refused("it lacks a value"));
            }
            let power = if state.goes_off { PowerState::Off } else { PowerState::On };
            let machine = state.own(&seen)?;
            assert!(machine.whole, "{seen} is incomplete and was to be powered on");
            assert_eq!(machine.vm.power, PowerState::Off, "{seen} is powered on twice");
            (machine.vm.power, machine.powered, machine.returns) = (power, Some(now), true);
            for disk in &seen.disks {
                state.disks.insert(disk.reference.uuid, true);
            }
            P::powered_on(state, &seen, age);
            Ok(())
        })
        .await
    }

    async fn shut_down(&self, vm: &Vm, _: Duration, permit: &dyn Fence) -> Result<ShutDown> {
        let (seen, age) = (vm.clone(), self.age().as_secs());
        self.change("shut_down", permit, move |state| {
            let is_received = P::receives_shut_down(state, &seen, age);
            let machine = state.own(&seen)?;
            if !is_received {
                return Ok(ShutDown::CannotBeAsked);
            }
            machine.vm.power = PowerState::Off;
            P::shut_down(state, seen.uuid());
            Ok(ShutDown::Off)
        })
        .await
    }

    async fn cut_power(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let seen = vm.clone();
        self.change("cut_power", permit, move |state| {
            state.own(&seen)?.vm.power = PowerState::Off;
            Ok(())
        })
        .await
    }

    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()> {
        let (seen, adapter) = (vm.clone(), adapter.to_owned());
        assert!(!connected, "{seen} was to be connected");
        self.change("connect", permit, move |state| {
            let machine = state.own(&seen)?;
            // Only a former VM of a replaced node is cut off while it is on.
            assert!(P::IS_FIRST || machine.vm.power == PowerState::Off, "{seen} is on and was to be disconnected");
            machine.vm.adapters.iter_mut().filter(|it| it.key == adapter).for_each(|it| it.connected = false);
            Ok(())
        })
        .await
    }

    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let (seen, disk) = (vm.clone(), disk.clone());
        self.change("detach", permit, move |state| {
            let machine = state.own(&seen)?;
            assert_eq!(machine.vm.power, PowerState::Off, "{seen} is on and its disk was to be detached");
            machine.vm.disks.retain(|held| held.reference != disk);
            Ok(())
        })
        .await
    }

    async fn attach(&self, vm: &Vm, _: &DiskRef, _: &dyn Fence) -> Result<()> {
        panic!("a disk was to be attached to {vm}")
    }

    async fn has_disk(&self, disk: &DiskRef) -> Result<bool> {
        assert!(P::IS_FIRST, "a worker's disk was searched");
        let disk = disk.clone();
        self.look("has_disk", move |state| state.has(&disk)).await
    }

    async fn is_in_node_directory(&self, _: &DiskRef, _: &[&str]) -> Result<bool> {
        self.look("lies_where_a_node_was", |state| !state.disks_elsewhere).await
    }

    async fn has_pending_deletes(&self) -> Result<bool> {
        let state = self.lock();
        if state.removals_unsaid {
            return Err(Error::transient(anyhow::anyhow!("no tasks are listed")));
        }
        Ok(state.others_remove)
    }

    /// It checks a last time once that is recorded.
    async fn delete_disk(&self, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        permit.prepare().await?;
        let seen = disk.clone();
        let last = self.look("delete_disk.look", move |state| {
            if state.disks_stay {
                return Err(Error::refused("a VM in another folder holds the disk"));
            }
            if state.has(&seen) { Ok(()) } else { Err(Error::not_found("no such disk")) }
        });
        last.await??;
        let disk = disk.uuid;
        self.change("delete_disk", permit, move |state| {
            if state.disks_locked {
                bail!(Error::transient(anyhow::anyhow!("another client has locked the disk")));
            }
            let held = state.machines.iter().any(|machine| machine.vm.disk(disk).is_some());
            assert!(!held, "{disk} is held and was to be removed");
            match state.disks.remove(&disk) {
                None => bail!(Error::not_found("no such disk")),
                Some(used) => assert!(!used || state.removes_used, "{disk} was used and is removed"),
            }
            Ok(())
        })
        .await
    }

    async fn remove_empty_directory(&self, _: &DiskRef, _: &[&str], _: &dyn Fence) -> Result<()> {
        self.look("remove_emptied", |_| ()).await
    }

    async fn destroy(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let seen = vm.clone();
        self.change("destroy", permit, move |state| {
            let machine = state.own(&seen)?;
            assert_eq!(machine.vm.power, PowerState::Off, "{seen} is on and was to be removed");
            assert!(machine.vm.disks.is_empty(), "a disk goes with {seen}");
            P::may_go(state, &seen);
            state.machines.retain(|machine| machine.vm.reference != seen.reference);
            Ok(())
        })
        .await
    }

    async fn disown(&self, vm: &Vm, name: &str, permit: &dyn Fence) -> Result<()> {
        let (seen, name) = (vm.clone(), name.to_owned());
        self.change("release", permit, move |state| {
            P::may_go(state, &seen);
            let machine = state.own(&seen)?;
            assert!(machine.whole, "{seen} is incomplete and was to be kept");
            let is_free = machine.vm.power == PowerState::Off && machine.vm.is_fenced();
            assert!(is_free, "{seen} is on or connected and was to be disowned");
            (machine.vm.name, machine.vm.stamp) = (name, machine.vm.stamp.as_ref().map(Stamp::released));
            Ok(())
        })
        .await
    }
}
