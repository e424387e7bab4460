//! Who may take a data disk, and what its identity becomes then. Pure.
//!
//! | The disk is              | Who may take it                                            |
//! |--------------------------|------------------------------------------------------------|
//! | held by a VM             | that VM                                                    |
//! | held, and prepared for an image | that VM, or one of that image                       |
//! | held, the swap not committed | that VM, or the one that had the disk before           |
//! | released by a shutdown   | any VM of the same or a newer image, or the one before     |
//! | released, and prepared for an image | a VM of that image, or the one before           |
//!
//! A VM that starts again with the image that it had, or gets the disk back with it, is asked nothing more. Of any
//! other one the image is judged, too: see [`Candidate::against`]. One that the pinned publisher has not signed is
//! refused unless somebody has named its publisher, one that may not take the place of the last always, and one
//! that is older than the last unless the swap was prepared for it.

use std::fmt;

use semver::VersionReq;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::candidate::Candidate;
use crate::disk::{Identity, State};
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
    fn is_still(&self, own: &Self) -> bool {
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

/// Whether a VM may take the disk with this identity, or go on with it.
///
/// # Errors
/// Why not.
pub fn may_take(identity: &Identity, candidate: &Candidate) -> Result<(), Refusal> {
    let (own, swap) = (&candidate.own, identity.swap.as_ref());
    if is_known(identity, own) {
        return Ok(());
    }
    let named = swap.and_then(|swap| swap.to.as_ref());
    let prepared = named.is_some_and(|image| image.build == own.build);
    let back = swap.is_some_and(|swap| swap.from.is(own));
    match identity.holder {
        _ if back => {}
        Some(holder) if own.vm == Some(holder) => {}
        // The VM that prepared it was powered off the hard way.
        Some(holder) if prepared && swap.is_some_and(|swap| swap.from.vm == Some(holder)) => {}
        Some(holder) => return Err(Refusal::Held(holder)),
        None => match named {
            Some(image) if !prepared => return Err(Refusal::OtherImage(image.clone())),
            _ => {}
        },
    }
    let mut against = candidate.against(identity).into_iter();
    let first = against.find(|refusal| !(prepared && matches!(refusal, Refusal::Older(_))));
    first.map_or(Ok(()), Err)
}

/// Whether this VM only starts again, or gets the disk back, with the image that it had: nothing may lock a
/// node out then.
fn is_known(identity: &Identity, own: &Use) -> bool {
    let swap = identity.swap.as_ref();
    let had = |before: Option<&Use>| before.is_some_and(|before| before.is_still(own));
    if had(swap.map(|swap| &swap.from)) || had(swap.and_then(|swap| swap.released.as_ref())) {
        return true;
    }
    // Without a UUID a disk that awaits another image looks like one's own.
    let awaits = own.vm.is_none() && swap.is_some_and(|swap| swap.to.is_some());
    identity.holder == own.vm && identity.image_version == own.version && !awaits
}

/// The identity once `own`, which may do so, has taken the disk or goes on with it.
pub fn taken(identity: &Identity, own: &Use) -> Identity {
    let mut taken = Identity { holder: own.vm, image_version: own.version.clone(), ..identity.clone() };
    let Some(swap) = &identity.swap else {
        taken.generation += u64::from(identity.holder != own.vm);
        return taken;
    };
    let goes_on = identity.holder.is_some() && identity.holder == own.vm;
    if swap.from.is(own) {
        let elsewhere = match identity.holder {
            Some(_) => !goes_on,
            None => swap.released.is_some(),
        };
        taken.generation += u64::from(elsewhere);
        // It is back where it was: nothing is left of the swap.
        taken.swap = None;
        return taken;
    }
    if goes_on {
        return taken;
    }
    let mut swap = swap.clone();
    match swap.released.take() {
        Some(last) if last.is(own) => {}
        last => {
            taken.generation += 1;
            swap.from = last.unwrap_or(swap.from);
        }
    }
    taken.swap = Some(swap);
    taken
}

/// The identity once `own` has released the disk in a clean shutdown; none if it is
/// not its to release, or belongs to no cluster yet. `id` names the swap that this begins.
pub fn released(identity: &Identity, own: &Use, id: Uuid) -> Option<Identity> {
    if identity.state != State::Formed || identity.holder.is_none() || identity.holder != own.vm {
        return None;
    }
    let swap = match &identity.swap {
        None => Swap { id, from: own.clone(), to: None, released: None, forced: false, publisher: None },
        Some(swap) if swap.from.is(own) => swap.clone(),
        Some(swap) => Swap { released: Some(own.clone()), ..swap.clone() },
    };
    Some(Identity { holder: None, swap: Some(swap), ..identity.clone() })
}

/// The identity once a person has given a VM the disk of another one that is proved off, whatever
/// stands on the disk. `id` names the swap that this begins.
pub fn taken_over(identity: &Identity, candidate: &Candidate, id: Uuid) -> Identity {
    let (own, swap) = (&candidate.own, identity.swap.as_ref());
    let unknown = || Use { vm: identity.holder, version: identity.image_version.clone(), build: String::new() };
    let from = match (identity.holder, swap) {
        (Some(holder), Some(swap)) if swap.from.vm == Some(holder) => swap.from.clone(),
        (None, Some(swap)) => swap.released.clone().unwrap_or_else(|| swap.from.clone()),
        _ => unknown(),
    };
    let publisher = candidate.publisher.clone().filter(|_| identity.publisher.is_some());
    let publisher = publisher.filter(|key| Some(key) != identity.publisher.as_ref());
    Identity {
        holder: own.vm,
        image_version: own.version.clone(),
        generation: identity.generation + 1,
        swap: Some(Swap { id, from, to: None, released: None, forced: true, publisher }),
        ..identity.clone()
    }
}

#[cfg(test)]
#[path = "holder_tests.rs"]
mod tests;
