//! One request and its answer, under the limit of requests at once.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::settings::Settings;
use crate::connection::{Answer, Failed, Transport};
use crate::error::Result;
use crate::fault::Fault;
use crate::method::{Effect, LOGIN, Method, WAIT_FOR_UPDATES};
use crate::reference::MoRef;
use crate::soap::{self, Answered, Element};

tokio::task_local! {
    /// The wire on which the guard that is asked here has its change's place.
    static PLACE_OF: usize;
}

pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) settings: Settings,
    calls: Semaphore,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Exchange {
    /// The response, and the cookie that came with it.
    Response(Element, Option<String>),
    Fault(Fault),
    /// Nothing was sent.
    Unreached(String),
    /// It was sent, and what came is no answer.
    Lost(String),
}

impl Wire {
    pub(super) fn new(transport: Transport, settings: Settings) -> Self {
        let calls = Semaphore::new(settings.calls.max(1));
        Self { transport, settings, calls }
    }

    /// Waits until another request may be made. A wait for updates idles most of the time, and is not counted. A login is not, either:
    /// whoever has a place may wait for it.
    pub(super) async fn slot(&self, method: Method) -> Option<SemaphorePermit<'_>> {
        if method == WAIT_FOR_UPDATES || method == LOGIN { None } else { self.any_slot().await }
    }

    /// Waits until another request may be made that is not SOAP.
    pub(super) async fn any_slot(&self) -> Option<SemaphorePermit<'_>> {
        if PLACE_OF.try_with(|of| *of == self.address()).unwrap_or_default() {
            return None;
        }
        self.calls.acquire().await.ok()
    }

    /// Asks by who has a place: what is asked by this wire meanwhile, one request after the other, is made in that same place. Tasks that
    /// the question spawns wait for places of their own, and it may not wait for them.
    pub(super) async fn asking<T>(&self, question: impl Future<Output = T>) -> T {
        PLACE_OF.scope(self.address(), question).await
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
    ) -> Result<Exchange> {
        let body = soap::request(method.name, this, arguments)?;
        let answer = self.transport.post(cookie, body.to_string(), self.limit(method)).await;
        let Answer { status, cookie, body } = match answer {
            Ok(answer) => answer,
            Err(Failed::Unreached(reason)) => return Ok(Exchange::Unreached(reason)),
            Err(Failed::Lost(reason)) => return Ok(Exchange::Lost(reason)),
        };
        // A fault comes with status 500; what a proxy in front of vCenter says is no envelope.
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
