//! The hypervisor of the fakes: strict.

use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use uuid::Uuid;

use super::{Ill, Machine, World, new, old};
use crate::upgrade::PowerState;
use crate::upgrade::{Hypervisor, ReplacementVm, Vm};

impl Hypervisor for World {
    fn vms(&self) -> anyhow::Result<Vec<Vm>> {
        self.call(|state| Ok(state.machines.iter().map(|machine| machine.vm.clone()).collect()))
    }

    fn import(&self, replacement: &ReplacementVm<'_>) -> anyhow::Result<Uuid> {
        self.call(|state| {
            ensure!(state.machines.iter().all(|machine| machine.vm.name != replacement.name), "the name is taken");
            state.machine(replacement.like)?;
            state.imported += 1;
            let uuid = Uuid::from_u128(0xb00 + state.imported);
            let vm = Vm {
                name: replacement.name.to_owned(),
                uuid,
                power: PowerState::Off,
                disks: Vec::new(),
                nic_connected: true,
            };
            // Broken off within the import: half a VM is left.
            let whole = state.cut.is_none_or(|cut| cut.call != state.calls);
            let node = replacement.node.to_owned();
            state.machines.push(Machine { vm, node, image: new(), whole, serves: false });
            Ok(uuid)
        })
    }

    fn power_on(&self, vm: Uuid) -> anyhow::Result<()> {
        let ill = self.ill;
        self.call(|state| {
            let machine = state.machine(vm)?;
            if machine.vm.power == PowerState::On {
                return Ok(());
            }
            ensure!(machine.image == old() || ill != Ill::NoStart, "the firmware finds nothing to start");
            machine.vm.power = PowerState::On;
            state.boot(vm, ill)
        })
    }

    fn shut_down(&self, vm: Uuid, _limit: Duration) -> anyhow::Result<()> {
        let ill = self.ill;
        {
            // Broken off after the guest was asked: it goes down a while later, whoever looks meanwhile.
            let mut state = self.lock();
            let calls = state.calls + 1;
            if state.cut.is_some_and(|cut| cut.call == calls && !cut.after) {
                state.going_down = Some((vm, 4));
            }
        }
        self.call(|state| {
            let machine = state.machine(vm)?;
            ensure!(machine.vm.power == PowerState::On, "{} is off", machine.vm.name);
            ensure!(!(machine.image == new() && ill == Ill::Hangs), "it is still on");
            state.shut_down(vm)
        })
    }

    fn cut_power(&self, vm: Uuid) -> anyhow::Result<()> {
        self.call(|state| {
            let machine = state.machine(vm)?;
            machine.vm.power = PowerState::Off;
            machine.serves = false;
            Ok(())
        })
    }

    fn power_state(&self, vm: Uuid) -> anyhow::Result<PowerState> {
        self.call(|state| Ok(state.machine(vm)?.vm.power))
    }

    fn connect_nic(&self, vm: Uuid, connected: bool) -> anyhow::Result<()> {
        self.call(|state| {
            state.machine(vm)?.vm.nic_connected = connected;
            Ok(())
        })
    }

    fn detach_disk(&self, vm: Uuid, disk: Uuid) -> anyhow::Result<()> {
        self.call(|state| {
            let machine = state.off(vm)?;
            let place = machine.vm.disks.iter().position(|held| *held == disk);
            machine.vm.disks.remove(place.ok_or_else(|| anyhow!("{} does not hold it", machine.vm.name))?);
            Ok(())
        })
    }

    fn attach_disk(&self, vm: Uuid, disk: Uuid) -> anyhow::Result<()> {
        self.call(|state| {
            ensure!(state.disks.contains_key(&disk), "there is no disk {disk}");
            if let Some(holder) = state.machines.iter().find(|machine| machine.vm.disks.contains(&disk)) {
                bail!("{} holds it", holder.vm.name);
            }
            state.off(vm)?.vm.disks.push(disk);
            Ok(())
        })
    }

    fn destroy(&self, vm: Uuid) -> anyhow::Result<()> {
        self.call(|state| {
            let machine = state.off(vm)?;
            ensure!(machine.vm.disks.is_empty(), "{} holds a disk", machine.vm.name);
            state.machines.retain(|machine| machine.vm.uuid != vm);
            Ok(())
        })
    }
}
