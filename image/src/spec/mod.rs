//! What decides an image, as values that are known to make sense. Knows
//! nothing of how images are made.

mod check;
mod include;
mod read;
mod variant;

use std::path::PathBuf;

use contract::role::Roles;
use semver::VersionReq;

use crate::debian::layers::Layer;

pub use read::{packages, read};
pub use variant::Variant;

/// Everything that decides an image: what a spec says, and the files that it includes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The file it was read from.
    pub path: PathBuf,
    pub identity: Identity,
    /// The packages of its root tree.
    pub packages: Packages,
    pub kernel: Kernel,
    /// Its upstream parts.
    pub components: Components,
    pub files: Files,
    pub disk: Disk,
    pub hardware: Hardware,
}

impl Spec {
    /// `name-version`: the name of the files that are made.
    pub fn full_name(&self) -> String {
        format!("{}-{}", self.identity.name, self.identity.version)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Short name, also the proposed name of a VM.
    pub name: String,
    /// What a VM from it may be in its cluster; the first is the one that its form proposes.
    pub roles: Roles,
    pub version: String,
    /// Of which versions it may take the place in an image swap; none for any that is not newer.
    pub upgrades_from: Option<VersionReq>,
    /// Name of the product, for people.
    pub product: String,
    pub vendor: String,
    /// One line about it.
    pub description: String,
}

/// The packages of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packages {
    /// Debian's release, by code name.
    pub suite: String,
    /// The package of the kernel, if there is one.
    pub kernel: Option<String>,
    /// What each of the files adds that stand on each other, the spec last. Each is locked beside its file; files that
    /// add nothing are left out.
    pub layers: Vec<Layer>,
}

/// The kernel and what it is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Parameters, besides those that find the root.
    pub command_line: Vec<String>,
    /// Modules in the initial root: what it takes to find and mount the root disk. Their dependencies come along.
    pub initial_modules: Vec<String>,
    /// Directories with further modules, built for this very kernel.
    pub modules: Vec<PathBuf>,
    /// Patterns of module files that are left out of the image.
    pub leave_out: Vec<String>,
}

/// The upstream parts and their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Components {
    /// The description of the parts.
    pub file: PathBuf,
    /// Kubernetes, newest minor first: on the host by minor, in the payload as container images.
    pub kubernetes: Vec<String>,
    /// Directories of the image, each with the parts whose programs are there.
    pub programs: Vec<(PathBuf, Vec<String>)>,
    /// Parts that are there as a container image only.
    pub images: Vec<String>,
}

impl Components {
    /// The names of all parts in use, each once.
    pub fn names(&self) -> Vec<&str> {
        let programs = self.programs.iter().flat_map(|(_, names)| names);
        let mut names: Vec<&str> =
            self.kubernetes.iter().chain(programs).chain(&self.images).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The image's own files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The Cargo workspace whose compiler builds our programs.
    pub workspace: PathBuf,
    /// The Cargo workspace with the agent's sources: the same one, unless a variant takes them from another commit.
    pub agent: PathBuf,
    /// Packages of that workspace whose programs the image has besides the agent, as container images.
    pub programs: Vec<String>,
    /// Units and the other directories that systemd reads, by the name of the directory.
    pub systemd: PathBuf,
    /// Directories laid out as the image's root, each over the one before.
    pub roots: Vec<PathBuf>,
    /// Certificates of authorities that the image trusts besides those of Debian, in PEM.
    pub authorities: Vec<PathBuf>,
    /// Patterns of paths that packages bring and the image does not need.
    pub leave_out: Vec<String>,
    /// The only programs that run with the rights of their owner or group, whoever starts them.
    pub set_id: Vec<String>,
    /// Programs that lose the bits for that: only root, who has the rights anyway, is to use them.
    pub clear_set_id: Vec<String>,
    /// Directories that something is mounted on later.
    pub mount_points: Vec<String>,
    /// Symbolic links, by path.
    pub links: Vec<(String, String)>,
}

/// How the root file system is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not: the VMDK's deflate does it. Quickest to make and to read.
    None,
    /// By mkfs.erofs, with this compressor and level, such as `lz4hc,9`.
    Erofs(String),
}

/// Disk sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Capacity of the system disk.
    pub capacity: u64,
    /// The EFI system partition.
    pub esp: u64,
    /// How the root file system is packed.
    pub compression: Compression,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Virtual hardware version: 15 stands for `vmx-15`.
    pub version: u32,
    /// VMware's guest identifier.
    pub guest: String,
    /// Name of the network, as the import dialog shows it.
    pub network: String,
    /// Sizes to choose from, the default one first.
    pub profiles: Vec<Profile>,
}

/// A size to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub id: String,
    /// Its name in the import dialog.
    pub label: String,
    /// Whom it suits.
    pub description: String,
    /// Virtual processors.
    pub cpus: u32,
    pub memory_mib: u64,
    /// Capacity of the data disk in bytes; none for VMs that have no such disk.
    pub data_capacity: Option<u64>,
}
