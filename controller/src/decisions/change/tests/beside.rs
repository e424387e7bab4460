//! Swaps during a change of the control cluster.

use fleet::upgrade::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::super::Change;
use super::super::shown::says;
use super::{FORMER, NEW, ended, go, names, next, next_beside, swap, turned};
use crate::decisions::fixture::now;
use crate::decisions::pause_reason::{PauseReason, swap_reasons};
use crate::decisions::swap_progress::{Stage, SwapProgress};
use crate::objects::{DO, Operation, OperationReason, TenantClusterReason, set};

#[test]
fn change_of_the_control_cluster_pauses_swaps() {
    let beside = |operation: Option<&Operation>| next_beside(&names(Some(NEW)), operation, Some("cp2"));
    let waits = |change: &Change| matches!(change, Change::Waits(TenantClusterReason::Changing, words) if words.contains("cp2"));
    assert!(waits(&beside(None)), "{:?}", beside(None));
    let mut open = swap(&[]);
    assert_eq!(beside(Some(&open)), Change::Show("shop-1".to_owned()));
    let rest = PauseReason::ControlCluster("cp2".to_owned());
    for (reason, words) in swap_reasons(Some(&rest), &SwapProgress::of(&open).unwrap().unwrap()) {
        set(&mut open.status.as_mut().unwrap().conditions, reason, &words, 1, &now());
    }
    assert!(says(&open, OperationReason::ControlClusterChanges).is_some() && waits(&beside(Some(&open))));
    let mut upgraded = swap(&ended("upgraded"));
    let long_ago = k8s_openapi::jiff::Timestamp::from_second(now().0.as_second() - 6000).unwrap();
    upgraded.status.as_mut().unwrap().healthy_since = Some(Time(long_ago));
    assert!(!matches!(beside(Some(&upgraded)), Change::Go(..)), "it is not committed meanwhile");
    assert_eq!(next(&names(Some(NEW)), Some(&open)), go(Request::Resume), "afterwards");
}

/// A control-plane node of the control cluster may be lost, or its commit days away.
#[test]
fn paused_swap_accepts_only_rollback_and_abandon() {
    let mut is_back = turned("back");
    is_back["only"] = json!(0);
    let node_is_back = swap(&[is_back]);
    assert!(matches!(SwapProgress::of(&node_is_back).unwrap().unwrap().stage, Stage::NodeIsBack(_)));
    let begun = swap(&[json!({"event": "begun", "action": "import", "node": 0})]);
    for mut operation in [node_is_back, begun, swap(&ended("upgraded"))] {
        let words = [
            ("resume", None),
            ("commit", None),
            ("hurry", None),
            ("rollback", Some(Request::Rollback)),
            ("abandon", Some(Request::Abandon)),
        ];
        for (word, verb) in words {
            operation.metadata.annotations = Some([(DO.to_owned(), word.to_owned())].into());
            match (next_beside(&names(Some(NEW)), Some(&operation), Some("cp2")), verb) {
                (change, Some(verb)) => assert_eq!(change, go(verb), "{word}"),
                (Change::Answer(_, Some(words)), None) => assert!(words.contains("cp2"), "{word}: {words}"),
                (change, None) => panic!("{word}: {change:?}"),
            }
        }
        operation.metadata.annotations = None;
        assert_eq!(next_beside(&names(Some(FORMER)), Some(&operation), Some("cp2")), go(Request::Rollback));
        let stays = next_beside(&names(Some(NEW)), Some(&operation), Some("cp2"));
        assert!(!matches!(stays, Change::Go(..)), "{stays:?}");
    }
}
