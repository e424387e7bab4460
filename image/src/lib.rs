//! Builds a bootable disk and its OVA from an image specification.
//!
//! [`build()`] is the overview, with one line for each stage. Each stage is a module, and its result is cached under
//! a key of all its inputs. Independent of how the image runs.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! appliance audit contents disk identifier kernel_image
//! initial_root payload programs root_image sbom settings
//! rootfs
//! kernel linked
//! own_programs spec
//! component
//! tools
//! crates debian tree
//! cache process renew
//! caller elf licences progress
//! ```

pub mod appliance;
pub mod audit;
pub mod cache;
pub mod caller;
pub mod component;
mod contents;
mod crates;
pub mod debian;
pub mod disk;
pub mod elf;
pub mod identifier;
pub mod initial_root;
pub mod kernel;
pub mod kernel_image;
mod licences;
pub mod linked;
pub mod own_programs;
pub mod payload;
pub mod process;
pub mod programs;
pub mod progress;
pub mod renew;
pub mod root_image;
pub mod rootfs;
mod sbom;
pub mod settings;
pub mod spec;
pub mod tools;
pub mod tree;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

// The modules name it as `crate::document`: the cache's keys contain the text of some of them.
use ::document;
use anyhow::{Context, Result};
use contract::image::Compilers;
use ova::signature::Signer;

use cache::{Cache, Used};
use component::Component;
use component::build::Built;
use debian::bootstrap;
use debian::changes::Changes;
use debian::lock::{Lock, Package, Pocket, advice};
use debian::resolve::Archive;
use debian::sources::{Settings, Sources};
use debian::{fetch, layers};
use licences::LicensedPart;
use process::Tool;
use progress::Progress;
use spec::{Spec, Variant};

/// The parameters of a build.
pub struct Request<'r> {
    pub spec: &'r Path,
    pub variant: Variant,
    /// The directory of the OVA. It is created if it is missing.
    pub output: &'r Path,
    /// The key for the signature. Without one, the result is a development image.
    pub signer: Option<&'r Signer>,
    pub sources: Settings,
    pub used: Used,
}

pub struct BuildContext<'w> {
    pub tools: &'w tools::ToolsTree,
    pub cache: &'w Cache,
    pub progress: &'w Progress,
    /// The time of all files that they make, in seconds since 1970.
    pub epoch: u64,
}

#[derive(Clone, Debug)]
pub struct BuiltImage {
    pub ova: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// The raw disk image in it, in the cache.
    pub disk: PathBuf,
}

