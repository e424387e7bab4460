//! The settings of new VMs: owner, networks, and the values of their image's properties.

use std::collections::BTreeMap;

use vsphere::{ConfigSpec, Element, ManagedBy, Property};

use super::VcenterHypervisor;
use super::look::sorted;
use super::stamp::{IMAGE, STAMP, written};
use crate::hypervisor::{Error, Networks, Result, Stamp};

/// The network of one adapter of a new VM, and whether it will be connected.
pub(super) struct Wire {
    backing: Element,
    connected: bool,
}

impl Wire {
    /// The same network, not connected at power-on.
    pub(super) fn disconnected(self) -> Self {
        Self { connected: false, ..self }
    }
}

/// Connects the adapters of a new VM's image to these networks.
///
/// # Errors
/// The image has another number of adapters.
pub(super) fn wired(spec: ConfigSpec, image: &vsphere::Vm, wires: &[Wire]) -> Result<ConfigSpec> {
    let adapters = sorted(image);
    if adapters.len() != wires.len() {
        return Err(Error::refused(format!(
            "the image has {} network adapters, and {} networks are given",
            adapters.len(),
            wires.len()
        )));
    }
    let wire = |spec: ConfigSpec, (adapter, wire): (&&vsphere::Adapter, &Wire)| {
        spec.network(adapter, &wire.backing, wire.connected)
    };
    Ok(adapters.iter().zip(wires).fold(spec, wire))
}

/// The given property values of another VM, if the image has the property and another default. An image of another
/// version has other properties and other defaults.
pub(super) fn taken_over<'v>(image: &[Property], like: &'v [Property]) -> BTreeMap<String, &'v str> {
    let of_image: BTreeMap<String, &str> =
        image.iter().map(|property| (property.name(), property.value.as_str())).collect();
    let given = like.iter().filter(|property| property.is_given && property.is_configurable);
    let values = given.map(|property| (property.name(), property.value.as_str()));
    values.filter(|(name, value)| of_image.get(name).is_some_and(|own| own != value)).collect()
}

/// The property values of a new VM, each set explicitly: the given value, or else the default of the image's OVA. The
/// template's values are never used.
///
/// # Errors
/// The template has a value where the OVA has none: no request could remove it.
pub(super) fn filled<'v>(
    form: &'v [Property],
    defaults: &'v BTreeMap<String, String>,
    given: BTreeMap<String, &'v str>,
) -> Result<BTreeMap<String, &'v str>> {
    let mut values = given;
    for property in form.iter().filter(|property| property.is_configurable) {
        let (name, default) = (property.name(), defaults.get(&property.name()).map_or("", String::as_str));
        if values.contains_key(&name) || (default.is_empty() && property.value.is_empty()) {
            continue;
        }
        // An empty value counts as none: the property's default would count.
        if default.is_empty() {
            return Err(Error::refused(format!("the template has a value for {name}, where its OVA has none")));
        }
        values.insert(name, default);
    }
    Ok(values)
}

/// The type of the VMs in the extension that manages them.
const NODE: &str = "node";

impl VcenterHypervisor {
    /// The settings of a new VM that name its owner.
    pub(super) fn stamped(&self, stamp: &Stamp) -> ConfigSpec {
        // The template's image entry does not apply to its clones.
        let spec = ConfigSpec::new().extra(STAMP, &written(stamp)).extra(IMAGE, "");
        match &self.places.managed_by {
            Some(extension) => spec.managed_by(&ManagedBy { extension: extension.clone(), kind: NODE.to_owned() }),
            None => spec,
        }
    }

    /// The networks of a VM.
    pub(super) fn wires_of(vm: &vsphere::Vm) -> Result<Vec<Wire>> {
        let wire = |adapter: &vsphere::Adapter| -> Result<Wire> {
            Ok(Wire { backing: adapter.backing_like()?, connected: adapter.start_connected })
        };
        sorted(vm).into_iter().map(wire).collect()
    }

