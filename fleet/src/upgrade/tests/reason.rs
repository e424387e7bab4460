use super::*;
use crate::upgrade::CODES;
use crate::upgrade::entry::{Direction, Event};

#[test]
fn a_journal_of_before_reasons_had_codes_is_read() {
    let paused = r#"{"event":"paused","action":"fence","node":1,"reason":"a task is in progress"}"#;
    let Event::Paused { step, reason, .. } = serde_json::from_str(paused).unwrap() else { panic!("{paused}") };
    assert_eq!((step.node, reason), (Some(1), Reason::new(UNCODED, "a task is in progress")));
    let turned = r#"{"event":"direction-changed","direction":"back","only":1,"reason":"cp1: no answer"}"#;
    let Event::DirectionChanged { direction, only, reason, .. } = serde_json::from_str(turned).unwrap() else {
        panic!("{turned}")
    };
    assert_eq!((direction, only), (Direction::Back, Some(1)));
    assert_eq!(reason.to_string(), "cp1: no answer [upgrade.uncoded]");
}

#[test]
fn a_reason_is_noted_with_its_code_and_as_one_object_elsewhere() {
    let reason = Reason::from(Refused { code: "swap.quorum".into(), reason: "cp2 is\nill".into() });
    let event =
        Event::DirectionChanged { direction: Direction::Back, only: None, left_out: [].into(), reason: reason.clone() };
    let noted = r#"{"event":"direction-changed","direction":"back","code":"swap.quorum","reason":"cp2 is ill"}"#;
    assert_eq!(serde_json::to_string(&event).unwrap(), noted);
    assert_eq!(serde_json::from_str::<Event>(noted).unwrap(), event);
    assert_eq!(serde_json::to_string(&reason).unwrap(), r#"{"code":"swap.quorum","reason":"cp2 is ill"}"#);
}

#[test]
fn no_code_stands_for_two_things() {
    let mut codes: Vec<&str> = REASONS.iter().chain(CODES).map(|(code, _)| *code).collect();
    codes.sort_unstable();
    let count = codes.len();
    codes.dedup();
    assert_eq!(codes.len(), count);
}
