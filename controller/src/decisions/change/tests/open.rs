//! The next step of a swap that has not ended.

use fleet::upgrade::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::super::Change;
use super::super::shown::says;
use super::{FORMER, NEW, ended, go, names, next, swap, turned};
use crate::decisions::fixture::now;
use crate::decisions::pause_reason::{PauseReason, swap_reasons};
use crate::decisions::swap_progress::SwapProgress;
use crate::objects::{Commit, DO, OperationReason, TenantClusterReason, set};
use crate::records::fixture;

#[test]
fn former_image_rolls_back_an_open_swap() {
    let open = swap(&[]);
    assert_eq!(next(&names(Some(NEW)), Some(&open)), go(Request::Resume));
    let moves = swap(&[json!({"event": "begun", "action": "import", "node": 0})]);
    assert_eq!(next(&names(Some("another")), Some(&moves)), go(Request::Resume), "one after the other");
    assert_eq!(next(&names(Some("another")), Some(&open)), go(Request::Withdraw), "nothing of it has moved");
    assert_eq!(next(&names(None), Some(&open)), go(Request::Withdraw), "it is named no more");
    assert_eq!(next(&names(Some("another")), Some(&swap(&[turned("back")]))), go(Request::Resume), "it is turned");
    let mut automatic = names(None);
    automatic.spec.maintenance.auto_update = true;
    assert_eq!(next(&automatic, Some(&open)), go(Request::Resume), "no request had named it");
    assert_eq!(next(&names(Some(FORMER)), Some(&open)), go(Request::Rollback));
    assert_eq!(next(&names(Some(FORMER)), Some(&swap(&[turned("back")]))), go(Request::Resume), "it goes back already");
    let committing = swap(&[ended("upgraded"), vec![turned("commit")]].concat());
    assert_eq!(next(&names(Some(FORMER)), Some(&committing)), go(Request::Resume));
    let mut paused = names(Some(NEW));
    paused.spec.paused = true;
    assert_eq!(next(&paused, Some(&open)), Change::Show("shop-1".to_owned()), "it says that it rests");
    let mut rests = open.clone();
    let swapping = SwapProgress::of(&rests).unwrap().unwrap();
    for (reason, words) in swap_reasons(Some(&PauseReason::Paused), &swapping) {
        set(&mut rests.status.as_mut().unwrap().conditions, reason, &words, 1, &now());
    }
    assert!(says(&rests, OperationReason::Paused).is_some());
    assert!(matches!(next(&paused, Some(&rests)), Change::Waits(TenantClusterReason::Changing, _)));
    assert_eq!(next(&names(Some(NEW)), Some(&rests)), go(Request::Resume), "it is not paused any more");
    for word in ["resume", "rollback", "hurry"] {
        rests.metadata.annotations = Some([(DO.to_owned(), word.to_owned())].into());
        let answer = next(&paused, Some(&rests));
        let Change::Answer(_, Some(words)) = &answer else { panic!("{word}: {answer:?}") };
        assert!(words.contains("paused"), "{word}: {words}");
        assert_eq!(words.contains(FORMER), word == "rollback", "{word}: {words}");
    }
    // An outdated message does not stay for days.
    let mut upgraded = swap(&ended("upgraded"));
    let conditions = &mut upgraded.status.as_mut().unwrap().conditions;
    set(conditions, OperationReason::Rejected, &PauseReason::Paused.refuses(None), 1, &now());
    let mut manual = names(Some(NEW));
    manual.spec.upgrade.commit = Commit::Manual;
    assert_eq!(next(&manual, Some(&upgraded)), Change::Show("shop-1".to_owned()), "it is not paused any more");
    manual.spec.paused = true;
    assert!(matches!(next(&manual, Some(&upgraded)), Change::Waits(..)), "it is");
    rests.metadata.annotations = Some([(DO.to_owned(), "abandon".to_owned())].into());
    assert_eq!(next(&paused, Some(&rests)), go(Request::Abandon), "it moves no VM");
    rests.metadata.annotations = None;
    paused.spec.image = Some(FORMER.to_owned());
    assert!(matches!(next(&paused, Some(&rests)), Change::Waits(..)), "it goes back afterwards");
    assert_eq!(next(&names(Some(FORMER)), Some(&rests)), go(Request::Rollback), "before anything else");
    let mut unsaid = swap(&[]);
    unsaid.status.as_mut().unwrap().step = None;
    assert_eq!(next(&paused, Some(&unsaid)), Change::Show("shop-1".to_owned()));
}

