//! The nodes, asked with credentials that are had when they are needed and renewed before they end: a run lasts for hours, and
//! may begin while all nodes are off. Knows nothing of where credentials come from.

use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::bail;
use async_trait::async_trait;
use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::swap;
use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::nodes::{Asked, Nodes};

/// What ends sooner is renewed.
const ENDING: Duration = Duration::from_secs(60 * 60);

/// So long after a failure nobody is asked for credentials again: asking a node that is silent takes as long.
const PAUSE: Duration = Duration::from_secs(15);

/// Credentials that were had.
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
    /// What is used where nothing else is to be had.
    last: Option<Given>,
    now: Mutex<Now>,
}

/// What there is now.
struct Now {
    given: Option<Given>,
    /// When nothing could be had, and why.
    failed: Option<(Instant, String)>,
}

impl<'a> Renewed<'a> {
    /// Nodes that are asked with the `first`, if there are some, for as long as they last; then with what `renew` gives; and
    /// with the `last` as long as it gives none.
    pub fn new(first: Option<Given>, last: Option<Given>, renew: impl Fn() -> Asking<'a> + Send + Sync + 'a) -> Self {
        Self { renew: Box::new(renew), last, now: Mutex::new(Now { given: first, failed: None }) }
    }

    /// Whether there are credentials now.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn ready(&self) -> anyhow::Result<()> {
        self.nodes().await.map(drop)
    }

    async fn nodes(&self) -> anyhow::Result<Arc<dyn Nodes>> {
        let mut now = self.now.lock().await;
        if let Some(given) = now.given.as_ref().filter(|given| given.lasts(ENDING)) {
            return Ok(Arc::clone(&given.nodes));
        }
        let words = match &now.failed {
            Some((at, words)) if at.elapsed() < PAUSE => words.clone(),
            _ => match (self.renew)().await {
                Ok(given) => {
                    let nodes = Arc::clone(&given.nodes);
                    (now.given, now.failed) = (Some(given), None);
                    return Ok(nodes);
                }
                Err(error) => {
                    let words = format!("{error:#}");
                    now.failed = Some((Instant::now(), words.clone()));
                    words
                }
            },
        };
        let mut ended = String::new();
        for given in now.given.iter().chain(&self.last) {
            if given.lasts(Duration::ZERO) {
                return Ok(Arc::clone(&given.nodes));
            }
            ended += &format!("{}; ", given.ended());
        }
        bail!("{ended}{words}")
    }
}

#[async_trait]
impl Nodes for Renewed<'_> {
    async fn cluster(&self) -> anyhow::Result<Uuid> {
        self.nodes().await?.cluster().await
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        self.nodes().await?.control_nodes().await
    }

    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        self.nodes().await?.facts(node).await
    }

    async fn begin_swap(&self, node: Ipv4Addr, swap: &swap::Request) -> anyhow::Result<Asked> {
        self.nodes().await?.begin_swap(node, swap).await
    }

    async fn cancel_swap(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        self.nodes().await?.cancel_swap(node, swap).await
    }

    async fn evacuate(&self, node: Ipv4Addr, request: &swap::EvacuationRequest) -> anyhow::Result<Asked> {
        self.nodes().await?.evacuate(node, request).await
    }

    async fn cancel_evacuation(&self, node: Ipv4Addr, id: Uuid) -> anyhow::Result<Asked> {
        self.nodes().await?.cancel_evacuation(node, id).await
    }

    async fn commit(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        self.nodes().await?.commit(node, swap).await
    }

    async fn upgrade_kubernetes(&self, node: Ipv4Addr, request: &kubernetes_upgrade::Request) -> anyhow::Result<Asked> {
        self.nodes().await?.upgrade_kubernetes(node, request).await
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path) -> anyhow::Result<u64> {
        self.nodes().await?.snapshot(node, to).await
    }

    async fn publish(&self, status: &str) -> anyhow::Result<()> {
        self.nodes().await?.publish(status).await
    }
}

#[cfg(test)]
#[path = "tests/renewed.rs"]
mod tests;