/// Builds an image from its spec.
///
/// # Errors
/// [`document::Mistakes`] when the spec is wrong, before any stage. Otherwise the error of a stage. An existing OVA
/// is unchanged then.
pub fn build(request: &Request<'_>, progress: &Progress) -> Result<BuiltImage> {
    let (mut spec, components) = spec::read(request.spec)?;
    request.variant.apply(&mut spec, &components)?;
    let lock = layers::read_locks(&spec.packages.layers, request.spec)?.context("the spec has no packages")?;
    tools::check_host(&[("cargo", "cargo"), ("cc", "gcc")])?;
    std::fs::create_dir_all(request.output).with_context(|| format!("making {}", request.output.display()))?;
    let cache = Cache::of_user(request.used)?;
    let epoch = epoch(&lock)?;
    let publisher = request.signer.map(|signer| signer.public_key().fingerprint().to_string());

    // The first stage, so that a host without Go gets its error at once.
    let go = ensure_go(&spec, &components, &cache, progress)?;
    let tools = tools::ensure(&request.sources, &cache, progress)?;
    let context = BuildContext { tools: &tools, cache: &cache, progress, epoch };
    let wanted: Vec<&Component> = used(&spec, &components).collect();
    let components = build_components(&wanted, Some(&tools), &cache, progress)?;
    component::check_again(&spec.components.file, &components)?;
    let debian = debian_tree(request, &lock, &cache, progress)?;
    let kernel_package =
        lock.kernel.as_ref().with_context(|| format!("the lock has no kernel: {}", advice(request.spec)))?;
    let kernel = kernel::unpack(kernel_package, &spec.kernel, &context)?;
    let own = own_programs::build(&spec.files, &context)?;

    let mut root = rootfs::base(&spec, &debian, &kernel, &components)?;
    rootfs::add_own_files(&mut root, &spec, &lock)?;
    let work = cache.work()?;
    rootfs::take_in(&mut root, &cache, work.path())?;
    settings::apply(&mut root, &context)?;
    rootfs::add_programs(&mut root, &spec.files, &own)?;
    let (sbom, licences) = documents(&spec, &lock, &components, &own.rust, &context)?;
    root.text(sbom::PLACE, sbom.clone());
    root.text(licences::PLACE, licences);
    let payload = compose_payload(&spec, &root, &components, epoch)?;
    root.lay_over(payload);
    programs::settle(&mut root, &spec.files).with_context(|| format!("the image of {}", spec.path.display()))?;
    let compilers = Compilers { go, rust: own.rust.clone(), cc: own.cc.clone() };
    let mut description = rootfs::description(&spec, &components, publisher.as_deref(), compilers)?;
    let parameters = &spec.kernel.command_line;
    let initial = initial_root::compose(&root, &kernel)?;
    let stub = tools.root().join(kernel_image::STUB.trim_start_matches('/'));
    let vmlinuz = &kernel.vmlinuz;
    let facts = rootfs::without_build(&description)?;
    let content =
        identifier::Content { tree: &root, initial: &initial, vmlinuz, stub: &stub, parameters, facts: &facts, epoch };
    description.facts.build = identifier::of(&content, &cache, progress)?;
    rootfs::add_description(&mut root, &description)?;

    let image = root_image::pack(&root, &spec.disk.compression, &context)?;
    let kernel_image = kernel_image::assemble(&spec, &root, &initial, &kernel, &image, &context)?;
    let disk = disk::make(&spec.disk, &kernel_image, &image, &context)?;
    let compressed = appliance::compress(&spec, &disk, &context)?;
    // Before the OVA is replaced, so that an error leaves the existing one.
    let sources = contents::Sources { debian: &debian, kernel: &kernel, components: &components, own: own.directory() };
    let contents = request.output.join(format!("{}.contents.md", spec.full_name()));
    contents::write(&contents, &root, &image, &kernel_image, &sources)?;
    let facts = &description.facts;
    let (ova, size) = appliance::pack(&spec, facts, &compressed, request.signer, request.output, &context)?;
    sbom::write_next_to(&ova, &sbom, request.signer)?;
    Ok(BuiltImage { ova, size, disk })
}

/// The list of parts of an image, and the licence texts of all linked code.
fn documents(
    spec: &Spec,
    lock: &Lock,
    components: &[Built],
    rust: &str,
    context: &BuildContext<'_>,
) -> Result<(String, String)> {
    let &BuildContext { cache, progress, epoch, .. } = context;
    let linked = |built| component::licences::of(built, cache, progress);
    let components: Vec<_> =
        components.iter().map(|built| Ok((&built.component, linked(built)?))).collect::<Result<_>>()?;
    let packages: Vec<&str> = std::iter::once("agent").chain(spec.files.programs.iter().map(String::as_str)).collect();
    let crates = crates::of(&spec.files.agent, &packages, progress)?;
    let path = spec.files.workspace.join("LICENSE");
    let own = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    // `rustc 1.95.0 (…)`. The standard library is linked into each program. Its licence is also that of the
    // appliance.
    let library = LicensedPart {
        name: "rust-std".to_owned(),
        version: rust.split(' ').nth(1).unwrap_or(rust).to_owned(),
        licence: Some("MIT OR Apache-2.0".to_owned()),
        texts: Vec::new(),
    };
    let linked = components.iter().flat_map(|(_, modules)| modules).chain(&crates).chain([&library]);
    let texts = licences::document(&own, linked)?;
    let programs: Vec<String> = packages.iter().map(|package| own_programs::name(package)).collect();
    let debian: Vec<Package> = [lock.packages.clone(), tools::shipped()?.packages].concat();
    let debian = Lock { packages: debian, ..lock.clone() };
    Ok((sbom::document(spec, &debian, &components, &programs, (&library, &crates), epoch)?, texts))
}