/// A guest runs a request even if the controller does not record it.
#[test]
fn swap_never_pauses_with_a_node_down() {
    let event = |event: &str, action: &str| json!({"event": event, "action": action, "node": 0, "note": ""});
    let way = [
        (event("done", "import"), false),
        (event("begun", "prepare"), false),
        (event("done", "prepare"), false),
        (event("begun", "shut-down"), true),
        (event("done", "shut-down"), true),
        (event("begun", "gate"), true),
        (event("done", "gate"), false),
    ];
    let mut paused = names(Some(NEW));
    paused.spec.paused = true;
    for (last, (_, is_away)) in way.iter().enumerate() {
        let entries: Vec<Value> = way[..=last].iter().map(|(entry, _)| entry.clone()).collect();
        let mut operation = swap(&entries);
        operation.spec.plan.as_mut().unwrap()["nodes"] = json!([fixture::node("shop-cp1")]);
        let change = next(&paused, Some(&operation));
        let goes_on = change == go(Request::Resume);
        assert_eq!(goes_on, *is_away, "{:?}: {change:?}", entries.last());
    }
}

#[test]
fn automatic_commit_follows_ten_healthy_minutes() {
    let since = |seconds: i64| {
        let mut operation = swap(&ended("upgraded"));
        let at = k8s_openapi::jiff::Timestamp::from_second(now().0.as_second() - seconds).unwrap();
        operation.status.as_mut().unwrap().healthy_since = Some(Time(at));
        operation
    };
    let cluster = names(Some(NEW));
    let waits = |change: &Change| matches!(change, Change::Waits(TenantClusterReason::AwaitingCommit, _));
    assert!(waits(&next(&cluster, Some(&swap(&ended("upgraded"))))), "not all of them are good");
    assert!(waits(&next(&cluster, Some(&since(599)))));
    assert_eq!(next(&cluster, Some(&since(600))), go(Request::Commit));
    let mut manual = names(Some(NEW));
    manual.spec.upgrade.commit = Commit::Manual;
    assert!(waits(&next(&manual, Some(&since(6000)))));
    for wanted in [Some("another"), None] {
        let change = next(&names(wanted), Some(&since(6000)));
        assert!(waits(&change) && change.said().unwrap().1.contains("commit or rollback"), "{change:?}");
    }
    let mut automatic = names(None);
    automatic.spec.maintenance.auto_update = true;
    assert_eq!(next(&automatic, Some(&since(600))), go(Request::Commit));
    assert_eq!(next(&names(Some(FORMER)), Some(&since(6000))), go(Request::Rollback));
}

#[test]
fn request_is_accepted_or_rejected_by_progress() {
    let (open, back) = (vec![], vec![turned("back")]);
    let upgraded = ended("upgraded");
    let committing =
        [ended("upgraded"), vec![turned("commit"), json!({"event": "begun", "action": "commit"})]].concat();
    let cases: [(&[Value], &str, Option<Request>); 9] = [
        (&open, "resume", Some(Request::Resume)),
        (&open, "rollback", Some(Request::Rollback)),
        (&open, "abandon", Some(Request::Abandon)),
        (&open, "commit", None),
        (&back, "commit", None),
        (&upgraded, "commit", Some(Request::Commit)),
        (&upgraded, "rollback", Some(Request::Rollback)),
        (&committing, "rollback", None),
        (&open, "hurry", None),
    ];
    for (entries, word, verb) in cases {
        let mut operation = swap(entries);
        operation.metadata.annotations = Some([(DO.to_owned(), word.to_owned())].into());
        match (next(&names(Some(NEW)), Some(&operation)), verb) {
            (Change::Go(_, went), Some(verb)) => assert_eq!(went, verb, "{word} {entries:?}"),
            (Change::Answer(_, Some(_)), None) => {}
            (change, _) => panic!("{word} {entries:?}: {change:?}"),
        }
    }
}
