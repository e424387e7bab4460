//! Connects, keeps the session alive, and logs out.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::clock::Clock;
use super::exchange::{Exchange, Slot, Wire};
use super::limits::Limits;
use super::returns::Returns;
use super::service::Service;
use super::session::Session;
use super::settings::Connect;
use super::{Client, Inner};
use crate::connection::Transport;
use crate::error::{Error, Result};
use crate::method::{CURRENT_TIME, LOGOUT, RETRIEVE_SERVICE_CONTENT};
use crate::reference::MoRef;
use crate::soap::Element;

/// The only object with a fixed identifier.
fn service_instance() -> MoRef {
    MoRef::new("ServiceInstance", "ServiceInstance")
}

impl Client {
    /// Connects and logs in. Called within a Tokio runtime. Fails if the server is not a vCenter of 7.0 or later.
    pub async fn connect(connect: Connect) -> Result<Self> {
        let client = Self::connect_within(connect, &Limits::default()).await?;
        client.set_limits();
        Ok(client)
    }

    /// Connects with limits that other clients of this vCenter share. They are unchanged until [`Client::set_limits`],
    /// because the server may be another one than intended. Limits that were never set allow no request. A guard has to
    /// use the client of the change that it permits. Another client of the same limits would wait for a slot while the
    /// change holds one.
    pub async fn connect_within(connect: Connect, limits: &Limits) -> Result<Self> {
        Self::connect_by(connect, limits, Clock::default()).await
    }

    /// Connects with another clock, for tests.
    pub(crate) async fn connect_by(connect: Connect, limits: &Limits, clock: Clock) -> Result<Self> {
        let Connect { address, trust, user, password, settings } = connect;
        let wire = Arc::new(Wire::new(Transport::new(&address, &trust)?, settings, clock, limits.clone()));
        let content = service_content(&wire, &address).await?;
        let service = Service::read(&content, &address)?;
        let session = Arc::new(Session::new(service.manager("sessionManager")?, user, password));
        // The requests so far need no slot.
        session.ticket(&wire).await?;
        let inner = Arc::new_cyclic(|client: &Weak<Inner>| {
            let keep_alive = tokio::spawn(keep_alive(client.clone(), wire.settings.keep_alive));
            let (returns, own_tasks, files_test) = (Returns::default(), Mutex::default(), OnceCell::new());
            Inner { wire, session, service, returns, own_tasks, files_test, keep_alive }
        });
        Ok(Self { inner })
    }

    /// Sets the shared limits to this client's settings. They apply to all clients with the same limits, also to
    /// requests that wait.
    pub fn set_limits(&self) {
        let wire = &self.inner.wire;
        wire.limits.set(&wire.settings);
    }

    /// Ends the session. First waits for cleanup that needs it, such as the lease of an import whose caller was
    /// dropped, at most [`crate::Settings::returns`]. After that, vCenter completes the requests that were sent, and
    /// ends the rest itself. Later calls are rejected. A login that is under way is awaited first. A caller that does
    /// not await this function leaves the session to vCenter. If vCenter does not answer, it ends the session itself,
    /// half an hour after the last call.
    pub async fn log_out(&self) -> Result<()> {
        if tokio::time::timeout(self.settings().returns, self.inner.returns.done()).await.is_err() {
            log::debug!("the session ends before all is given back");
        }
        let Some(ticket) = self.inner.session.close().await else { return Ok(()) };
        let (wire, manager) = (&self.inner.wire, self.inner.session.manager());
        match wire.exchange(LOGOUT, manager, Vec::new(), ticket.cookie.as_deref(), &Slot::NONE).await? {
            Exchange::Response(..) => Ok(()),
            Exchange::Fault(fault) if fault.is("NotAuthenticated") => Ok(()),
            Exchange::Fault(fault) => Err(Error::of_fault("logging out", fault)),
            Exchange::Unreached(reason) | Exchange::Lost(reason) => Err(Error::unanswered("logging out", reason)),
        }
    }

    /// The name of the logged-in user, as vCenter writes it.
    pub async fn user_name(&self) -> String {
        self.inner.session.user_name().await
    }
}

async fn service_content(wire: &Wire, address: &str) -> Result<Element> {
    let attempt = || format!("connecting to {address}");
    let arguments = Vec::new();
    match wire.exchange(RETRIEVE_SERVICE_CONTENT, &service_instance(), arguments, None, &Slot::NONE).await? {
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
