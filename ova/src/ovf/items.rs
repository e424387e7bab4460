//! The `Item`s of a hardware section, and their combination to the devices of one configuration.

use std::collections::BTreeMap;

use roxmltree::Node;

use super::capacity::in_bytes;
use super::devices::resource;
use super::document::{Look, ParseError, RASD, number, wrong};

/// A limit of elements, above that of any descriptor: each configuration reads all of them.
const MOST_ITEMS: usize = 2000;

/// An `Item` of the hardware section.
#[derive(Clone, Copy)]
pub(super) struct Item<'a>(pub(super) Node<'a, 'a>);

impl<'a> Item<'a> {
    pub(super) fn all(hardware: Node<'a, 'a>) -> impl Iterator<Item = Item<'a>> {
        hardware.children_named("Item").map(Item)
    }

    pub(super) fn of_type(hardware: Node<'a, 'a>, kind: u32) -> impl Iterator<Item = Item<'a>> {
        Item::all(hardware).filter(move |item| item.text("ResourceType") == Some(kind.to_string()))
    }

    pub(super) fn text(self, name: &str) -> Option<String> {
        self.0.child_text(RASD, name)
    }

    pub(super) fn need(self, name: &str) -> Result<String, ParseError> {
        self.text(name).ok_or_else(|| wrong(self.0, format!("the Item has no {name}")))
    }

    pub(super) fn profiles(self) -> Vec<String> {
        self.0.ovf("configuration").unwrap_or_default().split_whitespace().map(String::from).collect()
    }

    /// The distance of its values to those that the author recommends (`ovf:bound`, DSP0243 1.1 §8.4). The lower bound
    /// of a range is used only without a recommended value, the upper bound only without a lower one.
    fn rank(self) -> Result<u8, ParseError> {
        match self.0.ovf("bound") {
            None | Some("normal") => Ok(0),
            Some("min") => Ok(1),
            Some("max") => Ok(2),
            Some(other) => Err(wrong(self.0, format!("ovf:bound is {other:?}; min, normal and max are allowed"))),
        }
    }
}

/// All `Item`s of a hardware section, sorted by device.
pub(super) struct Items<'a> {
    /// The elements of each device, in the descriptor's order, with their configurations and ranks.
    devices: Vec<Vec<(Item<'a>, Vec<String>, u8)>>,
}

impl<'a> Items<'a> {
    /// Sorts the `Item`s by their InstanceID. An `Item` without one is a device by itself.
    pub(super) fn read(hardware: Node<'a, 'a>) -> Result<Items<'a>, ParseError> {
        let mut devices: Vec<Vec<_>> = Vec::new();
        let mut by_id = BTreeMap::new();
        for (count, item) in Item::all(hardware).enumerate() {
            if count == MOST_ITEMS {
                return Err(wrong(item.0, format!("there are more than {MOST_ITEMS} Items")));
            }
            let element = (item, item.profiles(), item.rank()?);
            // Descriptors of the first tools use the name from an older CIM schema.
            let id = item.text("InstanceID").or_else(|| item.text("InstanceId"));
            let place = id.map(|id| *by_id.entry(id).or_insert(devices.len()));
            match place.and_then(|place| devices.get_mut(place)) {
                Some(device) => device.push(element),
                None => devices.push(vec![element]),
            }
        }
        Ok(Items { devices })
    }

    /// The devices of a configuration. An element that names configurations belongs to these alone (DSP0243 §9.8).
    pub(super) fn devices(&self, profile: Option<&str>) -> Vec<Device<'a>> {
        let combined = self.devices.iter().map(|elements| {
            let suits = |profiles: &[String]| {
                profiles.is_empty() || profile.is_some_and(|profile| profiles.iter().any(|id| id == profile))
            };
            let suiting = elements.iter().filter(|(_, profiles, _)| suits(profiles));
            let best = suiting.clone().map(|(.., rank)| *rank).min();
            Device(suiting.filter(|(.., rank)| Some(*rank) == best).map(|(item, ..)| *item).collect())
        });
        combined.filter(|device| !device.0.is_empty()).collect()
    }
}

/// A device: all `Item`s with its InstanceID. The elements of a later one override those of an earlier one (DSP0243 1.1
/// §9.8). Never empty.
pub(super) struct Device<'a>(Vec<Item<'a>>);

impl<'a> Device<'a> {
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.0.iter().rev().find_map(|item| item.text(name))
    }

    pub(super) fn is(&self, kind: u32) -> bool {
        self.text("ResourceType") == Some(kind.to_string())
    }

    /// Its last element, for messages.
    fn node(&self) -> Node<'a, 'a> {
        self.0[self.0.len() - 1].0
    }

    fn quantity(&self) -> Result<Option<u64>, ParseError> {
        self.text("VirtualQuantity").map(|text| number(self.node(), &text)).transpose()
    }
}

/// The number of processors, if the hardware has it.
pub(super) fn cpus(devices: &[Device<'_>]) -> Result<Option<u32>, ParseError> {
    let Some(device) = devices.iter().rfind(|device| device.is(resource::PROCESSOR)) else { return Ok(None) };
    let small = |cpus| u32::try_from(cpus).map_err(|_| wrong(device.node(), format!("{cpus} processors are too many")));
    device.quantity()?.map(small).transpose()
}

/// The memory in MiB, rounded down, if the hardware has it.
pub(super) fn memory_mib(devices: &[Device<'_>]) -> Result<Option<u64>, ParseError> {
    let Some(device) = devices.iter().rfind(|device| device.is(resource::MEMORY)) else { return Ok(None) };
    let Some(amount) = device.quantity()? else { return Ok(None) };
    let units = device.text("AllocationUnits").unwrap_or_default();
    let not_bytes = || wrong(device.node(), format!("{amount} times {units:?} is not an amount of memory"));
    Ok(Some(in_bytes(amount, &units).ok_or_else(not_bytes)? >> 20))
}
