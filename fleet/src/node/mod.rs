//! The one way to talk to a cluster from outside: HTTPS with an administrator's
//! kubeconfig, to a node's endpoint or to the Kubernetes API. Knows how to ask,
//! not what.

mod credentials;
mod snapshot;

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use contract::ports;
use nix::sched::{CloneFlags, setns};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use credentials::Credentials;
pub use reqwest::Method;

/// How long a question and its whole answer may take, if nothing else is said.
const LIMIT: Duration = Duration::from_secs(15);

/// Asks with an administrator's credentials.
#[derive(Clone, Debug)]
pub struct Client {
    credentials: Credentials,
    /// The network namespace to ask from, if not this process's own.
    network: Option<PathBuf>,
    /// How long a question and its whole answer may take.
    limit: Duration,
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body, read as JSON.
    ///
    /// # Errors
    /// When it is something else.
    pub fn json<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_slice(&self.body).with_context(|| format!("understanding the answer {:?}", self.words()))
    }

    /// The beginning of the body, for people.
    pub fn words(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().chars().take(500).collect()
    }
}

impl Client {
    /// A client with the credentials of a kubeconfig's current context.
    ///
    /// # Errors
    /// When the file cannot be read or lacks a certificate.
    pub fn of_kubeconfig(kubeconfig: &Path) -> anyhow::Result<Self> {
        Ok(Self { credentials: Credentials::read(kubeconfig)?, network: None, limit: LIMIT })
    }

    /// The same client, asking from inside a network namespace: a lab's.
    #[must_use]
    pub fn from_inside(self, namespace: PathBuf) -> Self {
        Self { network: Some(namespace), ..self }
    }

    /// The same client, giving up on a question after `limit`.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Asks a node's endpoint.
    ///
    /// # Errors
    /// When the node cannot be reached or trusted.
    pub fn ask_node(&self, node: Ipv4Addr, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.ask(method, &format!("https://{node}:{}{path}", ports::NODE), body)
    }

    /// Asks the Kubernetes API that the kubeconfig names.
    ///
    /// # Errors
    /// When it cannot be reached or trusted.
    pub fn ask_api(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.ask(method, &format!("{}{path}", self.credentials.server()), body)
    }

    fn ask(&self, method: Method, address: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.within(async |client| {
            let mut request = client.request(method, address).timeout(self.limit);
            if let Some(body) = body {
                request = request.json(body);
            }
            let answer = request.send().await?;
            Ok(Answer { status: answer.status().as_u16(), body: answer.bytes().await?.to_vec() })
        })
    }

    /// Does `work` on a thread of its own: the thread, not the process, changes
    /// over to the network that is asked from, and its sockets stay there.
    fn within<T: Send>(
        &self,
        work: impl AsyncFnOnce(reqwest::Client) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let work = move || -> anyhow::Result<T> {
            if let Some(network) = &self.network {
                let namespace = File::open(network).with_context(|| format!("finding the network {network:?}"))?;
                setns(namespace, CloneFlags::CLONE_NEWNET).with_context(|| format!("entering {network:?}"))?;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let client = self.credentials.client()?;
            runtime.block_on(work(client))
        };
        thread::scope(|scope| {
            let way = thread::Builder::new().name("https".to_owned()).spawn_scoped(scope, work)?;
            way.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
