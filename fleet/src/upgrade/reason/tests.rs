use contract::swap::Rejection;

use super::REASONS;
use crate::engine::{self, Reason};
use crate::upgrade::entry::{Direction, Event};
use crate::upgrade::{CODES, IllNodes, Order};

#[test]
fn reason_is_noted_with_its_code() {
    let reason = Reason::from(Rejection { code: "swap.quorum".into(), reason: "cp2 is\nill".into() });
    let event = turned(Order::LastFirst, &reason);
    let noted = r#"{"event":"direction-changed","direction":"back","code":"swap.quorum","reason":"cp2 is ill"}"#;
    assert_eq!(serde_json::to_string(&event).unwrap(), noted);
    assert_eq!(serde_json::from_str::<Event>(noted).unwrap(), event);
    assert_eq!(serde_json::to_string(&reason).unwrap(), r#"{"code":"swap.quorum","reason":"cp2 is ill"}"#);
}

fn turned(order: Order, reason: &Reason) -> Event {
    Event::DirectionChanged {
        direction: Direction::Back,
        only: None,
        order,
        left_out: [].into(),
        reason: reason.clone(),
    }
}

#[test]
fn unusual_order_is_noted() {
    let reason = Reason::new("upgrade.asked", "a test");
    let ill = |together: &[usize], one_by_one: &[usize]| {
        Order::First(IllNodes { together: together.to_vec(), one_by_one: one_by_one.to_vec() })
    };
    for (order, noted) in [
        (ill(&[0, 2], &[]), r#"{"first":[0,2]}"#),
        (ill(&[0], &[2, 1]), r#"{"first":{"together":[0],"one-by-one":[2,1]}}"#),
        (Order::AtOnce, r#""at-once""#),
    ] {
        let event = turned(order, &reason);
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.contains(&format!(r#""order":{noted}"#)), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}

#[test]
fn no_code_stands_for_two_things() {
    let mut codes: Vec<&str> = engine::REASONS.iter().chain(REASONS).chain(CODES).map(|one| one.code).collect();
    codes.sort_unstable();
    let count = codes.len();
    codes.dedup();
    assert_eq!(codes.len(), count);
}
