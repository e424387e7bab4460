//! The OVA: compresses the disk, describes the virtual machine, packs both, and signs the result with a key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use contract::image::ImageFacts;
use contract::properties::{FormProperty, form};
use ova::archive::Package;
use ova::ovf::{
    CdRomController, Descriptor, Disk, DiskFile, Firmware, HardDisk, Hardware, Network, NetworkAdapter,
    OperatingSystem, Product, Profile, Property, PropertyGroup, PropertyType, Qualifier, Size, Sizing, Transport,
};
use ova::signature::Signer;
use ova::vmdk;
use serde::{Deserialize, Serialize};

use crate::BuildContext;
use crate::cache::{Key, Stage};
use crate::spec::{self, Spec};

/// "Debian GNU/Linux 64-Bit" of `CIM_OperatingSystem.OsType`.
const DEBIAN_64: u16 = 96;

#[derive(Clone, Debug)]
pub struct CompressedDisk {
    file: PathBuf,
    sizes: Sizes,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Sizes {
    capacity: u64,
    populated: u64,
    size: u64,
}

/// Compresses the disk, or finds the result in the cache.
pub fn compress(spec: &Spec, disk: &Path, context: &BuildContext<'_>) -> Result<CompressedDisk> {
    let &BuildContext { cache, progress, .. } = context;
    let name = disk_name(spec);
    let key = Key::of(Stage::VMDK).text("disk", cache.name_of(disk)?).text("name", &name).finish();
    let place = cache.stage(&key, progress, |directory| {
        let written = vmdk::from_raw(disk, &directory.join(&name), &vmdk::Options::default(), &mut |at| {
            progress.detail(&format!("{} of {} MiB", at.done >> 20, at.total >> 20));
        })?;
        let sizes = Sizes { capacity: written.capacity, populated: written.populated, size: written.size };
        std::fs::write(directory.join("sizes.json"), serde_json::to_vec(&sizes)?).context("noting the disk's sizes")
    })?;
    let sizes = std::fs::read(place.join("sizes.json")).context("reading the disk's sizes")?;
    Ok(CompressedDisk { file: place.join(name), sizes: serde_json::from_slice(&sizes)? })
}

/// Writes the OVA into `directory` and returns its path. Replaces an existing OVA of this name only when the new one
/// is complete.
///
/// # Errors
/// When the descriptor breaks a rule of OVF, etcd's version has no minor version, or the OVA cannot be written.
pub fn pack(
    spec: &Spec,
    facts: &ImageFacts,
    disk: &CompressedDisk,
    signer: Option<&Signer>,
    directory: &Path,
    context: &BuildContext<'_>,
) -> Result<(PathBuf, u64)> {
    let running = context.progress.begin("ova");
    let name = spec.full_name();
    let place = directory.join(format!("{name}.ova"));
    let descriptor = describe(spec, facts, disk.sizes, signer.is_some())?;
    let disks = [disk.file.clone()];
    let package = Package { name: &name, descriptor: &descriptor, disks: &disks, modified: context.epoch, signer };
    let written =
        ova::archive::write(&place, &package, &mut |_| {}).with_context(|| format!("writing {}", place.display()))?;
    running.done();
    Ok((place, written.size))
}

fn disk_name(spec: &Spec) -> String {
    format!("{}-disk1.vmdk", spec.full_name())
}

fn describe(spec: &Spec, facts: &ImageFacts, sizes: Sizes, signed: bool) -> Result<Descriptor> {
    let identity = &spec.identity;
    let annotation = match signed {
        true => identity.description.clone(),
        false => format!("{}\nA development image: not signed.", identity.description),
    };
    let full_version = facts.full_version();
    // Upgrades compare it to decide whether the image is allowed.
    ensure!(
        full_version.etcd.is_some(),
        "etcd's version {} has no minor version: give it one such as 3.6.16",
        facts.etcd
    );
    let (disks, hard_disks) = disks(disk_name(spec), sizes, &spec.hardware.profiles);
    let minors: Vec<String> = facts.kubernetes.iter().map(|release| release.minor.clone()).collect();
    Ok(Descriptor {
        name: identity.name.clone(),
        annotation: Some(annotation),
        eula: None,
        operating_system: OperatingSystem {
            cim_type: DEBIAN_64,
            vmware_type: Some(spec.hardware.guest.clone()),
            description: "Debian GNU/Linux (64-bit)".to_owned(),
        },
        product: Product {
            name: identity.product.clone(),
            vendor: identity.vendor.clone(),
            version: identity.version.clone(),
            full_version: Some(full_version.to_string()),
            groups: groups(form(&identity.roles, &minors)),
            ..Product::default()
        },
        disks,
        networks: vec![Network {
            name: spec.hardware.network.clone(),
            description: "The network of the cluster's nodes, with a fixed address for each.".to_owned(),
        }],
        sizing: Sizing::Profiles(
            spec.hardware
                .profiles
                .iter()
                .enumerate()
                .map(|(index, profile)| Profile {
                    id: profile.id.clone(),
                    label: profile.label.clone(),
                    description: profile.description.clone(),
                    default: index == 0,
                    size: Size { cpus: profile.cpus, memory_mib: profile.memory_mib },
                })
                .collect(),
        ),
        hardware: Hardware {
            version: spec.hardware.version,
            transports: vec![Transport::GuestInfo, Transport::Iso],
            disks: hard_disks,
            adapters: vec![NetworkAdapter { network: spec.hardware.network.clone() }],
            cd_rom: Some(CdRomController::Sata),
            firmware: Firmware::Efi { secure_boot: false },
            // With this option, the guest reads a disk's UUID from vSphere.
            extra_config: vec![("disk.EnableUUID".to_owned(), "TRUE".to_owned())],
        },
    })
}

/// The system disk from the OVA's file and the empty data disks, each with its place. All data disks have the same
/// place: a VM has the one of its profile, or none.
///
/// An item without profiles belongs to all of them. An item with profiles is left out of the others (DSP0243 §9.8).
fn disks(name: String, sizes: Sizes, profiles: &[spec::Profile]) -> (Vec<Disk>, Vec<HardDisk>) {
    let file = DiskFile { name, size: Some(sizes.size), populated: Some(sizes.populated) };
    let mut disks = vec![Disk { id: "system".to_owned(), capacity: sizes.capacity, file: Some(file) }];
    let mut places = vec![HardDisk { disk: "system".to_owned(), unit: 0, profiles: Vec::new() }];
    let capacities: BTreeSet<u64> = profiles.iter().filter_map(|profile| profile.data_capacity).collect();
    for &capacity in &capacities {
        // Several data disks get different names.
        let id = if capacities.len() == 1 { "data".to_owned() } else { format!("data-{}m", capacity >> 20) };
        let with = profiles.iter().filter(|profile| profile.data_capacity == Some(capacity));
        let with: Vec<String> = with.map(|profile| profile.id.clone()).collect();
        let all = with.len() == profiles.len();
        disks.push(Disk { id: id.clone(), capacity, file: None });
        places.push(HardDisk { disk: id, unit: 1, profiles: if all { Vec::new() } else { with } });
    }
    (disks, places)
}

fn groups(form: Vec<FormProperty>) -> Vec<PropertyGroup> {
    let mut groups: Vec<PropertyGroup> = Vec::new();
    for property in form {
        if groups.last().is_none_or(|group| group.category.as_deref() != Some(property.category)) {
            groups.push(PropertyGroup { category: Some(property.category.to_owned()), properties: Vec::new() });
        }
        let FormProperty { key, label, description, ovf_type, qualifiers, password, default, category: _ } = property;
        let property = Property {
            key: key.to_owned(),
            kind: PropertyType::from_name(ovf_type),
            qualifiers: qualifiers.as_deref().map(Qualifier::parse_list).unwrap_or_default(),
            default,
            user_configurable: true,
            password,
            label,
            description,
        };
        if let Some(group) = groups.last_mut() {
            group.properties.push(property);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_its_data_disk_or_none() {
        let sizes = Sizes { capacity: 1 << 34, populated: 1 << 30, size: 1 << 29 };
        let found = |profiles: &[(&str, Option<u64>)]| {
            let profiles = profiles.iter().map(|&(id, data_capacity)| spec::Profile {
                id: id.to_owned(),
                label: String::new(),
                description: String::new(),
                cpus: 2,
                memory_mib: 4096,
                data_capacity,
            });
            let (disks, places) = disks("x-disk1.vmdk".to_owned(), sizes, &profiles.collect::<Vec<_>>());
            assert!(places.iter().map(|place| &place.disk).eq(disks.iter().map(|disk| &disk.id)));
            let shown = |place: HardDisk| format!("{} at {} {}", place.disk, place.unit, place.profiles.join(" "));
            places.into_iter().map(shown).collect::<Vec<_>>()
        };
        let (some, more) = (Some(1 << 35), Some(1 << 36));
        assert_eq!(found(&[("small", some), ("large", some)]), ["system at 0 ", "data at 1 "]);
        assert_eq!(found(&[("small", None)]), ["system at 0 "]);
        assert_eq!(found(&[("small", some), ("worker", None)]), ["system at 0 ", "data at 1 small"]);
        assert_eq!(
            found(&[("small", some), ("worker", None), ("volumes", more), ("large", some)]),
            ["system at 0 ", "data-32768m at 1 small large", "data-65536m at 1 volumes"]
        );
    }

    #[test]
    fn each_profile_of_the_tenant_has_its_disks() {
        let sizes = Sizes { capacity: 1 << 34, populated: 1 << 30, size: 1 << 29 };
        let read_back = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs").join(name);
            let (spec, _) = spec::read(&path).unwrap();
            let facts = serde_json::json!({
                "name": "x", "version": "1.2.3", "build": "0123456789abcdef0123456789abcdef", "role": "control-plane",
                "publisher": null, "kubernetes": [{"minor": "1.36", "version": "1.36.3"}], "etcd": "3.6.16",
                "coredns": "1.15.0", "pause": "1.0.0",
            });
            let described = describe(&spec, &serde_json::from_value(facts).unwrap(), sizes, false).unwrap();
            let read = Descriptor::parse(&described.to_xml().unwrap()).unwrap();
            assert_eq!(read.hardware.disks, described.hardware.disks);
            let profiles = read.sizing.profiles().iter().map(|profile| {
                let disks = read.disks_of(&profile.id).map(|disk| format!("{} {}G", disk.id, disk.capacity >> 30));
                (profile.id.clone(), disks.collect::<Vec<_>>().join(", "))
            });
            (profiles.collect::<Vec<_>>(), read.hardware.disks)
        };
        let (control, places) = read_back("control-plane.toml");
        let all = "system 16G, data 32G";
        assert_eq!(control, ["small", "medium", "large"].map(|id| (id.to_owned(), all.to_owned())));
        assert!(places.iter().all(|place| place.profiles.is_empty()), "{places:?}");
        let (tenant, places) = read_back("tenant.toml");
        for (id, disks) in tenant {
            let expected = match id.rsplit_once('-').unwrap().0 {
                "control-plane" => "system 16G, data-32768m 32G",
                "worker" => "system 16G",
                "worker-volumes" => "system 16G, data-102400m 100G",
                other => panic!("{other}"),
            };
            assert_eq!(disks, expected, "{id}");
        }
        assert!(places[0].profiles.is_empty() && places[1..].iter().all(|place| !place.profiles.is_empty()));
    }
}
