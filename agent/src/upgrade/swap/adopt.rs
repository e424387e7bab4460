//! Takes the data disk for this VM. Holder and generation in the identity change only here, once per boot. It runs
//! right before etcd starts, after the peers were asked about the disk. Therefore a disk that is refused stays as it
//! was found.

use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use contract::version::{allows, is_older};
use uuid::Uuid;

use crate::cluster::records::Records;
use crate::host::disk::ownership::{self, Claimant};
use crate::host::disk::{Identity, Slots, Swap, slots};
use crate::host::files;

/// Records until the VM restarts that this boot has taken the disk of this GUID. A swap may write to the identity later in this
/// boot. Such a change must not be taken for the former holder's.
const TAKEN: &str = "/run/kaas/disk-taken";

/// Takes `disk` for this VM, which must be allowed to, unless this boot has done so before. Returns the current
/// identity. After an error the disk is as before, or taken; calling it again completes it.
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

pub(super) fn is_taken(root: &Path, disk: Uuid) -> bool {
    std::fs::read_to_string(files::below(root, TAKEN)).is_ok_and(|text| text == disk.to_string())
}

/// Records on the disk that another VM took it over, and how, unless that is recorded.
fn note(root: &Path, before: &Identity, now: &Identity, claimant: &Claimant) {
    let records = Records::new(root);
    // A disk that was taken by force got its new identity at that time.
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

/// Describes the VM that took the disk. Mentions an older image, another signer and the use of force.
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

    /// A VM with an unsigned image.
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
    fn disk_is_taken_once_per_boot() {
        let root = tempfile::tempdir().unwrap();
        let a = vm(A, "1.0.0");
        let disk = disk(root.path(), &released(&held_by_a(), &a, Uuid::from_u128(7)).unwrap());
        let taken = take(root.path(), &disk, &unsigned(&a)).unwrap();
        assert_eq!((taken.holder, taken.generation, &taken.swap), (Some(A), 1, &None));
        // The agent restarts after a swap was prepared. The preparation must survive.
        let prepared = prepared(&taken);
        slots::write(&disk, &prepared).unwrap();
        assert_eq!(take(root.path(), &disk, &unsigned(&a)).unwrap(), prepared);
        assert_eq!(now(&disk), prepared);
        // The VM restarts. The preparation is void.
        files::remove(&files::below(root.path(), TAKEN)).unwrap();
        assert_eq!(take(root.path(), &disk, &unsigned(&a)).unwrap(), taken);
    }

    #[test]
    fn another_vm_raises_the_generation_and_is_logged() {
        let root = tempfile::tempdir().unwrap();
        let disk = disk(root.path(), &prepared(&held_by_a()));
        let taken = take(root.path(), &disk, &unsigned(&vm(B, "2.0.0"))).unwrap();
        assert_eq!((taken.holder, taken.generation), (Some(B), 2));
        let log = std::fs::read_to_string(root.path().join("data/kaas/swaps.log")).unwrap();
        assert!(log.contains("generation 2: VM 00000000-0000-0000-0000-00000000000b with image 2.0.0"), "{log}");
        // Another disk in the same boot, as after a reset, is not taken.
        assert!(is_taken(root.path(), taken.disk) && !is_taken(root.path(), Uuid::from_u128(9)));
    }

    #[test]
    fn forced_takeover_is_logged_once() {
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
    fn interrupted_takeover_is_completed() {
        for things in 0.. {
            let root = tempfile::tempdir().unwrap();
            let disk = disk(root.path(), &prepared(&held_by_a()));
            let b = vm(B, "2.0.0");
            let (_, cut) = power::with(things, || take(root.path(), &disk, &unsigned(&b)));
            let between = now(&disk);
            assert!([(Some(A), 1), (Some(B), 2)].contains(&(between.holder, between.generation)), "after {things}");
            assert_eq!(may_take(&between, &unsigned(&b)), Ok(()), "after {things}");
            // The former VM may also take it again in either state.
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
