//! The route of the renewal of certificates. It records the request, and maintenance runs it.

use contract::json;
use contract::renewal::Request;
use hyper::StatusCode;

use super::EndpointContext;
use super::answer::{self, Answer};
use crate::cluster::certificates::renew;
use crate::cluster::records::Records;

pub(super) fn answer(context: &EndpointContext, _: &str, body: &[u8]) -> Answer {
    let request: Request = match json::read_strictly(body) {
        Ok(request) => request,
        Err(error) => {
            return answer::line(StatusCode::BAD_REQUEST, &format!("this is no renewal of certificates: {error}"));
        }
    };
    match renew::ask(&Records::new(&context.root), request.id) {
        Ok(true) => answer::line(StatusCode::OK, "renewed, and the control plane runs with the new certificates"),
        Ok(false) => answer::line(StatusCode::ACCEPTED, "under way: ask again"),
        Err(error) => answer::line(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
    }
}
