//! Which VM may take a disk, and how its identity changes then.

use contract::swap::VmImage;
use uuid::Uuid;

use super::claimant::Claimant;
use super::record::Refusal;
use crate::host::disk::identity::{DiskState, Identity, Swap};

/// Whether a VM may take the disk with this identity, or keep it.
pub fn may_take(identity: &Identity, claimant: &Claimant) -> Result<(), Refusal> {
    let (own, swap) = (&claimant.own, identity.swap.as_ref());
    if is_known(identity, own) {
        return Ok(());
    }
    let named = swap.and_then(|swap| swap.to.as_ref());
    let prepared = named.is_some_and(|image| image.build == own.build);
    let back = swap.is_some_and(|swap| swap.from.is(own));
    match identity.holder {
        _ if back => {}
        Some(holder) if own.vm == Some(holder) => {}
        // The VM that prepared the swap was powered off without a shutdown.
        Some(holder) if prepared && swap.is_some_and(|swap| swap.from.vm == Some(holder)) => {}
        Some(holder) => return Err(Refusal::Held(holder)),
        None => match named {
            Some(image) if !prepared => return Err(Refusal::OtherImage(image.clone())),
            _ => {}
        },
    }
    let mut against = claimant.against(identity).into_iter();
    let first = against.find(|refusal| !(prepared && matches!(refusal, Refusal::Older(_))));
    first.map_or(Ok(()), Err)
}

/// Whether this VM starts again, or gets the disk back, with the image that it had. Such a node must never be locked
/// out.
fn is_known(identity: &Identity, own: &VmImage) -> bool {
    let swap = identity.swap.as_ref();
    let had = |before: Option<&VmImage>| before.is_some_and(|before| is_still(before, own));
    if had(swap.map(|swap| &swap.from)) || had(swap.and_then(|swap| swap.released.as_ref())) {
        return true;
    }
    // Without a UUID, a disk that waits for another image looks like the VM's own.
    let awaits = own.vm.is_none() && swap.is_some_and(|swap| swap.to.is_some());
    identity.holder == own.vm && identity.image_version == own.version && !awaits
}

/// Whether both are the same VM, and it still runs the image that it had, as far as known.
fn is_still(before: &VmImage, own: &VmImage) -> bool {
    let same_build = before.build.is_empty() || before.build == own.build;
    before.is(own) && before.version == own.version && same_build
}

/// The identity after `own`, which may do so, has taken or kept the disk.
pub fn taken(identity: &Identity, own: &VmImage) -> Identity {
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

/// The identity after `own` has released the disk in a clean shutdown. `id` identifies the image swap that this begins.
///
/// `None` if `own` does not hold the disk, if the node belongs to no cluster yet, or if the disk has a worker's local
/// volumes. These belong to their node in any VM.
pub fn released(identity: &Identity, own: &VmImage, id: Uuid) -> Option<Identity> {
    let of_worker = identity.local_volumes.is_some();
    if of_worker || identity.state != DiskState::Formed || identity.holder.is_none() || identity.holder != own.vm {
        return None;
    }
    let swap = match &identity.swap {
        None => Swap { id, from: own.clone(), to: None, released: None, forced: false, publisher: None },
        Some(swap) if swap.from.is(own) => swap.clone(),
        Some(swap) => Swap { released: Some(own.clone()), ..swap.clone() },
    };
    Some(Identity { holder: None, swap: Some(swap), ..identity.clone() })
}

/// The identity after the operator has given a VM the disk of another VM that is proved off, with any identity on the
/// disk. `id` identifies the image swap that this begins.
pub fn taken_over(identity: &Identity, claimant: &Claimant, id: Uuid) -> Identity {
    let (own, swap) = (&claimant.own, identity.swap.as_ref());
    let unknown = || VmImage { vm: identity.holder, version: identity.image_version.clone(), build: String::new() };
    let from = match (identity.holder, swap) {
        (Some(holder), Some(swap)) if swap.from.vm == Some(holder) => swap.from.clone(),
        (None, Some(swap)) => swap.released.clone().unwrap_or_else(|| swap.from.clone()),
        _ => unknown(),
    };
    let publisher = claimant.publisher.clone().filter(|_| identity.publisher.is_some());
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
mod tests;
