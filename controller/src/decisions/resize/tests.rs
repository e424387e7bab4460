use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::decisions::change::tests::{FORMER, NEW, ended, go, images, names, observed, swap, turned, withdrawn};
use crate::decisions::fixture::now;
use crate::decisions::pause_reason::PauseReason;
use crate::decisions::swap_progress::outlived;
use crate::objects::{DO, Operation, TenantCluster};
use fleet::upgrade::Request;

const SMALL: ControlPlaneSize = ControlPlaneSize { processors: 2, memory_mib: 4096 };
const LARGE: ControlPlaneSize = ControlPlaneSize { processors: 4, memory_mib: 16384 };

/// A small cluster on the former image, whose spec names the class of control-plane nodes.
fn small() -> TenantCluster {
    let mut cluster = names(Some(FORMER));
    cluster.spec.control_plane.vm_class = "any".to_owned();
    let resolved = cluster.status.as_mut().unwrap().resolved.as_mut().unwrap();
    (resolved.processors, resolved.memory_mib) = (Some(SMALL.processors), Some(SMALL.memory_mib));
    cluster
}

fn automatic(window: Option<&str>) -> TenantCluster {
    let mut cluster = small();
    cluster.spec.control_plane.vm_class = AUTO.to_owned();
    cluster.spec.maintenance.window = window.map(str::to_owned);
    cluster
}

/// An Operation with the same image and large VMs.
fn resize(entries: &[Value]) -> Operation {
    let mut operation = to_large(entries);
    operation.spec.to_image = Some(FORMER.to_owned());
    operation
}

/// An Operation with another image and large VMs.
fn to_large(entries: &[Value]) -> Operation {
    let mut operation = swap(entries);
    operation.spec.plan.as_mut().unwrap()["options"]["size"] = json!({"processors": 4, "memory": 16384});
    operation
}

fn next(cluster: &TenantCluster, operation: Option<&Operation>, size: ControlPlaneSize) -> Change {
    decided(cluster, operation, Ok(size))
}

fn decided(cluster: &TenantCluster, operation: Option<&Operation>, size: Result<ControlPlaneSize, Obstacle>) -> Change {
    looked(cluster, operation, size, (None, false))
}

/// As [`decided`], during a change of the control cluster, and with a VM without a record.
fn looked(
    cluster: &TenantCluster,
    operation: Option<&Operation>,
    size: Result<ControlPlaneSize, Obstacle>,
    beside: (Option<&str>, bool),
) -> Change {
    after(cluster, operation.map(std::slice::from_ref).unwrap_or_default(), size, beside)
}

/// As [`looked`], after several swaps in this order.
fn after(
    cluster: &TenantCluster,
    operations: &[Operation],
    size: Result<ControlPlaneSize, Obstacle>,
    (change, has_drifted): (Option<&str>, bool),
) -> Change {
    let (images, rests) = (images(), PauseReason::of(cluster, change.map(str::to_owned)));
    ObservedCluster { size, rests, has_drifted, ..observed(cluster, operations, &images) }.next()
}

/// The next step if a Provider has no room for large VMs, and the message on the size.
fn without_room(cluster: &TenantCluster, minor: &str, operation: Option<&Operation>) -> (Change, Option<String>) {
    let waits = |seen: &ObservedCluster<'_>, change: &Change| seen.size_waits(change);
    said_without_room((cluster, Ok(LARGE)), minor, operation, waits)
}

