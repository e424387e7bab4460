//! The requirements of a cluster on a vCenter, from the desired state and the OVA. Contacts no vCenter.

use std::net::Ipv4Addr;

use anyhow::Context;
use contract::properties::API_VIP;
use fleet::control_plane::DesiredState;
use fleet::hypervisor::Size;
use ova::archive::Archive;

#[derive(Clone, Debug)]
pub struct Requirements {
    /// The names of the nodes, which are those of their VMs, and their addresses.
    pub nodes: Vec<(String, Ipv4Addr)>,
    /// The virtual IP, if the Kubernetes API has one.
    pub vip: Option<Ipv4Addr>,
    /// The size of each VM.
    pub size: Size,
    /// The number of network adapters of the image.
    pub adapters: usize,
    /// The capacity of a VM's system disk, in bytes.
    pub system: u64,
    /// The data on a new system disk, in bytes.
    pub image: u64,
    /// The digest of the OVA.
    pub digest: String,
}

impl Requirements {
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
