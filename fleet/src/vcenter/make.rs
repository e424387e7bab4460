//! New VMs: clones of an image's template, with all that is theirs from their first moment.

use uuid::Uuid;
use vsphere::{CloneDisks, CloneVm, ConfigSpec, DiskMode, NewDisk};

use super::VcenterHypervisor;
use super::disks::first_controller;
use super::image::snapshot;
use super::look::uuid;
use super::place::Place;
use super::settings::{taken_over, wired};
use super::site::Clones;
use super::stamp;
use super::trouble::{Asking, after_it_began};
use crate::hypervisor::{Addition, Error, Permit, Replacement, Result};

impl VcenterHypervisor {
    pub(super) async fn make_replacement(&self, replacement: &Replacement<'_>, permit: &dyn Permit) -> Result<Uuid> {
        let like = self.as_seen(replacement.like).await?;
        let image = self.image(replacement.image).await?;
        let place = self.place(Some(&like), replacement.placement).await?;
        let spec = self.stamped(&replacement.stamp).processors(like.processors).memory(like.memory);
        let values = taken_over(&image.properties, &like.properties);
        let spec = spec.properties(&image.properties, values.iter().map(|(name, value)| (name.as_str(), *value)))?;
        let spec = wired(spec, &image, &self.wires_of(&like).await?)?;
        self.clone_of(&image, replacement.name, &place, &spec, permit).await
    }

    pub(super) async fn make_addition(&self, addition: &Addition<'_>, permit: &dyn Permit) -> Result<Uuid> {
        let image = self.image(addition.image).await?;
        let beside = match addition.networks.beside() {
            Some(vm) => Some(self.named(&vm.reference).await?),
            None => None,
        };
        let place = self.place(beside.as_ref(), addition.placement).await?;
        for vm in self.all_own().await? {
            if stamp::read(&vm.name, &vm.extra)?.as_ref() == Some(&addition.stamp) {
                return Err(Error::refused(format!(
                    "{} carries the stamp that {} was to have",
                    vm.name, addition.name
                )));
            }
        }
        let size = addition.size;
        let spec = self.stamped(&addition.stamp).processors(size.processors).memory(size.memory.into());
        let spec = match addition.uuid {
            Some(uuid) => spec.bios_uuid(&uuid.to_string()),
            None => spec,
        };
        let values = addition.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let spec = wired(spec.properties(&image.properties, values)?, &image, &self.wires(addition.networks).await?)?;
        let spec = match size.data_disk {
            Some(bytes) => with_data_disk(spec, &image, bytes)?,
            None => spec,
        };
        self.clone_of(&image, addition.name, &place, &spec, permit).await
    }

    /// One request.
    async fn clone_of(
        &self,
        image: &vsphere::Vm,
        name: &str,
        place: &Place,
        spec: &ConfigSpec,
        permit: &dyn Permit,
    ) -> Result<Uuid> {
        let disks = match (self.places.clones, snapshot(image)) {
            (Clones::Linked, Some(snapshot)) => {
                let laid = self.datastore_of(image).await?;
                if laid != place.at {
                    return Err(Error::refused(format!(
                        "{name} is to be on {}, and its image {} lies on {}: lay it ready there first",
                        place.at.name, image.name, laid.name
                    )));
                }
                CloneDisks::LinkedTo(snapshot)
            }
            _ => CloneDisks::Full,
        };
        self.takes_vms(&place.at).await?;
        let clone = CloneVm {
            name,
            folder: &place.folder,
            pool: Some(&place.pool),
            datastore: Some(&place.at.datastore),
            host: None,
            disks,
            policy: None,
            config: spec,
            is_template: false,
        };
        let made = self.client.changes(&Asking(permit)).clone_vm(&image.reference, &clone).await?;
        let vm = self.client.vm(&made).await.map_err(after_it_began)?;
        uuid(&vm).map_err(after_it_began)
    }
}

/// A blank disk outside snapshots, beside the system disk.
fn with_data_disk(spec: ConfigSpec, image: &vsphere::Vm, bytes: u64) -> Result<ConfigSpec> {
    let controller = first_controller(image);
    let controller =
        controller.ok_or_else(|| Error::refused(format!("the image {} has no SCSI controller", image.name)))?;
    if bytes == 0 || !bytes.is_multiple_of(1024) {
        return Err(Error::refused(format!("a data disk of {bytes} bytes cannot be made: it has to be of whole KiB")));
    }
    let mode = DiskMode::IndependentPersistent;
    Ok(spec.new_disk(&NewDisk { capacity: bytes, controller, mode, datastore: None, policy: None })?)
}
