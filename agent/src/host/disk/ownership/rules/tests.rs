use contract::bios_uuid::BiosUuid;
use contract::swap::Image;

use super::*;
use crate::host::disk::fixture;

/// The two byte orders of each differ.
const A: BiosUuid = BiosUuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_000a);
const B: BiosUuid = BiosUuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_000b);
const C: BiosUuid = BiosUuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_000c);
const ID: Uuid = Uuid::from_u128(0x1d);

/// A VM with an image. The build is named after the version.
fn vm(vm: BiosUuid, version: &str) -> VmImage {
    VmImage { vm: Some(vm), version: version.into(), build: format!("build of {version}") }
}

fn image(version: &str) -> Image {
    Image { version: version.into(), build: format!("build of {version}") }
}

/// A disk in use by A with image 1.0.0.
fn disk() -> Identity {
    Identity { image_version: "1.0.0".into(), holder: Some(A), state: DiskState::Formed, ..fixture::identity() }
}

fn prepared(to: &str) -> Identity {
    let swap =
        Swap { id: ID, from: vm(A, "1.0.0"), to: Some(image(to)), released: None, forced: false, publisher: None };
    Identity { swap: Some(swap), ..disk() }
}

/// A VM with an image without a signature.
fn unsigned(own: &VmImage) -> Claimant {
    Claimant { own: own.clone(), publisher: None, upgrades_from: None }
}

fn may_take(identity: &Identity, own: &VmImage) -> Result<(), Refusal> {
    super::may_take(identity, &unsigned(own))
}

fn taken_over(identity: &Identity, own: &VmImage, id: Uuid) -> Identity {
    super::taken_over(identity, &unsigned(own), id)
}

fn off(identity: &Identity, own: &VmImage) -> Identity {
    released(identity, own, ID).expect("the holder releases the disk")
}

fn on(identity: &Identity, own: &VmImage) -> Identity {
    assert_eq!(may_take(identity, own), Ok(()), "{own:?} and {identity:?}");
    taken(identity, own)
}

fn held(vm: BiosUuid) -> Result<(), Refusal> {
    Err(Refusal::Held(vm))
}

fn older(than: &str) -> Result<(), Refusal> {
    Err(Refusal::Older(than.into()))
}

/// Each state of the disk with each possible VM.
#[test]
fn each_state_admits_only_certain_vms() {
    let ok = || Ok(());
    let other = |version: &str| Err(Refusal::OtherImage(image(version)));
    let states = [
        ("held", disk()),
        ("released", off(&disk(), &vm(A, "1.0.0"))),
        ("released before there were swaps", Identity { holder: None, ..disk() }),
        ("prepared and cut", prepared("2.0.0")),
        ("prepared and released", off(&prepared("2.0.0"), &vm(A, "1.0.0"))),
        ("taken", taken(&prepared("2.0.0"), &vm(B, "2.0.0"))),
        ("taken and released", off(&taken(&prepared("2.0.0"), &vm(B, "2.0.0")), &vm(B, "2.0.0"))),
        ("taken by hand", taken(&off(&disk(), &vm(A, "1.0.0")), &vm(B, "2.0.0"))),
        ("taken by hand and released", off(&taken(&off(&disk(), &vm(A, "1.0.0")), &vm(B, "2.0.0")), &vm(B, "2.0.0"))),
        ("committed", Identity { swap: None, ..taken(&prepared("2.0.0"), &vm(B, "2.0.0")) }),
        ("prepared for an older one and released", off(&prepared("0.9.0"), &vm(A, "1.0.0"))),
    ];
    let vms = [
        vm(A, "1.0.0"), // the one that had it
        vm(B, "2.0.0"), // the one that is to have it
        vm(C, "2.0.0"), // another one of the same image
        vm(C, "1.0.0"), // another one of the old image
        vm(C, "0.9.0"), // an older one
        vm(C, "3.0.0"), // a newer one than meant
    ];
    let table = [
        [ok(), held(A), held(A), held(A), held(A), held(A)],
        [ok(), ok(), ok(), ok(), older("1.0.0"), ok()],
        [ok(), ok(), ok(), ok(), older("1.0.0"), ok()],
        [ok(), ok(), ok(), held(A), held(A), held(A)],
        [ok(), ok(), ok(), other("2.0.0"), other("2.0.0"), other("2.0.0")],
        [ok(), ok(), held(B), held(B), held(B), held(B)],
        [ok(), ok(), ok(), other("2.0.0"), other("2.0.0"), other("2.0.0")],
        [ok(), ok(), held(B), held(B), held(B), held(B)],
        [ok(), ok(), ok(), older("2.0.0"), older("2.0.0"), ok()],
        [held(B), ok(), held(B), held(B), held(B), held(B)],
        [ok(), other("0.9.0"), other("0.9.0"), other("0.9.0"), ok(), other("0.9.0")],
    ];
    for ((name, identity), row) in states.iter().zip(table) {
        for (vm, expected) in vms.iter().zip(row) {
            assert_eq!(may_take(identity, vm), expected, "a disk that is {name}, and {vm:?}");
            // The same VM with an agent that reads its UUID in the other byte order.
            let other = VmImage { vm: vm.vm.map(BiosUuid::swapped), ..vm.clone() };
            assert_eq!(may_take(identity, &other), expected, "a disk that is {name}, and {other:?}");
            if expected.is_ok() {
                let generation = |own: &VmImage| taken(identity, own).generation;
                assert_eq!(generation(&other), generation(vm), "a disk that is {name}, and {other:?}");
            }
        }
    }
}

