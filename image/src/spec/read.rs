//! Reads a spec with its included files and the description of its components, and reports all mistakes at once.

use std::path::{Path, PathBuf};

use anyhow::Result;
use contract::role::Roles;

use super::include::Texts;
use super::{Components, Compression, Disk, Files, Hardware, Identity, Kernel, Packages, Profile, Spec, check};
use crate::component::{self, Component};
use crate::debian::layers::Layer;
use crate::debian::{self, PackageSet};
use crate::document::{Located, Mistakes, Table, any, values};
use crate::own_programs;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// FAT32 with 512-byte sectors has at least 65525 clusters. Below this size, systemd-repart makes a FAT16, which some
/// firmware does not accept as an ESP. The partition must also have space for the kernel image.
const LEAST_ESP: u64 = 64 * MIB;
/// The root with two minor versions of Kubernetes has more than 1 GiB. The rest is scratch space for images and logs.
const LEAST_CAPACITY: u64 = 4 * GIB;
/// The smallest data disk that a node accepts.
const LEAST_DATA: u64 = 4 * GIB;
/// The largest disk of vSphere.
const MOST_CAPACITY: u64 = 62 * 1024 * GIB;

/// The size of a compressed cluster of the root.
const CLUSTER: u64 = 64 << 10;

/// Reads a spec and the components it uses. All mistakes in the files are one error, [`Mistakes`].
pub fn read(path: &Path) -> Result<(Spec, Vec<Component>)> {
    let texts = Texts::load(path)?;
    let mut components = Ok(Vec::new());
    let spec = texts.document().read(|top| spec(path, &texts, top, &mut components));
    match (spec, components) {
        (Ok(spec), Ok(components)) => Ok((spec, components)),
        (spec, components) => {
            let lists = [spec.err(), components.err()];
            Err(Mistakes(lists.into_iter().flatten().flat_map(|list| list.0).collect()).into())
        }
    }
}

/// The packages of a spec, or of a file that specs include. Mistakes in the parts about packages are [`Mistakes`].
pub fn packages(path: &Path) -> Result<Packages> {
    let texts = Texts::load(path)?;
    let packages = texts.document().read(|top| {
        top.pass_over_others();
        let kernel = top.optional_table("kernel", |table| {
            table.pass_over_others();
            kernel_package(table)
        });
        packages_of(&texts, top, kernel.flatten())
    });
    Ok(packages?)
}

fn packages_of(texts: &Texts, top: &Table<'_, '_>, kernel: Option<Located<String>>) -> Option<Packages> {
    let what = "the code name of Debian's release, such as trixie";
    let (suite, packages) = top.table("debian", |table| {
        let suite = table.required("suite", what, debian::name);
        let packages = table.required_texts("packages", "the names of the packages", debian::name);
        Some((suite?, packages))
    })?;
    let of = |layer: usize, name: &Located<String>| texts.layer_of(name.file()) == layer;
    let layers = texts.layers().iter().enumerate().map(|(layer, file)| {
        let packages = packages.iter().filter(|name| of(layer, name)).map(|name| name.value.clone()).collect();
        let kernel = kernel.as_ref().filter(|name| of(layer, name)).map(|name| name.value.clone());
        Layer { file: file.clone(), set: PackageSet { suite: suite.clone(), packages, kernel } }
    });
    let layers = layers.filter(|layer| !layer.set.packages.is_empty() || layer.set.kernel.is_some()).collect();
    Some(Packages { suite, kernel: kernel.map(|name| name.value), layers })
}

fn spec(
    path: &Path,
    texts: &Texts,
    top: &Table<'_, '_>,
    described: &mut Result<Vec<Component>, Mistakes>,
) -> Option<Spec> {
    // `Texts` has already read it.
    top.paths("include", check::file);
    let identity = top.table("image", identity);
    let kernel = top.table("kernel", kernel);
    let package = kernel.as_ref().map(|(_, package)| package.clone());
    let packages = packages_of(texts, top, package);
    let components = top.table("components", |table| components(table, described));
    let files = top.table("files", files);
    let disk = top.table("disk", disk);
    let hardware = top.table("hardware", hardware);
    let (kernel, _) = kernel?;
    Some(Spec {
        path: path.to_owned(),
        identity: identity?,
        packages: packages?,
        kernel,
        components: components?,
        files: files?,
        disk: disk?,
        hardware: hardware?,
    })
}

