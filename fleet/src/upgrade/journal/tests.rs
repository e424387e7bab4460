use tokio::sync::watch;
use uuid::Uuid;

use super::*;
use crate::engine::Reason;
use crate::hypervisor::{DiskRef, ErrorKind};
use crate::journals;
use crate::lease::TakeOver;
use crate::upgrade::entry::{Direction, Outcome};
use crate::upgrade::plan::{Action, Step};
use crate::upgrade::tests::fake::fault::{At, Fault};
use crate::upgrade::tests::fake::{Ill, World, disk};
use crate::upgrade::{IllNodes, Mode, Plan};

fn begins(step: Step, disk: Option<DiskRef>, vm: Option<Uuid>) -> Event {
    Event::Begun { step, disk, vm, copy: None, datastore: None, settings: None }
}

fn world() -> World {
    World::of(3, Mode::Rolling, Ill::Well)
}

async fn take(world: &World) -> Lease<'_> {
    Lease::acquire(world, "a test", TakeOver::FromAnyone, &|_| {}).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_journal_continues_in_the_next_hold() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    let mut journal = Journal::begin(&hold, plan.clone()).await.unwrap();
    for event in [
        begins(Step::whole(Action::Verify), None, None),
        Event::Done {
            step: Step::whole(Action::Verify),
            note: "whole".into(),
            vm: None,
            replaced: false,
            copies: Vec::new(),
        },
        begins(Step::of(Action::Detach, 1), Some(disk("cp2")), None),
        begins(Step::of(Action::CloneVm, 2), None, Some(Uuid::from_u128(0xb2))),
        Event::Paused {
            step: Step::of(Action::Detach, 1),
            reason: Reason::new("upgrade.vm-task", "a task is in progress"),
            looked: 0,
        },
        Event::DirectionChanged {
            direction: Direction::Back,
            only: Some(1),
            order: Order::First(IllNodes { together: vec![1], one_by_one: vec![2] }),
            left_out: [2].into(),
            reason: Reason::new("upgrade.asked", "a test"),
        },
        Event::Ended { outcome: Outcome::RolledBack },
    ] {
        journal.append(event).await.unwrap();
    }
    assert_eq!(parse(&journal.text()).unwrap(), journal.entries());
    assert_eq!(last(&world).await.unwrap().as_deref(), Some(&*journal.text()));
    let (text, entries) = (journal.text(), journal.entries().to_vec());
    hold.release().await;
    let next = take(&world).await;
    let again = Journal::continued(&next).await.unwrap();
    assert_eq!((again.text(), again.entries(), again.plan()), (text.clone(), &*entries, &plan));
    let own = &world.store().holds[&2][FILE];
    assert_eq!(own, &format!("{{\"form\":4,\"entries\":8}}\n{text}"), "the second copy differs");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_journal_is_refused() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    assert!(Journal::continued(&hold).await.err().unwrap().to_string().contains("there is no upgrade"));
    let text = Journal::begin(&hold, plan.clone()).await.unwrap().text();
    let elsewhere = Plan { nodes: plan.nodes[..1].to_vec(), ..plan };
    let elsewhere = Event::Planned { plan: Box::new(elsewhere) };
    let elsewhere = serde_json::to_string(&Entry { at: 1, lease: 1, event: elsewhere }).unwrap();
    let begun = r#"{"at":1,"lease":1,"event":"begun","action":"fence","node":3}"#;
    let turned = r#""event":"direction-changed","direction":"back","order":{"first":[3]},"code":"","reason":"""#;
    for damaged in [
        String::new(),
        "{}\n".to_owned(),
        text.replace("planned", "blank"),
        format!("{text}{text}"),
        format!("{text}what\n"),
        format!("{text}{begun}\n"),
        format!("{text}{{\"at\":1,\"lease\":1,{turned}}}\n"),
        elsewhere,
    ] {
        world.lock().store.holds.get_mut(&1).unwrap().insert(FILE.to_owned(), beginning(&damaged).unwrap());
        assert!(Journal::continued(&hold).await.is_err(), "{damaged}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_adds_no_entry() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    let mut journal = Journal::begin(&hold, plan).await.unwrap();
    let text = journal.text();
    world.lock().store.holds.insert(2, std::collections::BTreeMap::new());
    let event = Event::Ended { outcome: Outcome::Abandoned };
    assert!(journal.append(event).await.unwrap_err().is::<crate::lease::Lost>());
    assert_eq!((journal.text(), journal.entries().len()), (text.clone(), 1));
    assert_eq!(last(&world).await.unwrap(), Some(text));
}

#[tokio::test(start_paused = true)]
async fn the_journal_before_stays_in_its_hold() {
    let world = world();
    let (plan, first) = (world.plan().await, take(&world).await);
    let before = Journal::begin(&first, plan.clone()).await.unwrap().text();
    first.release().await;
    let second = take(&world).await;
    let other = Plan { id: Uuid::from_u128(2), ..plan };
    assert_eq!(Journal::begin(&second, other.clone()).await.unwrap().plan(), &other);
    assert!(world.store().holds[&1][FILE].ends_with(&before));
}

/// A journal with a plan and three entries, and its lease.
async fn written<'a>(hold: &'a Lease<'a>, plan: Plan) -> Journal<'a> {
    let mut journal = Journal::begin(hold, plan).await.unwrap();
    for action in [Action::Verify, Action::Snapshot, Action::Check] {
        journal.append(begins(Step::whole(action), None, None)).await.unwrap();
    }
    journal
}

fn put(world: &World, hold: u64, file: &str, text: &str) {
    world.lock().store.holds.get_mut(&hold).unwrap().insert(file.to_owned(), text.to_owned());
}

#[tokio::test(start_paused = true)]
async fn each_entry_has_its_own_file() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    let mut journal = written(&hold, plan).await;
    let before = world.store().holds[&1].clone();
    journal.append(Event::Ended { outcome: Outcome::Abandoned }).await.unwrap();
    let mut after = world.store().holds[&1].clone();
    assert!(after.remove("journal-000004.json").unwrap().contains("abandoned"));
    assert_eq!(after, before);
}

