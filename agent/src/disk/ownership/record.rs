//! What stands on a data disk of who has it and who may have it: part of its identity.

use std::fmt;

use semver::VersionReq;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::image::ImageFacts;
use crate::platform::Platform;

/// A VM with the image that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// Its BIOS UUID; none if the hypervisor gives none.
    pub vm: Option<Uuid>,
    /// The image's version.
    pub version: String,
    /// The image's build identifier; empty where it is not known.
    pub build: String,
}

impl Use {
    /// What `platform` carries, with the image that it runs.
    pub fn of(platform: &Platform, image: &ImageFacts) -> Self {
        Self { vm: platform.bios_uuid(), version: image.version.clone(), build: image.build.clone() }
    }

    /// Whether both are the same VM; without UUIDs the image decides.
    pub fn is(&self, other: &Self) -> bool {
        self.vm == other.vm && (self.vm.is_some() || (&self.version, &self.build) == (&other.version, &other.build))
    }

    /// Whether it is the same VM, and `own` still runs the image that it had, as far as that is known.
    pub(super) fn is_still(&self, own: &Self) -> bool {
        let same_build = self.build.is_empty() || self.build == own.build;
        self.is(own) && self.version == own.version && same_build
    }
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Its version.
    pub version: String,
    /// Its build identifier.
    pub build: String,
}

impl Image {
    /// The beginning of the build identifier: enough to tell builds apart, short enough for names.
    pub fn short(&self) -> &str {
        self.build.get(..7).unwrap_or(&self.build)
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.version, self.short())
    }
}

/// A swap, from its preparation or the release of the disk until it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// Its identifier.
    pub id: Uuid,
    /// Who may take the disk back.
    pub from: Use,
    /// Which image may take the disk; none for a swap by hand: any that is not older.
    #[serde(default)]
    pub to: Option<Image>,
    /// Who released the disk last, if not `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Use>,
    /// Whether a person took the disk over from a VM that had not released it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Fingerprint of the key that is to be pinned at the commit, if somebody has named another one than is
    /// pinned: an image that it has signed may take the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
}

/// Why a VM may not take a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another VM holds it.
    Held(Uuid),
    /// It was released for another image.
    OtherImage(Image),
    /// This image is older than the one that used it last, which is of this version.
    Older(String),
    /// This image is not signed with the pinned key, which has this fingerprint.
    Publisher(String),
    /// This image may not take the place of the one that used it last.
    FromVersion {
        /// That one's version.
        last: String,
        /// Of which versions it may take the place.
        allowed: VersionReq,
    },
}
