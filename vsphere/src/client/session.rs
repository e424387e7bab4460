//! The session: opened by a login, opened anew when it has ended, by one caller for all.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::wire::{Exchange, Place, Wire};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::method::LOGIN;
use crate::reference::MoRef;
use crate::secret::Secret;
use crate::soap::Element;
use crate::treatment::Outcome;

/// The language of a session's words, for what some faults are is in their words alone; without one it is the server's. It is the one that
/// govmomi asks for, and so govc and Terraform's provider: a vCenter refuses one that it does not know (`InvalidLocale`).
const LOCALE: &str = "en_US";

pub(super) struct Session {
    manager: MoRef,
    user: String,
    password: Secret,
    /// How many logins have failed.
    failures: AtomicU64,
    /// Held for as long as a login takes: whoever needs a session meanwhile waits for that one.
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// How many logins there were.
    logins: u64,
    cookie: Option<String>,
    user_name: String,
    is_closed: bool,
    /// Why a login was refused: none is sent again, for vCenter locks out a user whose password is wrong again and again.
    refused: Option<Fault>,
    /// Why the last login failed, if no session was opened since. Whoever waited for it is told the same, and sends none of his own:
    /// where one hangs, others would hang after it, one for each caller.
    failed: Option<Failure>,
}

/// Why a login failed.
#[derive(Clone)]
enum Failure {
    Fault(Fault),
    Unreached(String),
    Lost(String),
}

/// A session as it was at one time.
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

    /// The session; opened if there is none yet.
    pub(super) async fn ticket(self: &Arc<Self>, wire: &Arc<Wire>) -> Result<Ticket> {
        let state = self.entered(wire).await?;
        if state.is_closed {
            return Err(Error::refused("calling vCenter", "this client has logged out"));
        }
        // Of a session that has ended, and could not be opened anew, nothing is asked.
        if state.logins == 0 || state.refused.is_some() {
            return self.log_in(wire, state).await;
        }
        Ok(state.ticket())
    }

    /// Opens a session in place of one that has ended, unless somebody has done so since.
    pub(super) async fn renew(self: &Arc<Self>, wire: &Arc<Wire>, ended: &Ticket) -> Result<()> {
        let state = self.entered(wire).await?;
        if state.logins == ended.logins && !state.is_closed {
            log::info!("the session of {} at {} has ended: logging in again", self.user, wire.transport.server());
            self.log_in(wire, state).await?;
        }
        Ok(())
    }

    /// Waits for a login that is under way.
    ///
    /// # Errors
    /// As that login, if it failed.
    async fn entered(&self, wire: &Wire) -> Result<OwnedMutexGuard<State>> {
        let failures = self.failures.load(Ordering::Relaxed);
        let state = self.state.clone().lock_owned().await;
        let failure = state.failed.clone().filter(|_| self.failures.load(Ordering::Relaxed) != failures);
        failure.map_or(Ok(state), |failure| Err(self.failed(wire, failure)))
    }

    /// Marks it closed; returns it if it was open.
    pub(super) async fn close(&self) -> Option<Ticket> {
        let mut state = self.state.lock().await;
        let was_open = !std::mem::replace(&mut state.is_closed, true) && state.logins > 0;
        was_open.then(|| Ticket { logins: state.logins, cookie: state.cookie.take() })
    }

    /// Who has logged in, as vCenter names the user.
    pub(super) async fn user_name(&self) -> String {
        self.state.lock().await.user_name.clone()
    }

    pub(super) fn manager(&self) -> &MoRef {
        &self.manager
    }

    /// Logs in, in a task of its own: whoever waits for it may go, and what becomes of it is kept all the same. A login that was dropped
    /// with its asker would be sent again by the next one, though vCenter is still at work at it.
    async fn log_in(self: &Arc<Self>, wire: &Arc<Wire>, state: OwnedMutexGuard<State>) -> Result<Ticket> {
        if let Some(fault) = &state.refused {
            return Err(self.failed(wire, Failure::Fault(fault.clone())));
        }
        let (session, wire) = (Arc::clone(self), Arc::clone(wire));
        match tokio::spawn(async move { session.send(&wire, state).await }).await {
            Ok(logged_in) => logged_in,
            Err(error) if error.is_panic() => panic::resume_unwind(error.into_panic()),
            // All tasks end with their runtime, the one that waits here as well.
            Err(_) => std::future::pending().await,
        }
    }

    async fn send(&self, wire: &Wire, mut state: OwnedMutexGuard<State>) -> Result<Ticket> {
        let arguments = vec![
            Element::text("userName", &self.user),
            Element::text("password", self.password.expose()),
            Element::text("locale", LOCALE),
        ];
        // It is not counted: whoever has a place may wait for it.
        let exchange = wire.exchange(LOGIN, &self.manager, arguments, None, &Place::NONE).await?;
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
            // It is the login's, and says nothing of what its callers have asked: of theirs nothing was sent.
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
