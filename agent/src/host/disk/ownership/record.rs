use contract::bios_uuid::BiosUuid;
use contract::image::ImageFacts;
use contract::swap::{Image, VmImage};
use semver::VersionReq;

use crate::host::platform::Platform;

pub fn own_use(platform: &Platform, image: &ImageFacts) -> VmImage {
    VmImage { vm: platform.bios_uuid(), version: image.version.clone(), build: image.build.clone() }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Held(BiosUuid),
    /// The disk was released for another image.
    OtherImage(Image),
    /// This image is older than the last one, which has this version.
    Older(String),
    /// This image is not signed with the pinned key, which has this fingerprint.
    Publisher(String),
    /// This image may not replace the last one.
    FromVersion {
        last: String,
        /// The versions that it may replace.
        allowed: VersionReq,
    },
}
