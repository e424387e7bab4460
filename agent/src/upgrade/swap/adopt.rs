//! Takes the data disk for this VM: what the identity says of its holder and generation
//! changes here and nowhere else, once per boot. It is done right before etcd starts, after the
//! cluster was asked about the disk, so that a disk that is refused stays as it was found.

use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use contract::version::{allows, is_older};
use uuid::Uuid;

use crate::cluster::records::Records;
use crate::host::disk::ownership::{self, Claimant};
use crate::host::disk::{Identity, Slots, Swap, slots};
use crate::host::files;

/// Notes until the VM restarts that this boot has taken the disk of this GUID: what a swap writes
/// to the identity since then must not be taken for what the former holder left.
const TAKEN: &str = "/run/kaas/disk-taken";

/// Takes `disk` for this VM, which may do so, unless this boot has done it already. Gives the
/// identity as it stands now.
///
/// # Errors
/// The disk cannot be read or written: it is as before, or taken; doing it again completes it.
pub fn take(root: &Path, disk: &Path, claimant: &Claimant) -> anyhow::Result<Identity> {
    let slots = Slots::read(disk).with_context(|| format!("reading {}", disk.display()))?;
    let found = slots.newest().context("the data disk has lost its identity")?;
    if is_taken(root, found.disk) {
        return Ok(found.clone());
    }
    let taken = ownership::taken(found, &claimant.own);
    if taken != *found {
        slots::write(disk, &taken).with_context(|| format!("taking {}", disk.display()))?;
    }
    note(root, found, &taken, claimant);
    let marker = files::below(root, TAKEN);
    files::write_atomically(&marker, found.disk.to_string().as_bytes(), 0o644)
        .context("noting that the data disk is taken")?;
    Ok(taken)
}

/// Whether this boot has taken the disk.
pub(super) fn is_taken(root: &Path, disk: Uuid) -> bool {
    std::fs::read_to_string(files::below(root, TAKEN)).is_ok_and(|text| text == disk.to_string())
}

/// Keeps on the disk itself when another VM took it over, and how, if that is news.
fn note(root: &Path, before: &Identity, now: &Identity, claimant: &Claimant) {
    let records = Records::new(root);
    // A disk that was taken over by force has had its new identity since then.
    let unnoted = |swap: &Swap| swap.forced && !records.is_in_swaps_log(&swap.id.to_string());
    if before.generation == now.generation && !now.swap.as_ref().is_some_and(unnoted) {
        return;
    }
    let what = words(before, now, claimant);
    log::warn!("{}: {what}", now.node);
    if let Err(error) = records.note_swap(SystemTime::now(), &what) {
        log::warn!("{error:#}");
    }
}

