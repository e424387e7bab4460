//! VMs on the test bed with guests of the fakes in memory. Each call goes to vCenter, and the guests follow what
//! vCenter then shows.

use std::path::Path;
use std::time::Duration;

use contract::deployer::Fingerprints;

use super::*;
use crate::hypervisor::{Absence, Disk, DiskRef, LastSeen, PowerState, ShutDown, VmRef};
use crate::upgrade::tests::fake::{self, Machine, World};

pub struct Mirrored<'a> {
    pub vcenter: &'a VcenterHypervisor,
    pub guests: &'a World,
}

impl Mirrored<'_> {
    /// The guests of a cluster that runs on the bed. Their data disks are those of its VMs.
    pub async fn adopt(&self) {
        let vms = self.vcenter.vms().await.unwrap();
        self.runs(vms);
    }

    /// The guests of these VMs, with their data disks. A guest knows its node by the given stamp, whatever vCenter has.
    pub fn runs(&self, vms: Vec<Vm>) {
        {
            let mut state = self.guests.lock();
            state.machines.clear();
            let in_order = state.in_order_uuids;
            for content in &mut state.contents {
                let its = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == content.node);
                let vm = vms.iter().find(its).expect("its VM");
                content.at = vm.data_disks().next().expect("its disk").reference.clone();
                let is_new = vm.stamp.as_ref().is_some_and(|stamp| stamp.swap.is_some());
                let image = if is_new { fake::new() } else { fake::old() };
                content.holder = Some(fake::guest::reading(vm.uuid(), &image, in_order));
            }
        }
        self.shows(vms);
    }

    /// The guests follow the current state of vCenter.
    async fn follow(&self) {
        let vms = loop {
            match self.vcenter.vms().await {
                Ok(vms) => break vms,
                Err(error) => assert_eq!(error.kind, ErrorKind::Transient, "{error}"),
            }
        };
        self.shows(vms);
    }

    /// The guests follow these VMs, and there are no others.
    fn shows(&self, vms: Vec<Vm>) {
        let mut state = self.guests.lock();
        state.machines.retain(|machine| vms.iter().any(|vm| vm.reference == machine.vm.reference));
        // A datastore that was renamed has the same files.
        let file = |path: &str| path.split_once("] ").map(|(_, file)| file.to_owned());
        for content in &mut state.contents {
            let is_it = |disk: &&Disk| {
                disk.reference.uuid == content.at.uuid && file(&disk.reference.path) == file(&content.at.path)
            };
            if let Some(disk) = vms.iter().flat_map(Vm::data_disks).find(is_it) {
                content.at = disk.reference.clone();
            }
        }
        for vm in vms {
            let id = vm.reference.id.clone();
            let stamp = vm.stamp.clone().expect("a stamp");
            let was = state.machine(&id).map(|machine| machine.vm.power);
            if was == Some(PowerState::On) && vm.power == PowerState::Off {
                assert!(state.shut_down(&id), "it hangs");
            }
            match state.machine_mut(&id) {
                // Until it has booted, its guest counts as off.
                Some(machine) => machine.vm = Vm { power: machine.vm.power, ..vm.clone() },
                None => state.machines.push(Machine {
                    ours: true,
                    node: stamp.node,
                    folder: "kaas",
                    image: if stamp.swap.is_some() { fake::new() } else { fake::old() },
                    whole: true,
                    serves: false,
                    still_on: false,
                    version: 1,
                    vm: Vm { power: PowerState::Off, ..vm.clone() },
                }),
            }
            if was != Some(PowerState::On) && vm.power == PowerState::On {
                state.boot(&id);
            }
        }
    }

    /// Returns vCenter's answer after the guests have followed.
    async fn after<T>(&self, said: Result<T>) -> Result<T> {
        self.follow().await;
        said
    }
}