fn identity(table: &Table<'_, '_>) -> Option<Identity> {
    let name = table.required("name", "the image's short name", check::name);
    let roles = table.required_texts("roles", "what a VM from it may be in its cluster", check::role);
    let version = table.required("version", "the image's version", check::version);
    let upgrades_from = table.optional("upgrades-from", check::upgrades_from);
    let product = table.required("product", "the product's name, for people", check::line);
    let vendor = table.required("vendor", "who makes it", check::line);
    let description = table.required("description", "one line about it", check::line);
    Some(Identity {
        name: name?,
        roles: Roles::new(values(roles))?,
        version: version?,
        upgrades_from,
        product: product?,
        vendor: vendor?,
        description: description?,
    })
}

fn kernel_package(table: &Table<'_, '_>) -> Option<Located<String>> {
    table.located("package", "the kernel's package", debian::name)
}

fn kernel(table: &Table<'_, '_>) -> Option<(Kernel, Located<String>)> {
    let package = kernel_package(table);
    let kernel = Kernel {
        command_line: values(table.required_texts("command-line", "the kernel's parameters", check::kernel_parameter)),
        initial_modules: values(table.required_texts("initial-modules", "the modules that find the root disk", any)),
        modules: values(table.paths("modules", check::directory)),
        leave_out: values(table.texts("leave-out", any)),
    };
    Some((kernel, package?))
}

fn components(table: &Table<'_, '_>, described: &mut Result<Vec<Component>, Mistakes>) -> Option<Components> {
    let file = table.path("file", "the description of the components", check::file);
    let kubernetes = table.required_texts("kubernetes", "the Kubernetes components, newest minor first", any);
    let programs = table.optional_table("programs", |directories| {
        let directory = |directory: String| {
            if !directory.starts_with('/') {
                directories.mistake_at(&directory, format!("`{directory}` is no path in the image: begin with /"));
            }
            (PathBuf::from(&directory), directories.texts(&directory, any))
        };
        directories.keys().into_iter().map(directory).collect::<Vec<_>>()
    });
    let programs = programs.unwrap_or_default();
    let images = table.texts("images", any);
    let file = file?;
    *described = component::read(&file);
    let find = |name: &Located<String>| described.as_ref().ok()?.iter().find(|part| part.name == name.value);
    for name in kubernetes.iter().chain(programs.iter().flat_map(|(_, names)| names)).chain(&images) {
        if described.is_ok() && find(name).is_none() {
            table.mistake(name, format!("{} describes no component `{}`", file.display(), name.value));
        }
    }
    for name in &kubernetes {
        if find(name).is_some_and(|part| component::minor(&part.version).is_none()) {
            table.mistake(name, "its version has no minor version: give it one such as 1.36.3");
        }
    }
    let programs = programs.into_iter().map(|(directory, names)| (directory, values(names))).collect();
    Some(Components { file, kubernetes: values(kubernetes), programs, images: values(images) })
}

