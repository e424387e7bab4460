//! The definition of an image, as validated values. Independent of how images are made.

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

/// The definition of an image: a spec and its included files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub path: PathBuf,
    pub identity: Identity,
    pub packages: Packages,
    pub kernel: Kernel,
    pub components: Components,
    pub files: Files,
    pub disk: Disk,
    pub hardware: Hardware,
}

impl Spec {
    /// `name-version`: the name of the output files.
    pub fn full_name(&self) -> String {
        format!("{}-{}", self.identity.name, self.identity.version)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Short name, also the default name of a VM.
    pub name: String,
    /// The roles that a VM of the image can have. The first is the form's default.
    pub roles: Roles,
    pub version: String,
    /// The versions that an image swap may replace with this one. `None` for any version that is not newer.
    pub upgrades_from: Option<VersionReq>,
    /// Name of the product, for users.
    pub product: String,
    pub vendor: String,
    /// One line.
    pub description: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packages {
    /// Debian's release, by code name.
    pub suite: String,
    pub kernel: Option<String>,
    /// The additional packages of each layer, the spec last. The lock of each is next to its file. Layers without
    /// packages are left out.
    pub layers: Vec<Layer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Parameters in addition to those that find the root.
    pub command_line: Vec<String>,
    /// Modules of the initial root, which find and mount the root disk. Their dependencies are added.
    pub initial_modules: Vec<String>,
    /// Directories with further modules, built for this exact kernel.
    pub modules: Vec<PathBuf>,
    /// Patterns of module files that the image does not have.
    pub leave_out: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Components {
    /// The description of the components.
    pub file: PathBuf,
    /// Kubernetes, newest minor version first: on the host by minor version, in the payload as container images.
    pub kubernetes: Vec<String>,
    /// Directories of the image, each with the components whose programs are in it.
    pub programs: Vec<(PathBuf, Vec<String>)>,
    /// Components that the image has as container images only.
    pub images: Vec<String>,
}

impl Components {
    /// The names of all components in use, each once.
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
    /// The Cargo workspace with the agent's sources: the same one, unless a variant uses those of another commit.
    pub agent: PathBuf,
    /// Packages of that workspace whose programs the image has in addition to the agent, as container images.
    pub programs: Vec<String>,
    /// Units and other directories that systemd reads, by the name of the directory.
    pub systemd: PathBuf,
    /// Directories with the layout of the image's root. Later ones have priority.
    pub roots: Vec<PathBuf>,
    /// Certificates of CAs that the image trusts in addition to Debian's, in PEM.
    pub authorities: Vec<PathBuf>,
    /// Patterns of paths that packages bring and the image does not need.
    pub leave_out: Vec<String>,
    /// The only programs that run with the rights of their owner or group for every user.
    pub set_id: Vec<String>,
    /// Programs that lose these bits: only root needs them, and root has the rights.
    pub clear_set_id: Vec<String>,
    pub mount_points: Vec<String>,
    /// Symbolic links, by path.
    pub links: Vec<(String, String)>,
}

/// How the root file system is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression: the deflate of the VMDK compresses it. Fastest to make and to read.
    None,
    /// Compressed by mkfs.erofs.
    Erofs {
        /// Compressor and level, such as `lzma,6`.
        compressor: String,
        /// The most bytes of a compressed cluster. A read of one byte decompresses its whole cluster.
        cluster: u64,
    },
}

/// Disk sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Capacity of the system disk.
    pub capacity: u64,
    /// Size of the EFI system partition.
    pub esp: u64,
    pub compression: Compression,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Virtual hardware version: 15 for `vmx-15`.
    pub version: u32,
    /// VMware's guest identifier.
    pub guest: String,
    /// Name of the network, as the import dialog shows it.
    pub network: String,
    /// Sizes to choose from, the default one first.
    pub profiles: Vec<Profile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub id: String,
    /// Its name in the import dialog.
    pub label: String,
    pub description: String,
    pub cpus: u32,
    pub memory_mib: u64,
    /// Capacity of the data disk in bytes. `None` for VMs without a data disk.
    pub data_capacity: Option<u64>,
}
