//! Images of VMs.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::unpack::UnpackedOva;

/// How many digits of a digest messages have.
const SHOWN: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Source {
    /// An OVA.
    Ova {
        /// The directory with its unpacked parts.
        unpacked: UnpackedOva,
    },
    /// A root tree alone, for development of the agent. Containers only.
    Tree { tree: PathBuf },
    /// An OVA's virtual hardware with another system disk, to compare the two.
    Disk {
        /// The directory with the OVA's unpacked parts.
        unpacked: UnpackedOva,
        /// The raw disk. Never written to.
        disk: PathBuf,
    },
}

impl Source {
    /// A description for messages.
    pub fn words(&self) -> String {
        match self {
            Self::Ova { unpacked } | Self::Disk { unpacked, .. } => {
                let digest = unpacked.digest();
                format!("an OVA of digest {}", digest.get(..SHOWN).unwrap_or(digest))
            }
            Self::Tree { tree } => format!("the root tree {}", tree.display()),
        }
    }

    /// Whether both are the same. The directory of an unpacked OVA does not matter.
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

    pub fn tree(&self) -> PathBuf {
        match self {
            Self::Ova { unpacked } | Self::Disk { unpacked, .. } => unpacked.tree(),
            Self::Tree { tree } => tree.clone(),
        }
    }

    /// The raw system disk. Never written to. Fails for a root tree.
    pub fn system_disk(&self) -> Result<PathBuf> {
        match self {
            Self::Disk { disk, .. } => Ok(disk.clone()),
            Self::Ova { unpacked } => Ok(unpacked.system_disk()),
            Self::Tree { .. } => bail!("virtual machines need an OVA, not a root tree"),
        }
    }

    /// The unified kernel image, for firmware that cannot read the system disk. Fails for a root tree.
    pub fn kernel_image(&self) -> Result<PathBuf> {
        match self {
            Self::Ova { unpacked } | Self::Disk { unpacked, .. } => Ok(unpacked.kernel_image()),
            Self::Tree { .. } => bail!("virtual machines need an OVA, not a root tree"),
        }
    }

    /// Directories of the host that a virtual machine from this source needs.
    pub fn directories(&self) -> Vec<&Path> {
        match self {
            Self::Ova { unpacked } => vec![unpacked.directory()],
            Self::Tree { .. } => Vec::new(),
            Self::Disk { unpacked, disk } => [unpacked.directory()].into_iter().chain(disk.parent()).collect(),
        }
    }
}