/// As [`without_room`], for this wanted size, with another message on the next step.
fn said_without_room<T>(
    (cluster, size): (&TenantCluster, Result<ControlPlaneSize, Obstacle>),
    minor: &str,
    operation: Option<&Operation>,
    said: impl FnOnce(&ObservedCluster<'_>, &Change) -> T,
) -> (Change, T) {
    let images = images();
    let swaps = operation.map(std::slice::from_ref).unwrap_or_default();
    let (room, plan_room, minor) = (Some(full()), Some(full()), minor.parse().ok());
    let seen = ObservedCluster { size, room, plan_room, minor, ..observed(cluster, swaps, &images) };
    let change = seen.next();
    let said = said(&seen, &change);
    (change, said)
}

fn full() -> Obstacle {
    Obstacle::new(TenantClusterReason::CapacityMissing, "the Provider is full")
}

fn missing() -> Obstacle {
    Obstacle::new(TenantClusterReason::ReferenceMissing, "there is no VMClass any")
}

#[test]
fn another_class_starts_a_swap_with_its_size() {
    let to = |change: Change| match change {
        Change::Swap(image, None, size) => (image.metadata.name.unwrap(), size),
        change => panic!("{change:?}"),
    };
    assert_eq!(next(&small(), None, SMALL), Change::Nothing);
    assert_eq!(to(next(&small(), None, LARGE)), (FORMER.to_owned(), LARGE));
    let mut both = small();
    both.spec.image = Some(NEW.to_owned());
    assert_eq!(to(next(&both, None, LARGE)), (NEW.to_owned(), LARGE));
    assert_eq!(to(next(&both, None, SMALL)), (NEW.to_owned(), SMALL));
    for cluster in [&small(), &both] {
        assert_eq!(decided(cluster, None, Err(missing())), Change::Blocked(missing()));
    }
    // Its image carries the current version, whatever its state.
    let mut unnamed = small();
    unnamed.spec.image = None;
    assert_eq!(to(next(&unnamed, None, LARGE)).0, FORMER);
}

#[test]
fn automatic_size_waits_for_window_or_image() {
    assert_eq!(next(&automatic(None), None, LARGE), Change::Nothing);
    let waits = next(&automatic(Some("Sat 02:00-03:00")), None, LARGE);
    let Change::Waits(TenantClusterReason::AwaitingWindow, words) = &waits else { panic!("{waits:?}") };
    assert!(words.contains("4 processors and 16384 MiB"), "{words}");
    assert!(matches!(next(&automatic(Some("00:00-23:59")), None, LARGE), Change::Swap(_, None, LARGE)));
    let mut image = automatic(None);
    image.spec.image = Some(NEW.to_owned());
    assert!(matches!(next(&image, None, LARGE), Change::Swap(_, None, LARGE)));
}

#[test]
fn former_class_starts_a_rollback() {
    let moves = [json!({"event": "begun", "action": "import", "node": 0})];
    assert_eq!(next(&small(), Some(&resize(&moves)), LARGE), go(Request::Resume));
    assert_eq!(next(&small(), Some(&resize(&moves)), SMALL), go(Request::Rollback));
    let third = ControlPlaneSize { processors: 8, ..LARGE };
    assert_eq!(next(&small(), Some(&resize(&moves)), third), go(Request::Resume), "one after the other");
    assert_eq!(next(&small(), Some(&resize(&[])), third), go(Request::Withdraw), "nothing of it has moved");
    assert_eq!(decided(&small(), Some(&resize(&moves)), Err(missing())), go(Request::Resume));
    // Fewer workers start no rollback.
    assert_eq!(next(&automatic(None), Some(&resize(&moves)), SMALL), go(Request::Resume));
    let upgraded = resize(&ended("upgraded"));
    assert_eq!(next(&small(), Some(&upgraded), SMALL), go(Request::Rollback));
    let waits = next(&small(), Some(&upgraded), third);
    assert!(awaits_a_word(&waits), "{waits:?}");
    assert!(waits.said().is_some_and(|(_, words)| words.contains("8 processors")), "{waits:?}");
    let unknown = decided(&small(), Some(&upgraded), Err(missing()));
    assert!(unknown.said().is_some_and(|(_, words)| words.contains("there is no VMClass any")), "{unknown:?}");
    // A swap of another image is rolled back only by its image.
    let mut image = to_large(&moves);
    assert_eq!(next(&small(), Some(&image), LARGE), go(Request::Rollback), "its image is not named");
    image.spec.from_image = Some("another".to_owned());
    assert_eq!(next(&small(), Some(&image), SMALL), go(Request::Resume));
}

/// Whether the commit waits for a request, because the spec now wants another size.
fn awaits_a_word(change: &Change) -> bool {
    matches!(change, Change::Waits(TenantClusterReason::AwaitingCommit, words) if words.contains("another size"))
}

/// `auto` is one more way to name the size. But fewer workers never roll back an automatic size.
#[test]
fn auto_with_the_former_size_starts_a_rollback() {
    let named = |entries: &[Value]| {
        let mut operation = resize(entries);
        operation.spec.to_class = Some("any".to_owned());
        operation
    };
    let (auto, third) = (automatic(None), ControlPlaneSize { processors: 8, ..LARGE });
    let long_ago = Timestamp::from_second(now().0.as_second() - 6000).unwrap();
    let upgraded = |mut operation: Operation| {
        operation.status.as_mut().unwrap().healthy_since = Some(Time(long_ago));
        operation
    };
    let moves = [json!({"event": "begun", "action": "import", "node": 0})];
    for operation in [named(&moves), upgraded(named(&ended("upgraded")))] {
        assert_eq!(next(&auto, Some(&operation), SMALL), go(Request::Rollback));
    }
    // The workers want the size of the class, or another one.
    let (of_class, of_workers) = (upgraded(named(&ended("upgraded"))), upgraded(resize(&ended("upgraded"))));
    assert_eq!(next(&auto, Some(&of_class), LARGE), go(Request::Commit));
    assert!(awaits_a_word(&next(&auto, Some(&of_class), third)));
    for size in [SMALL, LARGE, third] {
        assert_eq!(next(&auto, Some(&of_workers), size), go(Request::Commit), "{size}");
    }
    // After an automatic size, a class can start a rollback.
    assert_eq!(next(&small(), Some(&of_workers), SMALL), go(Request::Rollback));
}

#[test]
fn committed_size_is_resolved_once() {
    let committed = [ended("upgraded"), ended("committed")].concat();
    for operation in [resize(&committed), to_large(&committed)] {
        let Change::Pin(resolved, Some(of)) = next(&small(), Some(&operation), LARGE) else {
            panic!("it is not pinned")
        };
        assert_eq!((pinned_size(&resolved), of.as_str()), (Some(LARGE), "shop-1"));
        assert_eq!(resolved.image, operation.spec.to_image);
        // VMs were changed by hand, and the class was changed to match them.
        let mut later = operation.clone();
        later.status.as_mut().unwrap().resolved_updated = true;
        assert_eq!(next(&small(), Some(&later), SMALL), Change::Nothing);
    }
}

#[test]
fn rolled_back_size_is_not_retried() {
    let mut back = resize(&[vec![turned("back")], ended("rolled-back")].concat());
    let failed = next(&small(), Some(&back), LARGE);
    let Change::Waits(TenantClusterReason::ChangeFailed, words) = &failed else { panic!("{failed:?}") };
    assert!(words.contains("with 4 processors") && words.contains("another vmClass"), "{words}");
    let larger = ControlPlaneSize { processors: 8, ..LARGE };
    assert!(matches!(next(&small(), Some(&back), larger), Change::Swap(_, None, _)));
    assert_eq!(next(&small(), Some(&back), SMALL), Change::Nothing);
    // It blocks nothing else.
    let mut raised = small();
    raised.spec.version = "1.35".to_owned();
    assert!(matches!(next(&raised, Some(&back), LARGE), Change::Blocked(_)), "there is no way back to that");
    back.metadata.annotations = Some([(DO.to_owned(), "resume".to_owned())].into());
    assert!(matches!(next(&small(), Some(&back), LARGE), Change::Swap(_, Some(of), LARGE) if of == "shop-1"));
}

/// Some control-plane nodes may keep VMs of the new size, and no object says which.
#[test]
fn sizes_are_asked_after_an_abandoned_resize() {
    let abandoned = resize(&[vec![turned("abandon")], ended("abandoned")].concat());
    assert!(is_judged(&next(&small(), Some(&abandoned), SMALL), "shop-1"));
    let wanted = next(&small(), Some(&abandoned), LARGE);
    assert!(matches!(&wanted, Change::Judge(_, None, then) if matches!(**then, Change::Waits(..))), "{wanted:?}");
    // They were asked, and are alike.
    let mut settled = abandoned;
    settled.status.as_mut().unwrap().resolved_updated = true;
    assert_eq!(next(&small(), Some(&settled), SMALL), Change::Nothing);
}

/// An automatic size has no message, with room for it or without.
#[test]
fn abandoned_resize_is_not_current_without_known_sizes() {
    let abandoned = resize(&[vec![turned("abandon")], ended("abandoned")].concat());
    assert!(is_judged(&next(&automatic(None), Some(&abandoned), LARGE), "shop-1"));
    let (judged, _) = without_room(&automatic(None), "1.36", Some(&abandoned));
    assert!(is_judged(&judged, "shop-1"), "{judged:?}");
    // A waiting size is reported, and a minor version waits for no size.
    let mut named_anew = small();
    named_anew.metadata.generation = Some(2);
    let (waits, _) = without_room(&named_anew, "1.36", Some(&abandoned));
    assert!(matches!(&waits, Change::Judge(_, None, then) if matches!(**then, Change::Blocked(_))), "{waits:?}");
    let (raises, _) = without_room(&automatic(None), "1.35", Some(&abandoned));
    assert!(matches!(&raises, Change::Judge(_, None, then) if matches!(**then, Change::Raise(..))), "{raises:?}");
}

/// Whether nodes are asked whether all of them are small, and then this Operation is settled.
fn is_judged(change: &Change, name: &str) -> bool {
    let Change::Judge(_, Some(SMALL), then) = change else { return false };
    matches!(&**then, Change::Pin(resolved, Some(of)) if of == name && pinned_size(resolved) == Some(SMALL))
}

/// An Operation under another name, whose journal was begun with this lease.
fn begun_by(mut operation: Operation, hold: u64) -> Operation {
    operation.metadata.name = Some(format!("shop-{hold}"));
    operation.status.as_mut().unwrap().lease = hold;
    operation
}

/// A rollback returns control-plane nodes to their former VMs, which were not all alike.
#[test]
fn abandoned_resize_stays_unsettled_after_later_rollbacks() {
    let abandoned = resize(&[vec![turned("abandon")], ended("abandoned")].concat());
    let back = |hold| begun_by(resize(&[vec![turned("back")], ended("rolled-back")].concat()), hold);
    let mut all = vec![abandoned];
    for hold in 2..20 {
        all.push(back(hold));
        let change = after(&small(), &all, Ok(SMALL), (None, false));
        assert!(is_judged(&change, "shop-1"), "{hold}: {change:?}");
    }
    let names: Vec<_> = outlived(&all).into_iter().filter_map(|it| it.metadata.name.clone()).collect();
    assert_eq!((names.len(), names.contains(&"shop-1".to_owned())), (8, false), "{names:?}");
    // All of them have reached a committed swap.
    let mut committed = begun_by(resize(&[ended("upgraded"), ended("committed")].concat()), 20);
    committed.status.as_mut().unwrap().resolved_updated = true;
    all.extend([committed, back(21)]);
    assert_eq!(after(&small(), &all, Ok(SMALL), (None, false)), Change::Nothing);
    assert!(outlived(&all).iter().any(|it| it.metadata.name.as_deref() == Some("shop-1")));
}

/// The database of the control cluster may be older than VMs.
#[test]
fn sizes_of_unrecorded_vms_are_asked() {
    let drifted = |cluster: &TenantCluster, size| looked(cluster, None, Ok(size), (None, true));
    let judged = drifted(&small(), SMALL);
    assert!(matches!(&judged, Change::Judge(_, Some(SMALL), then) if **then == Change::Nothing), "{judged:?}");
    assert!(matches!(drifted(&small(), LARGE), Change::Swap(_, None, LARGE)), "that is judged as any swap is");
    let waits = drifted(&automatic(Some("Sat 02:00-03:00")), LARGE);
    assert!(matches!(&waits, Change::Judge(_, None, then) if matches!(**then, Change::Waits(..))), "{waits:?}");
}

/// As for an image: the change speaks against new swaps, not against a rollback.
#[test]
fn former_class_rolls_back_during_a_cluster_change() {
    let beside = |operation: Option<&Operation>, size| looked(&small(), operation, Ok(size), (Some("cp2"), false));
    let waits = beside(None, LARGE);
    assert!(
        matches!(&waits, Change::Waits(TenantClusterReason::Changing, words) if words.contains("cp2")),
        "{waits:?}"
    );
    let mut upgraded = resize(&ended("upgraded"));
    assert_eq!(beside(Some(&upgraded), SMALL), go(Request::Rollback));
    let stays = beside(Some(&upgraded), LARGE);
    assert!(!matches!(stays, Change::Go(..)), "{stays:?}");
    // In a paused cluster the request is rejected, with the value that the spec needs.
    let mut paused = small();
    paused.spec.paused = true;
    upgraded.spec.from_size = Some(SMALL);
    upgraded.metadata.annotations = Some([(DO.to_owned(), "rollback".to_owned())].into());
    let Change::Answer(_, Some(words)) = next(&paused, Some(&upgraded), LARGE) else { panic!("it is heard") };
    assert!(words.contains("a class of 2 processors") && !words.contains(FORMER), "{words}");
    assert!(!words.contains("auto"), "it was begun by that: {words}");
    upgraded.spec.to_class = Some("any".to_owned());
    let Change::Answer(_, Some(words)) = next(&paused, Some(&upgraded), LARGE) else { panic!("it is heard") };
    assert!(words.contains("or auto"), "{words}");
}

/// An obstacle of the size does not block anything else.
#[test]
fn image_and_minor_version_need_no_room() {
    let waits = |words: Option<&str>| words.is_some_and(|words| words.contains("the Provider is full"));
    let mut both = small();
    both.spec.image = Some(NEW.to_owned());
    let (change, words) = without_room(&both, "1.36", None);
    assert!(matches!(&change, Change::Swap(image, None, SMALL) if image.metadata.name.as_deref() == Some(NEW)));
    assert!(waits(words.as_deref()), "{words:?}");
    let mut unpinned = both.clone();
    unpinned.status.as_mut().unwrap().resolved.as_mut().unwrap().processors = None;
    assert_eq!(without_room(&unpinned, "1.36", None).0, Change::Blocked(full()), "nobody knows how large they are");
    // The obstacle of a size alone is reported, and a minor version precedes it.
    assert_eq!(without_room(&small(), "1.36", None), (Change::Blocked(full()), None));
    let (change, words) = without_room(&small(), "1.35", None);
    assert!(matches!(change, Change::Raise(..)) && waits(words.as_deref()), "{change:?}: {words:?}");
    // While the image alone is swapped, the size is reported. If the swap brings the size, it is not.
    let open = |operation: Operation| without_room(&both, "1.36", Some(&operation));
    let moves = [json!({"event": "begun", "action": "import", "node": 0})];
    let (change, words) = open(swap(&moves));
    assert!(change == go(Request::Resume) && waits(words.as_deref()), "{change:?}: {words:?}");
    assert_eq!(open(to_large(&moves)).1, None);
    // An automatic size is not waited for.
    assert_eq!(without_room(&automatic(None), "1.35", None).1, None);
}

/// It may have been paused for weeks, while others took the capacity.
#[test]
fn plan_takes_room_only_when_it_continues() {
    let small_node = NodeSizes { noted: SMALL, pinned: Some(SMALL), seen: Some(SMALL) };
    let begins = next(&small(), None, LARGE);
    assert_eq!((begins.holds(small_node, None, false), begins.holds(small_node, None, true)), (LARGE, SMALL));
    let mut is_back = turned("back");
    is_back["only"] = json!(0);
    for planned in [resize(&[]), resize(&[is_back])] {
        let swapping = SwapProgress::of(&planned).unwrap().unwrap();
        let noted = NodeSizes { noted: LARGE, ..small_node };
        let of = |change: &Change| change.holds(noted, Some(&swapping), false);
        assert_eq!((of(&Change::Nothing), of(&go(Request::Rollback)), of(&go(Request::Resume))), (SMALL, SMALL, LARGE));
    }
    assert_eq!(without_room(&small(), "1.36", Some(&resize(&[]))), (Change::Blocked(full()), None));
    let moves = [json!({"event": "begun", "action": "import", "node": 0})];
    assert_eq!(without_room(&small(), "1.36", Some(&resize(&moves))).0, go(Request::Resume), "it has its room");
    let turned_back = without_room(&small(), "1.36", Some(&resize(&[turned("back")]))).0;
    assert_eq!(turned_back, go(Request::Resume), "it takes none");
}

/// Otherwise a user could reserve the largest size without a VM, by abandoning plans and editing the cluster.
#[test]
fn plan_rolled_back_early_takes_no_room() {
    let node = NodeSizes { noted: SMALL, pinned: Some(SMALL), seen: Some(SMALL) };
    let begun = |action: &str| json!({"event": "begun", "action": action, "node": 0});
    let (back, abandon, import) = (turned("back"), turned("abandon"), begun("import"));
    let turns = [
        (vec![back.clone()], SMALL),
        (vec![abandon.clone()], SMALL),
        (vec![abandon.clone(), begun("keep")], SMALL),
        (vec![import.clone(), back], LARGE),
        (vec![import.clone(), abandon.clone()], LARGE),
        (vec![import, abandon, begun("keep")], LARGE),
    ];
    for (entries, size) in turns {
        let swapping = SwapProgress::of(&resize(&entries)).unwrap().unwrap();
        for change in [Change::Nothing, go(Request::Resume)] {
            assert_eq!(change.holds(node, Some(&swapping), false), size, "{change:?} {entries:?}");
        }
    }
}

/// A user who corrects the size in a planned upgrade gets the corrected size.
#[test]
fn plan_with_an_outdated_size_is_withdrawn() {
    let mut both = small();
    both.spec.image = Some(NEW.to_owned());
    assert_eq!(next(&both, Some(&to_large(&[])), SMALL), go(Request::Resume), "nobody has changed the spec since");
    both.metadata.generation = Some(2);
    assert_eq!(next(&both, Some(&to_large(&[])), LARGE), go(Request::Resume));
    assert_eq!(next(&both, Some(&to_large(&[])), SMALL), go(Request::Withdraw));
    let moves = [json!({"event": "begun", "action": "import", "node": 0})];
    assert_eq!(next(&both, Some(&to_large(&moves)), SMALL), go(Request::Resume), "one after the other");
    let mut chosen = automatic(None);
    (chosen.spec.image, chosen.metadata.generation) = (Some(NEW.to_owned()), Some(2));
    assert_eq!(next(&chosen, Some(&to_large(&[])), SMALL), go(Request::Resume), "fewer workers change no plan");
}

/// The missing room, or the missing class, may be available again after its end.
#[test]
fn withdrawn_plan_is_no_failure() {
    let mut both = small();
    both.spec.image = Some(NEW.to_owned());
    let told_now = |mut operation: Operation, cluster: &TenantCluster| {
        for condition in &mut operation.status.as_mut().unwrap().conditions {
            condition.observed_generation = cluster.metadata.generation.unwrap();
        }
        operation
    };
    let taken_back = [vec![turned("back")], ended("rolled-back")].concat();
    type Planned = fn(&[Value]) -> Operation;
    for (cluster, of) in [(both, to_large as Planned), (small(), resize)] {
        let again = next(&cluster, Some(&told_now(of(&withdrawn()), &cluster)), LARGE);
        assert!(matches!(again, Change::Swap(_, None, LARGE)), "{again:?}");
        let mut back = told_now(of(&taken_back), &cluster);
        let failed = next(&cluster, Some(&back), LARGE);
        assert!(matches!(failed, Change::Waits(TenantClusterReason::ChangeFailed, _)), "{failed:?}");
        if cluster.spec.image.as_deref() == Some(NEW) {
            let failed = next(&cluster, Some(&back), SMALL);
            assert!(matches!(failed, Change::Waits(TenantClusterReason::ChangeFailed, _)), "nor smaller: {failed:?}");
        }
        back.metadata.annotations = Some([(DO.to_owned(), "resume".to_owned())].into());
        assert!(matches!(next(&cluster, Some(&back), LARGE), Change::Swap(_, Some(_), LARGE)), "it is asked for");
    }
}

/// As between the deletion and the creation of the class.
#[test]
fn plan_with_a_missing_class_waits() {
    let unknown = |cluster: &TenantCluster| decided(cluster, Some(&resize(&[])), Err(missing()));
    assert_eq!(unknown(&small()), Change::Blocked(missing()));
    assert_eq!(next(&small(), Some(&resize(&[])), LARGE), go(Request::Resume), "it is there again");
    let mut other = small();
    other.spec.image = Some(NEW.to_owned());
    assert_eq!(unknown(&other), go(Request::Withdraw), "its image is not named any more");
}

/// The former spec does not matter.
#[test]
fn plan_without_room_gives_way() {
    let of = |cluster: &TenantCluster, minor, operation: Operation| without_room(cluster, minor, Some(&operation)).0;
    let mut both = small();
    both.spec.image = Some(NEW.to_owned());
    assert_eq!(of(&both, "1.36", to_large(&[])), go(Request::Withdraw));
    let mut asked = to_large(&[]);
    asked.metadata.annotations = Some([(DO.to_owned(), "resume".to_owned())].into());
    assert_eq!(of(&both, "1.36", asked), go(Request::Withdraw), "also where it is to go on");
    let smaller = of(&both, "1.36", to_large(&withdrawn()));
    assert!(matches!(smaller, Change::Swap(_, None, SMALL)), "{smaller:?}");
    let mut unpinned = both.clone();
    unpinned.status.as_mut().unwrap().resolved.as_mut().unwrap().processors = None;
    assert_eq!(of(&unpinned, "1.36", to_large(&[])), Change::Blocked(full()), "nobody knows how large they are");
    // A size alone gives way only to what comes next.
    assert_eq!(of(&small(), "1.36", resize(&[])), Change::Blocked(full()));
    assert_eq!(of(&small(), "1.35", resize(&[])), go(Request::Withdraw));
    assert!(matches!(of(&small(), "1.35", resize(&withdrawn())), Change::Raise(..)));
    let mut carried_by_none = small();
    carried_by_none.spec.version = "1.37".to_owned();
    assert_eq!(of(&carried_by_none, "1.36", resize(&[])), Change::Blocked(full()));
    let mut newest = small();
    (newest.spec.image, newest.spec.maintenance.auto_update) = (None, true);
    assert_eq!(of(&newest, "1.36", resize(&[])), go(Request::Withdraw));
    let moves = [json!({"event": "begun", "action": "import", "node": 0})];
    assert_eq!(of(&both, "1.36", to_large(&moves)), go(Request::Resume), "it has its room");
}

#[test]
fn unwanted_plan_does_not_end_for_room() {
    let of = |cluster: &TenantCluster, size, operation: Operation| {
        let said = |seen: &ObservedCluster<'_>, change: &Change| seen.ends_for_room(change);
        said_without_room((cluster, Ok(size)), "1.35", Some(&operation), said)
    };
    assert_eq!(of(&small(), LARGE, resize(&[])), (go(Request::Withdraw), true), "for a minor");
    let huge = ControlPlaneSize { processors: 8, memory_mib: 32768 };
    assert_eq!(of(&small(), huge, resize(&[])), (go(Request::Withdraw), false), "another size is wanted");
    let mut other = small();
    other.spec.image = Some("other".to_owned());
    assert_eq!(of(&other, LARGE, to_large(&[])), (go(Request::Withdraw), false), "another image is wanted");
    // It is planned again with the current size of nodes. The spec's size is the one that it was planned with.
    let mut both = small();
    (both.spec.image, both.metadata.generation) = (Some(NEW.to_owned()), Some(2));
    assert_eq!(of(&both, LARGE, to_large(&[])), (go(Request::Withdraw), true), "for its image");
    assert_eq!(of(&both, huge, to_large(&[])), (go(Request::Withdraw), false), "another size is wanted with it");
    let moves = [json!({"event": "begun", "action": "import", "node": 0})];
    assert_eq!(of(&small(), LARGE, resize(&moves)), (go(Request::Resume), false));
}

#[test]
fn retry_without_room_is_rejected() {
    let mut back = resize(&[vec![turned("back")], ended("rolled-back")].concat());
    back.metadata.annotations = Some([(DO.to_owned(), "resume".to_owned())].into());
    let answer = without_room(&small(), "1.36", Some(&back)).0;
    assert_eq!(answer, Change::Answer("shop-1".to_owned(), Some(full().message)));
}

#[test]
fn node_counts_with_its_largest_possible_size() {
    let cluster = small();
    let of = |change: &Change, operation: Option<&Operation>, noted, seen| {
        let node = NodeSizes { noted, pinned: Some(SMALL), seen };
        change.holds(node, operation.map(|it| SwapProgress::of(it).unwrap().unwrap()).as_ref(), false)
    };
    let moves = vec![json!({"event": "begun", "action": "import", "node": 0})];
    let begins = next(&cluster, None, LARGE);
    assert_eq!(of(&begins, None, SMALL, Some(SMALL)), LARGE);
    assert_eq!(of(&Change::Nothing, None, LARGE, Some(SMALL)), SMALL, "it did not come to that");
    assert_eq!(of(&Change::Nothing, None, LARGE, None), LARGE, "nobody has seen it");
    let wide = ControlPlaneSize { processors: 1, memory_mib: 16384 };
    let mixed = ControlPlaneSize { processors: 2, memory_mib: 16384 };
    assert_eq!(of(&next(&cluster, None, wide), None, SMALL, Some(SMALL)), mixed, "who goes back has more of the one");
    let abandoned = [vec![turned("abandon")], ended("abandoned")].concat();
    let back = [vec![turned("back")], ended("rolled-back")].concat();
    let upgraded = [moves.clone(), ended("upgraded")].concat();
    let committed = [upgraded.clone(), ended("committed")].concat();
    for (entries, size) in
        [(&moves, LARGE), (&upgraded, LARGE), (&abandoned, SMALL), (&back, SMALL), (&committed, LARGE)]
    {
        assert_eq!(of(&Change::Nothing, Some(&resize(entries)), LARGE, Some(SMALL)), size, "{entries:?}");
        assert_eq!(of(&Change::Nothing, Some(&resize(entries)), LARGE, None), LARGE, "{entries:?}");
    }
    // Some were healthy on an abandoned size: they keep it, even after a later rollback.
    for entries in [&abandoned, &back] {
        assert_eq!(of(&Change::Nothing, Some(&resize(entries)), LARGE, Some(LARGE)), LARGE, "{entries:?}");
        assert_eq!(of(&Change::Nothing, Some(&swap(entries)), SMALL, Some(LARGE)), LARGE, "{entries:?}");
    }
    // It returns to the resolved size without a check for room.
    let shrunk = NodeSizes { noted: SMALL, pinned: Some(LARGE), seen: Some(SMALL) };
    assert_eq!(Change::Nothing.holds(shrunk, None, false), LARGE);
    // On the way to smaller sizes, each node may return.
    let huge = ControlPlaneSize { processors: 8, memory_mib: 32768 };
    assert_eq!(of(&Change::Nothing, Some(&resize(&moves)), huge, Some(LARGE)), huge);
    let mut committed = resize(&committed);
    let pins = next(&cluster, Some(&committed), LARGE);
    assert_eq!(of(&pins, Some(&committed), LARGE, Some(SMALL)), LARGE, "that is noted first");
    committed.status.as_mut().unwrap().resolved_updated = true;
    assert_eq!(of(&Change::Nothing, Some(&committed), LARGE, Some(SMALL)), SMALL);
}
