//! Reads a spec, with the description of the components it names, and says
//! everything that is wrong with both at once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use contract::role::Role;

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
    let role = table.required_text("role", "what a VM from it is in its cluster");
    check::one_of(table, &role, &Role::ALL.map(Role::name));
    let version = table.required_text("version", "the image's version");
    check::version(table, &version);
    let upgrades_from = table.text("upgrades-from").and_then(|from| check::upgrades_from(table, &from));
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
        role: role.value.parse().unwrap_or_default(),
        version: version.value,
        upgrades_from,
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
    if let (Ok(found), true) = (found.as_ref(), file.is_file()) {
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
    let (set_id, clear_set_id) = (table.texts("set-id"), table.texts("clear-set-id"));
    for path in mount_points.iter().chain(&set_id).chain(&clear_set_id) {
        check::image_path(table, path);
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
        set_id: values(set_id),
        clear_set_id: values(clear_set_id),
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

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENTS: &str = "[components.kube]\nversion = \"1.36.3\"\nlicence = \"Apache-2.0\"\n\
        [components.kube.source]\nkind = \"file\"\npackages = [{ path = \"kube\", output = \"kube\" }]\n";

    const SPEC: &str = r#"[image]
name = "test"
role = "control-plane"
version = "1.2.3"
product = "Test"
vendor = "Nobody"
description = "A test."
[debian]
suite = "trixie"
packages = ["systemd"]
[kernel]
package = "linux-image-cloud-amd64"
command-line = ["console=tty0"]
initial-modules = ["erofs"]
[components]
file = "components.toml"
kubernetes = ["kube"]
[files]
workspace = "."
systemd = "units"
root = "root"
mount-points = ["/data"]
[files.links]
"/etc/a" = "/run/a"
[disk]
capacity = "16G"
esp = "128M"
data-capacity = "32G"
compression = "none"
[hardware]
version = 15
guest = "debian11_64Guest"
network = "VM Network"
[[hardware.profiles]]
id = "small"
label = "Small"
description = "For a test."
cpus = 2
memory = "4G"
"#;

    /// The mistakes of the good spec with `from` replaced by `to`, without the name of the folder.
    fn with(from: &str, to: &str) -> Vec<String> {
        assert!(from.is_empty() || SPEC.contains(from), "the spec has no {from}");
        let folder = tempfile::tempdir().unwrap();
        for name in ["units", "root"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("kube"), "").unwrap();
        fs::write(folder.path().join("components.toml"), COMPONENTS).unwrap();
        let path = folder.path().join("spec.toml");
        fs::write(&path, if from.is_empty() { SPEC.to_owned() } else { SPEC.replace(from, to) }).unwrap();
        match read(&path) {
            Ok(_) => Vec::new(),
            Err(error) => {
                let mistakes = error.downcast::<Mistakes>().unwrap();
                let place = format!("{}/", folder.path().display());
                mistakes.0.iter().map(|mistake| mistake.to_string().replace(&place, "")).collect()
            }
        }
    }

    #[test]
    fn a_good_spec_is_taken() {
        assert_eq!(with("", ""), Vec::<String>::new());
    }

    #[test]
    fn each_mistake_is_named_with_its_line_and_key() {
        for (from, to, expected) in [
            (
                "\"test\"",
                "\"Test VM\"",
                "spec.toml:2: image.name: `Test VM` does not do: lower-case letters, digits and hyphens, at most 40",
            ),
            (
                "control-plane\"",
                "master\"",
                "spec.toml:3: image.role: `master` is none of control-plane, tenant-control-plane",
            ),
            ("1.2.3", "1.2", "spec.toml:4: image.version: `1.2` is no version: give one such as 1.2.3 or 1.2.3-rc.1"),
            (
                "product",
                "upgrades-from = \"0.1 or so\"\nproduct",
                "spec.toml:5: image.upgrades-from: `0.1 or so` names no versions: give them such as >=0.1.0, <1.0.0",
            ),
            (
                "\"systemd\"",
                "\"Systemd\"",
                "spec.toml:10: debian.packages[0]: `Systemd` is no name in Debian: lower case, digits, +, - and . only",
            ),
            ("console=tty0", "root=/dev/sda1", "spec.toml:13: kernel.command-line[0]: `root` is set by the build"),
            ("components.toml\"", "parts.toml\"", "spec.toml:16: components.file: there is no file parts.toml"),
            (
                "[\"kube\"]",
                "[\"kubernetes\"]",
                "spec.toml:17: components.kubernetes[0]: components.toml describes no component `kubernetes`",
            ),
            ("\"units\"", "\"unit\"", "spec.toml:20: files.systemd: there is no folder unit"),
            (
                "\"/data\"",
                "\"data\"",
                "spec.toml:22: files.mount-points[0]: `data` is no path in the image: begin with /, without . and ..",
            ),
            (
                "mount-points",
                "set-id = [\"usr/bin/sudo\"]\nmount-points",
                "spec.toml:22: files.set-id[0]: `usr/bin/sudo` is no path in the image: begin with /, without . and ..",
            ),
            (
                "\"/etc/a\"",
                "\"/etc/../a\"",
                "spec.toml:24: files.links./etc/../a: `/etc/../a` is no path in the image: begin with /, without . and ..",
            ),
            (
                "capacity = \"16G\"",
                "capacity = \"2G\"",
                "spec.toml:26: disk.capacity: give a capacity for the system disk of 4096M to 63488G",
            ),
            ("128M", "12G", "spec.toml:27: disk.esp: leaves no room on the system disk for the root and scratch space"),
            ("\"none\"", "\"gzip,9\"", "spec.toml:29: disk.compression: `gzip` is none of none, lz4, lz4hc, zstd"),
            (
                "version = 15",
                "version = 10",
                "spec.toml:31: hardware.version: is 10: give a virtual hardware version, 15 to 30",
            ),
            ("4G", "64M", "spec.toml:39: hardware.profiles[0].memory: give the memory of 1G to 4096G"),
            (
                "cpus = 2",
                "cpus = 2\nkores = 4",
                "spec.toml:39: hardware.profiles[0].kores: is no key of [hardware.profiles[0]]: known are cpus, description, id, label, memory",
            ),
        ] {
            assert_eq!(with(from, to), [expected], "{to}");
        }
    }

    #[test]
    fn all_mistakes_are_said_at_once() {
        let found = with("role = \"control-plane\"\nversion = \"1.2.3\"", "role = 3\nversion = \"x\"\nowner = \"me\"");
        assert_eq!(found.len(), 3, "{found:#?}");
    }
}
