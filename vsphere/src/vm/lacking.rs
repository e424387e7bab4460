//! Compares a new VM with the settings that it was created with. According to reports, parts of `CloneSpec.config` had
//! no effect, such as the vApp configuration, while `ReconfigVM_Task` applied them (govmomi issue 2201).

use crate::disk::normal_uuid;
use crate::soap::Element;

use super::config_spec::{ConfigSpec, edited};
use super::device::network;
use super::property::Property;
use super::seen::Vm;

/// The differences of a VM to the settings that it was created with.
#[derive(Clone, Debug)]
pub struct Lacking {
    /// The parts that differ, for messages. They have no values, because some are secrets.
    pub parts: Vec<String>,
    /// The changes that set these parts, tied to the settings that were compared. Parts that cannot be changed later
    /// are left out.
    pub rest: ConfigSpec,
}

impl Lacking {
    /// Whether the VM has all settings.
    pub fn is_nothing(&self) -> bool {
        self.parts.is_empty()
    }

    fn part(&mut self, differs: bool, name: impl Into<String>, part: &Element) {
        if differs {
            self.parts.push(name.into());
            self.rest.push(part.clone());
        }
    }
}

impl ConfigSpec {
    /// The parts of these settings that a new VM lacks. The VM was read with all entries of its `extraConfig`
    /// ([`crate::Client::whole_vm`]). Its name, notes and storage policy are not compared.
    pub fn lacking_in(&self, vm: &Vm) -> Lacking {
        let mut lacking = Lacking { parts: Vec::new(), rest: Self::of(vm) };
        for part in self.parts() {
            let text = |name| part.text_of(name).unwrap_or_default();
            match part.name() {
                "uuid" => {
                    let differs = normal_uuid(part.value()) != normal_uuid(&vm.bios_uuid);
                    lacking.part(differs, "the BIOS UUID", part);
                }
                "numCPUs" => lacking.part(part.value() != vm.processors.to_string(), "the number of CPUs", part),
                "memoryMB" => lacking.part(part.value() != vm.memory.to_string(), "the size of its memory", part),
                "managedBy" => {
                    let by = vm.managed_by.as_ref().map_or(("", ""), |by| (&by.extension, &by.kind));
                    lacking.part(by != (text("extensionKey"), text("type")), "the extension that manages it", part);
                }
                "extraConfig" => {
                    let differs = vm.extra.get(text("key")).unwrap_or_default() != text("value");
                    lacking.part(differs, format!("the entry {} of extraConfig", text("key")), part);
                }
                "vAppConfig" => properties(part, vm, &mut lacking),
                "deviceChange" => device(part, vm, &mut lacking),
                _ => {}
            }
        }
        lacking
    }
}

/// Compares OVF properties by name, because a clone may have other keys. If one differs, all are sent again: "for
/// properties of type 'password', the value field and default value field will always be returned as an empty string
/// when queried" (`VAppPropertyInfo.type`). The values of passwords therefore cannot be compared.
fn properties(config: &Element, vm: &Vm, lacking: &mut Lacking) {
    let (before, mut rest) = (lacking.parts.len(), Vec::new());
    for wanted in config.all("property").filter_map(|change| Property::read(change.child("info")?)) {
        let present = vm.properties.iter().find(|present| present.name() == wanted.name());
        let is_alike = present.is_some_and(|present| {
            let is_same = match wanted.kind.as_str() {
                // "The value can be True or False": clients also write it in lower case.
                "boolean" => present.value.eq_ignore_ascii_case(&wanted.value),
                kind => kind.starts_with("password") || present.value == wanted.value,
            };
            is_same && present.kind == wanted.kind && present.is_configurable == wanted.is_configurable
        });
        if !is_alike {
            lacking.parts.push(format!("the OVF property {}", wanted.name()));
        }
        rest.extend(present.map(|present| wanted.element.put_text("key", present.key)));
    }
    if lacking.parts.len() > before && !rest.is_empty() {
        lacking.rest.push(edited(rest));
    }
}

/// Compares an adapter's network, or an added disk.
fn device(change: &Element, vm: &Vm, lacking: &mut Lacking) {
    let Some(wanted) = change.child("device") else { return };
    let number = |name| wanted.parsed::<i32>(name);
    if change.text_of("operation") == Some("add") {
        let (controller, unit) = (number("controllerKey"), number("unitNumber"));
        let at = |disk: &&super::Disk| (Some(disk.controller), Some(disk.unit)) == (controller, unit);
        let Some(disk) = vm.devices.disks.iter().find(at) else {
            lacking.part(true, "a disk", change);
            return;
        };
        let bytes = wanted.parsed::<u64>("capacityInKB").unwrap_or_default() * 1024;
        if bytes > 0 && disk.capacity != bytes {
            lacking.parts.push(format!("the size of {}", disk.label));
        }
        if wanted.at(&["backing", "diskMode"]).is_some_and(|mode| mode.value() != disk.mode) {
            lacking.parts.push(format!("the mode of {}", disk.label));
        }
        return;
    }
    let Some(backing) = wanted.child("backing").filter(|_| wanted.kind() != Some("VirtualDisk")) else { return };
    let starts = wanted.child("connectable").is_some_and(|connectable| connectable.flag("startConnected"));
    let Some(adapter) = number("key").and_then(|key| vm.devices.adapter(key)) else {
        lacking.parts.push("a network adapter".to_owned());
        return;
    };
    if adapter.network != network(backing) || adapter.start_connected != starts {
        lacking.parts.push(format!("the network of {}", adapter.label));
        lacking.rest = std::mem::take(&mut lacking.rest).network(adapter, backing, starts);
    }
}
