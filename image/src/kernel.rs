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

/// Unpacks the locked kernel, or finds it in the cache. Fails if it lacks a module of the initial root.
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
        lay_out(&Tree::from_tar(&archive, |_| true)?, kernel, directory, tools, progress)
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

fn lay_out(package: &Tree, kernel: &Kernel, directory: &Path, tools: &ToolsTree, progress: &Progress) -> Result<()> {
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

    let mut modules = package.clone();
    modules.retain(|path, _| {
        let in_modules = path.starts_with("usr/lib/modules") || Path::new("usr/lib/modules").starts_with(path);
        let name = path.strip_prefix(format!("usr/lib/modules/{release}")).unwrap_or(Path::new(""));
        in_modules && !kernel.leave_out.iter().any(|pattern| matches(pattern, name))
    });
    for further in &kernel.modules {
        // depmod prefers modules there (depmod.d(5), "search").
        modules.host_directory(further, &Path::new("usr/lib/modules").join(&release).join("updates"))?;
    }
    let whole = index(&modules, &directory.join("image"), &release, tools, progress)?;

    let wanted = with_dependencies(&kernel.initial_modules, &whole)?;
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

/// The names of these modules and of all their dependencies, from `modules.dep` (modules.dep(5)). Modules that are
/// built into the kernel are not in it.
fn with_dependencies(names: &[String], dep: &str) -> Result<BTreeSet<String>> {
    let lines = dep.lines().filter_map(|line| line.split_once(':'));
    let dependencies: BTreeMap<String, Vec<String>> = lines
        .filter_map(|(module, needs)| {
            let needs = needs.split_whitespace().filter_map(|path| module_name(Path::new(path)));
            Some((module_name(Path::new(module))?, needs.collect()))
        })
        .collect();
    let mut wanted = BTreeSet::new();
    for name in names {
        let name = name.replace('-', "_");
        let Some(needs) = dependencies.get(&name) else {
            bail!("the kernel has no module {name} for the initial root: see kernel.initial-modules");
        };
        // modules.dep also lists indirect dependencies.
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
    fn module_names_come_from_file_names() {
        assert_eq!(module_name(Path::new("a/b/nvme-core.ko.xz")).as_deref(), Some("nvme_core"));
        assert_eq!(module_name(Path::new("a/b/sd_mod.ko")).as_deref(), Some("sd_mod"));
        assert_eq!(module_name(Path::new("modules.order")), None);
    }
}
