//! The next step while no swap is open.

use super::super::{Change, ObservedCluster};
use super::{FORMER, NEW, SIZE, ended, images, names, next, next_beside, observed, swap, turned};
use crate::objects::{DO, TenantClusterReason};

#[test]
fn named_image_starts_a_swap() {
    assert!(
        matches!(next(&names(Some(NEW)), None), Change::Swap(image, None, SIZE) if image.metadata.name.as_deref() == Some(NEW))
    );
    assert_eq!(next(&names(Some(FORMER)), None), Change::Nothing);
    assert_eq!(next(&names(None), None), Change::Nothing, "a newer one is nobody's wish");
    let mut automatic = names(None);
    automatic.spec.maintenance.auto_update = true;
    assert!(matches!(next(&automatic, None), Change::Swap(..)));
    automatic.spec.maintenance.window = Some("Sat 02:00-03:00".to_owned());
    assert!(matches!(next(&automatic, None), Change::Waits(TenantClusterReason::AwaitingWindow, _)));
    // An image that the spec names does not wait for a window.
    let mut named = names(Some(NEW));
    named.spec.maintenance.window = automatic.spec.maintenance.window;
    assert!(matches!(next(&named, None), Change::Swap(..)));
    let mut raised = names(Some(NEW));
    raised.spec.version = "1.38".to_owned();
    assert!(matches!(next(&raised, None), Change::Blocked(_)), "the image has to carry what is wanted");
}

#[test]
fn committed_image_is_resolved_and_rollback_not_retried() {
    let committed = swap(&[ended("upgraded"), ended("committed")].concat());
    let Change::Pin(resolved, Some(_)) = next(&names(Some(NEW)), Some(&committed)) else { panic!("it is not pinned") };
    assert_eq!((resolved.image.as_deref(), resolved.digest), (Some(NEW), Some(format!("sha256:{}", "0b".repeat(32)))));
    let mut back = swap(&[vec![turned("back")], ended("rolled-back")].concat());
    let failed = |change: &Change| matches!(change, Change::Waits(TenantClusterReason::ChangeFailed, _));
    assert!(failed(&next(&names(Some(NEW)), Some(&back))));
    assert_eq!(next(&names(Some(FORMER)), Some(&back)), Change::Nothing);
    let mut newer = names(Some(NEW));
    newer.metadata.generation = Some(2);
    assert!(matches!(next(&newer, Some(&back)), Change::Swap(_, None, _)), "the spec is another one");
    back.metadata.annotations = Some([(DO.to_owned(), "resume".to_owned())].into());
    assert!(matches!(next(&names(Some(NEW)), Some(&back)), Change::Swap(_, Some(of), _) if of == "shop-1"));
    let beside = next_beside(&names(Some(NEW)), Some(&back), Some("cp2"));
    assert!(matches!(&beside, Change::Answer(_, Some(words)) if words.contains("cp2")), "not later: {beside:?}");
    back.metadata.annotations = Some([(DO.to_owned(), "rollback".to_owned())].into());
    assert_eq!(next(&names(Some(FORMER)), Some(&back)), Change::Answer("shop-1".to_owned(), None), "so it is");
}

/// Some of its nodes may keep the new image, and no object says which.
#[test]
fn nodes_are_asked_after_an_abandoned_swap() {
    let abandoned = swap(&[vec![turned("abandon")], ended("abandoned")].concat());
    let is_asked = |change: &Change, then: &Change| {
        let Change::Judge(image, None, comes) = change else { return false };
        image.metadata.name.as_deref() == Some(FORMER) && **comes == *then
    };
    for cluster in [names(Some(FORMER)), names(None)] {
        let change = next(&cluster, Some(&abandoned));
        assert!(is_asked(&change, &Change::Nothing) && change.is_to_do(), "{change:?}");
        assert_eq!(change.said().unwrap().0, TenantClusterReason::ChangeFailed, "not current before that is known");
    }
    let Change::Waits(_, words) = next(&names(Some(NEW)), Some(&abandoned)) else { panic!("it is tried again") };
    assert!(!words.contains(FORMER), "{words}");
    let back = swap(&[vec![turned("back")], ended("rolled-back")].concat());
    assert_eq!(next(&names(Some(FORMER)), Some(&back)), Change::Nothing);
    // The same if objects are older than VMs.
    let (cluster, images) = (names(Some(FORMER)), images());
    let of = |has_drifted| ObservedCluster { has_drifted, ..observed(&cluster, &[], &images) }.next();
    assert!(is_asked(&of(true), &Change::Nothing) && of(false) == Change::Nothing);
}
