//! vCenter's plan for the import of a descriptor.

use ova::Sha256;

use super::Import;
use super::package::Package;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::method::CREATE_IMPORT_SPEC;
use crate::soap::Element;

/// A file that vCenter needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// vCenter's name of the file's device.
    pub(super) device: String,
    /// Its name in the OVA.
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) digest: Sha256,
    /// Whether the file is created, such as a CD image. Otherwise it fills a disk.
    pub(super) is_made: bool,
}

pub(super) struct Plan {
    /// vCenter's `ImportSpec`, with the settings that differ.
    pub(super) spec: Element,
    pub(super) files: Vec<Wanted>,
    pub(super) warnings: Vec<String>,
}

impl Client {
    /// Requests vCenter's plan for a package. Changes nothing.
    pub(super) async fn plan(&self, import: &Import<'_>, package: &Package) -> Result<Plan> {
        let attempt = || format!("reading the descriptor of {} for {}", import.ova.display(), import.name);
        let manager = self.service().manager("ovfManager")?;
        let arguments = vec![
            Element::text("ovfDescriptor", &package.descriptor),
            Element::reference("resourcePool", import.pool),
            Element::reference("datastore", import.datastore),
            parameters(import),
        ];
        let response = self.call(CREATE_IMPORT_SPEC, &manager, arguments).await?;
        let result = response.need("returnval")?;
        if let Some(error) = result.child("error") {
            return Err(Error::of_fault(attempt(), Fault::localized(error)));
        }
        let mut spec = result.need("importSpec")?.clone().named("spec");
        let config = spec.child_mut("configSpec");
        let config = config.ok_or_else(|| Error::refused(attempt(), "it is not of one VM"))?;
        if !import.blank_disks {
            let filled = result.all("fileItem").filter_map(|item| item.text_of("deviceId")).collect::<Vec<_>>();
            leave_out_blank(config, &filled).map_err(|reason| Error::refused(attempt(), reason))?;
        }
        import.config.add_to(config);
        let wanted = |item: &Element| -> Result<Wanted> {
            let name: String = item.need_parsed("path")?;
            let (size, digest) = package.file(&name).map_err(|reason| Error::refused(attempt(), reason))?;
            Ok(Wanted { device: item.need_parsed("deviceId")?, name, size, digest, is_made: item.flag("create") })
        };
        Ok(Plan {
            spec,
            files: result.all("fileItem").map(wanted).collect::<Result<_>>()?,
            warnings: result.all("warning").map(|warning| Fault::localized(warning).to_string()).collect(),
        })
    }
}

/// Removes the disks without a file. vCenter names a file's device by its controller's type, bus and unit, such as
/// `/name/ParaVirtualSCSIController0:1` (`OvfFileItem.deviceId`). Ignores files that fill no disk. Fails if no disk is
/// left: then the names of the devices have another form.
fn leave_out_blank(config: &mut Element, filled: &[&str]) -> std::result::Result<(), String> {
    let devices: Vec<&Element> = config.all("deviceChange").filter_map(|change| change.child("device")).collect();
    let place = |disk: &Element| {
        let key = disk.text_of("controllerKey")?;
        let controller = devices.iter().find(|device| device.text_of("key") == Some(key))?;
        let (kind, bus) = (controller.kind()?, controller.text_of("busNumber")?);
        Some(format!("/{kind}{bus}:{}", disk.text_of("unitNumber")?))
    };
    let is_disk = |device: &&&Element| device.kind() == Some("VirtualDisk");
    let disks = devices.iter().filter(is_disk);
    let (kept, blank): (Vec<&Element>, Vec<&Element>) =
        disks.partition(|disk| place(disk).is_some_and(|place| filled.iter().any(|file| file.ends_with(&place))));
    if kept.is_empty() {
        return Err(format!("vCenter names no disk that a file is for, but {}", filled.join(", ")));
    }
    let blank: Vec<Element> = blank.into_iter().cloned().collect();
    config.retain(|part| part.name() != "deviceChange" || !part.child("device").is_some_and(|at| blank.contains(at)));
    Ok(())
}

/// `OvfCreateImportSpecParams`, in the order of its schema.
fn parameters(import: &Import<'_>) -> Element {
    let networks = import.networks.iter().map(|(name, network)| {
        Element::new("networkMapping").with([Element::text("name", name), Element::reference("network", network)])
    });
    let properties = import.properties.iter().map(|(name, value)| {
        Element::new("propertyMapping").with([Element::text("key", name), Element::text("value", value)])
    });
    Element::new("cisp")
        .with([Element::text("locale", ""), Element::text("deploymentOption", import.option.unwrap_or_default())])
        .with([Element::text("entityName", import.name)])
        .with(import.host.map(|host| Element::reference("hostSystem", host)))
        .with(networks)
        .with(properties)
        .with([Element::text("diskProvisioning", "thin")])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(kind: &str, parts: &[(&str, &str)]) -> Element {
        let device = Element::new("device").of(kind).with(parts.iter().map(|(name, text)| Element::text(*name, text)));
        Element::new("deviceChange").with([Element::text("operation", "add"), device])
    }

    fn disk(unit: &str) -> Element {
        device("VirtualDisk", &[("key", "-1"), ("controllerKey", "-5"), ("unitNumber", unit)])
    }

    fn config() -> Element {
        let controller = device("ParaVirtualSCSIController", &[("key", "-5"), ("busNumber", "1")]);
        Element::new("configSpec").with([Element::text("name", "node"), controller, disk("0"), disk("10")])
    }

    fn units(config: &Element) -> Vec<&str> {
        config.all("deviceChange").filter_map(|change| change.child("device")?.text_of("unitNumber")).collect()
    }

    #[test]
    fn disks_without_a_file_are_left_out() {
        let mut spec = config();
        leave_out_blank(&mut spec, &["/node/ParaVirtualSCSIController1:0", "/node/VirtualCdrom1"]).unwrap();
        assert_eq!(
            (units(&spec), spec.all("deviceChange").count(), spec.text_of("name")),
            (vec!["0"], 2, Some("node"))
        );
        let mut spec = config();
        leave_out_blank(&mut spec, &["/node/ParaVirtualSCSIController1:10", "/node/ParaVirtualSCSIController1:0"])
            .unwrap();
        assert_eq!(units(&spec), ["0", "10"]);
    }

    #[test]
    fn unknown_file_devices_leave_out_no_disk() {
        for files in [&["/node/ParaVirtualSCSIController0:0"][..], &["/node/7"], &[]] {
            let mut spec = config();
            leave_out_blank(&mut spec, files).unwrap_err();
            assert_eq!(units(&spec), ["0", "10"]);
        }
    }
}
