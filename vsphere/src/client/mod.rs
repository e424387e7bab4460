//! The client of one vCenter: one session, limits of calls and tasks at once, and one change of a VM at a time.

mod clock;
mod connect;
mod exchange;
mod files;
mod limits;
mod own_tasks;
mod returns;
mod service;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod tries;
mod turns;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OnceCell, OwnedMutexGuard};
use tokio::task::JoinHandle;
use url::Url;

use crate::connection::GONE;
use crate::reference::MoRef;

pub use clock::{Clock, Over, Until};
pub(crate) use files::Transfer;
pub use limits::Limits;
pub use service::{About, Service};
pub use settings::{CHANGE_LIMIT, Connect, Settings};
pub use tries::Tries;

use exchange::Wire;
use limits::{Limit, Taken};
use own_tasks::OwnTasks;
pub(crate) use own_tasks::Pending;
use returns::Returns;
use session::Session;

/// A client of one vCenter. Clones share the session and the limits. [`Client::log_out`] ends the session. If a client
/// is dropped without it, vCenter ends the session after half an hour without calls.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    wire: Arc<Wire>,
    session: Arc<Session>,
    service: Service,
    returns: Returns,
    own_tasks: Mutex<OwnTasks>,
    /// The result of the self-test of [`Client::sees_tasks_on_files`].
    files_test: OnceCell<bool>,
    keep_alive: JoinHandle<()>,
}

/// A longer wait for a slot is logged.
const NOTABLE: Duration = Duration::from_secs(5);

/// Waits for a slot. Time limits and patience count after the wait, so its duration is logged here.
async fn waited_for(limit: &Arc<Limit>, attempt: &str) -> Option<Taken> {
    let begin = Instant::now();
    let slot = limit.take().await;
    if begin.elapsed() >= NOTABLE {
        log::debug!("{attempt}: had a slot after {} s", begin.elapsed().as_secs());
    }
    slot
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.keep_alive.abort();
    }
}

impl Client {
    /// The server's description of itself, and its managers.
    pub fn service(&self) -> &Service {
        &self.inner.service
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.wire.settings
    }

    pub(crate) fn own_tasks(&self) -> MutexGuard<'_, OwnTasks> {
        self.inner.own_tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn files_test(&self) -> &OnceCell<bool> {
        &self.inner.files_test
    }

    pub(crate) fn server(&self) -> &Url {
        self.inner.wire.transport.server()
    }

    /// The time after its permission in which a changing request may still arrive. After it, the request never arrives.
    pub fn arrives_within(&self) -> Duration {
        self.settings().change_limit.saturating_add(GONE)
    }

    /// The HTTP client for uploads to the server.
    pub(crate) fn uploads(&self) -> &reqwest::Client {
        self.inner.wire.transport.uploads()
    }

    /// The HTTP client for requests to the server that are not SOAP.
    pub(crate) fn http(&self) -> &reqwest::Client {
        self.inner.wire.transport.http()
    }

    /// Runs cleanup in the background, of a resource of the session or of a dropped caller. [`Client::log_out`] waits
    /// for it.
    pub(crate) fn give_back(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.returns.begin(work);
    }

    /// Waits until no other caller with the same limits changes an object.
    pub(crate) async fn turn(&self, object: &MoRef) -> OwnedMutexGuard<()> {
        self.inner.wire.limits.turns().take(object).await
    }

    /// Waits until another task may start. A caller with a slot must not wait for [`Client::turn`]; it takes the turn
    /// first.
    pub(crate) async fn task_slot(&self, attempt: &str) -> Option<Taken> {
        waited_for(self.inner.wire.limits.tasks(), attempt).await
    }

    /// Waits until another import may start.
    pub(crate) async fn import_slot(&self, attempt: &str) -> Option<Taken> {
        waited_for(self.inner.wire.limits.imports(), attempt).await
    }
}
