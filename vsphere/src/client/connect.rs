//! Connecting, staying connected, and logging out.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::clock::Clock;
use super::limits::Limits;
use super::returns::Returns;
use super::service::Service;
use super::session::Session;
use super::settings::Connect;
use super::wire::{Exchange, Place, Wire};
use super::{Client, Inner};
use crate::connection::Transport;
use crate::error::{Error, Result};
use crate::method::{CURRENT_TIME, LOGOUT, RETRIEVE_SERVICE_CONTENT};
use crate::reference::MoRef;
use crate::soap::Element;

/// The one object whose identifier is known beforehand.
fn service_instance() -> MoRef {
    MoRef::new("ServiceInstance", "ServiceInstance")
}

impl Client {
    /// Connects and logs in. Called within a Tokio runtime.
    ///
    /// # Errors
    /// When the server is not reached or not trusted, is no vCenter of 7.0 or later, or does not accept the login.
    pub async fn connect(connect: Connect) -> Result<Self> {
        let client = Self::connect_within(connect, &Limits::default()).await?;
        client.set_limits();
        Ok(client)
    }

    /// The same with limits that other clients of this vCenter share. They stay as they are until [`Client::set_limits`]: who is connected
    /// to may be another one than was meant, and limits that were never set let nobody ask for anything. A guard
    /// asks by the client whose change it permits: another one by the same limits waits for a place, and the change holds one meanwhile.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_within(connect: Connect, limits: &Limits) -> Result<Self> {
        Self::connect_by(connect, limits, Clock::default()).await
    }

    /// The same by another clock, for tests.
    pub(crate) async fn connect_by(connect: Connect, limits: &Limits, clock: Clock) -> Result<Self> {
        let Connect { address, trust, user, password, settings } = connect;
        let wire = Arc::new(Wire::new(Transport::new(&address, &trust)?, settings, clock, limits.clone()));
        let content = service_content(&wire, &address).await?;
        let service = Service::read(&content, &address)?;
        let session = Arc::new(Session::new(service.manager("sessionManager")?, user, password));
        // What comes until here needs no place.
        session.ticket(&wire).await?;
        let inner = Arc::new_cyclic(|client: &Weak<Inner>| {
            let keep_alive = tokio::spawn(keep_alive(client.clone(), wire.settings.keep_alive));
            let (returns, own_tasks, files_test) = (Returns::default(), Mutex::default(), OnceCell::new());
            Inner { wire, session, service, returns, own_tasks, files_test, keep_alive }
        });
        Ok(Self { inner })
    }

    /// Has the limits that this client shares be as its settings have them, from now on: also for the other clients by the same limits,
    /// and for who waits there.
    pub fn set_limits(&self) {
        let wire = &self.inner.wire;
        wire.limits.set(&wire.settings);
    }

    /// Ends the session, after what is still to be given back by it, such as the lease of an import whose caller has gone, or after
    /// [`crate::Settings::returns`]: what was sent by then vCenter does all the same, and what was not it ends itself. Calls after that are refused. A
    /// login that is under way is waited for first. Whoever does not wait for all of it leaves the session to vCenter.
    ///
    /// # Errors
    /// When vCenter does not answer: it ends the session itself, half an hour after the last call.
    pub async fn log_out(&self) -> Result<()> {
        if tokio::time::timeout(self.settings().returns, self.inner.returns.done()).await.is_err() {
            log::debug!("the session ends before all is given back");
        }
        let Some(ticket) = self.inner.session.close().await else { return Ok(()) };
        let (wire, manager) = (&self.inner.wire, self.inner.session.manager());
        match wire.exchange(LOGOUT, manager, Vec::new(), ticket.cookie.as_deref(), &Place::NONE).await? {
            Exchange::Response(..) => Ok(()),
            Exchange::Fault(fault) if fault.is("NotAuthenticated") => Ok(()),
            Exchange::Fault(fault) => Err(Error::of_fault("logging out", fault)),
            Exchange::Unreached(reason) | Exchange::Lost(reason) => Err(Error::unanswered("logging out", reason)),
        }
    }

    /// Who has logged in, as vCenter names the user.
    pub async fn user_name(&self) -> String {
        self.inner.session.user_name().await
    }
}

async fn service_content(wire: &Wire, address: &str) -> Result<Element> {
    let attempt = || format!("connecting to {address}");
    let arguments = Vec::new();
    match wire.exchange(RETRIEVE_SERVICE_CONTENT, &service_instance(), arguments, None, &Place::NONE).await? {
        Exchange::Response(response, _) => Ok(response.need("returnval")?.clone()),
        Exchange::Fault(fault) => Err(Error::of_fault(attempt(), fault)),
        Exchange::Unreached(reason) => Err(Error::Unreached { attempt: attempt(), reason }),
        Exchange::Lost(reason) => Err(Error::unanswered(attempt(), reason)),
    }
}

async fn keep_alive(client: Weak<Inner>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(inner) = client.upgrade() else { return };
        let client = Client { inner };
        if let Err(error) = client.call(CURRENT_TIME, &service_instance(), Vec::new()).await {
            log::debug!("keeping the session alive: {error}");
        }
    }
}
