//! The requests on an Operation, and whether they are accepted: on an open swap, and on one that has ended.

use fleet::upgrade::{Direction, Request};

use super::Change;
use crate::decisions::pause_reason::PauseReason;
use crate::decisions::swap_progress::{Ending, Stage, SwapProgress, is_of_size};
use crate::objects::{DO, Operation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperatorAction {
    Resume,
    Rollback,
    Commit,
    Abandon,
}

/// The request in the annotation of an Operation, if there is one.
pub fn asked(operation: &Operation) -> Option<&str> {
    operation.metadata.annotations.as_ref()?.get(DO).map(String::as_str)
}

/// The parsed request on an Operation, if there is one.
pub(super) fn word(operation: &Operation) -> Option<Result<OperatorAction, String>> {
    let text = asked(operation)?;
    Some(match text {
        "resume" => Ok(OperatorAction::Resume),
        "rollback" => Ok(OperatorAction::Rollback),
        "commit" => Ok(OperatorAction::Commit),
        "abandon" => Ok(OperatorAction::Abandon),
        _ => Err(format!("{DO} is {text:?}: it may be resume, rollback, commit or abandon")),
    })
}

/// Whether a request is accepted while a swap is paused. A change of the control cluster speaks against new changes, but not
/// against a rollback. `abandon` moves no VM.
pub(super) fn is_heard(word: OperatorAction, rest: &PauseReason) -> bool {
    match word {
        OperatorAction::Abandon => true,
        OperatorAction::Rollback => matches!(rest, PauseReason::ControlCluster(_)),
        OperatorAction::Resume | OperatorAction::Commit => false,
    }
}

/// The field and value of the spec that start a rollback, for a rejected request.
pub(super) fn rollback_hint(operation: &Operation) -> Option<String> {
    if is_of_size(operation) {
        let auto = if operation.spec.to_class.is_some() { ", or auto where that means it," } else { "" };
        return operation.spec.from_size.map(|size| format!("a class of {size}{auto} in spec.controlPlane.vmClass"));
    }
    operation.spec.from_image.as_ref().map(|image| format!("{image} in spec.image"))
}

pub(super) fn has_asked(name: String, word: OperatorAction, swapping: &SwapProgress) -> Change {
    match permits(word, swapping) {
        Ok(verb) => Change::Go(name, verb),
        Err(words) => Change::Answer(name, Some(words)),
    }
}

/// The request for `fleet` that follows from an accepted one.
fn permits(word: OperatorAction, swapping: &SwapProgress) -> Result<Request, String> {
    let refused = |words: &str| Err(words.to_owned());
    match (word, &swapping.stage, swapping.direction) {
        (OperatorAction::Resume, ..) => Ok(Request::Resume),
        (OperatorAction::Abandon, ..) => Ok(Request::Abandon),
        (OperatorAction::Rollback, ..) if swapping.is_final => {
            refused("it is being committed: no rollback is possible except by restoring a snapshot")
        }
        (OperatorAction::Rollback | OperatorAction::Commit, _, Direction::Abandon) => refused("it is being abandoned"),
        (OperatorAction::Rollback, ..) => Ok(Request::Rollback),
        (OperatorAction::Commit, _, Direction::Commit)
        | (OperatorAction::Commit, Stage::Upgraded, Direction::Forward) => Ok(Request::Commit),
        (OperatorAction::Commit, _, Direction::Back) => refused("it goes back: there is nothing to commit"),
        (OperatorAction::Commit, ..) => refused("it is not at its end: there is nothing to commit yet"),
    }
}

/// Why a request on an ended Operation is rejected. `None` if the Operation has ended in this way.
pub(super) fn ended(word: Result<OperatorAction, String>, ending: Option<Ending>) -> Option<String> {
    match (word, ending) {
        (Err(words), _) => Some(words),
        (Ok(OperatorAction::Commit), Some(Ending::Committed))
        | (Ok(OperatorAction::Rollback), Some(Ending::RolledBack))
        | (Ok(OperatorAction::Abandon), Some(Ending::Abandoned)) => None,
        (Ok(OperatorAction::Rollback), Some(Ending::Committed)) => {
            Some("it is committed: no rollback is possible except by restoring a snapshot".to_owned())
        }
        (Ok(_), ending) => Some(format!("it has ended: it was {}", ending.map_or("", Ending::words))),
    }
}