    /// The requested networks.
    pub(super) async fn wires(&self, networks: Networks<'_>) -> Result<Vec<Wire>> {
        match networks {
            Networks::Of(vm) => {
                let mut wires = Self::wires_of(&self.named(&vm.reference).await?)?;
                for wire in &mut wires {
                    wire.connected = true;
                }
                Ok(wires)
            }
            Networks::Named(names) => {
                let mut wires = Vec::new();
                for name in names {
                    let backing = self.client.network_backing(&self.network(name).await?).await?;
                    wires.push(Wire { backing, connected: true });
                }
                Ok(wires)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(id: &str, value: &str, is_given: bool, is_configurable: bool) -> Property {
        property_of("string", id, value, is_given, is_configurable)
    }

    fn property_of(kind: &str, id: &str, value: &str, is_given: bool, is_configurable: bool) -> Property {
        let value = Element::text(if is_given { "value" } else { "defaultValue" }, value);
        let parts = [Element::text("key", 0), Element::text("id", id), Element::text("type", kind), value];
        let info = Element::new("info").with(parts).with([Element::text("userConfigurable", is_configurable)]);
        Property::read(&info).expect("a property with a key")
    }

    #[test]
    fn property_values_never_come_from_the_template() {
        let form = [("name", "", true), ("minor", "1.35", true), ("cidr", "10.0.0.0/8", true), ("build", "x", false)]
            .map(|(id, value, is_configurable)| property(id, value, false, is_configurable));
        let texts = |texts: &[(&str, &str)]| texts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let defaults: BTreeMap<String, String> =
            texts(&[("name", ""), ("minor", "1.36"), ("cidr", "10.244.0.0/16"), ("build", "new")]);
        let given =
            BTreeMap::from([("name".to_owned(), "cp1"), ("minor".to_owned(), "1.34"), ("strange".to_owned(), "x")]);
        let expected = [("cidr", "10.244.0.0/16"), ("minor", "1.34"), ("name", "cp1"), ("strange", "x")];
        let filled_in = filled(&form, &defaults, given).unwrap();
        assert_eq!(filled_in.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>(), expected);
        let fewer: BTreeMap<String, String> = texts(&[("minor", "1.36")]);
        let error = filled(&form, &fewer, BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("a value for cidr, where its OVA has none"), "{error}");
    }

    // Finding 7 of controller.md: an image without `node-prefix` would give each node a /24, whatever the cluster asks for.
    #[test]
    fn given_value_of_an_unknown_property_is_refused() {
        let form = ["pod-cidr", "role"].map(|id| property(id, "", false, true));
        let with = |given: &[(&str, &'static str)]| {
            let given = given.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            let defaults = BTreeMap::new();
            let values = filled(&form, &defaults, given).unwrap();
            ConfigSpec::new().properties(&form, values.iter().map(|(name, value)| (name.as_str(), *value)))
        };
        assert!(with(&[("pod-cidr", "10.0.0.0/16")]).is_ok());
        let error = with(&[("pod-cidr", "10.0.0.0/16"), ("node-prefix", "25")]).unwrap_err();
        assert!(error.to_string().contains("the VM has no property node-prefix"), "{error}");
    }

    #[test]
    fn only_given_values_of_known_properties_are_copied() {
        let image = [("name", ""), ("minor", "1.36"), ("build", "new"), ("same", "s")]
            .map(|(id, value)| property(id, value, false, true));
        let like = [
            property("name", "cp1", true, true),
            property("minor", "1.35", false, true),
            property("build", "old", true, false),
            property("same", "s", true, true),
            property("gone", "x", true, true),
        ];
        assert_eq!(taken_over(&image, &like), BTreeMap::from([("name".to_owned(), "cp1")]));
    }
    /// Earlier images have addresses with a user's password in them as plain strings. No user sees the value of a
    /// password in vCenter. Values that the next swap cannot copy are on the data disk.
    #[test]
    fn string_is_copied_to_password_but_not_back() {
        let (target, given) = ("snapshot-target", "https://kaas:secret@backup.example.com/one/");
        let hidden = |value: &str| [property_of("password", target, value, !value.is_empty(), true)];
        let earlier = [property(target, given, true, true)];
        assert_eq!(taken_over(&hidden(""), &earlier), BTreeMap::from([(target.to_owned(), given)]));
        assert_eq!(taken_over(&hidden(""), &hidden("")), BTreeMap::new());
        assert_eq!(
            taken_over(&[property(target, "", false, true)], &hidden("")),
            BTreeMap::new(),
            "back to the earlier image"
        );
    }
}
