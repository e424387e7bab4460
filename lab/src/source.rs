//! What VMs are made from.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::unpack::UnpackedOva;

/// How much of a digest people are shown.
const SHOWN: usize = 12;

/// What a VM is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Source {
    /// An OVA.
    Ova {
        /// The directory that it was taken apart into.
        unpacked: UnpackedOva,
    },
    /// A root tree alone, for work on the agent: containers only.
    Tree {
        /// The tree.
        tree: PathBuf,
    },
    /// An OVA whose virtual hardware boots another system disk, to compare the two.
    Disk {
        /// The directory that the OVA was taken apart into.
        unpacked: UnpackedOva,
        /// The raw disk; never written to.
        disk: PathBuf,
    },
}

impl Source {
    /// What it is, for people.
    pub fn words(&self) -> String {
        match self {
            Self::Ova { unpacked } | Self::Disk { unpacked, .. } => {
                let digest = unpacked.digest();
                format!("an OVA of digest {}", digest.get(..SHOWN).unwrap_or(digest))
            }
            Self::Tree { tree } => format!("the root tree {}", tree.display()),
        }
    }

    /// Whether both are the same, wherever an OVA was taken apart.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ova { unpacked }, Self::Ova { unpacked: other }) => unpacked.digest() == other.digest(),
            (Self::Disk { unpacked, disk }, Self::Disk { unpacked: other, disk: others }) => {
                unpacked.digest() == other.digest() && disk == others
            }
            (Self::Tree { tree }, Self::Tree { tree: other }) => tree == other,
            (Self::Ova { .. } | Self::Disk { .. } | Self::Tree { .. }, _) => false,
        }
    }

    /// The root tree.
    pub fn tree(&self) -> PathBuf {
        match self {
            Self::Ova { unpacked } | Self::Disk { unpacked, .. } => unpacked.tree(),
            Self::Tree { tree } => tree.clone(),
        }
    }

    /// The raw system disk; never written to.
    ///
    /// # Errors
    /// When there is only a root tree.
    pub fn system_disk(&self) -> Result<PathBuf> {
        match self {
            Self::Disk { disk, .. } => Ok(disk.clone()),
            Self::Ova { unpacked } => Ok(unpacked.system_disk()),
            Self::Tree { .. } => bail!("virtual machines need an OVA, not a root tree"),
        }
    }

    /// The unified kernel image, for firmware that cannot read the system disk.
    ///
    /// # Errors
    /// When there is only a root tree.
    pub fn kernel_image(&self) -> Result<PathBuf> {
        match self {
            Self::Ova { unpacked } | Self::Disk { unpacked, .. } => Ok(unpacked.kernel_image()),
            Self::Tree { .. } => bail!("virtual machines need an OVA, not a root tree"),
        }
    }

    /// The directories of the host that a virtual machine made from it has to see.
    pub fn directories(&self) -> Vec<&Path> {
        match self {
            Self::Ova { unpacked } => vec![unpacked.directory()],
            Self::Tree { .. } => Vec::new(),
            Self::Disk { unpacked, disk } => [unpacked.directory()].into_iter().chain(disk.parent()).collect(),
        }
    }
}
