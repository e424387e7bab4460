//! Who asks for a data disk, and why it is not given.

use contract::bios_uuid::BiosUuid;
use contract::image::ImageFacts;
use contract::swap::{Image, VmImage};
use semver::VersionReq;

use crate::host::platform::Platform;

/// What `platform` carries, with the image that it runs.
pub fn own_use(platform: &Platform, image: &ImageFacts) -> VmImage {
    VmImage { vm: platform.bios_uuid(), version: image.version.clone(), build: image.build.clone() }
}

/// Why a VM may not take a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another VM holds it.
    Held(BiosUuid),
    /// It was released for another image.
    OtherImage(Image),
    /// This image is older than the one that used it last, which is of this version.
    Older(String),
    /// This image is not signed with the pinned key, which has this fingerprint.
    Publisher(String),
    /// This image may not take the place of the one that used it last.
    FromVersion {
        last: String,
        /// Of which versions it may take the place.
        allowed: VersionReq,
    },
}
