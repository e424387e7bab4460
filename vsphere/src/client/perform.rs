//! Calls a method: opens the session that it needs, and handles failures. The tables of methods and of faults decide
//! which calls are repeated.

use std::time::Instant;

use super::Client;
use super::clock::Until;
use super::wire::{Exchange, Place};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::guard::{Fence, Unguarded};
use crate::method::{Effect, Method};
use crate::reference::MoRef;
use crate::soap::Element;
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
    pub(super) async fn permitted(&self, guard: &dyn Fence) -> Result<Place> {
        let wire = &self.inner.wire;
        let place = wire.any_place().await;
        wire.asking(&place, guard.still()).await.map_err(Error::Stopped)?;
        Ok(place.until(Until::within(&wire.clock, self.settings().change_limit)))
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
            let place = match method.effect {
                Effect::Change => self.permitted(guard).await?,
                Effect::Look | Effect::OfSession => inner.wire.place(method).await,
            };
            let cookie = ticket.cookie.as_deref();
            let exchange = inner.wire.exchange(method, this, arguments.clone(), cookie, &place).await?;
            drop(place);
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