/// The text of a holder. Equal UUIDs may have two byte orders.
fn holder(identity: &Identity) -> Option<String> {
    identity.holder.map(|holder| holder.to_string())
}

/// Released images write the byte order that they read, which on VMware is not vCenter's. Later ones write vCenter's.
#[test]
fn swap_and_rollback_accept_either_byte_order() {
    let (old, new) = (vm(A.swapped(), "1.0.0"), vm(B, "2.0.0"));
    let before = Identity { holder: old.vm, ..disk() };
    let swap =
        Swap { id: ID, from: old.clone(), to: Some(image("2.0.0")), released: None, forced: false, publisher: None };
    let prepared = Identity { swap: Some(swap), ..before.clone() };
    for released_first in [true, false] {
        let given = if released_first { off(&prepared, &old) } else { prepared.clone() };
        let there = on(&given, &new);
        assert_eq!((there.generation, holder(&there)), (2, Some(B.to_string())));
        assert_eq!(on(&off(&there, &new), &new), there, "a restart");
        // On rollback the old VM runs its old agent. That agent knows one byte order of its UUID.
        for back in [off(&there, &new), there.clone()] {
            let from = back.swap.as_ref().unwrap().from.vm.unwrap();
            assert_eq!(from.as_bytes(), A.swapped().as_bytes());
            let again = on(&back, &old);
            assert_eq!((again.generation, holder(&again), &again.swap), (3, Some(A.swapped().to_string()), &None));
        }
    }
}

#[test]
fn changed_byte_order_keeps_the_disks_holder() {
    let (old, new) = (vm(A.swapped(), "1.0.0"), vm(A, "1.0.0"));
    let before = Identity { holder: old.vm, ..disk() };
    let after = on(&before, &new);
    assert_eq!((after.generation, holder(&after), &after.swap), (1, Some(A.to_string()), &None));
    let released = off(&before, &new);
    assert_eq!(on(&released, &new), after);
    // The operator takes the disk over for B. A is kept as the former holder.
    let over = taken_over(&after, &vm(B, "1.0.0"), ID);
    assert_eq!((may_take(&over, &old), may_take(&over, &vm(C, "1.0.0"))), (Ok(()), held(B)));
}

