//! Whether an image may use a data disk, by its publisher and version. Without side effects. The image's own facts are
//! trusted here. The importer of its OVA verifies that the signature is the publisher's.

use contract::image::ImageFacts;
use contract::swap::VmImage;
use contract::version::{allows, is_older};
use semver::VersionReq;

use super::record::{Refusal, own_use};
use crate::host::disk::identity::Identity;
use crate::host::platform::Platform;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    pub own: VmImage,
    /// Fingerprint of the key that has signed the image. `None` for a development image.
    pub publisher: Option<String>,
    /// The versions that this image may replace. `None` for any that is not newer.
    pub upgrades_from: Option<VersionReq>,
}

impl Claimant {
    /// The VM of `platform` with the running image.
    pub fn of(platform: &Platform, image: &ImageFacts) -> Self {
        Self {
            own: own_use(platform, image),
            publisher: image.publisher.clone(),
            upgrades_from: image.upgrades_from.clone(),
        }
    }

    /// All objections to this image on the disk with this identity, for any holder. The most serious one is first.
    pub fn against(&self, identity: &Identity) -> Vec<Refusal> {
        let mut against = Vec::new();
        if let Some(pinned) = &identity.publisher
            && !self.is_expected(identity)
        {
            against.push(Refusal::Publisher(pinned.clone()));
        }
        let last = &identity.image_version;
        if is_older(&self.own.version, last) {
            against.push(Refusal::Older(last.clone()));
        } else if let Some(from) = &self.upgrades_from
            && self.own.version != *last
            && !allows(from, last)
        {
            against.push(Refusal::FromVersion { last: last.clone(), allowed: from.clone() });
        }
        against
    }

    /// Whether the image is signed with the pinned key, or with the one that is to replace it.
    fn is_expected(&self, identity: &Identity) -> bool {
        let next = identity.swap.as_ref().and_then(|swap| swap.publisher.as_ref());
        self.publisher.is_some() && (self.publisher == identity.publisher || self.publisher.as_ref() == next)
    }
}