#[tokio::test(start_paused = true)]
async fn a_cut_last_entry_is_dropped() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    let mut journal = written(&hold, plan).await;
    let text = journal.text();
    for half in ["", "{", "{\"at\":1,\"lease\":1,\"event\":\"end"] {
        put(&world, 1, "journal-000004.json", half);
        assert_eq!(last(&world).await.unwrap().as_deref(), Some(&*text), "{half}");
    }
    journal.append(Event::Ended { outcome: Outcome::Abandoned }).await.unwrap();
    assert_eq!(last(&world).await.unwrap().as_deref(), Some(&*journal.text()));
    // An entry that is whole and not understood is another version's. It is no cut write.
    put(&world, 1, "journal-000004.json", "{\"at\":1,\"lease\":1,\"event\":\"of another version\"}\n");
    let error = parse(&last(&world).await.unwrap().unwrap()).unwrap_err();
    assert!(format!("{error:#}").contains("line 5 is not understood"), "{error:#}");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_middle_entry_is_named() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    written(&hold, plan).await;
    put(&world, 1, "journal-000002.json", "{\"at\":1,");
    let error = format!("{:#}", last(&world).await.unwrap_err());
    assert!(error.contains("lease 1: journal-000002.json is damaged, and journal-000003.json follows it"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_middle_entry_is_named() {
    for (missing, follows) in [(&[1][..], 2), (&[2], 3), (&[1, 2], 3)] {
        let world = world();
        let (plan, hold) = (world.plan().await, take(&world).await);
        written(&hold, plan).await;
        for number in missing {
            world.lock().store.holds.get_mut(&1).unwrap().remove(&added(*number, 1)).unwrap();
        }
        let error = format!("{:#}", last(&world).await.unwrap_err());
        let words = format!("lease 1: {} is missing, and {} follows it", added(missing[0], 1), added(follows, 1));
        assert!(error.contains(&words), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_attempt_changes_nothing() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    let mut journal = written(&hold, plan).await;
    // Two attempts fail, of which one is dropped half-way; another event takes the place.
    world.fault(Some(At { call: 2, fault: Fault::Error(ErrorKind::Transient), lasting: false }));
    journal.append(Event::Ended { outcome: Outcome::Upgraded }).await.unwrap_err();
    world.fault(Some(At { call: 2, fault: Fault::CutHalf, lasting: false }));
    let dropped = tokio::time::timeout(
        std::time::Duration::from_secs(1),
        journal.append(Event::Ended { outcome: Outcome::Upgraded }),
    );
    assert!(dropped.await.is_err());
    world.fault(None);
    journal.append(Event::Ended { outcome: Outcome::Abandoned }).await.unwrap();
    assert_eq!(last(&world).await.unwrap().as_deref(), Some(&*journal.text()));
    let late = line(&entry(&hold, Event::Ended { outcome: Outcome::Upgraded })).unwrap();
    for text in [&late[..9], &late] {
        put(&world, 1, "journal-000004.json", text);
        put(&world, 1, "journal-000004-2.json", text);
        assert_eq!(last(&world).await.unwrap().as_deref(), Some(&*journal.text()));
    }
    journal.append(Event::Ended { outcome: Outcome::Abandoned }).await.unwrap();
    assert!(world.store().holds[&1].contains_key("journal-000005.json"), "the next entry begins anew");
}

#[tokio::test(start_paused = true)]
async fn a_cut_beginning_is_no_journal() {
    let world = world();
    let (plan, first) = (world.plan().await, take(&world).await);
    let text = written(&first, plan).await.text();
    let second = take(&world).await;
    let journal = Journal::continued(&second).await.unwrap();
    assert_eq!(journal.text(), text);
    let whole = world.store().holds[&2][FILE].clone();
    for end in 0..whole.len() {
        put(&world, 2, FILE, &whole[..end]);
        let (number, found) = upgrade::last(&world).await.unwrap().unwrap();
        assert_eq!((number, &*found), (1, &*text), "{end}");
    }
    put(&world, 2, FILE, &whole);
    assert_eq!(upgrade::last(&world).await.unwrap().unwrap().0, 2);
    // Entries are only added once its beginning is kept.
    put(&world, 2, FILE, &whole[..whole.len() / 2]);
    put(&world, 2, "journal-000001.json", "{}");
    let error = format!("{:#}", last(&world).await.unwrap_err());
    assert!(error.contains("lease 2: journal.jsonl was cut, and entries follow it"), "{error}");
    put(&world, 2, FILE, &whole.replace("{\"form\":4", "{\"form\":5"));
    assert!(format!("{:#}", last(&world).await.unwrap_err()).contains("the format 5, and this version knows 4"));
}

#[tokio::test(start_paused = true)]
async fn entries_without_beginning_revive_no_older_journal() {
    let world = world();
    let (plan, first) = (world.plan().await, take(&world).await);
    written(&first, plan).await;
    let second = take(&world).await;
    let mut journal = Journal::continued(&second).await.unwrap();
    world.lock().store.holds.get_mut(&2).unwrap().remove(FILE).unwrap();
    assert_eq!(upgrade::last(&world).await.unwrap().unwrap().0, 1, "it was never begun");
    journal.append(Event::Ended { outcome: Outcome::Abandoned }).await.unwrap();
    let error = format!("{:#}", last(&world).await.unwrap_err());
    assert!(error.contains("lease 2: journal.jsonl is missing, and entries follow it"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn journals_of_other_forms_are_refused() {
    let world = world();
    world.make(1).await.unwrap();
    let lines = include_str!("../tests/testdata/journal.jsonl");
    put(&world, 1, "released", "");
    for old in [lines.to_owned(), beginning(lines).unwrap().replace("{\"form\":4", "{\"form\":3")] {
        put(&world, 1, FILE, &old);
        let hold = take(&world).await;
        let error = format!("{:#}", Journal::continued(&hold).await.err().unwrap());
        assert!(error.contains("the version that began it"), "{error}");
        assert_eq!(world.store().holds[&1][FILE], old, "it stays as it was");
        hold.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn old_holds_go_but_not_their_journal() {
    let world = world();
    let (plan, first) = (world.plan().await, take(&world).await);
    let text = written(&first, plan).await.text();
    first.release().await;
    for _ in 0..=40 {
        let hold = take(&world).await;
        journals::prune(&hold, &watch::channel(false).1).await.unwrap();
        hold.release().await;
        assert_eq!(last(&world).await.unwrap().as_deref(), Some(&*text));
    }
    let holds = world.store().holds;
    assert_eq!((holds.len(), *holds.keys().next().unwrap()), (20, 23));
    let hold = take(&world).await;
    assert_eq!(Journal::continued(&hold).await.unwrap().text(), text);
}

#[tokio::test(start_paused = true)]
async fn commands_remove_old_holds_and_their_journals() {
    use crate::upgrade::tests::command::{begun, give};
    use crate::upgrade::{Outcome, Request};
    let world = begun(1, Mode::Rolling, Ill::Well).await;
    for _ in 0..30 {
        assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
    }
    let numbers: Vec<u64> = world.store().holds.into_keys().collect();
    assert_eq!(numbers, (12..=31).collect::<Vec<_>>());
    assert_eq!(give(&world, Request::Rollback).await.outcome(), Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_replaces_no_new_journal() {
    use crate::upgrade::tests::command::{begun, deployment, entries, give};
    use crate::upgrade::{Outcome, Request, RunOutcome};
    // An upgrade that has ended, in the lowest lease but two, and so many above it that it has to be copied.
    let old = async || {
        let world = begun(1, Mode::Rolling, Ill::Well).await;
        assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
        assert_eq!(give(&world, Request::Rollback).await.outcome(), Outcome::RolledBack);
        for _ in 0..19 {
            take(&world).await.release().await;
        }
        world.fault(None);
        world
    };
    let apply = async |world: &World| {
        let ova = world.target.ova.clone();
        deployment(world, &|_| {}).apply(&ova, &world.options, TakeOver::FromTheDead).await
    };
    let twin = old().await;
    apply(&twin).await.unwrap();
    let copied = twin.calls().iter().position(|call| call.name == "store.journal").unwrap() + 1;
    let world = old().await;
    world.fault(Some(At { call: copied, fault: Fault::Late, lasting: false }));
    let refused = format!("{:#}", apply(&world).await.unwrap_err());
    assert!(refused.contains("may still land"), "{refused}");
    world.fault(None);
    assert!(matches!(apply(&world).await.unwrap().0, RunOutcome::Ended(Outcome::Upgraded)));
    let entries = entries(&world).await;
    assert_eq!(entries.first().map(|entry| entry.lease), world.store().holds.keys().next_back().copied());
}