#[test]
fn restart_leaves_no_trace() {
    let own = vm(A, "1.0.0");
    assert_eq!(on(&off(&disk(), &own), &own), disk());
    assert_eq!(on(&disk(), &own), disk());
    let swapped = on(&prepared("2.0.0"), &vm(B, "2.0.0"));
    assert_eq!(on(&off(&swapped, &vm(B, "2.0.0")), &vm(B, "2.0.0")), swapped);
}

#[test]
fn rollback_ends_the_swap_after_two_generations() {
    let (a, b) = (vm(A, "1.0.0"), vm(B, "2.0.0"));
    for start in [disk(), prepared("2.0.0")] {
        let there = on(&off(&start, &a), &b);
        assert_eq!((there.generation, there.holder, there.image_version.as_str()), (2, Some(B), "2.0.0"));
        assert_eq!(there.swap.as_ref().map(|swap| (&swap.from, &swap.released)), Some((&a, &None)));
        for stopped in [there.clone(), off(&there, &b)] {
            let back = on(&stopped, &a);
            assert_eq!(back, Identity { generation: 3, ..disk() });
        }
    }
}

#[test]
fn third_vm_rolls_back_to_the_second() {
    let (a, b, c) = (vm(A, "1.0.0"), vm(B, "2.0.0"), vm(C, "3.0.0"));
    let there = on(&off(&on(&off(&disk(), &a), &b), &b), &c);
    assert_eq!((there.generation, there.swap.as_ref().map(|swap| &swap.from)), (3, Some(&b)));
    assert_eq!(may_take(&off(&there, &c), &a), older("3.0.0"));
    assert_eq!(on(&off(&there, &c), &b).generation, 4);
}

#[test]
fn only_the_holder_releases_a_clusters_disk() {
    assert_eq!(released(&disk(), &vm(B, "1.0.0"), ID), None);
    assert_eq!(released(&Identity { state: DiskState::Unformed, ..disk() }, &vm(A, "1.0.0"), ID), None);
    let volumes = Some(crate::host::disk::LocalVolumes { ca_hash: "sha256:ours".into() });
    assert_eq!(released(&Identity { local_volumes: volumes, ..disk() }, &vm(A, "1.0.0"), ID), None, "a worker's");
    assert_eq!(released(&Identity { state: DiskState::Erasing, ..disk() }, &vm(A, "1.0.0"), ID), None);
    assert_eq!(released(&Identity { holder: None, ..disk() }, &vm(A, "1.0.0"), ID), None);
    let nameless = VmImage { vm: None, ..vm(A, "1.0.0") };
    assert_eq!(released(&Identity { holder: None, ..disk() }, &nameless, ID), None);
}

#[test]
fn vm_without_uuid_is_known_by_its_image() {
    let nameless = |version: &str| VmImage { vm: None, ..vm(A, version) };
    let identity = Identity { holder: None, ..disk() };
    assert_eq!(on(&identity, &nameless("1.0.0")), identity);
    assert_eq!(may_take(&identity, &nameless("0.9.0")), older("1.0.0"));
    assert_eq!(may_take(&disk(), &nameless("1.0.0")), held(A));
}

#[test]
fn forced_disk_returns_to_its_former_vm() {
    let b = vm(B, "0.9.0");
    let over = taken_over(&disk(), &b, ID);
    assert_eq!((over.generation, over.holder, over.image_version.as_str()), (2, Some(B), "0.9.0"));
    assert!(over.swap.as_ref().is_some_and(|swap| swap.forced && swap.from.vm == Some(A)));
    assert_eq!(on(&over, &b), over);
    assert_eq!(on(&over, &vm(A, "1.0.0")).holder, Some(A));
    assert_eq!(may_take(&over, &vm(C, "1.0.0")), held(B));
    // The same for a disk that was released for another image.
    let over = taken_over(&off(&prepared("2.0.0"), &vm(A, "1.0.0")), &vm(C, "3.0.0"), ID);
    assert_eq!(over.swap.map(|swap| swap.from), Some(vm(A, "1.0.0")));
}