#[async_trait]
impl Hypervisor for Mirrored<'_> {
    fn deployment(&self) -> Uuid {
        self.vcenter.deployment()
    }

    async fn preflight(&self, placement: &Placement) -> Result<()> {
        self.vcenter.preflight(placement).await
    }

    async fn may_change_own(&self) -> Result<()> {
        self.vcenter.may_change_own().await
    }

    async fn vms(&self) -> Result<Vec<Vm>> {
        self.vcenter.vms().await
    }

    async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        self.vcenter.vm(vm).await
    }

    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        self.vcenter.with_bios_uuid(uuid).await
    }

    async fn fingerprints(&self, vm: &VmRef) -> Result<Option<Fingerprints>> {
        self.vcenter.fingerprints(vm).await
    }

    async fn has_pending_deletes(&self) -> Result<bool> {
        self.vcenter.has_pending_deletes().await
    }

    async fn settle(&self, permit: &dyn Fence) -> Result<()> {
        self.after(self.vcenter.settle(permit).await).await
    }

    async fn may_be_replaced(&self, vm: &Vm) -> Result<()> {
        self.vcenter.may_be_replaced(vm).await
    }

    async fn absence(&self, uuid: Uuid, nodes: &[&str], seen: LastSeen<'_>) -> Result<Absence> {
        self.vcenter.absence(uuid, nodes, seen).await
    }

    async fn unread(&self, nodes: &[&str]) -> Result<Option<String>> {
        self.vcenter.unread(nodes).await
    }

    async fn disk_datastore(&self, disk: &DiskRef) -> Result<Option<String>> {
        self.vcenter.disk_datastore(disk).await
    }

    async fn present_place(&self, disk: &DiskRef, datastore: &str) -> Result<DiskRef> {
        self.vcenter.present_place(disk, datastore).await
    }

    async fn is_sole_holder(&self, vm: &Vm) -> Result<()> {
        self.vcenter.is_sole_holder(vm).await
    }

    async fn may_be_stamped(&self, vm: &Vm) -> Result<()> {
        self.vcenter.may_be_stamped(vm).await
    }

    async fn stamp(&self, vm: &Vm, stamp: &Stamp, permit: &dyn Fence) -> Result<()> {
        self.after(self.vcenter.stamp(vm, stamp, permit).await).await
    }

    async fn find_template(
        &self,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
    ) -> Result<Option<ImageTemplate>> {
        self.vcenter.find_template(digest, like, placement).await
    }

    async fn import_template(
        &self,
        ova: &Path,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
        permit: &dyn Fence,
    ) -> Result<ImageTemplate> {
        self.vcenter.import_template(ova, digest, like, placement, permit).await
    }

    async fn clone_vm(&self, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        self.after(self.vcenter.clone_vm(request, permit).await).await
    }

    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        self.after(self.vcenter.power_on(vm, permit).await).await
    }

    async fn shut_down(&self, vm: &Vm, limit: Duration, permit: &dyn Fence) -> Result<ShutDown> {
        self.guests.lock().may_stop(&vm.reference.id);
        self.after(self.vcenter.shut_down(vm, limit, permit).await).await
    }

    async fn cut_power(&self, vm: &Vm, _permit: &dyn Fence) -> Result<()> {
        panic!("every guest shuts down when it is asked, {vm} too");
    }

    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()> {
        self.after(self.vcenter.connect(vm, adapter, connected, permit).await).await
    }

    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        self.after(self.vcenter.detach(vm, disk, permit).await).await
    }

    async fn attach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        self.after(self.vcenter.attach(vm, disk, permit).await).await
    }

    async fn has_disk(&self, disk: &DiskRef) -> Result<bool> {
        self.vcenter.has_disk(disk).await
    }

    async fn copy_disk(&self, disk: &DiskRef, mark: &str, nodes: &[&str], permit: &dyn Fence) -> Result<DiskRef> {
        self.after(self.vcenter.copy_disk(disk, mark, nodes, permit).await).await
    }

    async fn delete_disk(&self, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        self.after(self.vcenter.delete_disk(disk, permit).await).await
    }

    async fn destroy(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        self.after(self.vcenter.destroy(vm, permit).await).await
    }
}
