//! What stands on a data disk of who has it and who may have it: part of its identity.

use contract::image::ImageFacts;
use contract::swap::{Image, Use};
use semver::VersionReq;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::host::platform::Platform;

/// What `platform` carries, with the image that it runs.
pub fn own_use(platform: &Platform, image: &ImageFacts) -> Use {
    Use { vm: platform.bios_uuid(), version: image.version.clone(), build: image.build.clone() }
}

/// A swap, from its preparation or the release of the disk until it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