#[derive(Clone, Debug)]
pub struct RenewedLock {
    pub path: PathBuf,
    pub packages: usize,
    pub changes: Changes,
}

/// Renews the lock files of specs, or of bare package sets such as that of the tools. Also renews the locks of
/// included files, except with `keep_included`. Packages that several specs share are locked once.
///
/// # Errors
/// [`document::Mistakes`] when a spec is wrong. Otherwise when the archive cannot be read, lacks a package or has an
/// index older than a lock's. All locks are unchanged then, except if one of them cannot be written.
pub fn renew_locks(
    specs: &[PathBuf],
    keep_included: bool,
    sources: &Settings,
    cache: &Cache,
    progress: &Progress,
) -> Result<Vec<RenewedLock>> {
    let wanted = specs.iter().map(|spec| Ok((spec, spec::packages(spec)?))).collect::<Result<Vec<_>>>()?;
    tools::check_host(&[])?;
    let sources = Sources::find(sources, Path::new("/"))?;
    let mut archives: BTreeMap<String, Archive> = BTreeMap::new();
    let mut locks: Vec<(PathBuf, Lock)> = Vec::new();
    let mut kept: Vec<(PathBuf, Lock)> = Vec::new();
    for (spec, packages) in &wanted {
        let mut below = None;
        for layer in &packages.layers {
            let path = layer.lock_path();
            let own = if let Some((_, lock)) = locks.iter().find(|(done, _)| *done == path) {
                lock.clone()
            } else if keep_included && layer.file != **spec {
                let lock = layer.read_lock(below.as_ref(), &layer.file)?;
                kept.push((path, lock.clone()));
                lock
            } else {
                let archive = match archives.entry(packages.suite.clone()) {
                    Entry::Occupied(open) => open.into_mut(),
                    Entry::Vacant(none) => {
                        none.insert(Archive::open(&packages.suite, &Pocket::ALL, &sources, cache, progress)?)
                    }
                };
                let lock = archive
                    .resolve(&layer.set, layer.request(below.as_ref()), below.as_ref(), progress)
                    .with_context(|| format!("locking the packages of {}", layer.file.display()))?;
                locks.push((path, lock.clone()));
                lock
            };
            below = Some(layers::over(below, own));
        }
    }
    put_all(locks, &kept)
}

/// Writes the locks, if none is refused. Locks above `kept` ones must not have older indexes than these.
fn put_all(locks: Vec<(PathBuf, Lock)>, kept: &[(PathBuf, Lock)]) -> Result<Vec<RenewedLock>> {
    for (path, former) in kept {
        locks.iter().try_for_each(|(_, lock)| former.refuse_older(lock, path))?;
    }
    let mut formers = Vec::new();
    for (path, lock) in &locks {
        let former = Lock::read_former(path)?;
        if let Some(former) = &former {
            former.refuse_older(lock, path)?;
        }
        formers.push(former);
    }
    locks.into_iter().zip(formers).map(|((path, lock), former)| put(former.as_ref(), &lock, path)).collect()
}

fn put(former: Option<&Lock>, lock: &Lock, path: PathBuf) -> Result<RenewedLock> {
    renew::write(&path, &lock.text())?;
    let packages = lock.packages.len() + usize::from(lock.kernel.is_some());
    Ok(RenewedLock { path, packages, changes: Changes::between(former, lock) })
}

/// The time of everything in the image: the caller's (https://reproducible-builds.org/specs/source-date-epoch/), or
/// the archive's.
fn epoch(lock: &Lock) -> Result<u64> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().with_context(|| format!("SOURCE_DATE_EPOCH is {text:?}: give seconds since 1970")),
        Err(_) => Ok(lock.epoch()),
    }
}

fn used<'c>(spec: &Spec, described: &'c [Component]) -> impl Iterator<Item = &'c Component> {
    let names: Vec<String> = spec.components.names().into_iter().map(str::to_owned).collect();
    described.iter().filter(move |component| names.contains(&component.name))
}