fn files(table: &Table<'_, '_>) -> Option<Files> {
    let workspace = table.path("workspace", "the Cargo workspace with the agent", check::directory);
    let programs = table.texts("programs", check::name);
    let systemd = table.path("systemd", "the directory with the units", check::directory);
    let roots = table.paths("roots", check::directory);
    let authorities = table.paths("authorities", check::authorities);
    let links = table.optional_table("links", |links| {
        let link = |path: String| {
            let target = links.optional(&path, any);
            check::image_path(&path).map_err(|message| links.mistake_at(&path, message)).ok().zip(target)
        };
        links.keys().into_iter().filter_map(link).collect()
    });
    let (leave_out, set_id) = (table.texts("leave-out", any), table.texts("set-id", check::image_path));
    let clear_set_id = table.texts("clear-set-id", check::image_path);
    let mount_points = table.texts("mount-points", check::image_path);
    let workspace = workspace?;
    for package in &programs {
        let (name, program, place) = (&package.value, own_programs::name(&package.value), workspace.display());
        match own_programs::has(&workspace, name) {
            Ok(true) => {}
            Ok(false) => {
                table.mistake(package, format!("{place} has no package `{name}` with a program `{program}` for images"))
            }
            Err(error) => table.mistake(package, format!("{error:#}")),
        }
    }
    Some(Files {
        programs: values(programs),
        agent: workspace.clone(),
        workspace,
        systemd: systemd?,
        roots: values(roots),
        authorities: values(authorities),
        leave_out: values(leave_out),
        set_id: values(set_id),
        clear_set_id: values(clear_set_id),
        mount_points: values(mount_points),
        links: links.unwrap_or_default(),
    })
}

fn capacity(what: &str, least: u64, text: &str) -> Result<u64, String> {
    let size = check::size(text)?;
    if !(least..=MOST_CAPACITY).contains(&size) {
        return Err(format!("give {what} of {}M to {}G", least / MIB, MOST_CAPACITY / GIB));
    }
    Ok(size)
}

fn disk(table: &Table<'_, '_>) -> Option<Disk> {
    let size = |key: &str, what: &str, least: u64| table.required(key, what, |text| capacity(what, least, text));
    let system = size("capacity", "a capacity for the system disk", LEAST_CAPACITY);
    let esp = size("esp", "a size for the EFI system partition", LEAST_ESP);
    if esp.zip(system).is_some_and(|(esp, system)| esp > system / 2) {
        table.mistake_at("esp", "leaves no room on the system disk for the root and scratch space");
    }
    let what = "none, or a compressor of mkfs.erofs such as lzma,6";
    let compressor = table.required("compression", what, |text| {
        let (name, level) = text.split_once(',').unwrap_or((text, "1"));
        check::one_of(name, &["none", "lz4", "lz4hc", "lzma", "zstd"])?;
        level.parse::<u8>().map_err(|_| format!("`{level}` is no level of compression"))?;
        Ok(text.to_owned())
    });
    let cluster = table.optional("cluster", check::cluster);
    if cluster.is_some() && compressor.as_deref() == Some("none") {
        table.mistake_at("cluster", "needs a compressor: without one there are no clusters");
    }
    let compression = match compressor?.as_str() {
        "none" => Compression::None,
        compressor => Compression::Erofs { compressor: compressor.to_owned(), cluster: cluster.unwrap_or(CLUSTER) },
    };
    Some(Disk { capacity: system?, esp: esp?, compression })
}

fn hardware(table: &Table<'_, '_>) -> Option<Hardware> {
    let version = table.number("version", "a virtual hardware version", 15..=30);
    let guest = table.required("guest", "VMware's guest identifier", any);
    let network = table.required("network", "the network's name in the import dialog", check::line);
    let absent = "has no [[hardware.profiles]]: give at least one, the default first";
    let profiles = table.tables("profiles", absent, profile);
    for (index, profile) in profiles.iter().enumerate() {
        if profiles[..index].iter().any(|earlier| earlier.id == profile.id) {
            table.mistake_here(format!("has two profiles `{}`", profile.id));
        }
    }
    Some(Hardware { version: version?, guest: guest?, network: network?, profiles })
}

