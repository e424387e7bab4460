//! A call from its method to its answer:
//!
//! 1. [`Client::perform`] opens the session that the call needs, and waits for a slot.
//! 2. The fence of a change is asked in that slot. The request begins at once.
//! 3. [`Wire::exchange`] sends one request and reads its answer.
//! 4. The tables of methods and of faults decide whether the call is repeated.

use std::panic;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Client;
use super::clock::{Clock, Until};
use super::limits::{Limits, Taken};
use super::settings::Settings;
use crate::connection::{Answer, Failed, Transport};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::guard::{Fence, Unguarded};
use crate::method::{Effect, Endpoint, Method, WAIT_FOR_UPDATES};
use crate::reference::MoRef;
use crate::soap::{self, Answered, Element};
use crate::treatment::Again;

/// The number of attempts of a look before its failure is returned.
const TRIES: u32 = 3;

impl Client {
    /// Calls a method that changes nothing outside the session.
    pub(crate) async fn call(&self, method: Method, this: &MoRef, arguments: Vec<Element>) -> Result<Element> {
        self.perform(method, this, arguments, &Unguarded).await
    }

    /// Waits for a slot, then asks the guard for permission. No wait follows between permission and request. The guard
    /// may read from this vCenter with this client, and save the intended change there, in the slot of the change. The
    /// request's time limit begins with the permission, by a clock that also runs while the machine sleeps.
    pub(super) async fn permitted(&self, guard: &dyn Fence) -> Result<Slot> {
        let wire = &self.inner.wire;
        let slot = wire.any_slot().await;
        wire.asking(&slot, guard.still()).await.map_err(Error::Stopped)?;
        Ok(slot.until(Until::within(&wire.clock, self.settings().change_limit)))
    }

    /// Calls a method under a guard, which is asked only about changes.
    pub(crate) async fn perform(
        &self,
        method: Method,
        this: &MoRef,
        arguments: Vec<Element>,
        guard: &dyn Fence,
    ) -> Result<Element> {
        let inner = &self.inner;
        let attempt = || format!("{} of {this}", method.name);
        let (begin, mut tries, mut logins, mut waits) = (Instant::now(), 0, 0, 0);
        loop {
            let ticket = inner.session.ticket(&inner.wire).await?;
            let slot = match method.effect {
                Effect::Change => self.permitted(guard).await?,
                Effect::Look | Effect::OfSession => inner.wire.slot(method).await,
            };
            let cookie = ticket.cookie.as_deref();
            let exchange = inner.wire.exchange(method, this, arguments.clone(), cookie, &slot).await?;
            drop(slot);
            tries += 1;
            let fault = match exchange {
                Exchange::Response(response, _) => match expired(&response) {
                    Some(fault) => fault,
                    None => return Ok(response),
                },
                Exchange::Fault(fault) => fault,
                Exchange::Unreached(_) | Exchange::Lost(_) if method.effect == Effect::Look && tries < TRIES => {
                    tokio::time::sleep(self.settings().pause_before(tries)).await;
                    continue;
                }
                Exchange::Unreached(reason) => return Err(Error::Unreached { attempt: attempt(), reason }),
                Exchange::Lost(reason) if method.effect == Effect::Change => {
                    return Err(Error::in_doubt(attempt(), reason));
                }
                Exchange::Lost(reason) => return Err(Error::unanswered(attempt(), reason)),
            };
            match fault.treatment().again {
                Again::AfterLogin if logins == 0 => {
                    logins += 1;
                    inner.session.renew(&inner.wire, &ticket).await?;
                    if method.effect == Effect::OfSession {
                        return Err(Error::SessionLost { attempt: attempt() });
                    }
                }
                Again::Later if method.effect == Effect::Change && begin.elapsed() < self.settings().patience => {
                    waits += 1;
                    tokio::time::sleep(self.settings().pause_before(waits)).await;
                }
                _ => return Err(Error::of_fault(attempt(), fault)),
            }
        }
    }
}

/// The fault that the session has ended, if it is reported in place of properties. vCenter and vcsim do so in an answer
/// that succeeds.
fn expired(response: &Element) -> Option<Fault> {
    let objects = response.all("returnval").flat_map(|result| result.children().iter().chain([result]));
    let missing = objects.flat_map(|object| object.all("missingSet"));
    missing
        .filter_map(|missing| missing.child("fault"))
        .map(Fault::localized)
        .find(|fault| fault.kind == "NotAuthenticated")
}

/// A slot for a request. It is taken until its owners are dropped and the request is answered.
#[derive(Clone)]
pub(super) struct Slot {
    taken: Option<Arc<Taken>>,
    /// The deadline of a changing request in it.
    until: Option<Until>,
}

impl Slot {
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
        let slot = self.clone();
        let heard = tokio::spawn(async move {
            let answer = request.await;
            drop(slot);
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
    static SLOT: (usize, Slot);
}

pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
}

/// The result of a request.
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
    pub(super) async fn slot(&self, method: Method) -> Slot {
        if method == WAIT_FOR_UPDATES { Slot::NONE } else { self.any_slot().await }
    }

    /// Waits for a slot for a request that is not SOAP.
    pub(super) async fn any_slot(&self) -> Slot {
        let here = |(of, slot): &(usize, Slot)| (*of == self.address()).then(|| slot.clone());
        if let Ok(Some(slot)) = SLOT.try_with(here) {
            return slot;
        }
        Slot { taken: self.limits.calls().take().await.map(Arc::new), until: None }
    }

    /// Runs a guard's question in a slot: the question's requests by this wire, one after the other, use the same slot.
    /// Tasks that the question spawns wait for other slots, and the question must not wait for them.
    pub(super) async fn asking<T>(&self, slot: &Slot, question: impl Future<Output = T>) -> T {
        SLOT.scope((self.address(), slot.clone()), question).await
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
        slot: &Slot,
    ) -> Result<Exchange> {
        let body = match method.endpoint {
            Endpoint::Vim => soap::request(method.name, this, arguments)?,
            Endpoint::Policies => soap::policy_request(method.name, this, arguments, cookie)?,
        };
        let request = self.transport.post(method.endpoint, cookie, body.to_string(), self.limit(method));
        let answer = slot.hears(request).await;
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
