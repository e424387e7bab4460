//! The kernel, unpacked from its package. Has module indexes for the image and for the initial root, which has only
//! the modules it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::BuildContext;
use crate::cache::{Key, KeyBuilder, Stage};
use crate::debian::fetch;
use crate::debian::lock::Package;
use crate::process::Tool;
use crate::progress::Progress;
use crate::spec::Kernel;
use crate::tools::ToolsTree;
use crate::tree::{Tree, matches};

#[derive(Clone, Debug)]
pub struct UnpackedKernel {
    pub vmlinuz: PathBuf,
    /// Its release, as `uname -r` prints it.
    pub release: String,
    /// `usr/lib/modules` of the image.
    pub modules: PathBuf,
    pub copyright: PathBuf,
    /// `usr/lib/modules` of the initial root.
    pub initial_modules: PathBuf,
}

/// Unpacks the locked kernel, or finds it in the cache. Fails if it lacks a module of the initial root, or if a module
/// needs one that is left out.
pub fn unpack(package: &Package, kernel: &Kernel, context: &BuildContext<'_>) -> Result<UnpackedKernel> {
    let &BuildContext { tools, cache, progress, .. } = context;
    let key = key(package, kernel, tools.key())?;
    let place = cache.stage(&key, progress, |directory| {
        let work = cache.work()?;
        let archive = work.path().join("package.tar");
        // dpkg-deb writes the package's files as a tar archive to standard output.
        let files =
            Tool::on_host("dpkg-deb").arg("--fsys-tarfile").arg(fetch::cached(cache, package)).output(progress)?;
        fs::write(&archive, files).context("writing the kernel package's files")?;
        lay_out(&Tree::from_tar(&archive, |_| true)?, kernel, directory, work.path(), tools, progress)
    })?;
    let release = fs::read_to_string(place.join("release")).context("reading the kernel's release")?;
    Ok(UnpackedKernel {
        vmlinuz: place.join("vmlinuz"),
        release,
        modules: place.join("image/usr/lib/modules"),
        copyright: place.join("copyright"),
        initial_modules: place.join("initial/usr/lib/modules"),
    })
}

fn key(package: &Package, kernel: &Kernel, tools: &Key) -> Result<Key> {
    let key = Key::of(Stage::KERNEL)
        .text("package", &package.sha256)
        .text("initial modules", kernel.initial_modules.join(" "))
        .text("left out", kernel.leave_out.join(" "))
        .key("tools", tools);
    let add = |key: KeyBuilder, modules: &PathBuf| key.directory("further modules", modules);
    Ok(kernel.modules.iter().try_fold(key, add)?.finish())
}

fn lay_out(
    package: &Tree,
    kernel: &Kernel,
    directory: &Path,
    work: &Path,
    tools: &ToolsTree,
    progress: &Progress,
) -> Result<()> {
    let image = package.iter().find_map(|(path, _)| {
        let release = path.strip_prefix("boot").ok()?.to_str()?.strip_prefix("vmlinuz-")?;
        Some((path.to_owned(), release.to_owned()))
    });
    let (vmlinuz, release) = image.context("the kernel's package has no boot/vmlinuz-…")?;
    fs::write(directory.join("vmlinuz"), package.read(vmlinuz)?).context("writing the kernel")?;
    fs::write(directory.join("release"), &release).context("writing the kernel's release")?;
    let is_copyright = |path: &Path| path.starts_with("usr/share/doc") && path.ends_with("copyright");
    let copyright = package.iter().map(|(path, _)| path).find(|path| is_copyright(path));
    let copyright = package.read(copyright.context("the kernel's package has no copyright file")?)?;
    fs::write(directory.join("copyright"), copyright).context("writing the kernel's licence")?;

    let place = Path::new("usr/lib/modules").join(&release);
    let mut all = package.clone();
    all.retain(|path, _| path.starts_with("usr/lib/modules") || Path::new("usr/lib/modules").starts_with(path));
    for further in &kernel.modules {
        // depmod prefers modules there (depmod.d(5), "search").
        all.host_directory(further, &place.join("updates"))?;
    }
    let mut modules = all.clone();
    modules.retain(|path, _| {
        let name = path.strip_prefix(&place).unwrap_or(Path::new(""));
        !kernel.leave_out.iter().any(|pattern| matches(pattern, name))
    });
    let complete = index(&all, &work.join("all"), &release, tools, progress)?;
    let kept = index(&modules, &directory.join("image"), &release, tools, progress)?;
    check_dependencies(&complete, &kept)?;

    let wanted = with_dependencies(&kernel.initial_modules, &kept)?;
    let mut initial = modules;
    initial.retain(|path, _| module_name(path).is_none_or(|name| wanted.contains(&name)));
    index(&initial, &directory.join("initial"), &release, tools, progress)?;
    Ok(())
}