/// Who took the disk: what was older, signed by somebody else or forced is said.
fn words(before: &Identity, now: &Identity, claimant: &Claimant) -> String {
    let vm = now.holder.map_or_else(|| "without a BIOS UUID".to_owned(), |vm| vm.to_string());
    let mut words = format!("generation {}: VM {vm} with image {} took the disk", now.generation, now.image_version);
    let forced = now.swap.as_ref().filter(|swap| swap.forced);
    if let Some(swap) = forced {
        words += &format!(", forced by an administrator (force-adopt {})", swap.id);
    }
    let last = forced.map_or(&before.image_version, |swap| &swap.from.version);
    if is_older(&now.image_version, last) {
        words += &format!(", older than {last}, which had it before");
    } else if let Some(from) = &claimant.upgrades_from
        && now.image_version != *last
        && !allows(from, last)
    {
        words += &format!(", which may take the place of {from} only, not of {last}");
    }
    if let Some(pinned) = now.publisher.as_ref().filter(|pinned| Some(*pinned) != claimant.publisher.as_ref()) {
        let signer = claimant.publisher.as_deref().unwrap_or("nobody");
        words += &format!(", signed by {signer}, while {pinned} is pinned");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::disk::ownership::{may_take, released};
    use crate::host::disk::{DiskState, fixture};
    use crate::host::files::power;
    use contract::bios_uuid::BiosUuid;
    use contract::swap::{Image, VmImage};
    use std::path::PathBuf;

    const A: BiosUuid = BiosUuid::from_u128(0xa);
    const B: BiosUuid = BiosUuid::from_u128(0xb);

    fn vm(vm: BiosUuid, version: &str) -> VmImage {
        VmImage { vm: Some(vm), version: version.into(), build: format!("build of {version}") }
    }

    /// A VM with an image that nobody has signed.
    fn unsigned(own: &VmImage) -> Claimant {
        Claimant { own: own.clone(), publisher: None, upgrades_from: None }
    }

    fn held_by_a() -> Identity {
        Identity { image_version: "1.0.0".into(), holder: Some(A), state: DiskState::Formed, ..fixture::identity() }
    }

    fn prepared(identity: &Identity) -> Identity {
        let to = Some(Image { version: "2.0.0".into(), build: "build of 2.0.0".into() });
        let swap =
            Swap { id: Uuid::from_u128(7), from: vm(A, "1.0.0"), to, released: None, forced: false, publisher: None };
        Identity { swap: Some(swap), ..identity.clone() }
    }

    /// A file with this identity in both slots, and the directory of records.
    fn disk(root: &Path, identity: &Identity) -> PathBuf {
        let disk = root.join("disk");
        std::fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
        slots::write(&disk, identity).unwrap();
        slots::write(&disk, identity).unwrap();
        std::fs::create_dir_all(files::below(root, contract::paths::RECORDS)).unwrap();
        disk
    }

    fn now(disk: &Path) -> Identity {
        Slots::read(disk).unwrap().newest().unwrap().clone()
    }

    #[test]
    fn a_disk_is_taken_once_per_boot_and_what_is_prepared_since_then_stays() {
        let root = tempfile::tempdir().unwrap();
        let a = vm(A, "1.0.0");
        let disk = disk(root.path(), &released(&held_by_a(), &a, Uuid::from_u128(7)).unwrap());
        let taken = take(root.path(), &disk, &unsigned(&a)).unwrap();
        assert_eq!((taken.holder, taken.generation, &taken.swap), (Some(A), 1, &None));
        // The agent starts again after a swap was prepared: the way over must not be forgotten.
        let prepared = prepared(&taken);
        slots::write(&disk, &prepared).unwrap();
        assert_eq!(take(root.path(), &disk, &unsigned(&a)).unwrap(), prepared);
        assert_eq!(now(&disk), prepared);
        // The VM starts again: it goes on as if nothing had been prepared.
        files::remove(&files::below(root.path(), TAKEN)).unwrap();
        assert_eq!(take(root.path(), &disk, &unsigned(&a)).unwrap(), taken);
    }

    #[test]
    fn another_vm_counts_a_generation_and_leaves_a_line() {
        let root = tempfile::tempdir().unwrap();
        let disk = disk(root.path(), &prepared(&held_by_a()));
        let taken = take(root.path(), &disk, &unsigned(&vm(B, "2.0.0"))).unwrap();
        assert_eq!((taken.holder, taken.generation), (Some(B), 2));
        let log = std::fs::read_to_string(root.path().join("data/kaas/swaps.log")).unwrap();
        assert!(log.contains("generation 2: VM 00000000-0000-0000-0000-00000000000b with image 2.0.0"), "{log}");
        // Another disk in the same boot, as after a reset, is another matter.
        assert!(is_taken(root.path(), taken.disk) && !is_taken(root.path(), Uuid::from_u128(9)));
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_noted_once() {
        let root = tempfile::tempdir().unwrap();
        let log = || std::fs::read_to_string(root.path().join("data/kaas/swaps.log")).unwrap_or_default();
        let pinned = Identity { publisher: Some("SHA256:a".into()), ..held_by_a() };
        let b = unsigned(&vm(B, "0.9.0"));
        let over = ownership::taken_over(&pinned, &b, Uuid::from_u128(7));
        let disk = disk(root.path(), &over);
        for _ in 0..2 {
            assert_eq!(take(root.path(), &disk, &b).unwrap(), over);
            files::remove(&files::below(root.path(), TAKEN)).unwrap();
        }
        assert_eq!(log().lines().count(), 1, "{}", log());
        for words in
            ["forced", "force-adopt 00000000", "older than 1.0.0", "signed by nobody, while SHA256:a is pinned"]
        {
            assert!(log().contains(words), "{}", log());
        }
    }

    #[test]
    fn a_power_cut_leaves_it_taken_or_not_and_either_goes_on() {
        for things in 0.. {
            let root = tempfile::tempdir().unwrap();
            let disk = disk(root.path(), &prepared(&held_by_a()));
            let b = vm(B, "2.0.0");
            let (_, cut) = power::with(things, || take(root.path(), &disk, &unsigned(&b)));
            let between = now(&disk);
            assert!([(Some(A), 1), (Some(B), 2)].contains(&(between.holder, between.generation)), "after {things}");
            assert_eq!(may_take(&between, &unsigned(&b)), Ok(()), "after {things}");
            // Back to the former VM is possible from either, too.
            assert_eq!(may_take(&between, &unsigned(&vm(A, "1.0.0"))), Ok(()), "after {things}");
            let taken = take(root.path(), &disk, &unsigned(&b)).unwrap();
            assert_eq!((taken.holder, taken.generation), (Some(B), 2), "after {things}");
            if !cut {
                assert!(things >= 2, "only {things} things were saved");
                return;
            }
        }
    }
}