fn profile(table: &Table<'_, '_>) -> Option<Profile> {
    let id = table.required("id", "the profile's identifier", check::name);
    let label = table.required("label", "the profile's name in the import dialog", check::line);
    let description = table.required("description", "whom the profile suits", check::line);
    let cpus = table.number("cpus", "a number of virtual processors", 1..=128);
    let memory = table.required("memory", "the memory", |text| {
        let size = check::size(text)?;
        if (GIB..=4096 * GIB).contains(&size) { Ok(size) } else { Err("give the memory of 1G to 4096G".to_owned()) }
    });
    let what = "a capacity for the data disk";
    let data_capacity = table.optional("data-capacity", |text| capacity(what, LEAST_DATA, text));
    Some(Profile {
        id: id?,
        label: label?,
        description: description?,
        cpus: cpus?,
        memory_mib: memory? / MIB,
        data_capacity,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const COMPONENTS: &str = "[components.kube]\nversion = \"1.36.3\"\nlicence = \"Apache-2.0\"\n\
        [components.kube.source]\nkind = \"file\"\npackages = [{ path = \"kube\", output = \"kube\" }]\n";

    const SPEC: &str = r#"[image]
name = "test"
roles = ["control-plane"]
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
roots = ["root"]
mount-points = ["/data"]
[files.links]
"/etc/a" = "/run/a"
[disk]
capacity = "16G"
esp = "128M"
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
data-capacity = "32G"
"#;

    /// The mistakes of the valid spec with `from` replaced by `to`, without the name of the directory.
    fn with(from: &str, to: &str) -> Vec<String> {
        assert!(from.is_empty() || SPEC.contains(from), "the spec has no {from}");
        let directory = tempfile::tempdir().unwrap();
        for name in ["units", "root"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("kube"), "").unwrap();
        fs::write(directory.path().join("components.toml"), COMPONENTS).unwrap();
        let path = directory.path().join("spec.toml");
        fs::write(&path, if from.is_empty() { SPEC.to_owned() } else { SPEC.replace(from, to) }).unwrap();
        match read(&path) {
            Ok(_) => Vec::new(),
            Err(error) => {
                let mistakes = error.downcast::<Mistakes>().unwrap();
                let place = format!("{}/", directory.path().display());
                mistakes.0.iter().map(|mistake| mistake.to_string().replace(&place, "")).collect()
            }
        }
    }

    #[test]
    fn a_valid_spec_is_accepted() {
        assert_eq!(with("", ""), Vec::<String>::new());
    }

    #[test]
    fn mistakes_have_their_line_and_key() {
        for (from, to, expected) in [
            (
                "\"test\"",
                "\"Test VM\"",
                "spec.toml:2: image.name: `Test VM` does not do: lower-case letters, digits and hyphens, at most 40",
            ),
            ("\"test\"", "\"\"", "spec.toml:2: image.name: is missing: give the image's short name"),
            (
                "control-plane\"",
                "master\"",
                "spec.toml:3: image.roles[0]: `master` is not one of control-plane, tenant-control-plane, worker",
            ),
            (
                "\"control-plane\"",
                "\"control-plane\", \"control-plane\"",
                "spec.toml:3: image.roles[1]: `control-plane` is listed twice",
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
            ("\"units\"", "\"unit\"", "spec.toml:20: files.systemd: there is no directory unit"),
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
            (
                "data-capacity = \"32G\"",
                "data-capacity = \"1G\"",
                "spec.toml:39: hardware.profiles[0].data-capacity: give a capacity for the data disk of 4096M to 63488G",
            ),
            ("128M", "12G", "spec.toml:27: disk.esp: leaves no room on the system disk for the root and scratch space"),
            (
                "\"none\"",
                "\"gzip,9\"",
                "spec.toml:28: disk.compression: `gzip` is not one of none, lz4, lz4hc, lzma, zstd",
            ),
            (
                "\"none\"",
                "\"lzma,6\"\ncluster = \"2048K\"",
                "spec.toml:29: disk.cluster: `2048K` is no size of a cluster: write 4K to 1024K, a multiple of 4K",
            ),
            (
                "\"none\"",
                "\"none\"\ncluster = \"64K\"",
                "spec.toml:29: disk.cluster: needs a compressor: without one there are no clusters",
            ),
            (
                "version = 15",
                "version = 10",
                "spec.toml:30: hardware.version: is 10: give a virtual hardware version, 15 to 30",
            ),
            ("4G", "64M", "spec.toml:38: hardware.profiles[0].memory: give the memory of 1G to 4096G"),
            (
                "cpus = 2",
                "cpus = 2\nkores = 4",
                "spec.toml:38: hardware.profiles[0].kores: is no key of [hardware.profiles[0]]: known are cpus, data-capacity, description, id, label, memory",
            ),
        ] {
            assert_eq!(with(from, to), [expected], "{to}");
        }
    }

    #[test]
    fn a_profile_may_have_no_data_disk() {
        assert_eq!(with("data-capacity = \"32G\"\n", ""), Vec::<String>::new());
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let found =
            with("roles = [\"control-plane\"]\nversion = \"1.2.3\"", "roles = [3]\nversion = \"x\"\nowner = \"me\"");
        assert_eq!(found.len(), 3, "{found:#?}");
    }

    #[test]
    fn an_included_file_has_its_own_paths() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["units", "root", "site", "site/root"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("kube"), "").unwrap();
        fs::write(at("components.toml"), COMPONENTS).unwrap();
        fs::write(at("spec.toml"), SPEC).unwrap();
        let layer = "[debian]\npackages = [\"lsof\"]\n[files]\nroots = [\"root\"]\n";
        fs::write(at("site/layer.toml"), layer).unwrap();
        let top = at("site/top.toml");
        fs::write(&top, "include = [\"../spec.toml\", \"layer.toml\"]\n").unwrap();
        let (spec, _) = read(&top).unwrap();
        assert_eq!((spec.path.as_path(), spec.identity.name.as_str()), (top.as_path(), "test"));
        assert_eq!(spec.files.roots, [at("root"), at("site/root")]);
        let layers = packages(&top).unwrap().layers;
        assert_eq!(layers, spec.packages.layers);
        let shown: Vec<_> = layers.iter().map(|layer| (layer.file.clone(), layer.set.packages.join(" "))).collect();
        assert_eq!(shown, [(at("spec.toml"), "systemd".to_owned()), (top.clone(), "lsof".to_owned())]);
        assert_eq!(layers[1].set.kernel, None);

        let wrong = "[image]\nname = \"other\"\n[debian]\npackages = [\"systemd\"]\n[files]\nroots = [\"none\"]\n";
        fs::write(at("site/layer.toml"), wrong).unwrap();
        let place = format!("{}/", directory.path().display());
        let error = read(&top).unwrap_err().to_string().replace(&place, "");
        let expected = "3 mistakes\n  site/layer.toml:2: image.name: is given in \
                        spec.toml:2 already: files that belong together do not differ\n  site/layer.toml:4: \
                        debian.packages[0]: `systemd` is listed twice\n  site/layer.toml:6: files.roots[0]: there is no \
                        directory site/none";
        assert_eq!(error, expected);
    }

    #[test]
    fn the_projects_specs_are_valid_and_extensible() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in ["control-plane", "tenant"] {
            let (own, _) = read(&workspace.join(format!("image/specs/{name}.toml"))).unwrap();
            let (site, _) = read(&workspace.join(format!("packer/site/{name}.toml"))).unwrap();
            assert_eq!((&own.identity, &own.hardware), (&site.identity, &site.hardware));
            let (added, below) = site.packages.layers.split_last().unwrap();
            assert_eq!(below, own.packages.layers);
            assert!(added.file.ends_with(format!("packer/site/{name}.toml")), "{added:?}");
        }
    }

    /// Readers of the documentation and authors of other programs use the sizes in the spec's words.
    #[test]
    fn the_documentation_has_the_sizes_of_specs() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = fs::read_to_string(workspace.join("docs/plan/sizing.md")).unwrap();
        for name in ["control-plane", "tenant"] {
            let (spec, _) = read(&workspace.join(format!("image/specs/{name}.toml"))).unwrap();
            for Profile { id, cpus, memory_mib, data_capacity, .. } in spec.hardware.profiles {
                let data = data_capacity.map_or("none".to_owned(), |bytes| format!("{} GiB", bytes >> 30));
                let row = format!("| {id} | {cpus} | {} GiB | {data} |", memory_mib >> 10);
                assert!(page.contains(&row), "docs/plan/sizing.md has no row {row}");
            }
        }
    }
}
