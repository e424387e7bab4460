//! The tools tree: programs that the build host need not have (systemd-repart,
//! ukify, mkfs.erofs, QEMU, firmware), in versions that the lock fixes. They run
//! in it through bubblewrap and see only what they are shown of the host.

mod run;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cache::{Cache, Key, Stage};
use crate::debian::bootstrap::{self, Form};
use crate::debian::lock::Lock;
use crate::debian::sources::Settings;
use crate::debian::{PackageSet, fetch};
use crate::progress::Progress;

pub use run::ToolRun;

const SPEC: &str = include_str!("../../specs/tools.toml");
const LOCK: &str = include_str!("../../specs/tools.lock");
const SPEC_NAME: &str = "image/specs/tools.toml";

/// Packages of the tools tree with parts that are in images: the stub of the kernel image, and what is linked into programs
/// in C.
const SHIPPED: [&str; 3] = ["libc6-dev", "libgcc-14-dev", "systemd-boot-efi"];

/// A tools tree on this host.
#[derive(Clone, Debug)]
pub struct ToolsTree {
    root: PathBuf,
    key: Key,
    /// Keeps other processes from removing the tree.
    _in_use: Cache,
}

/// The tools tree that this program was built with, from the cache or made now.
///
/// # Errors
/// When its packages are not available, or mmdebstrap fails.
pub fn ensure(settings: &Settings, cache: &Cache, progress: &Progress) -> Result<ToolsTree> {
    let spec = Path::new(SPEC_NAME);
    let lock = lock()?;
    let key = bootstrap::add_to_key(Key::of(Stage::TOOLS), &lock, progress)?.finish();
    let root = cache.stage(&key, progress, |result| {
        let renew = crate::debian::lock::advice(spec);
        fetch::fetch(&lock, settings, cache, progress, &renew)?;
        let place = result.join("root");
        bootstrap::bootstrap(&lock, Form::Directory, &place, cache, progress)
    })?;
    Ok(ToolsTree { root: root.join("root"), key, _in_use: cache.clone() })
}

fn lock() -> Result<Lock> {
    let spec = Path::new(SPEC_NAME);
    let set = PackageSet::read_bare(spec, SPEC)?;
    Lock::parse(LOCK, &Lock::path_for(spec), &set.request(), spec)
}

/// The lock of the tools' packages with parts that are in images.
///
/// # Errors
/// When it lacks one of them.
pub fn shipped() -> Result<Lock> {
    let mut lock = lock()?;
    lock.packages.retain(|package| SHIPPED.contains(&package.name.as_str()));
    anyhow::ensure!(lock.packages.len() == SHIPPED.len(), "{SPEC_NAME}: one of {} is missing", SHIPPED.join(", "));
    Ok(lock)
}

impl ToolsTree {
    /// The directory with the tree: firmware and other data are read from it directly.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The key of the tree's inputs: part of the key of everything that its tools make.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// A run of one of the tree's programs, to be shown what it needs.
    pub fn run(&self, program: &str) -> ToolRun<'_> {
        ToolRun::new(self, program)
    }
}

/// The programs of the build host itself that a build runs, each with the Debian package that has it.
pub const HOST_PROGRAMS: [(&str, &str); 4] =
    [("mmdebstrap", "mmdebstrap"), ("bwrap", "bubblewrap"), ("dpkg-deb", "dpkg"), ("apt-get", "apt")];

/// Says which of the programs that a build runs on the host are missing, and what to install.
///
/// # Errors
/// When one is missing.
pub fn check_host(more: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> =
        HOST_PROGRAMS.iter().chain(more).filter(|(program, _)| !crate::process::is_installed(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs = missing.iter().map(|(program, _)| *program).collect::<Vec<_>>().join(", ");
    let packages = missing.iter().map(|(_, package)| *package).collect::<Vec<_>>().join(" ");
    anyhow::bail!("this host lacks {programs}: install {packages}")
}
