//! Reads a spec, with the description of the components it names, and says
//! everything that is wrong with both at once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Components, Compression, Disk, Files, Hardware, Identity, Kernel, Profile, Spec, beside, check};
use crate::component::{self, Component};
use crate::debian::{PackageSet, check_name};
use crate::document::{Document, Located, Mistakes, Table};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// FAT32 with 512-byte sectors has at least 65525 clusters; below this systemd-repart makes a FAT16, which some
/// firmware does not take for an ESP. It also has to hold the kernel image.
const LEAST_ESP: u64 = 64 * MIB;
/// The root with two Kubernetes minors is somewhat above 1 GiB; the rest is scratch for images and logs.
const LEAST_CAPACITY: u64 = 4 * GIB;
/// etcd's quota is 2 GiB by default, and a snapshot doubles it.
const LEAST_DATA: u64 = 4 * GIB;
/// The largest disk of vSphere.
const MOST_CAPACITY: u64 = 62 * 1024 * GIB;

/// Reads a spec and the components it uses.
///
/// # Errors
/// [`Mistakes`] with everything that is wrong in either file; another error when a file cannot be read.
pub fn read(path: &Path) -> Result<(Spec, Vec<Component>)> {
    let text = fs::read_to_string(path).with_context(|| format!("reading the spec {}", path.display()))?;
    let document = Document::new(path, &text);
    let mut components = Ok(Vec::new());
    let spec = document.read(|top| spec(path, top, &mut components));
    match (spec, components) {
        (Ok(spec), Ok(components)) => Ok((spec, components)),
        (spec, components) => {
            let lists = [spec.err(), components.err()];
            Err(Mistakes(lists.into_iter().flatten().flat_map(|list| list.0).collect()).into())
        }
    }
}

fn spec(path: &Path, top: &Table<'_, '_>, found: &mut Result<Vec<Component>, Mistakes>) -> Spec {
    let identity = top.required_table("image", identity);
    let (kernel, package) = top.required_table("kernel", kernel);
    Spec {
        path: path.to_owned(),
        identity,
        packages: top.required_table("debian", |table| PackageSet::read(table, Some(package))),
        kernel,
        components: top.required_table("components", |table| components(path, table, found)),
        files: top.required_table("files", |table| files(path, table)),
        disk: top.required_table("disk", disk),
        hardware: top.required_table("hardware", hardware),
    }
}

fn identity(table: &Table<'_, '_>) -> Identity {
    let name = table.required_text("name", "the image's short name");
    check::name(table, &name);
    let role = table.required_text("role", "what a VM from it does");
    check::one_of(table, &role, &["control-plane", "tenant"]);
    let version = table.required_text("version", "the image's version");
    check::version(table, &version);
    let line = |key: &str, what: &str| {
        let text = table.required_text(key, what);
        check::line(table, &text);
        text.value
    };
    Identity {
        product: line("product", "the product's name, for people"),
        vendor: line("vendor", "who makes it"),
        description: line("description", "one line about it"),
        name: name.value,
        role: role.value,
        version: version.value,
    }
}

fn kernel(table: &Table<'_, '_>) -> (Kernel, String) {
    let package = table.required_text("package", "the kernel's package");
    check_name(table, &package);
    let command_line = table.required_texts("command-line", "the kernel's parameters");
    for parameter in &command_line {
        check::kernel_parameter(table, parameter);
    }
    let initial_modules = table.required_texts("initial-modules", "the modules that find the root disk");
    let kernel = Kernel {
        command_line: values(command_line),
        initial_modules: values(initial_modules),
        leave_out: values(table.texts("leave-out")),
    };
    (kernel, package.value)
}

fn components(path: &Path, table: &Table<'_, '_>, found: &mut Result<Vec<Component>, Mistakes>) -> Components {
    let file_text = table.required_text("file", "the description of the components");
    let file = beside(path, &file_text.value);
    check::exists(table, &file_text, &file, false);
    if file.is_file() {
        *found = component::read(&file);
    }
    let kubernetes = table.required_texts("kubernetes", "the Kubernetes components, newest minor first");
    let mut programs = Vec::new();
    let mut named = kubernetes.clone();
    if let Some(folders) = table.table("programs") {
        for (folder, names) in folders.lists() {
            if !folder.starts_with('/') {
                folders.mistake_here(format!("`{folder}` is no path in the image: begin with /"));
            }
            named.extend(names.iter().cloned());
            programs.push((PathBuf::from(folder), values(names)));
        }
    }
    let images = table.texts("images");
    named.extend(images.iter().cloned());
    if let Ok(found) = found.as_ref() {
        for name in named.iter().filter(|name| !found.iter().any(|part| part.name == name.value)) {
            table.mistake(name, format!("{} describes no component `{}`", file.display(), name.value));
        }
        for name in &kubernetes {
            let version = found.iter().find(|part| part.name == name.value).map(|part| part.version.as_str());
            if version.is_some_and(|version| component::minor(version).is_none()) {
                table.mistake(name, "its version has no minor: give it one such as 1.36.3");
            }
        }
    }
    Components { file, kubernetes: values(kubernetes), programs, images: values(images) }
}