/// Writes modules to a directory, runs depmod on it, and returns `modules.dep`.
fn index(modules: &Tree, directory: &Path, release: &str, tools: &ToolsTree, progress: &Progress) -> Result<String> {
    fs::create_dir(directory).with_context(|| format!("making {}", directory.display()))?;
    let mut modules = modules.clone();
    // Debian's depmod reads /lib.
    modules.link("lib", "usr/lib");
    modules.write_directory(directory)?;
    let depmod = tools.run("depmod").writes_at(directory, "/modules").tool();
    depmod.args(["--basedir=/modules"]).arg(release).run(progress)?;
    let path = directory.join(format!("usr/lib/modules/{release}/modules.dep"));
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// The modules of a `modules.dep` (modules.dep(5)), each with all its dependencies, also the indirect ones. Modules
/// that are built into the kernel are not in it.
fn dependencies(dep: &str) -> BTreeMap<String, Vec<String>> {
    let lines = dep.lines().filter_map(|line| line.split_once(':'));
    let module = |(module, needs): (&str, &str)| {
        let needs = needs.split_whitespace().filter_map(|path| module_name(Path::new(path)));
        Some((module_name(Path::new(module))?, needs.collect::<Vec<_>>()))
    };
    lines.filter_map(module).collect()
}

/// Fails if a kept module needs one that only the `complete` list has: depmod drops such a dependency without an error.
fn check_dependencies(complete: &str, kept: &str) -> Result<()> {
    let kept = dependencies(kept);
    let mut wrong = Vec::new();
    for (module, needs) in dependencies(complete).iter().filter(|(module, _)| kept.contains_key(*module)) {
        for need in needs.iter().filter(|need| !kept.contains_key(*need)) {
            wrong.push(format!("kernel.leave-out: the module {module} needs {need}: keep it, or leave out both"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// The names of these modules and of all their dependencies, from `modules.dep`.
fn with_dependencies(names: &[String], dep: &str) -> Result<BTreeSet<String>> {
    let dependencies = dependencies(dep);
    let mut wanted = BTreeSet::new();
    for name in names {
        let name = name.replace('-', "_");
        let Some(needs) = dependencies.get(&name) else {
            bail!("the kernel has no module {name} for the initial root: see kernel.initial-modules");
        };
        wanted.extend(needs.iter().cloned());
        wanted.insert(name);
    }
    Ok(wanted)
}

/// The name of the module in a file such as `kernel/drivers/nvme/nvme-core.ko.xz`.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (name, rest) = name.split_once(".ko")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_share_one_kernel() {
        let tools = Key::of(Stage::TOOLS).finish();
        let key_of = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs").join(name);
            let (spec, _) = crate::spec::read(&path).unwrap();
            let lock = crate::debian::layers::read_locks(&spec.packages.layers, &path).unwrap().unwrap();
            key(&lock.kernel.unwrap(), &spec.kernel, &tools).unwrap()
        };
        assert_eq!(key_of("control-plane.toml"), key_of("tenant.toml"));
    }

    #[test]
    fn modules_include_their_dependencies() {
        let dep = "kernel/md/dm-verity.ko.xz: kernel/md/dm-bufio.ko.xz kernel/md/dm-mod.ko.xz\n\
                   kernel/md/dm-bufio.ko.xz: kernel/md/dm-mod.ko.xz\nkernel/md/dm-mod.ko.xz:\nkernel/x/other.ko.xz:\n";
        let wanted = with_dependencies(&["dm-verity".to_owned()], dep).unwrap();
        assert_eq!(wanted.into_iter().collect::<Vec<_>>(), ["dm_bufio", "dm_mod", "dm_verity"]);
        let error = with_dependencies(&["nvme9".to_owned()], dep).unwrap_err().to_string();
        assert!(error.contains("no module nvme9"), "{error}");
    }

    #[test]
    fn a_needed_module_must_not_be_left_out() {
        let complete = "net/mlx5_core.ko.xz: pci/pci-hyperv-intf.ko.xz\npci/pci-hyperv-intf.ko.xz:\n\
                        pci/pci-hyperv.ko.xz: pci/pci-hyperv-intf.ko.xz\n";
        let error = check_dependencies(complete, "net/mlx5_core.ko.xz:\n").unwrap_err().to_string();
        let expected = "kernel.leave-out: the module mlx5_core needs pci_hyperv_intf: keep it, or leave out both";
        assert_eq!(error, expected);
        let kept: Vec<&str> = complete.lines().take(2).collect();
        check_dependencies(complete, &kept.join("\n")).unwrap();
        check_dependencies(complete, "").unwrap();
    }

    #[test]
    fn module_names_come_from_file_names() {
        assert_eq!(module_name(Path::new("a/b/nvme-core.ko.xz")).as_deref(), Some("nvme_core"));
        assert_eq!(module_name(Path::new("a/b/sd_mod.ko")).as_deref(), Some("sd_mod"));
        assert_eq!(module_name(Path::new("modules.order")), None);
    }
}
