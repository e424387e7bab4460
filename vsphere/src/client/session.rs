//! The session: opened by a login, and opened again when it has ended, by one caller for all.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::exchange::{Exchange, Slot, Wire};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::method::LOGIN;
use crate::reference::MoRef;
use crate::secret::Secret;
use crate::soap::Element;
use crate::treatment::Outcome;

/// The language of a session's messages. The kind of some faults is only in their messages. Without a locale, they have
/// the server's language. govmomi requests this one, and so do govc and Terraform's provider. A vCenter rejects a
/// locale that it does not know (`InvalidLocale`).
const LOCALE: &str = "en_US";

pub(super) struct Session {
    manager: MoRef,
    user: String,
    password: Secret,
    /// The number of failed logins.
    failures: AtomicU64,
    /// Locked during a login: other callers that need a session wait for it.
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The number of successful logins.
    logins: u64,
    cookie: Option<String>,
    user_name: String,
    is_closed: bool,
    /// The fault of a rejected login. No other login is sent, because vCenter locks out a user after several wrong
    /// passwords.
    refused: Option<Fault>,
    /// The failure of the last login, if no session was opened since. The callers that waited for it get the same
    /// error, and send no login themselves. Otherwise one login after the other could hang, one for each caller.
    failed: Option<Failure>,
}

#[derive(Clone)]
enum Failure {
    Fault(Fault),
    Unreached(String),
    Lost(String),
}

/// The state of a session at one time.
pub(super) struct Ticket {
    logins: u64,
    pub(super) cookie: Option<String>,
}

impl State {
    fn ticket(&self) -> Ticket {
        Ticket { logins: self.logins, cookie: self.cookie.clone() }
    }
}

impl Session {
    pub(super) fn new(manager: MoRef, user: String, password: Secret) -> Self {
        Self { manager, user, password, failures: AtomicU64::new(0), state: Arc::default() }
    }

    /// Returns the session, and opens it if necessary.
    pub(super) async fn ticket(self: &Arc<Self>, wire: &Arc<Wire>) -> Result<Ticket> {
        let state = self.entered(wire).await?;
        if state.is_closed {
            return Err(Error::refused("calling vCenter", "this client has logged out"));
        }
        // No request is sent in a session that has ended and could not be opened again.
        if state.logins == 0 || state.refused.is_some() {
            return self.log_in(wire, state).await;
        }
        Ok(state.ticket())
    }

    /// Opens a session in place of one that has ended, unless another caller already did.
    pub(super) async fn renew(self: &Arc<Self>, wire: &Arc<Wire>, ended: &Ticket) -> Result<()> {
        let state = self.entered(wire).await?;
        if state.logins == ended.logins && !state.is_closed {
            log::info!("the session of {} at {} has ended: logging in again", self.user, wire.transport.server());
            self.log_in(wire, state).await?;
        }
        Ok(())
    }

    /// Waits for a login that is under way. Returns its error if it failed.
    async fn entered(&self, wire: &Wire) -> Result<OwnedMutexGuard<State>> {
        let failures = self.failures.load(Ordering::Relaxed);
        let state = self.state.clone().lock_owned().await;
        let failure = state.failed.clone().filter(|_| self.failures.load(Ordering::Relaxed) != failures);
        failure.map_or(Ok(state), |failure| Err(self.failed(wire, failure)))
    }

    /// Marks the session closed. Returns its ticket if it was open.
    pub(super) async fn close(&self) -> Option<Ticket> {
        let mut state = self.state.lock().await;
        let was_open = !std::mem::replace(&mut state.is_closed, true) && state.logins > 0;
        was_open.then(|| Ticket { logins: state.logins, cookie: state.cookie.take() })
    }

    pub(super) async fn user_name(&self) -> String {
        self.state.lock().await.user_name.clone()
    }

    pub(super) fn manager(&self) -> &MoRef {
        &self.manager
    }

    /// Logs in, in a separate task: if a waiting caller is dropped, the result is kept. Otherwise the next caller would
    /// send the login again, while vCenter still works on the first one.
    async fn log_in(self: &Arc<Self>, wire: &Arc<Wire>, state: OwnedMutexGuard<State>) -> Result<Ticket> {
        if let Some(fault) = &state.refused {
            return Err(self.failed(wire, Failure::Fault(fault.clone())));
        }
        let (session, wire) = (Arc::clone(self), Arc::clone(wire));
        match tokio::spawn(async move { session.send(&wire, state).await }).await {
            Ok(logged_in) => logged_in,
            Err(error) if error.is_panic() => panic::resume_unwind(error.into_panic()),
            // All tasks end with their runtime, and this caller as well.
            Err(_) => std::future::pending().await,
        }
    }

    async fn send(&self, wire: &Wire, mut state: OwnedMutexGuard<State>) -> Result<Ticket> {
        let arguments = vec![
            Element::text("userName", &self.user),
            Element::text("password", self.password.expose()),
            Element::text("locale", LOCALE),
        ];
        // Logins need no slot, because a caller with a slot may wait for one.
        let exchange = wire.exchange(LOGIN, &self.manager, arguments, None, &Slot::NONE).await?;
        let failure = match exchange {
            Exchange::Response(response, cookie) => {
                let user_name = response.at(&["returnval", "userName"]).map(Element::value);
                state.user_name = user_name.unwrap_or(&self.user).to_owned();
                state.cookie = cookie;
                state.logins += 1;
                state.failed = None;
                return Ok(state.ticket());
            }
            Exchange::Fault(fault) if fault.treatment().outcome == Outcome::Denied => {
                state.refused = Some(fault.clone());
                Failure::Fault(fault)
            }
            // The fault belongs to the login, not to the requests of its callers: none of these was sent.
            Exchange::Fault(fault) => Failure::Lost(fault.to_string()),
            Exchange::Unreached(reason) => Failure::Unreached(reason),
            Exchange::Lost(reason) => Failure::Lost(reason),
        };
        state.failed = Some(failure.clone());
        self.failures.fetch_add(1, Ordering::Relaxed);
        Err(self.failed(wire, failure))
    }

    fn failed(&self, wire: &Wire, failure: Failure) -> Error {
        let attempt = format!("logging in as {} at {}", self.user, wire.transport.server());
        match failure {
            Failure::Fault(fault) => Error::of_fault(attempt, fault),
            Failure::Unreached(reason) => Error::Unreached { attempt, reason },
            Failure::Lost(reason) => Error::unanswered(attempt, reason),
        }
    }
}