/// Fetches the Go of the components, if one of them needs it, and returns its version.
fn ensure_go(spec: &Spec, described: &[Component], cache: &Cache, progress: &Progress) -> Result<Option<String>> {
    let Some(pin) = used(spec, described).find_map(Component::go) else { return Ok(None) };
    component::toolchain::ensure(pin, cache, progress)?;
    Ok(Some(pin.version.clone()))
}

/// Fetches the Go of a spec's components, if it is missing, and returns its directory. It stays while this cache
/// exists. Fails if the spec builds nothing with Go.
pub fn go(spec: &Path, cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    let (spec, components) = spec::read(spec)?;
    let pin = first_pin(used(&spec, &components))?;
    Ok(component::toolchain::ensure(pin, cache, progress)?.root().to_owned())
}

fn first_pin<'c>(mut components: impl Iterator<Item = &'c Component>) -> Result<&'c component::toolchain::Pin> {
    components.find_map(Component::go).context("the spec builds nothing with Go")
}

/// Runs a command with the Go in `root`, as the user who called sudo if there is one. In the command, `go` is that
/// Go, whatever the environment sets.
pub fn run_with_go(root: &Path, program: &OsStr, arguments: &[OsString]) -> Result<ExitStatus> {
    let others = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(root.join("bin")).chain(std::env::split_paths(&others));
    let path = std::env::join_paths(path).context("putting Go first in PATH")?;
    let tool = Tool::as_caller(program).args(arguments);
    tool.env("PATH", path).env("GOROOT", root).env("GOTOOLCHAIN", "local").pass()
}

/// Age from which a build that finds all components in the cache removes the output of go. It is not removed earlier:
/// the next command may build another spec or an earlier version.
const STALE: Duration = Duration::from_secs(24 * 3600);

fn build_components(
    components: &[&Component],
    tools: Option<&tools::ToolsTree>,
    cache: &Cache,
    progress: &Progress,
) -> Result<Vec<Built>> {
    build_each(components, tools, cache, |component| component::build::build(component, tools, cache, progress))
}

fn build_each(
    components: &[&Component],
    tools: Option<&tools::ToolsTree>,
    cache: &Cache,
    build: impl Fn(&Component) -> Result<Built>,
) -> Result<Vec<Built>> {
    let is_made = |component: &&Component| component::build::is_made(component, tools, cache);
    let were_made = components.iter().map(is_made).collect::<Result<Vec<_>>>()?;
    let all_made = were_made.iter().all(|made| *made);
    let is_to_compile = |(component, made): &(&&Component, &bool)| !**made && component.go().is_some();
    cache.ask_for_room(components.iter().zip(&were_made).filter(is_to_compile).count())?;
    // Locked for all components, so that no other process removes it between two.
    let compiled = (!all_made).then(|| cache.compiled_by_go()).transpose()?;
    let built = components.iter().map(|component| build(component)).collect::<Result<Vec<_>>>()?;
    drop(compiled);
    if all_made {
        cache.forget_compiled_by_go(STALE);
    }
    Ok(built)
}

fn compose_payload(spec: &Spec, root: &tree::Tree, components: &[Built], epoch: u64) -> Result<tree::Tree> {
    let all = |names: &[String]| names.iter().map(|name| rootfs::find(components, name)).collect::<Result<Vec<_>>>();
    let of_root: Vec<_> = spec
        .files
        .programs
        .iter()
        .map(|package| {
            let (tag, program) = (format!("v{}", spec.identity.version), rootfs::program(package));
            payload::RootProgram { name: package, tag, program }
        })
        .collect();
    let (kubernetes, images) = (all(&spec.components.kubernetes)?, all(&spec.components.images)?);
    payload::compose(&kubernetes, &images, (root, &of_root), epoch)
}

