//! The table of routes, and how a request finds its answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::configure::{DRY_RUN, LARGEST};
use hyper::body::{Body as _, Incoming};
use hyper::{Method, Request, StatusCode};
use tokio::time::timeout;

use super::access::{AccessLevel, Caller};
use super::answer::{self, Answer};
use super::{EndpointContext, configure, deployer, metrics, renewal, replacement, snapshot, swap};
use crate::upgrade::swap::peers;

/// The longest body that is read, in bytes, but of changes of properties …
const LONGEST: usize = 16 << 10;
/// … and how long it may take.
const READING: Duration = Duration::from_secs(10);

struct Route {
    method: Method,
    /// Ends in `/` if one more name follows.
    path: &'static str,
    /// The least right that a caller needs.
    right: AccessLevel,
    make: Make,
}

#[derive(Clone, Copy)]
enum Make {
    /// At once: all connections share one thread.
    Quick(fn(&EndpointContext) -> Answer),
    /// In a separate thread, from the last name of the path and the body.
    Slow(fn(&EndpointContext, &str, &[u8]) -> Answer),
    /// The same from the caller and the body, which contains the caller's proof.
    Proved(fn(&EndpointContext, &Caller, &[u8]) -> Answer),
    /// The same from the body, which may be long. True if it is only checked.
    Change(fn(&EndpointContext, bool, &[u8]) -> Answer),
}

const fn get(path: &'static str, right: AccessLevel, make: fn(&EndpointContext) -> Answer) -> Route {
    Route { method: Method::GET, path, right, make: Make::Quick(make) }
}

const fn slow(method: Method, path: &'static str, make: fn(&EndpointContext, &str, &[u8]) -> Answer) -> Route {
    Route { method, path, right: AccessLevel::Administrator, make: Make::Slow(make) }
}

const fn proved(path: &'static str, make: fn(&EndpointContext, &Caller, &[u8]) -> Answer) -> Route {
    Route { method: Method::POST, path, right: AccessLevel::Anyone, make: Make::Proved(make) }
}

const fn change(path: &'static str, make: fn(&EndpointContext, bool, &[u8]) -> Answer) -> Route {
    Route { method: Method::POST, path, right: AccessLevel::Administrator, make: Make::Change(make) }
}

const ROUTES: &[Route] = &[
    get("/livez", AccessLevel::Anyone, livez),
    get("/v1/status", AccessLevel::Monitoring, status),
    get("/metrics", AccessLevel::Monitoring, metrics),
    get("/v1/snapshot", AccessLevel::Administrator, snapshot::answer),
    slow(Method::GET, "/v1/node", swap::node),
    slow(Method::GET, peers::PATH, swap::disks),
    slow(Method::POST, "/v1/swap", swap::begin),
    slow(Method::DELETE, "/v1/swap/", swap::cancel),
    slow(Method::POST, "/v1/commit", swap::commit),
    slow(Method::POST, "/v1/evacuate", swap::evacuate),
    slow(Method::DELETE, "/v1/evacuate/", swap::cancel),
    slow(Method::POST, "/v1/kubernetes", swap::upgrade_kubernetes),
    slow(Method::POST, contract::renewal::PATH, renewal::answer),
    change(contract::configure::PATH, configure::answer),
    slow(Method::POST, contract::replacement::PATH, replacement::answer),
    proved(contract::deployer::PATH, deployer::answer),
];

impl Route {
    /// The last name of the path, which may be empty. `None` if the path is another one.
    fn name<'p>(&self, path: &'p str) -> Option<&'p str> {
        match path.strip_prefix(self.path)? {
            "" if !self.path.ends_with('/') => Some(""),
            name if self.path.ends_with('/') && !name.is_empty() && !name.contains('/') => Some(name),
            _ => None,
        }
    }

    /// A route for GET also takes HEAD.
    fn takes(&self, method: &Method) -> bool {
        self.method == method || self.method == Method::GET && method == Method::HEAD
    }
}

