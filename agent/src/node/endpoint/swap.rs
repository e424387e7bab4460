//! The routes of the image swap, of the evacuation and of Kubernetes' upgrade. They translate between HTTP and
//! [`crate::upgrade::swap`] and [`crate::upgrade::kubernetes`].

use contract::codes;
use contract::image::BUILD_DIGITS;
use contract::json;
use contract::swap::{CommitRequest, EvacuationRequest, Rejection, Request, Stage};
use hyper::StatusCode;
use serde::Serialize;
use uuid::Uuid;

use super::EndpointContext;
use super::answer::{self, Answer};
use crate::host::command::Host;
use crate::upgrade::kubernetes;
use crate::upgrade::swap::facts;
use crate::upgrade::swap::peers::KnownDisks;

/// The longest time that a drain may take, in seconds.
const LONGEST_DRAIN: u64 = 6 * 60 * 60;

const NOT_YET: &str = "this node has not come far enough since power-on: ask again in a moment";

pub(super) fn node(context: &EndpointContext, _: &str, _: &[u8]) -> Answer {
    let Some(node) = context.swaps.context() else {
        return answer::line(StatusCode::SERVICE_UNAVAILABLE, NOT_YET);
    };
    match facts::node(&node, context.swaps.state(), context.swaps.evacuation()) {
        Ok(facts) => json_answer(StatusCode::OK, &facts),
        Err(error) => answer::line(StatusCode::SERVICE_UNAVAILABLE, &format!("{error:#}")),
    }
}

/// This node's records of the nodes' data disks, for a peer that is about to start its etcd.
pub(super) fn disks(context: &EndpointContext, _: &str, _: &[u8]) -> Answer {
    let Some(node) = context.swaps.context() else {
        return answer::line(StatusCode::SERVICE_UNAVAILABLE, NOT_YET);
    };
    let told = || KnownDisks::for_peers(&node.config.node.name, &node.identity()?, &node.image.build, &node.records());
    match told() {
        Ok(known) => json_answer(StatusCode::OK, &known),
        Err(error) => answer::line(StatusCode::SERVICE_UNAVAILABLE, &format!("{error:#}")),
    }
}

pub(super) fn begin(context: &EndpointContext, _: &str, body: &[u8]) -> Answer {
    let request = match understand(body) {
        Ok(request) => request,
        Err(reason) => return answer::line(StatusCode::BAD_REQUEST, &reason),
    };
    leaving(context.swaps.begin(request))
}

pub(super) fn evacuate(context: &EndpointContext, _: &str, body: &[u8]) -> Answer {
    let request: EvacuationRequest = match json::read_strictly(body) {
        Ok(request) => request,
        Err(error) => return answer::line(StatusCode::BAD_REQUEST, &format!("this is no evacuation: {error}")),
    };
    if request.drain_seconds > LONGEST_DRAIN {
        return answer::line(StatusCode::BAD_REQUEST, &too_long(request.drain_seconds));
    }
    leaving(context.swaps.evacuate(request))
}

fn leaving(begun: Result<Stage, Rejection>) -> Answer {
    match begun {
        Ok(Stage::Prepared) => answer::line(StatusCode::OK, "prepared: the VM may be shut down"),
        Ok(_) => answer::line(StatusCode::ACCEPTED, "under way: see /v1/node"),
        Err(refused) => conflict(&refused),
    }
}

fn understand(body: &[u8]) -> Result<Request, String> {
    let request: Request = json::read_strictly(body).map_err(|error| format!("this is no swap: {error}"))?;
    let build = &request.to.build;
    if build.len() != BUILD_DIGITS || !build.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("the build {build:?} is not {BUILD_DIGITS} hexadecimal digits"));
    }
    if request.to.version.is_empty() || request.to.version.len() > 64 {
        return Err("the image has no version, or one of more than 64 characters".to_owned());
    }
    if request.drain_seconds > LONGEST_DRAIN {
        return Err(too_long(request.drain_seconds));
    }
    Ok(request)
}

