//! Somebody else joins in a worker's place who has read its form: what is told of him, and how he goes.

use super::fake::pool;
use super::says::ready;
use crate::upgrade::Reason;
use crate::workers::{Action, Machine, next};

/// As of one that a command has told to go, or whose object somebody has deleted.
#[test]
fn of_one_that_goes_it_is_noted_who_is_in_its_place_before_its_token_is_removed() {
    let comes = |change: fn(&mut Machine)| {
        let (mut machine, seen) = ready(None, Some("its"));
        machine.joined_seconds = Some(9);
        change(&mut machine);
        machine.leave(1050, Reason::new("workers.asked", "a person wants it to go"));
        let actions = next(&pool(1), &[machine], &seen).actions.into_iter();
        actions.filter(|action| action.machine().is_some()).collect::<Vec<_>>()
    };
    let removes = [Action::RemoveToken("t-w1".to_owned())];
    assert_eq!(comes(|_| {}), [Action::Suspect("t-w1".to_owned(), "its".to_owned())]);
    assert_eq!(comes(|machine| machine.impersonated = true), removes);
    assert_eq!(comes(|machine| machine.joined_seconds = None), removes);
    assert_eq!(comes(|machine| machine.key = Some("own".to_owned())), removes);
}
