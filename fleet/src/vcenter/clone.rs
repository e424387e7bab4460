//! New VMs: clones of an image's template, with all their settings from their creation.

use std::collections::BTreeMap;

use uuid::Uuid;
use vsphere::{CloneDisks, ClonePolicy, CloneVm, ConfigSpec, DiskMode, NewDisk};

use super::VcenterHypervisor;
use super::disks::first_controller;
use super::image::Image;
use super::look::uuid;
use super::place::Place;
use super::settings::{Wire, filled, taken_over, wired};
use super::site::Clones;
use super::stamp;
use super::template_catalog::{CHANGED, TemplateFingerprint, is_by_host, snapshot};
use super::trouble::{after_it_began, changed};
use crate::hypervisor::{CloneRequest, CloneSettings, Error, Fence, Networks, Result, Size, VmSize};

/// The prefix of the entries of `extraConfig` that a guest reads.
const GUESTINFO: &str = "guestinfo.";

impl VcenterHypervisor {
    /// Reads the place, the networks and the settings of a new VM, then clones the template.
    pub(super) async fn clone_template(&self, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        match request.settings {
            CloneSettings::Replaces { vm, size } => {
                let like = self.as_seen(vm).await?;
                // A disk that could not be attached to the new VM is reported while the old one runs.
                self.disks_may_move(vm).await?;
                let image = self.image(request.image).await?;
                let place = Place { host: like.host.clone(), ..self.place(Some(&like), request.placement).await? };
                let size = size.unwrap_or(VmSize { processors: like.processors, memory: like.memory });
                let values = taken_over(&image.template.properties, &like.properties);
                let spec = self.settings(&image, request, size, values, &Self::wires_of(&like)?)?;
                self.clone_of(&image, request.name, &place, Networks::Of(vm), (&spec, 0), permit).await
            }
            CloneSettings::Given { networks, size, properties } => {
                let image = self.image(request.image).await?;
                let beside = match networks.beside() {
                    Some(vm) => Some(self.named(&vm.reference).await?),
                    None => None,
                };
                let place = self.place(beside.as_ref(), request.placement).await?;
                for vm in self.all_own().await? {
                    if stamp::read(&vm.name, &vm.extra)?.as_ref() == Some(&request.stamp) {
                        let words = format!("{} carries the stamp that {} was to have", vm.name, request.name);
                        return Err(Error::refused(words));
                    }
                }
                let wires = self.wires(networks).await?;
                let spec = self.given_settings(&image, request, size, properties, &wires).await?;
                let new_disks = usize::from(size.data_disk.is_some());
                self.clone_of(&image, request.name, &place, networks, (&spec, new_disks), permit).await
            }
        }
    }

    /// The settings of a VM that replaces no other one.
    pub(super) async fn given_settings(
        &self,
        image: &Image,
        request: &CloneRequest<'_>,
        size: &Size,
        properties: &BTreeMap<String, String>,
        wires: &[Wire],
    ) -> Result<ConfigSpec> {
        let values = properties.iter().map(|(name, value)| (name.clone(), value.as_str())).collect();
        let of_vm = VmSize { processors: size.processors, memory: size.memory.into() };
        let spec = self.settings(image, request, of_vm, values, wires)?;
        match size.data_disk {
            Some(bytes) => with_data_disk(spec, &image.template, bytes, self.policy().await?),
            None => Ok(spec),
        }
    }

    fn settings(
        &self,
        image: &Image,
        request: &CloneRequest<'_>,
        size: VmSize,
        values: BTreeMap<String, &str>,
        wires: &[Wire],
    ) -> Result<ConfigSpec> {
        let spec = self.stamped(&request.stamp).processors(size.processors).memory(size.memory);
        let spec = spec.bios_uuid(&request.uuid.to_string());
        let form = &image.template.properties;
        let values = filled(form, &image.note.defaults, values)?;
        let spec = spec.properties(form, values.iter().map(|(name, value)| (name.as_str(), *value)))?;
        wired(spec, &image.template, wires)
    }

