use super::*;
use crate::disk::fixture;

const A: Uuid = Uuid::from_u128(0xa);
const B: Uuid = Uuid::from_u128(0xb);
const C: Uuid = Uuid::from_u128(0xc);
const ID: Uuid = Uuid::from_u128(0x1d);

/// A VM of an image; the build is named after the version.
fn vm(vm: Uuid, version: &str) -> Use {
    Use { vm: Some(vm), version: version.into(), build: format!("build of {version}") }
}

fn image(version: &str) -> Image {
    Image { version: version.into(), build: format!("build of {version}") }
}

/// A disk in use by A with image 1.0.0.
fn disk() -> Identity {
    Identity { image_version: "1.0.0".into(), holder: Some(A), state: State::Formed, ..fixture::identity() }
}

fn prepared(to: &str) -> Identity {
    let swap = Swap { id: ID, from: vm(A, "1.0.0"), to: Some(image(to)), released: None, forced: false };
    Identity { swap: Some(swap), ..disk() }
}

fn off(identity: &Identity, own: &Use) -> Identity {
    released(identity, own, ID).expect("the holder releases the disk")
}

fn on(identity: &Identity, own: &Use) -> Identity {
    assert_eq!(may_take(identity, own), Ok(()), "{own:?} and {identity:?}");
    taken(identity, own)
}

fn held(vm: Uuid) -> Result<(), Refusal> {
    Err(Refusal::Held(vm))
}

fn older(than: &str) -> Result<(), Refusal> {
    Err(Refusal::Older(than.into()))
}

/// Every state of the disk against every VM that may turn up.
#[test]
fn who_may_take_the_disk() {
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
        }
    }
}

#[test]
fn a_restart_leaves_no_trace() {
    let own = vm(A, "1.0.0");
    assert_eq!(on(&off(&disk(), &own), &own), disk());
    assert_eq!(on(&disk(), &own), disk());
    let swapped = on(&prepared("2.0.0"), &vm(B, "2.0.0"));
    assert_eq!(on(&off(&swapped, &vm(B, "2.0.0")), &vm(B, "2.0.0")), swapped);
}

#[test]
fn a_swap_and_back_counts_two_changes_and_ends_without_a_swap() {
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
fn a_third_vm_makes_the_second_the_one_to_go_back_to() {
    let (a, b, c) = (vm(A, "1.0.0"), vm(B, "2.0.0"), vm(C, "3.0.0"));
    let there = on(&off(&on(&off(&disk(), &a), &b), &b), &c);
    assert_eq!((there.generation, there.swap.as_ref().map(|swap| &swap.from)), (3, Some(&b)));
    assert_eq!(may_take(&off(&there, &c), &a), older("3.0.0"));
    assert_eq!(on(&off(&there, &c), &b).generation, 4);
}

#[test]
fn only_the_holder_of_a_clusters_disk_releases_it() {
    assert_eq!(released(&disk(), &vm(B, "1.0.0"), ID), None);
    assert_eq!(released(&Identity { state: State::Unformed, ..disk() }, &vm(A, "1.0.0"), ID), None);
    assert_eq!(released(&Identity { state: State::Erasing, ..disk() }, &vm(A, "1.0.0"), ID), None);
    assert_eq!(released(&Identity { holder: None, ..disk() }, &vm(A, "1.0.0"), ID), None);
    let nameless = Use { vm: None, ..vm(A, "1.0.0") };
    assert_eq!(released(&Identity { holder: None, ..disk() }, &nameless, ID), None);
}

#[test]
fn a_vm_without_uuid_goes_by_its_image() {
    let nameless = |version: &str| Use { vm: None, ..vm(A, version) };
    let identity = Identity { holder: None, ..disk() };
    assert_eq!(on(&identity, &nameless("1.0.0")), identity);
    assert_eq!(may_take(&identity, &nameless("0.9.0")), older("1.0.0"));
    assert_eq!(may_take(&disk(), &nameless("1.0.0")), held(A));
}

#[test]
fn a_disk_that_was_taken_over_goes_back_to_whoever_had_it() {
    let b = vm(B, "0.9.0");
    let over = taken_over(&disk(), &b, ID);
    assert_eq!((over.generation, over.holder, over.image_version.as_str()), (2, Some(B), "0.9.0"));
    assert!(over.swap.as_ref().is_some_and(|swap| swap.forced && swap.from.vm == Some(A)));
    assert_eq!(on(&over, &b), over);
    assert_eq!(on(&over, &vm(A, "1.0.0")).holder, Some(A));
    assert_eq!(may_take(&over, &vm(C, "1.0.0")), held(B));
    // One that was released for another image, too.
    let over = taken_over(&off(&prepared("2.0.0"), &vm(A, "1.0.0")), &vm(C, "3.0.0"), ID);
    assert_eq!(over.swap.map(|swap| swap.from), Some(vm(A, "1.0.0")));
}

#[test]
fn the_record_is_read_back_and_a_disk_without_a_swap_is_as_before() {
    let text = serde_json::to_string(&disk()).unwrap();
    assert!(!text.contains("swap"), "{text}");
    for identity in [disk(), prepared("2.0.0"), off(&taken(&prepared("2.0.0"), &vm(B, "2.0.0")), &vm(B, "2.0.0"))] {
        let text = serde_json::to_string(&identity).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
    }
}
