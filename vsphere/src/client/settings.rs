//! Settings of a client.

use std::time::Duration;

use crate::connection::Trust;
use crate::secret::Secret;

/// Server, credentials and settings of a connection.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The vCenter: host name or address, with the port if it is not 443.
    pub address: String,
    /// The proof of its identity.
    pub trust: Trust,
    /// The user, such as `deployer@vsphere.local`.
    pub user: String,
    /// The user's password.
    pub password: Secret,
    /// Limits and pauses.
    pub settings: Settings,
}

/// The default of [`Settings::change_limit`].
pub const CHANGE_LIMIT: Duration = Duration::from_secs(14);

/// Limits and pauses of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most requests at once. Waits for updates, which idle, and logins and logouts are not counted.
    /// [`Settings::imports`] limits uploads of disks. A dropped look counts until its answer, at most
    /// [`Settings::look_limit`].
    pub calls: usize,
    /// The most tasks at once that make, copy or remove files, for all clients with the same limits and for all
    /// objects. A host of vCenter runs about eight clones at once and queues the rest, while the task's time limit
    /// already runs. Tasks of power and settings are not counted: each VM has one at a time, which takes moments, and a
    /// node waits for it. A task whose caller was dropped, or whose end was not seen, is no longer counted, though
    /// vCenter may still work on it.
    pub tasks: usize,
    /// The most imports at once. Each takes as long as its upload, and all share one link. Tasks do not wait for them.
    pub imports: usize,
    /// The time limit of a request that reads.
    pub look_limit: Duration,
    /// The time limit of a changing request after its permission, by a clock that also runs while the machine sleeps. A
    /// task that it starts may take longer. The request may still arrive for [`crate::GONE`] more.
    pub change_limit: Duration,
    /// The time limit of a task.
    pub task_limit: Duration,
    /// How long a call is repeated while another task blocks it. [`crate::Client::tries`] uses it as well.
    pub patience: Duration,
    /// The pause before the second attempt. Each further pause is twice as long, up to sixteen times this one.
    pub pause: Duration,
    /// How long [`crate::Client::log_out`] waits for cleanup.
    pub returns: Duration,
    /// How long one wait for updates lasts. After it, the properties are read.
    pub wait: Duration,
    /// The interval of calls in an idle session, so that vCenter does not end it.
    pub keep_alive: Duration,
    /// The interval of progress reports to an upload's lease, which keep it alive. vCenter ends a lease after five
    /// minutes without one.
    pub lease_interval: Duration,
    /// How long an upload may make no progress.
    pub stall: Duration,
    /// The number of objects on one page of an answer.
    pub page: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            calls: 8,
            tasks: 8,
            imports: 2,
            look_limit: Duration::from_secs(60),
            change_limit: CHANGE_LIMIT,
            task_limit: Duration::from_secs(30 * 60),
            patience: Duration::from_secs(60),
            pause: Duration::from_millis(250),
            returns: Duration::from_secs(3),
            wait: Duration::from_secs(20),
            keep_alive: Duration::from_secs(5 * 60),
            lease_interval: Duration::from_secs(10),
            stall: Duration::from_secs(2 * 60),
            page: 100,
        }
    }
}

impl Settings {
    /// The pause before this repetition, from 1.
    pub(crate) fn pause_before(&self, number: u32) -> Duration {
        self.pause * 2_u32.pow(number.saturating_sub(1).min(4))
    }
}
