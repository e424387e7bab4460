//! What a cluster asks of a vCenter: from what is wanted, and from its OVA. Asks nobody.

use std::net::Ipv4Addr;

use anyhow::Context;
use contract::properties::API_VIP;
use fleet::control_plane::DesiredState;
use fleet::hypervisor::Size;
use ova::archive::Archive;

#[derive(Clone, Debug)]
pub struct Requirements {
    /// The nodes' names, which are those of their VMs, and their addresses.
    pub nodes: Vec<(String, Ipv4Addr)>,
    /// The address of the Kubernetes API, if it is one of its own.
    pub vip: Option<Ipv4Addr>,
    /// How large each VM is.
    pub size: Size,
    /// How many network adapters the image has.
    pub adapters: usize,
    /// What a VM's system disk can hold, in bytes.
    pub system: u64,
    /// What it holds as it comes, in bytes.
    pub image: u64,
    /// The OVA by content.
    pub digest: String,
}

impl Requirements {
    /// From what is wanted.
    pub fn read(wanted: &DesiredState) -> anyhow::Result<Self> {
        let descriptor = Archive::open(&wanted.ova).and_then(|archive| archive.descriptor());
        let descriptor = descriptor.with_context(|| format!("reading {}", wanted.ova.display()))?;
        let disks = descriptor.disks.iter().filter_map(|disk| Some((disk.capacity, disk.file.as_ref()?)));
        let (system, image) = disks.fold((0, 0), |(system, image), (capacity, file)| {
            (system + capacity, image + file.populated.or(file.size).unwrap_or(capacity))
        });
        let vip = wanted.nodes.first().and_then(|node| node.properties.get(API_VIP)?.parse().ok());
        Ok(Self {
            nodes: wanted.nodes.iter().map(|node| (node.name.clone(), node.address)).collect(),
            vip,
            size: wanted.size,
            adapters: descriptor.hardware.adapters.len(),
            system,
            image,
            digest: wanted.image.digest.clone(),
        })
    }
}
