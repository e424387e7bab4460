use anyhow::Context as _;

use super::{StepContext, StepError, StepOutcome};
use crate::boot::volumes::{VolumesDisk, owner};
use crate::host::disk::{self, DataDisk, DiskState, Identity, MachineId, Owner};
use crate::intake::config::Config;

impl StepContext {
    /// Records before the join whether the worker has a disk for local volumes. Until the disk is prepared, it may be
    /// removed.
    pub(super) fn decide_on_volumes(&self) -> anyhow::Result<bool> {
        let Config::Worker(_) = &self.node.config else { return Ok(false) };
        let records = &self.node.records;
        match (records.entry::<VolumesDisk>()?, self.plan.volumes_disk()) {
            (None, Some(_)) => records.begin_entry(&VolumesDisk { disk: None }),
            (Some(VolumesDisk { disk: None }), None) => records.forget::<VolumesDisk>().map(|()| true),
            _ => Ok(false),
        }
    }

    /// The cluster has admitted this VM under the node's name, so the disk belongs to it. The identity is written to
    /// the disk before the record, and the record before the mount: from then on a missing disk is an error.
    pub(super) fn local_volumes(&mut self) -> Result<StepOutcome, StepError> {
        let prepared = self.prepare_volumes()?;
        let DataDisk::Ours { disk, identity } = &mut self.node.data_disk else {
            return Err(anyhow::anyhow!("there is no prepared disk for local volumes").into());
        };
        let own = Identity {
            cluster: self.node.config.cluster_name().to_owned(),
            generation: identity.generation + u64::from(identity.holder != self.node.platform.bios_uuid()),
            holder: self.node.platform.bios_uuid(),
            image_version: self.node.image.version.clone(),
            state: DiskState::Formed,
            ..identity.clone()
        };
        let taken = own != *identity;
        if taken {
            disk::slots::write(&disk.path, &own).context("writing whose the disk for local volumes is")?;
            *identity = own;
        }
        let noted = self.node.records.update_entry(&VolumesDisk { disk: Some(identity.disk) })?;
        let (disk, identity) = (disk.clone(), identity.clone());
        let mounted = disk::mount_volumes(&disk, &identity, &self.node.platform, self.node.runner())?;
        Ok((prepared || taken || noted || mounted).into())
    }