pub(super) async fn answer(context: Arc<EndpointContext>, request: Request<Incoming>, caller: Caller) -> Answer {
    let path = request.uri().path().to_owned();
    let route = match find(request.method(), &path, caller.right) {
        Ok(route) => route,
        Err(answer) => return *answer,
    };
    if let Make::Quick(make) = route.make {
        return make(&context);
    }
    let (dry_run, longest) = match (route.make, request.uri().query()) {
        // A mistyped dry run must not change anything.
        (Make::Change(_), Some(query)) if query != DRY_RUN => {
            return answer::line(StatusCode::BAD_REQUEST, &format!("this takes no query but {DRY_RUN}"));
        }
        (Make::Change(_), query) => (query.is_some(), LARGEST),
        _ => (false, LONGEST),
    };
    let body = match timeout(READING, read(request.into_body(), longest)).await {
        Ok(Ok(body)) => body,
        Ok(Err(answer)) => return *answer,
        Err(_) => return answer::line(StatusCode::REQUEST_TIMEOUT, "the request's body came too slowly"),
    };
    let name = route.name(&path).unwrap_or_default().to_owned();
    let made = tokio::task::spawn_blocking(move || match route.make {
        Make::Quick(make) => make(&context),
        Make::Slow(make) => make(&context, &name, &body),
        Make::Proved(make) => make(&context, &caller, &body),
        Make::Change(make) => make(&context, dry_run, &body),
    });
    match made.await {
        Ok(answer) => answer,
        Err(_) => answer::line(StatusCode::INTERNAL_SERVER_ERROR, "ended by a defect; see the journal"),
    }
}

fn find(method: &Method, path: &str, right: Option<AccessLevel>) -> Result<&'static Route, Box<Answer>> {
    let refuse = |status, reason: &str| Err(Box::new(answer::line(status, reason)));
    let here: Vec<&Route> = ROUTES.iter().filter(|route| route.name(path).is_some()).collect();
    if here.is_empty() {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        return refuse(StatusCode::NOT_FOUND, &format!("there is nothing here; try {}", paths.join(", ")));
    }
    let Some(route) = here.iter().find(|route| route.takes(method)) else {
        let methods: Vec<&str> = here.iter().map(|route| route.method.as_str()).collect();
        return refuse(StatusCode::METHOD_NOT_ALLOWED, &format!("this takes {} only", methods.join(", ")));
    };
    if right.unwrap_or(AccessLevel::Anyone) < route.right {
        let needed = route.right.needed();
        return match right {
            None => refuse(
                StatusCode::UNAUTHORIZED,
                &format!("this takes a client certificate of the cluster's CA, {needed}"),
            ),
            Some(AccessLevel::Revoked) => refuse(
                StatusCode::FORBIDDEN,
                "this certificate was revoked: issue another one, `kaas-agent kubeconfig`, on a control-plane node; if the user was \
                 revoked, to another name",
            ),
            Some(_) => refuse(StatusCode::FORBIDDEN, &format!("this takes another client certificate: {needed}")),
        };
    }
    Ok(route)
}

async fn read(mut body: Incoming, longest: usize) -> Result<Vec<u8>, Box<Answer>> {
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| {
            Box::new(answer::line(StatusCode::BAD_REQUEST, &format!("the request's body broke off: {error}")))
        })?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > longest {
                let reason = format!("the request's body is longer than {longest} bytes");
                return Err(Box::new(answer::line(StatusCode::PAYLOAD_TOO_LARGE, &reason)));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all)
}

/// For load balancers in front of the API. Any client may ask, so it returns little.
fn livez(context: &EndpointContext) -> Answer {
    let status = context.reporter.status();
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

fn status(context: &EndpointContext) -> Answer {
    match serde_json::to_vec_pretty(&context.reporter.status()) {
        Ok(text) => answer::text(StatusCode::OK, "application/json", text),
        Err(error) => answer::line(StatusCode::INTERNAL_SERVER_ERROR, &format!("writing the status: {error}")),
    }
}

fn metrics(context: &EndpointContext) -> Answer {
    answer::text(StatusCode::OK, metrics::MEDIA, metrics::metrics(&context.root, &context.reporter.status()))
}