pub(super) fn cancel(context: &EndpointContext, id: &str, _: &[u8]) -> Answer {
    let Ok(id) = Uuid::try_parse(id) else {
        return answer::line(StatusCode::BAD_REQUEST, &format!("{id:?} is no identifier of a swap or an evacuation"));
    };
    match context.swaps.cancel(id, &Host) {
        Ok(true) => answer::line(StatusCode::OK, "withdrawn"),
        Ok(false) => answer::line(StatusCode::ACCEPTED, "it is being withdrawn: ask again"),
        Err(refused) => conflict(&refused),
    }
}

pub(super) fn commit(context: &EndpointContext, _: &str, body: &[u8]) -> Answer {
    let request: CommitRequest = match json::read_strictly(body) {
        Ok(request) => request,
        Err(error) => return answer::line(StatusCode::BAD_REQUEST, &format!("this is no commit of a swap: {error}")),
    };
    match context.swaps.commit(request.swap) {
        Ok(true) => answer::line(StatusCode::OK, "committed"),
        Ok(false) => answer::line(StatusCode::OK, "there is nothing to commit"),
        Err(refused) => conflict(&refused),
    }
}

/// The minor version of Kubernetes is raised after a swap, by the same command.
pub(super) fn upgrade_kubernetes(context: &EndpointContext, _: &str, body: &[u8]) -> Answer {
    let request: contract::kubernetes_upgrade::Request = match json::read_strictly(body) {
        Ok(request) => request,
        Err(error) => {
            return answer::line(StatusCode::BAD_REQUEST, &format!("this is no upgrade of Kubernetes: {error}"));
        }
    };
    if request.drain_seconds > LONGEST_DRAIN {
        return answer::line(StatusCode::BAD_REQUEST, &too_long(request.drain_seconds));
    }
    match kubernetes::begin(&context.swaps, &request, &Host) {
        Ok(true) => answer::line(StatusCode::ACCEPTED, "under way: see /v1/node"),
        Ok(false) if request.check => answer::line(StatusCode::OK, "nothing blocks the upgrade"),
        Ok(false) => answer::line(StatusCode::OK, "the node runs it"),
        Err(refused) => conflict(&refused),
    }
}

fn too_long(seconds: u64) -> String {
    format!("{seconds} seconds to drain are more than {LONGEST_DRAIN}")
}

/// A failure is status 500, a refusal 409.
fn conflict(refused: &Rejection) -> Answer {
    match [&codes::SWAP_FAILED, &codes::KUBERNETES_FAILED].iter().any(|failed| failed.code == refused.code) {
        true => json_answer(StatusCode::INTERNAL_SERVER_ERROR, refused),
        false => json_answer(StatusCode::CONFLICT, refused),
    }
}

pub(super) fn json_answer(status: StatusCode, what: &impl Serialize) -> Answer {
    match serde_json::to_vec_pretty(what) {
        Ok(text) => answer::text(status, "application/json", text),
        Err(error) => answer::line(StatusCode::INTERNAL_SERVER_ERROR, &format!("writing the answer: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = include_str!("../../../../contract/testdata/swap-request.json");

    #[test]
    fn bad_requests_are_refused_with_a_reason() {
        assert_eq!(understand(REQUEST.as_bytes()).unwrap().drain_seconds, 120);
        let cases = [
            ("fedcba9876543210fedcba9876543210", "fedcba", "hexadecimal digits"),
            ("fedcba9876543210fedcba9876543210", "xedcba9876543210fedcba9876543210", "hexadecimal digits"),
            ("0.2.0", "", "no version"),
            (": 120", ": 1000000", "seconds to drain"),
            ("drain_seconds", "drain", "no swap"),
            ("22222222-", "2222-", "no swap"),
        ];
        for (from, to, words) in cases {
            let refused = understand(REQUEST.replace(from, to).as_bytes()).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