/// A disk with the pinned key `pinned`, in each state, and images of each signer.
#[test]
fn another_publisher_is_admitted_only_if_named() {
    let pinned = |identity: Identity| Identity { publisher: Some("pinned".into()), ..identity };
    let named = |identity: Identity| {
        let swap = identity.swap.clone().map(|swap| Swap { publisher: Some("other".into()), ..swap });
        pinned(Identity { swap, ..identity })
    };
    let (a, b) = (vm(A, "1.0.0"), vm(B, "2.0.0"));
    let ok = || Ok(());
    let refused = || Err(Refusal::Publisher("pinned".into()));
    let by_hand = off(&disk(), &a);
    let taken_by_hand = taken(&by_hand, &b);
    let table = [
        // The image's signer:                            pinned, other, none
        ("nothing pinned, released", by_hand.clone(), b.clone(), [ok(), ok(), ok()]),
        ("released", pinned(by_hand.clone()), b.clone(), [ok(), refused(), refused()]),
        (
            "released, and another VM of the same version",
            pinned(by_hand.clone()),
            vm(C, "1.0.0"),
            [ok(), refused(), refused()],
        ),
        ("prepared", pinned(off(&prepared("2.0.0"), &a)), b.clone(), [ok(), refused(), refused()]),
        ("prepared and cut", pinned(prepared("2.0.0")), b.clone(), [ok(), refused(), refused()]),
        ("prepared for another publisher", named(off(&prepared("2.0.0"), &a)), b.clone(), [ok(), ok(), refused()]),
        (
            "prepared for an older one",
            pinned(off(&prepared("0.9.0"), &a)),
            vm(C, "0.9.0"),
            [ok(), refused(), refused()],
        ),
        // The present and the former holder are never locked out.
        ("held, restarted", pinned(disk()), a.clone(), [ok(), ok(), ok()]),
        ("released, restarted", pinned(by_hand.clone()), a.clone(), [ok(), ok(), ok()]),
        ("taken, restarted", pinned(taken_by_hand.clone()), b.clone(), [ok(), ok(), ok()]),
        ("taken, shut down, restarted", pinned(off(&taken_by_hand, &b)), b.clone(), [ok(), ok(), ok()]),
        ("taken, given back", pinned(taken_by_hand.clone()), a.clone(), [ok(), ok(), ok()]),
        ("taken, shut down, given back", pinned(off(&taken_by_hand, &b)), a.clone(), [ok(), ok(), ok()]),
        (
            "committed, restarted",
            pinned(Identity { swap: None, ..taken_by_hand.clone() }),
            b.clone(),
            [ok(), ok(), ok()],
        ),
        // The same VM with another image is no restart.
        ("held, with another system disk", pinned(disk()), vm(A, "2.0.0"), [ok(), refused(), refused()]),
        ("released, with another system disk", pinned(by_hand.clone()), vm(A, "2.0.0"), [ok(), refused(), refused()]),
    ];
    for (name, identity, own, row) in table {
        for (signer, expected) in [Some("pinned"), Some("other"), None].into_iter().zip(row) {
            let claimant = Claimant { own: own.clone(), publisher: signer.map(str::to_owned), upgrades_from: None };
            assert_eq!(super::may_take(&identity, &claimant), expected, "{name}, signed by {signer:?}");
        }
    }
    // The holder is checked before the publisher.
    assert_eq!(may_take(&pinned(disk()), &b), held(A));
}