    /// Makes one request that changes something. A clone cannot be tied to the template's settings that were read, so
    /// these are read again afterwards. The clone is also compared with the template that was read, whatever has
    /// changed since. `new_disks` is the number of disks that the settings add.
    pub(super) async fn clone_of(
        &self,
        image: &Image,
        name: &str,
        place: &Place,
        networks: Networks<'_>,
        (spec, new_disks): (&ConfigSpec, usize),
        permit: &dyn Fence,
    ) -> Result<Uuid> {
        let template = &image.template;
        let disks = match (self.places.clones, snapshot(template)) {
            (Clones::Linked, Some(snapshot)) => {
                let laid = self.datastore_of(template).await?;
                if laid != place.at {
                    return Err(Error::refused(format!(
                        "{name} is to be on {}, and its image {} is on {}: import the image there first",
                        place.at.name, template.name, laid.name
                    )));
                }
                CloneDisks::LinkedTo(snapshot)
            }
            _ => CloneDisks::Full,
        };
        let policy = self.policy().await?;
        let policy =
            policy.map(|id| ClonePolicy { id, disks: &template.devices.disks, datastore: &place.at.datastore });
        self.takes_vms(&place.at).await?;
        let host = self.host_for(place, self.references_of(networks)).await?;
        let is_linked = matches!(disks, CloneDisks::LinkedTo(_));
        let clone = CloneVm {
            name,
            folder: &place.folder,
            pool: Some(&place.pool),
            datastore: Some(&place.at.datastore),
            host: host.as_ref(),
            disks,
            policy,
            config: spec,
            is_template: false,
        };
        let made = self.client.changes(&permit).clone_vm(&template.reference, &clone).await;
        let made = made.map_err(|error| self.with_policy(error))?;
        let after = self.client.whole_vm(&template.reference).await.map_err(after_it_began)?;
        // A linked clone has the settings of its snapshot. A full clone has the current settings.
        let is_sealed = is_linked || self.is_as_sealed(&image.note, &after).await.map_err(after_it_began)?;
        if !is_sealed || !is_alike(template, &after) {
            let words = format!("the template {} was changed while {name} was made from it", template.name);
            return Err(after_it_began(changed(words)));
        }
        let vm = self.complete(&made, spec, permit).await.map_err(after_it_began)?;
        if let Some(strange) = strange(template, &vm, new_disks) {
            let words = format!(
                "{name} was made with {strange}, which is not as in the template {}: it was changed meanwhile",
                template.name
            );
            return Err(after_it_began(changed(words)));
        }
        uuid(&vm).map_err(after_it_began)
    }
}

/// A network connection, guest entry or boot setting of a new VM that differs from the template that was read. A full
/// clone has the template's settings of that moment, and the template may have been changed back since.
fn strange(template: &vsphere::Vm, made: &vsphere::Vm, new_disks: usize) -> Option<String> {
    let (had, has) = (&template.devices, &made.devices);
    if has.disks.len() != had.disks.len() + new_disks {
        return Some(format!("{} disks", has.disks.len()));
    }
    if has.adapters.len() != had.adapters.len() {
        return Some(format!("{} network adapters", has.adapters.len()));
    }
    let mut known = had.others.clone();
    for other in &has.others {
        let Some(at) = known.iter().position(|known| known == other) else {
            return Some(format!("a {} ({} {})", other.kind, other.backing, other.leads_to));
        };
        known.remove(at);
    }
    if made.boot != template.boot {
        return Some(format!("another boot order or firmware ({})", started(&made.boot)));
    }
    let mut told = made.extra.keys().filter(|key| key.starts_with(GUESTINFO));
    let changed = told.find(|key| made.extra.get(key) != template.extra.get(key));
    changed.map(|key| format!("the entry {key}"))
}

fn started(boot: &vsphere::Boot) -> String {
    let signed = if boot.is_secure { ", only what is signed" } else { "" };
    format!("{}{signed}, in the order {:?}", boot.firmware, boot.order)
}

/// Whether the parts of a template that a linked clone uses are unchanged. The clone itself may count as a change of
/// the settings. For full clones the settings are compared by content.
fn is_alike(before: &vsphere::Vm, after: &vsphere::Vm) -> bool {
    TemplateFingerprint::of(before).is_some_and(|seal| matches!(seal.broken(after), None | Some(CHANGED)))
        && own_entries(before).eq(own_entries(after))
        && before.properties == after.properties
}

/// The entries of `extraConfig` that no host wrote.
fn own_entries(vm: &vsphere::Vm) -> impl Iterator<Item = (&str, &str)> {
    vm.extra.keys().filter(|key| !is_by_host(key)).filter_map(|key| Some((key, vm.extra.get(key)?)))
}

/// Adds a blank disk outside snapshots to the system disk.
fn with_data_disk(spec: ConfigSpec, image: &vsphere::Vm, bytes: u64, policy: Option<&str>) -> Result<ConfigSpec> {
    let controller = first_controller(image);
    let controller =
        controller.ok_or_else(|| Error::refused(format!("the image {} has no SCSI controller", image.name)))?;
    if bytes == 0 || !bytes.is_multiple_of(1024) {
        return Err(Error::refused(format!("a data disk of {bytes} bytes cannot be made: it has to be of whole KiB")));
    }
    let mode = DiskMode::IndependentPersistent;
    Ok(spec.new_disk(&NewDisk { capacity: bytes, controller, mode, datastore: None, policy })?)
}
