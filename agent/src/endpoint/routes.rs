//! The table of what can be asked.

use hyper::{Method, StatusCode};

use super::Site;
use super::access::Right;
use super::answer::{self, Answer};
use super::metrics;
use super::snapshot;

/// Something that can be asked with GET.
struct Route {
    path: &'static str,
    /// What a caller must at least be allowed.
    right: Right,
    /// Must not wait for anything: all connections share one thread.
    answer: fn(&Site) -> Answer,
}

const ROUTES: &[Route] = &[
    Route { path: "/livez", right: Right::Anyone, answer: livez },
    Route { path: "/v1/status", right: Right::Monitoring, answer: status },
    Route { path: "/metrics", right: Right::Monitoring, answer: metrics },
    Route { path: "/v1/snapshot", right: Right::Administrator, answer: snapshot::answer },
];

/// Answers a request, or says what is wrong with it. `right` is none if the
/// caller has shown no certificate.
pub(super) fn answer(site: &Site, method: &Method, path: &str, right: Option<Right>) -> Answer {
    let Some(route) = ROUTES.iter().find(|route| route.path == path) else {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        return answer::line(StatusCode::NOT_FOUND, &format!("there is nothing here; try {}", paths.join(", ")));
    };
    if ![Method::GET, Method::HEAD].contains(method) {
        return answer::line(StatusCode::METHOD_NOT_ALLOWED, "this can only be read, with GET");
    }
    if right.unwrap_or(Right::Anyone) < route.right {
        let needed = route.right.needed();
        return match right {
            None => answer::line(
                StatusCode::UNAUTHORIZED,
                &format!("this takes a client certificate of the cluster's authority, {needed}"),
            ),
            Some(_) => answer::line(StatusCode::FORBIDDEN, &format!("this takes another client certificate: {needed}")),
        };
    }
    (route.answer)(site)
}

/// For load balancers in front of the API: anyone may ask, so a few words do.
fn livez(site: &Site) -> Answer {
    let status = site.reporter.status();
    if status.health.as_ref().is_some_and(|health| health.api) {
        return answer::line(StatusCode::OK, "ok");
    }
    let state = match &status.work {
        Some(work) => format!("this node is at step {} of {}: {}", work.number, work.total, work.step),
        None => "this node has done all its steps".to_owned(),
    };
    let reason = format!("the Kubernetes API on this node does not serve; {state}");
    answer::line(StatusCode::SERVICE_UNAVAILABLE, &reason)
}

fn status(site: &Site) -> Answer {
    match serde_json::to_vec_pretty(&site.reporter.status()) {
        Ok(text) => answer::text(StatusCode::OK, "application/json", text),
        Err(error) => answer::line(StatusCode::INTERNAL_SERVER_ERROR, &format!("writing the status: {error}")),
    }
}

fn metrics(site: &Site) -> Answer {
    answer::text(StatusCode::OK, metrics::MEDIA, metrics::metrics(&site.root, &site.reporter.status()))
}