fn debian_tree(request: &Request<'_>, lock: &Lock, cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    // The kernel's package is also fetched here. It can be missing while the tree is cached.
    fetch::fetch(lock, &request.sources, cache, progress, &advice(request.spec))?;
    bootstrap::archive(lock, cache, progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use debian::lock::{Index, Package, Pocket};

    #[test]
    fn an_older_index_leaves_all_locks_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("s.lock"), directory.path().join("other.lock"));
        let (pocket, sha256) = (Pocket::Release, "ab".repeat(32));
        let lock = |date: u64, version: &str| {
            let (name, version, sha256) = ("bash".to_owned(), version.to_owned(), sha256.clone());
            let indexes = vec![Index { pocket, date, sha256: sha256.clone() }];
            let packages = vec![Package { name, version, pocket, path: "pool/bash.deb".to_owned(), size: 7, sha256 }];
            Lock { suite: "trixie".to_owned(), request: "r".to_owned(), indexes, packages, kernel: None }
        };
        let (former, newer) = (lock(20, "5.1"), lock(30, "5.2"));
        let first = put_all(vec![(path.clone(), former.clone())], &[]).unwrap();
        assert_eq!(first[0].changes.added.len(), 1);
        assert!(put_all(vec![(other.clone(), newer.clone()), (path.clone(), lock(10, "5.2"))], &[]).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), former.text());
        assert!(!other.exists());
        // The lock of a spec's additional packages may be new: its index must not be older than that of a kept lock.
        let kept = [(path.clone(), former.clone())];
        let error = put_all(vec![(other.clone(), lock(10, "5.2"))], &kept).unwrap_err().to_string();
        assert!(error.contains(&format!("but {} was made from one of", path.display())) && !other.exists(), "{error}");
        put_all(vec![(other.clone(), newer.clone())], &kept).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), former.text());
        let renewed = put_all(vec![(path.clone(), newer.clone())], &[]).unwrap().remove(0);
        assert_eq!((renewed.packages, renewed.changes.changed.len(), renewed.changes.added.len()), (1, 1, 0));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), newer.text());
    }

    #[test]
    fn a_command_finds_its_go() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        // With sudo, it runs as the caller.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let (go, said) = (directory.path().join("bin/go"), directory.path().join("said"));
        std::fs::create_dir(directory.path().join("bin")).unwrap();
        std::fs::write(&go, "#!/bin/sh\necho \"$GOROOT $GOTOOLCHAIN $*\"\n").unwrap();
        std::fs::set_permissions(&go, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = |script: &str| {
            let arguments = ["-c".into(), script.into()];
            run_with_go(directory.path(), OsStr::new("sh"), &arguments).unwrap()
        };
        assert!(run(&format!("go test >{}", said.display())).success());
        let expected = format!("{} local test\n", directory.path().display());
        assert_eq!(std::fs::read_to_string(&said).unwrap(), expected);
        assert_eq!(run("exit 3").code(), Some(3));
    }

    #[test]
    fn a_spec_without_go_has_no_pin() {
        let file = of_file(Path::new("program"));
        assert_eq!(first_pin(std::iter::once(&file)).unwrap_err().to_string(), "the spec builds nothing with Go");
        let described = component::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("components/components.toml"));
        let described = described.unwrap();
        assert_eq!(first_pin(described.iter()).unwrap(), described[0].go().unwrap());
    }

    /// A component that is a file of the host.
    fn of_file(file: &Path) -> Component {
        let program = component::Program { output: "program".to_owned(), names: Vec::new() };
        let file = component::LocalFile { path: file.to_owned(), sha256: None, program };
        Component {
            name: "part".to_owned(),
            version: "1.0".to_owned(),
            licence: "Apache-2.0".to_owned(),
            source: component::Source::File(vec![file]),
        }
    }

    #[test]
    fn gos_output_stays_for_the_next_command() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(&directory.path().join("cache")).unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        std::fs::write(&one, "one").unwrap();
        std::fs::write(&other, "other").unwrap();
        let build = |file: &Path| build_components(&[&of_file(file)], None, &cache, &Progress::silent()).unwrap();
        build(&one);
        let compiled = cache.compiled_by_go().unwrap().path().to_owned();
        let grow_older = |by: Duration| {
            let time = std::time::SystemTime::now() - by;
            std::fs::File::open(&compiled).unwrap().set_modified(time).unwrap();
        };
        grow_older(STALE / 2);
        build(&one);
        assert!(compiled.is_dir(), "an earlier version may be built next");
        grow_older(STALE);
        build(&other);
        assert!(compiled.is_dir(), "it is wanted now");
        grow_older(STALE);
        build(&other);
        assert!(!compiled.exists());
    }

    #[test]
    fn gos_output_stays_between_two_components() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        let cache = Cache::at(&root).unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "file").unwrap();
        let compiled = root.join("go-build");
        let asked = std::sync::OnceLock::new();
        let between = |component: &Component| {
            // As a build of another clone does, which finds its components in the cache.
            let another = Cache::at(&root).unwrap();
            another.forget_compiled_by_go(Duration::ZERO);
            asked.set(compiled.is_dir()).unwrap();
            component::build::build(component, None, &cache, &Progress::silent())
        };
        build_each(&[&of_file(&file)], None, &cache, between).unwrap();
        assert_eq!(asked.get(), Some(&true));
    }

    /// Kernel modules, initial root, components and agent depend on nothing else of a spec, so a second image finds
    /// them in the cache. A spec has only its differences: no package is locked twice.
    #[test]
    fn the_images_differ_in_their_own_parts_only() {
        let read = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs").join(name);
            let (spec, described) = spec::read(&path).unwrap();
            let lock = layers::read_locks(&spec.packages.layers, &path).unwrap().unwrap();
            let parts: Vec<Component> = used(&spec, &described).cloned().collect();
            (spec, parts, lock)
        };
        let ((control, control_parts, control_lock), (tenant, tenant_parts, tenant_lock)) =
            (read("control-plane.toml"), read("tenant.toml"));
        let own_parts: Vec<_> = tenant_parts.iter().filter(|part| !control_parts.contains(part)).collect();
        assert!(control_parts.len() > 7, "{control_parts:?}");
        assert_eq!(tenant_parts.len(), control_parts.len() + own_parts.len());
        assert!(own_parts.iter().all(|part| tenant.components.images.contains(&part.name)), "{own_parts:?}");
        assert_eq!(control.kernel, tenant.kernel);
        assert_eq!(control_lock.kernel, tenant_lock.kernel);
        let agent = |spec: &Spec| (spec.files.workspace.clone(), spec.files.agent.clone(), spec.files.systemd.clone());
        assert_eq!(agent(&control), agent(&tenant));
        assert_eq!(control.disk, tenant.disk);
        let shared_images = tenant.components.images.iter().filter(|name| control.components.images.contains(name));
        let shared_components = spec::Components { images: shared_images.cloned().collect(), ..tenant.components };
        assert_eq!(control.components, shared_components);

        let [shared] = control.packages.layers.as_slice() else { panic!("the control plane has packages of its own") };
        assert_eq!(&tenant.packages.layers[0], shared);
        let own = Lock::read_former(&tenant.packages.layers[1].lock_path()).unwrap().unwrap();
        let doubled: Vec<_> = own
            .packages
            .iter()
            .filter(|package| control_lock.packages.iter().any(|shared| shared.name == package.name))
            .collect();
        assert!(doubled.is_empty() && !own.packages.is_empty(), "{doubled:?}");
        assert_eq!(tenant_lock.packages.len(), control_lock.packages.len() + own.packages.len());
    }

    /// A file of the image has MetalLB's kinds of objects.
    #[test]
    fn metallbs_kinds_have_the_version_of_metallb() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let kinds = manifest.join("tenant-root/usr/lib/kaas/add-ons/metallb-kinds.yaml");
        let kinds = std::fs::read_to_string(kinds).unwrap();
        let described = component::read(&manifest.join("components/components.toml")).unwrap();
        for name in ["metallb-controller", "metallb-speaker"] {
            let part = described.iter().find(|part| part.name == name).unwrap();
            assert!(
                kinds.starts_with(&format!("# The kinds of MetalLB v{}, ", part.version)),
                "{name} {}",
                part.version
            );
        }
    }
}
