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
//! An image that is older than the one that used the disk last is refused, unless the
//! swap was prepared for it or its VM is the one that had the disk before.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::version::is_older;
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
}

/// Whether `own` may take the disk with this identity, or go on with it.
///
/// # Errors
/// Why not.
pub fn may_take(identity: &Identity, own: &Use) -> Result<(), Refusal> {
    let swap = identity.swap.as_ref();
    if swap.is_some_and(|swap| swap.from.is(own)) {
        return Ok(());
    }
    let named = swap.and_then(|swap| swap.to.as_ref());
    match identity.holder {
        Some(holder) if own.vm == Some(holder) => {}
        // The VM that prepared it was powered off the hard way.
        Some(holder) => {
            let prepared = swap.is_some_and(|swap| swap.from.vm == Some(holder));
            return match named {
                Some(image) if prepared && image.build == own.build => Ok(()),
                _ => Err(Refusal::Held(holder)),
            };
        }
        None => match named {
            Some(image) if image.build == own.build => return Ok(()),
            Some(image) => return Err(Refusal::OtherImage(image.clone())),
            None => {}
        },
    }
    match is_older(&own.version, &identity.image_version) {
        true => Err(Refusal::Older(identity.image_version.clone())),
        false => Ok(()),
    }
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
        None => Swap { id, from: own.clone(), to: None, released: None, forced: false },
        Some(swap) if swap.from.is(own) => swap.clone(),
        Some(swap) => Swap { released: Some(own.clone()), ..swap.clone() },
    };
    Some(Identity { holder: None, swap: Some(swap), ..identity.clone() })
}

/// The identity once a person has given `own` the disk of a VM that is proved off, whatever
/// stands on the disk. `id` names the swap that this begins.
pub fn taken_over(identity: &Identity, own: &Use, id: Uuid) -> Identity {
    let swap = identity.swap.as_ref();
    let unknown = || Use { vm: identity.holder, version: identity.image_version.clone(), build: String::new() };
    let from = match (identity.holder, swap) {
        (Some(holder), Some(swap)) if swap.from.vm == Some(holder) => swap.from.clone(),
        (None, Some(swap)) => swap.released.clone().unwrap_or_else(|| swap.from.clone()),
        _ => unknown(),
    };
    Identity {
        holder: own.vm,
        image_version: own.version.clone(),
        generation: identity.generation + 1,
        swap: Some(Swap { id, from, to: None, released: None, forced: true }),
        ..identity.clone()
    }
}

#[cfg(test)]
#[path = "holder_tests.rs"]
mod tests;
