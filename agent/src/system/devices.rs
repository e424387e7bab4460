//! The network devices of this node, and their assignment to the configured interfaces.

use std::fs;
use std::io;

use contract::codes;
use contract::finding::Findings;

use super::arp::Mac;
use crate::host::platform::Platform;
use crate::intake::config::Interface;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// The kernel's name.
    pub(super) name: String,
    pub(super) mac: Mac,
}

/// In slot order: hardware devices, and in a container the one of the container engine.
pub(super) fn list(platform: &Platform) -> io::Result<Vec<Device>> {
    let mut found = Vec::new();
    let class = platform.path("/sys/class/net");
    for entry in fs::read_dir(&class)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let directory = class.join(&name);
        let slot = directory.join("device").canonicalize().ok();
        let given = platform.is_container() && (name == "host0" || name.starts_with("eth"));
        let mac = fs::read_to_string(directory.join("address")).ok().and_then(|text| parse(&text));
        let index: u32 =
            fs::read_to_string(directory.join("ifindex")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        if let Some(mac) = mac.filter(|_| slot.is_some() || given) {
            found.push((slot, index, Device { name, mac }));
        }
    }
    found.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    Ok(found.into_iter().map(|(.., device)| device).collect())
}

fn parse(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut parts = text.trim().split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(Mac(mac))
}

/// Assigns a device to each interface: all by their MAC addresses, or all by slot order if the numbers are equal.
pub(super) fn assign(interfaces: &[Interface], devices: &[Device]) -> Result<Vec<Device>, Findings> {
    if devices.is_empty() {
        return Err(Findings::from(codes::NETWORK_NO_ADAPTER.finding(
            "network",
            "the VM has no network adapter",
            "Power off, add one network adapter for each address of the form, power on",
        )));
    }
    let by_mac: Vec<_> = interfaces
        .iter()
        .map_while(|interface| {
            let mac = parse(interface.mac.as_deref()?)?;
            devices.iter().find(|device| device.mac == mac).cloned()
        })
        .collect();
    if by_mac.len() == interfaces.len() {
        return Ok(by_mac);
    }
    // A VM that replaces another has new MAC addresses.
    if devices.len() == interfaces.len() {
        return Ok(devices.to_vec());
    }
    let wanted = interfaces
        .iter()
        .map(|interface| format!("{} ({})", interface.address, interface.mac.as_deref().unwrap_or("any MAC address")))
        .collect::<Vec<_>>()
        .join(", ");
    let seen = devices.iter().map(|device| format!("{} ({})", device.name, device.mac)).collect::<Vec<_>>().join(", ");
    Err(Findings::from(codes::NETWORK_ADAPTERS.finding(
        "network",
        format!("addresses are given for {wanted}, but the adapters are {seen}: which is which cannot be known"),
        "Give the VM as many network adapters as the form has addresses",
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn device(name: &str, last: u8) -> Device {
        Device { name: name.into(), mac: Mac([0, 0x50, 0x56, 0, 0, last]) }
    }

    fn interface(mac: Option<&str>) -> Interface {
        Interface {
            mac: mac.map(str::to_owned),
            network: None,
            address: "10.0.0.1/24".parse::<ipnet::Ipv4Net>().unwrap().into(),
            gateway: None,
        }
    }

    #[test]
    fn interfaces_are_assigned_by_mac_or_slot_order() {
        let devices = [device("ens192", 1), device("ens224", 2)];
        let [one, two] = [interface(Some("00:50:56:00:00:01")), interface(Some("00:50:56:00:00:02"))];
        assert_eq!(assign(&[two.clone(), one.clone()], &devices).unwrap(), [device("ens224", 2), device("ens192", 1)]);
        assert_eq!(assign(std::slice::from_ref(&two), &devices).unwrap(), [device("ens224", 2)]);
        // After an image swap.
        let renewed = [device("ens192", 7), device("ens224", 8)];
        assert_eq!(assign(&[one, two.clone()], &renewed).unwrap(), renewed);
        let said = assign(&[two], &renewed).unwrap_err().to_string();
        assert!(said.contains("network.adapters") && said.contains("ens224 (00:50:56:00:00:08)"), "{said}");
        assert_eq!(assign(&[interface(None)], &devices[..1]).unwrap(), devices[..1]);
    }

    #[test]
    fn missing_adapter_is_reported() {
        assert!(assign(&[interface(None)], &[]).unwrap_err().to_string().contains("network.no-adapter"));
    }

    #[test]
    fn only_hardware_adapters_are_listed_by_slot() {
        let directory = tempfile::tempdir().unwrap();
        let class = directory.path().join("sys/class/net");
        for (name, slot, last) in [("ens224", Some("0000:13"), 2), ("ens192", Some("0000:0b"), 1), ("cni0", None, 3)] {
            fs::create_dir_all(class.join(name)).unwrap();
            fs::write(class.join(name).join("address"), format!("00:50:56:00:00:0{last}\n")).unwrap();
            fs::write(class.join(name).join("ifindex"), "2\n").unwrap();
            if let Some(slot) = slot {
                let place = directory.path().join("sys/devices").join(slot);
                fs::create_dir_all(&place).unwrap();
                symlink(place, class.join(name).join("device")).unwrap();
            }
        }
        let platform = Platform::detect(directory.path()).unwrap();
        assert_eq!(list(&platform).unwrap(), [device("ens192", 1), device("ens224", 2)]);
    }
}
