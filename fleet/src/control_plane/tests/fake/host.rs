//! The hypervisor.

use std::path::Path;

use contract::deployer::Fingerprint;

use super::*;
use crate::hypervisor::{
    Absence, CloneRequest, CloneSettings, Hypervisor, ImageTemplate, LastSeen, Networks, ShutDown,
};

fn doubtful(error: Error) -> Error {
    Error::new(if error.kind == ErrorKind::Fenced { ErrorKind::Fenced } else { ErrorKind::InDoubt }, error.source)
}

#[async_trait]
impl Hypervisor for World {
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

    async fn absence(&self, _: Uuid, _: &[&str], seen: LastSeen<'_>) -> Result<Absence> {
        if let Some(kind) = self.lock().absence_fails {
            return Err(Error::new(kind, anyhow::anyhow!("the datastore cannot be searched")));
        }
        Ok(match seen {
            LastSeen::At(settings, _) if self.lock().settings.contains(settings) => {
                Absence::Unknown(format!("{settings} is still there"))
            }
            LastSeen::Unnoted if self.lock().demands_places => Absence::Unknown("no place was noted".to_owned()),
            _ => Absence::Gone,
        })
    }

    async fn fingerprints(&self, vm: &VmRef) -> Result<Option<Fingerprints>> {
        let now = Instant::now();
        let asked = vm.clone();
        self.look("fingerprints", move |state| {
            let is_astray = |name: &str| state.machines.iter().any(|it| it.vm.reference == asked && it.vm.name == name);
            let authority = Fingerprint::of(if state.astray.is_some_and(is_astray) { b"b" } else { b"a" });
            state.has_formed(now).then_some(Fingerprints { ca: authority, endpoint: Fingerprint::of(b"e") })
        })
        .await
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
        panic!("control nodes are stamped from their first moment")
    }

    async fn find_template(&self, digest: &str, like: Option<&Vm>, _: &Placement) -> Result<Option<ImageTemplate>> {
        assert_eq!(like, None, "the place is empty");
        let staged = ImageTemplate { digest: digest.to_owned(), reference: digest.to_owned() };
        self.look("staged", move |state| (state.template == Some(true)).then_some(staged)).await
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
        let make = |state: &mut State| {
            state.template = Some(false);
            Ok(())
        };
        self.change("stage", permit, make).await?;
        let finish = |state: &mut State| {
            state.template = Some(true);
            Ok(())
        };
        self.change("stage.end", permit, finish).await.map_err(doubtful)?;
        Ok(ImageTemplate { digest: digest.to_owned(), reference: digest.to_owned() })
    }

    /// Three requests: the VM is created, it gets its disk, and it is completed.
    async fn clone_vm(&self, addition: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        let CloneSettings::Given { networks, size, properties } = addition.settings else {
            panic!("a first VM replaces no other one")
        };
        let (name, stamp) = (addition.name.to_owned(), addition.stamp.clone());
        assert!(matches!(networks, Networks::Named([network]) if network == "Management"));
        assert_eq!(properties["node-name"], name);
        assert!(size.data_disk.is_some() && stamp.swap.is_none());
        let drawn = addition.uuid;
        let noted = self.lock().holds.values().flat_map(BTreeMap::values).any(|text| text.contains(&drawn.to_string()));
        assert!(noted, "{name} is made before its UUID is noted");
        let placement = addition.placement.clone();
        let half = self.change("add", permit, move |state| {
            let times = state.calls.iter().filter(|(name, _)| *name == "add").count();
            assert!(times < 1000, "VMs are made without an end");
            if state.refuses {
                bail!(Error::refused("there is no such host"));
            }
            assert_eq!(state.template, Some(true), "{name} is made from half an image");
            let mut own = state.machines.iter().filter(|machine| is_ours(&machine.vm));
            let twice = own.any(|machine| machine.vm.name == name || machine.vm.stamp.as_ref() == Some(&stamp));
            assert!(!twice, "{name} is made twice");
            let vm = vm(&name, drawn, Some(stamp));
            state.placed.insert(name, placement);
            let uuid = vm.uuid();
            state.machines.push(Machine { vm, whole: false, powered: None });
            Ok(uuid)
        });
        let uuid = half.await?;
        let with_disk = self.change("add.disk", permit, move |state| {
            state.made += 1;
            let disk = Uuid::from_u128(0xd00 + state.made);
            state.disks.insert(disk, false);
            let reference = DiskRef { uuid: disk, path: format!("[ds] {disk}.vmdk") };
            let machine = state.machines.iter_mut().find(|machine| machine.vm.uuid() == uuid).context("no such VM")?;
            machine.vm.disks.push(Disk { reference, kind: DiskKind::Data, parent: None, controller: "c".to_owned() });
            Ok(())
        });
        with_disk.await.map_err(doubtful)?;
        let copying = self.lock().copying;
        if !copying.is_zero() {
            tokio::time::sleep(copying).await;
        }
        let whole = self.change("add.end", permit, move |state| {
            if state.spoils {
                bail!("somebody has changed it");
            }
            let machine = state.machines.iter_mut().find(|machine| machine.vm.uuid() == uuid).context("no such VM")?;
            machine.whole = true;
            if state.drops {
                let gone: Vec<Uuid> = machine.vm.disks.iter().map(|disk| disk.reference.uuid).collect();
                state.machines.retain(|machine| machine.vm.uuid() != uuid);
                state.disks.retain(|disk, _| !gone.contains(disk));
            }
            Ok(uuid)
        });
        whole.await.map_err(doubtful)
    }

    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let (seen, now) = (vm.clone(), Instant::now());
        self.change("power_on", permit, move |state| {
            let power = if state.goes_off { PowerState::Off } else { PowerState::On };
            let machine = state.own(&seen)?;
            assert!(machine.whole, "{seen} is half a VM and was to be powered on");
            assert_eq!(machine.vm.power, PowerState::Off, "{seen} is powered on twice");
            (machine.vm.power, machine.powered) = (power, Some(now));
            for disk in &seen.disks {
                state.disks.insert(disk.reference.uuid, true);
            }
            Ok(())
        })
        .await
    }

    async fn shut_down(&self, vm: &Vm, _: Duration, permit: &dyn Fence) -> Result<ShutDown> {
        let seen = vm.clone();
        self.change("shut_down", permit, move |state| {
            let is_ill = state.ill;
            let machine = state.own(&seen)?;
            if is_ill {
                return Ok(ShutDown::CannotBeAsked);
            }
            machine.vm.power = PowerState::Off;
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

    async fn connect(&self, _: &Vm, _: &str, _: bool, _: &dyn Fence) -> Result<()> {
        panic!("nobody asks for that")
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

    async fn attach(&self, _: &Vm, _: &DiskRef, _: &dyn Fence) -> Result<()> {
        panic!("nobody asks for that")
    }

    async fn has_disk(&self, disk: &DiskRef) -> Result<bool> {
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
                bail!(Error::transient(anyhow::anyhow!("somebody has locked the disk")));
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
            state.machines.retain(|machine| machine.vm.reference != seen.reference);
            Ok(())
        })
        .await
    }
}
