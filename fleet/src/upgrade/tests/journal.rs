use std::fs;

use super::*;
use crate::upgrade::Mode;
use crate::upgrade::entry::{Direction, StepIndex};
use crate::upgrade::tests::fake::{Ill, World};
use uuid::Uuid;

fn plan() -> Plan {
    World::of(3, Mode::Rolling, Ill::Well).plan()
}

#[test]
fn a_journal_is_read_as_it_was_written_and_half_a_line_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let planned = plan();
    let mut journal = Journal::begin(directory.path(), planned.clone()).unwrap();
    let place = StepIndex { direction: Direction::Forward, index: 0 };
    journal.append(Event::Begun { place }).unwrap();
    journal.append(Event::Done { place, note: "whole".into(), vm: Some(Uuid::nil()) }).unwrap();
    journal.append(Event::DirectionChanged { direction: Direction::Back, reason: "a test".into() }).unwrap();
    let (text, entries) = (journal.text().to_owned(), journal.entries().to_vec());
    drop(journal);
    for cut in 0..20 {
        let half = format!("{text}{}", &r#"{"at":17,"event":"begun""#[..cut]);
        fs::write(Journal::path(directory.path()), half).unwrap();
        let again = Journal::open(directory.path()).unwrap().unwrap();
        assert_eq!((again.text(), again.entries()), (text.as_str(), entries.as_slice()));
        assert_eq!(again.plan(), &planned);
    }
    assert_eq!(fs::read_to_string(Journal::path(directory.path())).unwrap(), text);
}

#[test]
fn a_damaged_journal_and_one_that_is_open_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Journal::open(directory.path()).unwrap().is_none());
    let journal = Journal::begin(directory.path(), plan()).unwrap();
    let text = journal.text().to_owned();
    let error = Journal::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("another command"), "{error}");
    drop(journal);
    for damaged in ["", "{}\n", &text.replace("planned", "blank"), &format!("{text}{text}"), &format!("{text}what\n")] {
        fs::write(Journal::path(directory.path()), damaged).unwrap();
        assert!(Journal::open(directory.path()).is_err(), "{damaged}");
    }
}

#[test]
fn the_journal_before_is_kept_beside_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let first = plan();
    drop(Journal::begin(directory.path(), first.clone()).unwrap());
    let second = Plan { id: Uuid::from_u128(2), ..first.clone() };
    assert_eq!(Journal::begin(directory.path(), second.clone()).unwrap().plan(), &second);
    let kept = fs::read_to_string(directory.path().join(format!("journal-{}.jsonl", first.id))).unwrap();
    assert_eq!(plan_of(&parse(&kept).unwrap()), Some(&first));
}

#[test]
fn a_journal_with_the_former_words_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(directory.path(), plan()).unwrap();
    let place = StepIndex { direction: Direction::Forward, index: 0 };
    journal.append(Event::Begun { place }).unwrap();
    journal.append(Event::DirectionChanged { direction: Direction::Back, reason: "a test".into() }).unwrap();
    let former = journal.text().replace("\"direction\"", "\"way\"").replace("direction-changed", "turned");
    assert_eq!(parse(&former).unwrap(), journal.entries());
}