#[test]
fn image_replaces_only_the_versions_it_allows() {
    let (a, b) = (vm(A, "1.0.0"), vm(B, "2.0.0"));
    let by_hand = off(&disk(), &a);
    let taken_by_hand = taken(&by_hand, &b);
    let refused = Err(Refusal::FromVersion { last: "1.0.0".into(), allowed: ">=1.1.0".parse().unwrap() });
    // The image of 2.0.0 follows 1.1.0 and later ones.
    let table = [
        ("released", by_hand.clone(), b.clone(), refused.clone()),
        ("prepared", off(&prepared("2.0.0"), &a), b.clone(), refused.clone()),
        ("prepared and cut", prepared("2.0.0"), b.clone(), refused.clone()),
        ("released by 1.1.0", Identity { image_version: "1.1.0".into(), ..by_hand.clone() }, b.clone(), Ok(())),
        ("held, with another system disk", disk(), vm(A, "2.0.0"), refused),
        // The same version in another build, and an older one that was prepared for, are not restricted by it.
        ("released, the same version", by_hand, vm(C, "1.0.0"), Ok(())),
        ("prepared for an older one", off(&prepared("0.9.0"), &a), vm(C, "0.9.0"), Ok(())),
        ("held, restarted", disk(), a.clone(), Ok(())),
        ("taken, restarted", taken_by_hand.clone(), b.clone(), Ok(())),
        ("taken, shut down, restarted", off(&taken_by_hand, &b), b.clone(), Ok(())),
        ("taken, given back", taken_by_hand, a, Ok(())),
        ("taken over by force, restarted", taken_over(&disk(), &b, ID), b, Ok(())),
    ];
    for (name, identity, own, expected) in table {
        let claimant = Claimant { own, publisher: None, upgrades_from: Some(">=1.1.0".parse().unwrap()) };
        assert_eq!(super::may_take(&identity, &claimant), expected, "{name}");
    }
}

#[test]
fn vm_without_uuid_restarts_with_any_pinned_key() {
    let nameless = |version: &str| VmImage { vm: None, ..vm(A, version) };
    let identity = Identity { holder: None, publisher: Some("pinned".into()), ..disk() };
    assert_eq!(may_take(&identity, &nameless("1.0.0")), Ok(()));
    assert_eq!(may_take(&identity, &nameless("2.0.0")), Err(Refusal::Publisher("pinned".into())));
    let over = taken_over(&identity, &nameless("2.0.0"), ID);
    assert_eq!(may_take(&over, &nameless("2.0.0")), Ok(()));
    // A VM with another build of the former image may not take a disk that waits for another image.
    let swap = prepared("2.0.0").swap.map(|swap| Swap { from: nameless("1.0.0"), ..swap });
    let awaits = Identity { swap, ..identity };
    let other = VmImage { build: "another".into(), ..nameless("1.0.0") };
    assert_eq!(may_take(&awaits, &nameless("1.0.0")), Ok(()));
    assert_eq!(may_take(&awaits, &other), Err(Refusal::OtherImage(image("2.0.0"))));
}

#[test]
fn forced_disk_records_the_key_to_pin() {
    let by = |publisher: Option<&str>, pinned: Option<&str>| {
        let identity = Identity { publisher: pinned.map(str::to_owned), ..disk() };
        let claimant = Claimant { own: vm(B, "2.0.0"), publisher: publisher.map(str::to_owned), upgrades_from: None };
        let over = super::taken_over(&identity, &claimant, ID);
        // The key stays pinned until the commit, and the VM restarts nevertheless.
        assert_eq!(over.publisher, identity.publisher);
        assert_eq!(super::may_take(&over, &claimant), Ok(()));
        assert_eq!(super::may_take(&off(&over, &claimant.own), &claimant), Ok(()));
        over.swap.and_then(|swap| swap.publisher)
    };
    assert_eq!(by(Some("other"), Some("pinned")).as_deref(), Some("other"));
    assert_eq!(by(Some("pinned"), Some("pinned")), None);
    assert_eq!(by(None, Some("pinned")), None);
    assert_eq!(by(Some("other"), None), None);
}

#[test]
fn identity_is_read_back_unchanged() {
    let text = serde_json::to_string(&disk()).unwrap();
    assert!(!text.contains("swap") && !text.contains("publisher"), "{text}");
    for identity in [disk(), prepared("2.0.0"), off(&taken(&prepared("2.0.0"), &vm(B, "2.0.0")), &vm(B, "2.0.0"))] {
        let text = serde_json::to_string(&identity).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
    }
}
