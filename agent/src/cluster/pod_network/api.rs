//! Follows the cluster's nodes: lists them once, then watches (Kubernetes API concepts, "Efficient detection of
//! changes").

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use contract::kubeconfig::Kubeconfig;
use reqwest::{Client, Response, StatusCode};

use super::node::{Event, List, Nodes, apply};
use crate::cluster::pki::read_kubeconfig;
use crate::host::https;

/// How long one watch lasts before the server ends it and it is renewed.
const WATCH_TIME: Duration = Duration::from_secs(300);

/// The longest line of a watch, in bytes. A line is one node, which writes its own object. A line may be as long as an
/// answer with one node. Otherwise a node could end the watch of all others, and they would list all nodes each time.
const LINE_LIMIT: usize = https::LONGEST;

pub(super) struct Follower {
    kubeconfig: PathBuf,
    used: Option<(Kubeconfig, Client)>,
    version: Option<String>,
    watch: Option<Watch>,
    pub nodes: Nodes,
}

struct Watch {
    response: Response,
    buffer: Vec<u8>,
    /// How many bytes of the buffer were searched and have no end of a line.
    searched: usize,
}

impl Follower {
    pub(super) fn new(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, used: None, version: None, watch: None, nodes: Nodes::new() }
    }

    /// Waits until the nodes have changed in a way that matters. The future may be dropped while it waits, and this may
    /// be called again. After an error the known nodes remain, and the next call begins with a list.
    pub(super) async fn changed(&mut self) -> anyhow::Result<()> {
        let changed = self.follow().await;
        if changed.is_err() {
            self.watch = None;
            self.version = None;
            // The address, the certificate or the CA may have changed.
            self.used = None;
        }
        changed
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        loop {
            let Some(version) = self.version.clone() else {
                let list = self.list().await.context("listing the nodes")?;
                self.version = Some(list.metadata.resource_version.clone());
                let nodes = list.nodes();
                if nodes != self.nodes {
                    self.nodes = nodes;
                    return Ok(());
                }
                continue;
            };
            let Some(watch) = &mut self.watch else {
                self.watch = self.begin(&version).await.context("watching the nodes")?;
                if self.watch.is_none() {
                    self.version = None;
                }
                continue;
            };
            let Some(line) = watch.line().await.context("watching the nodes")? else {
                self.watch = None;
                continue;
            };
            if self.take(&line)? {
                return Ok(());
            }
        }
    }

    /// Applies one event, and returns whether it changed anything that matters.
    fn take(&mut self, line: &[u8]) -> anyhow::Result<bool> {
        let event: Event = serde_json::from_slice(line).context("reading an event about a node")?;
        let (object, deleted) = match event {
            Event::Added(object) | Event::Modified(object) => (object, false),
            Event::Deleted(object) => (object, true),
            Event::Bookmark(bookmark) => {
                self.version = Some(bookmark.metadata.resource_version);
                return Ok(false);
            }
            Event::Error(status) if status.code == StatusCode::GONE.as_u16() => {
                self.watch = None;
                self.version = None;
                return Ok(false);
            }
            Event::Error(status) => bail!("watching the nodes: {} {}", status.code, status.message),
        };
        self.version = Some(object.metadata.resource_version.clone());
        Ok(apply(&mut self.nodes, &object, deleted))
    }

    async fn list(&mut self) -> anyhow::Result<List> {
        let (client, server) = self.client()?;
        // Version 0: the API server answers from memory, and etcd has no load.
        let request = client.get(format!("{server}/api/v1/nodes?resourceVersion=0")).timeout(Duration::from_secs(60));
        let response = accepted(request.send().await?).await?;
        Ok(response.json().await?)
    }

    /// Begins to watch. `None` if the version is too old.
    async fn begin(&mut self, version: &str) -> anyhow::Result<Option<Watch>> {
        let (client, server) = self.client()?;
        let seconds = WATCH_TIME.as_secs();
        let url = format!(
            "{server}/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}"
        );
        let response = client.get(url).send().await?;
        if response.status() == StatusCode::GONE {
            return Ok(None);
        }
        Ok(Some(Watch { response: accepted(response).await?, buffer: Vec::new(), searched: 0 }))
    }

    fn client(&mut self) -> anyhow::Result<(Client, String)> {
        if self.used.is_none() {
            let kubeconfig = read_kubeconfig(&self.kubeconfig)?;
            let client = client(&kubeconfig)
                .with_context(|| format!("using the certificates of {}", self.kubeconfig.display()))?;
            self.used = Some((kubeconfig, client));
        }
        let (kubeconfig, client) = self.used.as_ref().ok_or_else(|| anyhow!("no API server is known"))?;
        Ok((client.clone(), kubeconfig.server.clone()))
    }
}

fn client(kubeconfig: &Kubeconfig) -> anyhow::Result<Client> {
    Ok(https::builder(&kubeconfig.authority, &kubeconfig.certificate, kubeconfig.key.expose())?
        .pool_max_idle_per_host(1)
        .connect_timeout(Duration::from_secs(10))
        // These settings detect a server that vanished in under a minute. A server that is only quiet is detected by
        // the watch's own end.
        .tcp_keepalive(Duration::from_secs(15))
        .tcp_keepalive_interval(Duration::from_secs(10))
        .tcp_keepalive_retries(3)
        .read_timeout(WATCH_TIME + Duration::from_secs(30))
        .build()?)
}

async fn accepted(response: Response) -> anyhow::Result<Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    bail!("the API server says {status}: {}", text.chars().take(300).collect::<String>());
}

impl Watch {
    /// The next line. `None` if the watch has ended in order. Nothing is lost if the future is dropped while it waits.
    async fn line(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.iter().skip(self.searched).position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + end + 1);
                self.searched = 0;
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_LIMIT {
                bail!("an event of more than {LINE_LIMIT} bytes");
            }
            match self.response.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn long_node_object_does_not_end_the_watch() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        // As the API server writes 1.4 MB of `<`.
        let lines = ["one".to_owned(), r"\u003c".repeat(1_400_000), String::new(), "three".to_owned()];
        let sent = format!("HTTP/1.0 200 OK\r\n\r\n{}\n", lines.join("\n"));
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(sent.as_bytes()).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::builder().no_proxy().build().unwrap();
            let response = client.get(address).send().await.unwrap();
            let mut watch = Watch { response, buffer: Vec::new(), searched: 0 };
            for line in lines {
                assert!(watch.line().await.unwrap() == Some(line.into_bytes()));
            }
            assert_eq!(watch.line().await.unwrap(), None);
        });
    }
}
