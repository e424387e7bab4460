//! What a client is told.

use std::time::Duration;

use crate::connection::Trust;
use crate::secret::Secret;

/// Where to connect to, and as whom.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The vCenter: host name or address, with a port if it is another one than 443.
    pub address: String,
    /// How it proves that it is the one.
    pub trust: Trust,
    /// The user, such as `deployer@vsphere.local`.
    pub user: String,
    /// The user's password.
    pub password: Secret,
    /// Limits and pauses.
    pub settings: Settings,
}

/// How long a request that changes something may take, if nothing else is said.
pub const CHANGE_LIMIT: Duration = Duration::from_secs(14);

/// Limits and pauses of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Requests at once. Not counted are waits for updates, which idle, and what begins or ends a session; nor uploads of disks, which
    /// [`Settings::imports`] limits. A look that was dropped counts until it is answered, at most [`Settings::look_limit`].
    pub calls: usize,
    /// Tasks that make, copy or remove files, at once: all by the same limits, whatever they work on. A host of vCenter takes some
    /// eight clones at once and lets the others wait, and the limit of a task counts from its beginning. Power and settings are not
    /// among them: each VM has one such task at a time, which takes moments, and a node waits for it. One whose caller has gone, or
    /// that was not seen to end, is not counted any more though vCenter may still be at work at it.
    pub tasks: usize,
    /// Imports at once. Each lasts as long as its upload, and they share a line: tasks do not wait for them.
    pub imports: usize,
    /// How long a request that looks may take.
    pub look_limit: Duration,
    /// How long a request that changes something may take after its permission, by a clock that runs while the machine sleeps; a task that
    /// it starts goes on after it. For [`crate::GONE`] more it may still arrive.
    pub change_limit: Duration,
    /// How long a task may take.
    pub task_limit: Duration,
    /// For how long a call is made again while another task is in its way, and what [`crate::Client::tries`] counts.
    pub patience: Duration,
    /// The pause before something is tried again; each further one is twice as long, up to sixteen times.
    pub pause: Duration,
    /// How long [`crate::Client::log_out`] waits for what is still given back.
    pub returns: Duration,
    /// How long one wait for updates lasts; after it the properties are read.
    pub wait: Duration,
    /// So often an idle session is used, so that vCenter does not end it.
    pub keep_alive: Duration,
    /// So often a lease is told of an upload's progress, which keeps it alive: vCenter ends it after five minutes without.
    pub lease_interval: Duration,
    /// How long an upload may stand still.
    pub stall: Duration,
    /// Objects on one page of an answer.
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
    /// The pause before the try of this number, from 1.
    pub(crate) fn pause_before(&self, number: u32) -> Duration {
        self.pause * 2_u32.pow(number.saturating_sub(1).min(4))
    }
}