fn files(path: &Path, table: &Table<'_, '_>) -> Files {
    let folder = |key: &str, what: &str| {
        let text = table.required_text(key, what);
        let folder = beside(path, &text.value);
        check::exists(table, &text, &folder, true);
        folder
    };
    let mount_points = table.texts("mount-points");
    for point in &mount_points {
        check::image_path(table, point);
    }
    let mut links = Vec::new();
    if let Some(list) = table.table("links") {
        for link in list.texts_by_key() {
            check::image_path(&list, &link.0);
            links.push((link.0.value, link.1.value));
        }
    }
    Files {
        workspace: folder("workspace", "the Cargo workspace with the agent"),
        systemd: folder("systemd", "the folder with the units"),
        root: folder("root", "the folder laid out as the image's root"),
        leave_out: values(table.texts("leave-out")),
        mount_points: values(mount_points),
        links,
    }
}

fn disk(table: &Table<'_, '_>) -> Disk {
    let size = |key: &str, what: &str, least: u64| {
        let size = table.required_size(key, what);
        if size.value != 0 && !(least..=MOST_CAPACITY).contains(&size.value) {
            let (least, most) = (least / MIB, MOST_CAPACITY / GIB);
            table.mistake(&size, format!("give {what} of {least}M to {most}G"));
        }
        size
    };
    let capacity = size("capacity", "a capacity for the system disk", LEAST_CAPACITY);
    let esp = size("esp", "a size for the EFI system partition", LEAST_ESP);
    if esp.value > 0 && capacity.value > 0 && esp.value > capacity.value / 2 {
        table.mistake(&esp, "leaves no room on the system disk for the root and scratch space");
    }
    let data = size("data-capacity", "a capacity for the data disk", LEAST_DATA);
    let compression = table.required_text("compression", "none, or a compressor of mkfs.erofs such as lz4hc,9");
    let (name, level) = compression.value.split_once(',').unwrap_or((&compression.value, "1"));
    check::one_of(table, &compression.with(name.to_owned()), &["none", "lz4", "lz4hc", "zstd"]);
    if level.parse::<u8>().is_err() {
        table.mistake(&compression, format!("`{level}` is no level of compression"));
    }
    Disk {
        capacity: capacity.value,
        esp: esp.value,
        data_capacity: data.value,
        compression: match compression.value.as_str() {
            "none" => Compression::None,
            other => Compression::Erofs(other.to_owned()),
        },
    }
}

fn hardware(table: &Table<'_, '_>) -> Hardware {
    let version = table.required_number("version", "a virtual hardware version", 15..=30);
    let guest = table.required_text("guest", "VMware's guest identifier");
    let network = table.required_text("network", "the network's name in the import dialog");
    check::line(table, &network);
    let profiles: Vec<Profile> = table.table_list("profiles").iter().map(profile).collect();
    if profiles.is_empty() {
        table.mistake_here("has no [[hardware.profiles]]: give at least one, the default first");
    }
    for (index, profile) in profiles.iter().enumerate() {
        if profiles[..index].iter().any(|earlier| earlier.id == profile.id) {
            table.mistake_here(format!("has two profiles `{}`", profile.id));
        }
    }
    Hardware {
        version: u32::try_from(version.value).unwrap_or(u32::MAX),
        guest: guest.value,
        network: network.value,
        profiles,
    }
}

fn profile(table: &Table<'_, '_>) -> Profile {
    let id = table.required_text("id", "the profile's identifier");
    check::name(table, &id);
    let label = table.required_text("label", "the profile's name in the import dialog");
    let description = table.required_text("description", "whom the profile suits");
    for text in [&label, &description] {
        check::line(table, text);
    }
    let cpus = table.required_number("cpus", "a number of virtual processors", 1..=128);
    let memory = table.required_size("memory", "the memory");
    if memory.value != 0 && !(GIB..=4096 * GIB).contains(&memory.value) {
        table.mistake(&memory, "give the memory of 1G to 4096G");
    }
    table.finish();
    Profile {
        id: id.value,
        label: label.value,
        description: description.value,
        cpus: u32::try_from(cpus.value).unwrap_or(1),
        memory_mib: memory.value / MIB,
    }
}

fn values(list: Vec<Located<String>>) -> Vec<String> {
    list.into_iter().map(|item| item.value).collect()
}