    /// Prepares a blank disk. If this runs again, the disk is the node's own.
    fn prepare_volumes(&mut self) -> Result<bool, StepError> {
        let Some(target) = self.node.data_disk.target() else { return Ok(false) };
        let worker = self.node.config.worker().map_err(anyhow::Error::from)?;
        let text = std::fs::read_to_string(self.node.path("/etc/machine-id")).context("reading the machine ID")?;
        let whose = Owner {
            cluster: worker.cluster.name.clone(),
            node: worker.node.name.clone(),
            image_version: self.node.image.version.clone(),
            machine_id: text.parse::<MachineId>().context("reading /etc/machine-id")?,
            local_volumes: Some(owner(worker, None).mark()),
        };
        let (disk, identity) = disk::prepare(&target, &whose, &self.node.platform, self.node.runner())?;
        self.node.data_disk = DataDisk::Ours { disk, identity };
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::boot::plan::{self, NodeStorage, Observed, Step};
    use crate::boot::volumes;
    use crate::cluster::records::{Progress, Records};
    use crate::host::command::Host;
    use crate::host::disk::fixture::{Loop, Machine, OWN, alone, unmount};
    use crate::host::disk::{Disks, MINIMUM_SIZE, is_mounted};
    use crate::host::fake_systemd::FakeSystemd;
    use crate::host::files::{self, power};
    use crate::intake::config::fixture::{image, joined, worker};
    use crate::node::context::NodeContext;
    use crate::status::{Reporter, Status};
    use contract::paths;
    use contract::role::Role;

    /// A worker with an additional disk, on a loop device.
    fn machine() -> (Machine, Loop) {
        let mut machine = Machine::new();
        let file = machine.directory.path().join("disk.img");
        fs::File::create(&file).unwrap().set_len(MINIMUM_SIZE).unwrap();
        let device = Loop::new(&file);
        machine.add_device(&device.device);
        for directory in ["data/kaas", "etc"] {
            fs::create_dir_all(machine.directory.path().join(directory)).unwrap();
        }
        fs::write(machine.directory.path().join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
        (machine, device)
    }

    /// The decision of a boot, before (`false`) or after the worker has joined.
    fn boot(machine: &Machine, has_joined: bool) -> Result<StepContext, String> {
        let (root, platform) = (machine.directory.path(), machine.platform());
        let worker = if has_joined { joined() } else { worker() };
        let owner = volumes::owner(&worker, Records::new(root).entry().unwrap());
        let found = Disks::look(&platform, root, &Host).unwrap().for_worker(&owner);
        if found.findings.has_errors() {
            return Err(found.findings.to_string());
        }
        let mut image = image();
        image.roles = Role::Worker.into();
        let observed = Observed {
            image: image.clone(),
            storage: NodeStorage::Scratch,
            progress: Progress { formed: has_joined, ..Progress::default() },
            rendezvous_closed: false,
            upgrading: None,
            volumes: plan::Disk::of(&found.data_disk),
        };
        let config = Config::Worker(worker);
        let plan = plan::decide(&config, &observed).map_err(|finding| finding.to_string())?;
        let reporter = Reporter::new(root, Status::default());
        let host = (FakeSystemd::new(root).bus(), Box::new(Host) as _);
        let node = NodeContext::new(platform, image, config, found.data_disk, reporter, host);
        Ok(StepContext::new(node, None, observed.progress, plan))
    }

    /// Mounts the disk in the plan of a joined worker.
    fn mount(machine: &Machine) -> Result<bool, String> {
        let mut context = boot(machine, true)?;
        let Some(disk) = context.plan.volumes_disk() else { return Ok(false) };
        let step = Step::LocalVolumes { disk: disk.to_owned() };
        context.run(&step).map_err(|error| format!("{error:?}"))?;
        Ok(true)
    }

    fn power_off(machine: &Machine) {
        let point = machine.platform().path(paths::LOCAL_VOLUMES);
        if is_mounted(&point).unwrap() {
            unmount(&point);
        }
    }

    #[test]
    fn worker_mounts_its_volumes_despite_power_cuts() {
        alone();
        let mut things = 0;
        loop {
            let (machine, _device) = machine();
            // The worker decides and joins.
            boot(&machine, false).unwrap().decide_on_volumes().unwrap();
            let (first, cut) = power::with(things, || mount(&machine));
            if !cut {
                assert!(first.unwrap());
            }
            power_off(&machine);
            let _ = power::with(things, || mount(&machine));
            power_off(&machine);
            assert_eq!(mount(&machine), Ok(true), "after {things} things");
            let point = machine.platform().path(paths::LOCAL_VOLUMES);
            assert!(is_mounted(&point).unwrap(), "after {things} things");
            let [(disk, identity)] = &disk::taken_volumes(&machine.platform()).unwrap()[..] else { panic!("{things}") };
            assert_eq!((identity.state, identity.holder, identity.generation), (DiskState::Formed, Some(OWN), 1));
            let noted = Records::new(machine.directory.path()).entry().unwrap();
            assert_eq!(noted, Some(VolumesDisk { disk: Some(identity.disk) }), "{}", disk.path.display());
            // The state is stable.
            fs::write(point.join("pvc-1"), "rows").unwrap();
            let mut again = boot(&machine, true).unwrap();
            let step = Step::LocalVolumes { disk: again.plan.volumes_disk().unwrap().to_owned() };
            assert_eq!(again.run(&step).unwrap(), StepOutcome::Unchanged);
            power_off(&machine);
            if !cut {
                break;
            }
            things += 1;
        }
        assert!(things > 4, "only {things} things were saved");
    }

    #[test]
    fn decision_follows_the_disk_until_it_is_prepared() {
        alone();
        let (machine, _device) = machine();
        let root = machine.directory.path();
        let noted = || Records::new(root).entry::<VolumesDisk>().unwrap();
        assert!(boot(&machine, false).unwrap().decide_on_volumes().unwrap());
        assert!(!boot(&machine, false).unwrap().decide_on_volumes().unwrap());
        assert_eq!(noted(), Some(VolumesDisk { disk: None }));
        // The disk is detached before the worker has joined.
        let without = Machine::new();
        let context = boot(&without, false).unwrap();
        fs::create_dir_all(without.directory.path().join("data/kaas")).unwrap();
        fs::copy(
            files::below(root, "/data/kaas/local-volumes.json"),
            files::below(without.directory.path(), "/data/kaas/local-volumes.json"),
        )
        .unwrap();
        assert!(context.decide_on_volumes().unwrap());
        assert_eq!(Records::new(without.directory.path()).entry::<VolumesDisk>().unwrap(), None);
    }

    #[test]
    fn worker_without_its_volumes_disk_is_refused() {
        alone();
        let (machine, device) = machine();
        boot(&machine, false).unwrap().decide_on_volumes().unwrap();
        assert_eq!(mount(&machine), Ok(true));
        power_off(&machine);
        // Another, blank disk is attached in its place.
        drop(device);
        let mut other = Machine::new();
        other.add("blank");
        fs::create_dir_all(other.directory.path().join("data/kaas")).unwrap();
        let record = "/data/kaas/local-volumes.json";
        fs::copy(files::below(machine.directory.path(), record), files::below(other.directory.path(), record)).unwrap();
        let refused = mount(&other).unwrap_err();
        assert!(refused.contains("disk.volumes-absent"), "{refused}");
    }

    #[test]
    fn new_vm_of_the_node_takes_its_volumes() {
        alone();
        let (mut machine, _device) = machine();
        boot(&machine, false).unwrap().decide_on_volumes().unwrap();
        mount(&machine).unwrap();
        fs::write(machine.platform().path(paths::LOCAL_VOLUMES).join("pvc-1"), "rows").unwrap();
        power_off(&machine);
        // Another VM without records.
        machine.uuid = contract::bios_uuid::BiosUuid::from_u128(77);
        fs::remove_file(machine.directory.path().join("data/kaas/local-volumes.json")).unwrap();
        boot(&machine, false).unwrap().decide_on_volumes().unwrap();
        assert_eq!(mount(&machine), Ok(true));
        assert!(machine.platform().path(paths::LOCAL_VOLUMES).join("pvc-1").exists());
        let [(_, identity)] = &disk::taken_volumes(&machine.platform()).unwrap()[..] else { panic!("not taken") };
        assert_eq!((identity.holder, identity.generation), (Some(machine.uuid), 2));
        power_off(&machine);
    }
}
