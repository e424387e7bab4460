use uuid::Uuid;

use super::*;
use crate::authority::TakeOver;
use crate::upgrade::entry::{Direction, Outcome};
use crate::upgrade::plan::{Action, Step};
use crate::upgrade::reason::Reason;
use crate::upgrade::tests::fake::{Ill, World, disk};
use crate::upgrade::{Mode, Plan};

fn world() -> World {
    World::of(3, Mode::Rolling, Ill::Well)
}

async fn take(world: &World) -> Hold<'_> {
    Hold::take(world, "a test", TakeOver::FromAnyone, &|_| {}).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_journal_is_read_as_it_was_written_and_goes_on_in_the_next_hold() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    let mut journal = Journal::begin(&hold, plan.clone()).await.unwrap();
    for event in [
        Event::Begun { step: Step::whole(Action::Verify), disk: None },
        Event::Done { step: Step::whole(Action::Verify), note: "whole".into(), vm: None, replaced: false },
        Event::Begun { step: Step::of(Action::Detach, 1), disk: Some(disk("cp2")) },
        Event::Paused {
            step: Step::of(Action::Detach, 1),
            reason: Reason::new("upgrade.vm-task", "a task is in progress"),
        },
        Event::DirectionChanged {
            direction: Direction::Back,
            only: Some(1),
            reason: Reason::new("upgrade.asked", "a test"),
        },
        Event::Ended { outcome: Outcome::RolledBack },
    ] {
        journal.append(event).await.unwrap();
    }
    assert_eq!(parse(journal.text()).unwrap(), journal.entries());
    assert_eq!(last(&world).await.unwrap().as_deref(), Some(journal.text()));
    let (text, entries) = (journal.text().to_owned(), journal.entries().to_vec());
    hold.release().await;
    let next = take(&world).await;
    let again = Journal::continued(&next).await.unwrap();
    assert_eq!((again.text(), again.entries(), again.plan()), (&*text, &*entries, &plan));
    assert_eq!(world.store().holds[&2]["journal.jsonl"], text, "a copy of its own");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_journal_is_refused() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    assert!(Journal::continued(&hold).await.err().unwrap().to_string().contains("there is no upgrade"));
    let text = Journal::begin(&hold, plan.clone()).await.unwrap().text().to_owned();
    let elsewhere = Plan { nodes: plan.nodes[..1].to_vec(), ..plan };
    let elsewhere = Event::Planned { plan: Box::new(elsewhere) };
    let elsewhere = serde_json::to_string(&Entry { at: 1, hold: 1, event: elsewhere }).unwrap();
    let begun = r#"{"at":1,"hold":1,"event":"begun","action":"fence","node":3}"#;
    for damaged in [
        String::new(),
        "{}\n".to_owned(),
        text.replace("planned", "blank"),
        format!("{text}{text}"),
        format!("{text}what\n"),
        format!("{text}{begun}\n"),
        elsewhere,
    ] {
        world.lock().store.holds.get_mut(&1).unwrap().insert(FILE.to_owned(), damaged.clone());
        assert!(Journal::continued(&hold).await.is_err(), "{damaged}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_was_not_added() {
    let world = world();
    let (plan, hold) = (world.plan().await, take(&world).await);
    let mut journal = Journal::begin(&hold, plan).await.unwrap();
    let text = journal.text().to_owned();
    world.lock().store.holds.insert(2, std::collections::BTreeMap::new());
    let event = Event::Ended { outcome: Outcome::Abandoned };
    assert!(journal.append(event).await.unwrap_err().is::<crate::authority::Lost>());
    assert_eq!((journal.text(), journal.entries().len()), (&*text, 1));
    assert_eq!(last(&world).await.unwrap(), Some(text));
}

#[tokio::test(start_paused = true)]
async fn the_journal_before_stays_in_its_hold() {
    let world = world();
    let (plan, first) = (world.plan().await, take(&world).await);
    let before = Journal::begin(&first, plan.clone()).await.unwrap().text().to_owned();
    first.release().await;
    let second = take(&world).await;
    let other = Plan { id: Uuid::from_u128(2), ..plan };
    assert_eq!(Journal::begin(&second, other.clone()).await.unwrap().plan(), &other);
    assert_eq!(world.store().holds[&1][FILE], before);
}
