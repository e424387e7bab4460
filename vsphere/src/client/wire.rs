//! One request and its answer, under the limit of requests at once.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::settings::Settings;
use crate::connection::{Answer, Failed, Transport};
use crate::error::Result;
use crate::fault::Fault;
use crate::method::{Effect, Method, WAIT_FOR_UPDATES};
use crate::reference::MoRef;
use crate::soap::{self, Answered, Element};

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

    /// Waits until another request may be made. A wait for updates idles most of the time, and is not counted.
    pub(super) async fn slot(&self, method: Method) -> Option<tokio::sync::SemaphorePermit<'_>> {
        if method == WAIT_FOR_UPDATES { None } else { self.calls.acquire().await.ok() }
    }

    /// Waits until another request may be made that is not SOAP.
    pub(super) async fn any_slot(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.calls.acquire().await.ok()
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
