//! The route of the replacement of a lost control-plane node: what `kaas-agent replace-member` does.

use std::sync::{Mutex, PoisonError};

use contract::codes;
use contract::json;
use contract::replacement::Request;
use contract::swap::Rejection;
use hyper::StatusCode;

use super::EndpointContext;
use super::answer::{self, Answer};
use super::swap::json_answer;
use crate::cluster::etcd::replace;

/// One request at a time: each voids the code of the one before.
static TURN: Mutex<()> = Mutex::new(());

pub(super) fn answer(context: &EndpointContext, _: &str, body: &[u8]) -> Answer {
    let request: Request = match json::read_strictly(body) {
        Ok(request) => request,
        Err(error) => {
            return answer::line(StatusCode::BAD_REQUEST, &format!("this is no replacement of a node: {error}"));
        }
    };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match replace::admit(&context.root, &request.node) {
        Ok((grant, _)) => json_answer(StatusCode::OK, &grant),
        Err(error) => {
            let refused = Rejection::of(&codes::REPLACEMENT_REFUSED, format!("{error:#}"));
            json_answer(StatusCode::CONFLICT, &refused)
        }
    }
}
