//! The nodes, asked with credentials that are obtained when they are needed and renewed before they expire. A run lasts
//! for hours, and may begin while all nodes are off. A request that changes a node never waits for credentials: its
//! permission is valid for seconds, and new credentials may take minutes. Knows nothing of where credentials come from.

use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use async_trait::async_trait;
use contract::node::Node;
use tokio::time::Instant;
use uuid::Uuid;

use super::nodes::{Asked, NodeRequest, Nodes};
use crate::lease::SpaceQuota;

/// Credentials that expire sooner are renewed.
const ENDING: Duration = Duration::from_secs(60 * 60);

/// The pause after a failure before credentials are asked for again: asking a silent node takes as long.
const PAUSE: Duration = Duration::from_secs(15);

/// Credentials at hand.
#[derive(Clone)]
pub struct Given {
    /// The nodes, asked with them.
    pub nodes: Arc<dyn Nodes>,
    /// When they end.
    pub ends: SystemTime,
    /// Where they come from, in words for people.
    pub whence: String,
}

impl Given {
    fn lasts(&self, time: Duration) -> bool {
        self.ends > SystemTime::now() + time
    }

    /// That they have ended, in words for people.
    fn ended(&self) -> String {
        let ended = humantime::format_rfc3339_seconds(self.ends);
        format!("the credentials of {} have ended ({ended})", self.whence)
    }
}

/// Credentials that are asked for.
pub type Asking<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Given>> + Send + 'a>>;

/// The nodes, asked with what is given.
pub struct Renewed<'a> {
    renew: Box<dyn Fn() -> Asking<'a> + Send + Sync + 'a>,
    /// The fallback if nothing else is available.
    last: Option<Given>,
    now: Mutex<Now>,
    /// Serializes the requests for credentials.
    asking: tokio::sync::Mutex<()>,
}

struct Now {
    given: Option<Given>,
    /// When no credentials could be obtained, and why.
    failed: Option<(Instant, String)>,
}

impl<'a> Renewed<'a> {
    /// Nodes that are asked with the `first` credentials, if any, until they expire; then with those of `renew`. The
    /// `last` are used while it gives none.
    pub fn new(first: Option<Given>, last: Option<Given>, renew: impl Fn() -> Asking<'a> + Send + Sync + 'a) -> Self {
        let now = Mutex::new(Now { given: first, failed: None });
        Self { renew: Box::new(renew), last, now, asking: tokio::sync::Mutex::new(()) }
    }

    /// Whether there are credentials now.
    pub async fn ready(&self) -> anyhow::Result<()> {
        self.nodes().await.map(drop)
    }

    /// With credentials that are renewed if they end soon.
    async fn nodes(&self) -> anyhow::Result<Arc<dyn Nodes>> {
        if let Some(nodes) = self.lasting() {
            return Ok(nodes);
        }
        let _asking = self.asking.lock().await;
        if let Some(nodes) = self.lasting() {
            return Ok(nodes);
        }
        let failed = self.now().failed.clone();
        let words = match failed {
            Some((at, words)) if at.elapsed() < PAUSE => words,
            _ => match (self.renew)().await {
                Ok(given) => {
                    let nodes = Arc::clone(&given.nodes);
                    *self.now() = Now { given: Some(given), failed: None };
                    return Ok(nodes);
                }
                Err(error) => {
                    let words = format!("{error:#}");
                    self.now().failed = Some((Instant::now(), words.clone()));
                    words
                }
            },
        };
        self.found().map_err(|ended| anyhow!("{ended}{words}"))
    }

    /// With the credentials at hand, without waiting.
    fn at_hand(&self) -> anyhow::Result<Arc<dyn Nodes>> {
        self.found().map_err(|ended| anyhow!("{ended}no credentials are at hand"))
    }

    /// With credentials that do not expire soon. `None` if none last.
    fn lasting(&self) -> Option<Arc<dyn Nodes>> {
        self.now().given.as_ref().filter(|given| given.lasts(ENDING)).map(|given| Arc::clone(&given.nodes))
    }

    /// With what has not ended, however soon it does.
    fn found(&self) -> Result<Arc<dyn Nodes>, String> {
        let now = self.now();
        let mut ended = String::new();
        for given in now.given.iter().chain(&self.last) {
            if given.lasts(Duration::ZERO) {
                return Ok(Arc::clone(&given.nodes));
            }
            ended += &format!("{}; ", given.ended());
        }
        Err(ended)
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Nodes for Renewed<'_> {
    async fn ready(&self) -> anyhow::Result<()> {
        Renewed::ready(self).await
    }

    async fn cluster(&self) -> anyhow::Result<Uuid> {
        self.nodes().await?.cluster().await
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        self.nodes().await?.control_nodes().await
    }

    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        self.nodes().await?.facts(node).await
    }

    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked> {
        self.at_hand()?.request(node, request).await
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path, room: &SpaceQuota) -> anyhow::Result<u64> {
        self.nodes().await?.snapshot(node, to, room).await
    }

    async fn publish(&self, status: &str) -> anyhow::Result<()> {
        self.nodes().await?.publish(status).await
    }
}

#[cfg(test)]
mod tests;
