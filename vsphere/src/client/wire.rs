//! One request and its answer, under the limit of requests at once.

use std::panic;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, Until};
use super::limits::{Limits, Taken};
use super::settings::Settings;
use crate::connection::{Answer, Failed, Transport};
use crate::error::Result;
use crate::fault::Fault;
use crate::method::{Effect, Endpoint, Method, WAIT_FOR_UPDATES};
use crate::reference::MoRef;
use crate::soap::{self, Answered, Element};

/// A slot for a request. It is taken until its owners are dropped and the request is answered.
#[derive(Clone)]
pub(super) struct Place {
    taken: Option<Arc<Taken>>,
    /// The deadline of a changing request in it.
    until: Option<Until>,
}

impl Place {
    /// For requests that are not counted.
    pub(super) const NONE: Self = Self { taken: None, until: None };

    /// The same slot with a deadline for its request.
    pub(super) fn until(self, until: Until) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Completes a request in this slot, even if the caller is dropped meanwhile: until the answer, vCenter works on
    /// the request. A change is therefore sent even if its caller is dropped before, and its result is lost. Only looks
    /// may be dropped by a caller that continues. A request without a slot ends with its caller.
    pub(super) async fn hears<T: Send + 'static>(
        &self,
        request: impl Future<Output = std::result::Result<T, Failed>> + Send + 'static,
    ) -> std::result::Result<T, Failed> {
        let until = self.until.clone();
        let request = async move {
            match until {
                Some(until) => until.ends(request).await,
                None => request.await,
            }
        };
        if self.taken.is_none() {
            return request.await;
        }
        let place = self.clone();
        let heard = tokio::spawn(async move {
            let answer = request.await;
            drop(place);
            answer
        });
        match heard.await {
            Ok(answer) => answer,
            Err(error) if error.is_panic() => panic::resume_unwind(error.into_panic()),
            // All tasks end with their runtime, and this caller as well.
            Err(_) => std::future::pending().await,
        }
    }
}

tokio::task_local! {
    /// The slot of the change that the current guard is asked about, and the address of its wire.
    static PLACE: (usize, Place);
}

pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
}

#[derive(Debug)]
pub(super) enum Exchange {
    /// The response and its cookie.
    Response(Element, Option<String>),
    Fault(Fault),
    /// Nothing was sent.
    Unreached(String),
    /// The request was sent, and no valid answer came.
    Lost(String),
}

impl Wire {
    pub(super) fn new(transport: Transport, settings: Settings, clock: Clock, limits: Limits) -> Self {
        Self { transport, settings, clock, limits }
    }

    /// Waits for a slot. A wait for updates idles most of the time, and is not counted.
    pub(super) async fn place(&self, method: Method) -> Place {
        if method == WAIT_FOR_UPDATES { Place::NONE } else { self.any_place().await }
    }

    /// Waits for a slot for a request that is not SOAP.
    pub(super) async fn any_place(&self) -> Place {
        let here = |(of, place): &(usize, Place)| (*of == self.address()).then(|| place.clone());
        if let Ok(Some(place)) = PLACE.try_with(here) {
            return place;
        }
        Place { taken: self.limits.calls().take().await.map(Arc::new), until: None }
    }

    /// Runs a guard's question in a slot: the question's requests by this wire, one after the other, use the same slot.
    /// Tasks that the question spawns wait for other slots, and the question must not wait for them.
    pub(super) async fn asking<T>(&self, place: &Place, question: impl Future<Output = T>) -> T {
        PLACE.scope((self.address(), place.clone()), question).await
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) async fn exchange(
        &self,
        method: Method,
        this: &MoRef,
        arguments: Vec<Element>,
        cookie: Option<&str>,
        place: &Place,
    ) -> Result<Exchange> {
        let body = match method.endpoint {
            Endpoint::Vim => soap::request(method.name, this, arguments)?,
            Endpoint::Policies => soap::policy_request(method.name, this, arguments, cookie)?,
        };
        let request = self.transport.post(method.endpoint, cookie, body.to_string(), self.limit(method));
        let answer = place.hears(request).await;
        let Answer { status, cookie, body } = match answer {
            Ok(answer) => answer,
            Err(Failed::Unreached(reason)) => return Ok(Exchange::Unreached(reason)),
            Err(Failed::Lost(reason)) => return Ok(Exchange::Lost(reason)),
        };
        // A fault has status 500. A message of a proxy in front of vCenter is no envelope.
        Ok(match soap::answered(method.name, &String::from_utf8_lossy(&body)) {
            Ok(Answered::Response(response)) => Exchange::Response(response, cookie),
            Ok(Answered::Fault(fault)) => Exchange::Fault(Fault::of_answer(&fault)),
            Err(unreadable) if status == 200 => Exchange::Lost(unreadable.to_string()),
            Err(_) => Exchange::Lost(format!("the server answers with HTTP status {status}")),
        })
    }

    fn limit(&self, method: Method) -> Duration {
        match method.effect {
            Effect::Change => self.settings.change_limit,
            _ if method == WAIT_FOR_UPDATES => self.settings.wait + self.settings.look_limit,
            _ => self.settings.look_limit,
        }
    }
}
