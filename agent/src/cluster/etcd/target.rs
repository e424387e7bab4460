//! Copies snapshots off the node: sends each with HTTP PUT to a directory on a server, as WebDAV and many object stores
//! accept it. The server decides which ones it keeps, and for how long.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use contract::secret::Secret;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Client, NoProxy, Proxy, Url};

use super::snapshot::Snapshot;
use crate::intake::config;

/// How long the connection to the server may take …
const CONNECT: Duration = Duration::from_secs(30);
/// … and how long the server may be silent, times the timeout factor.
const SILENCE: Duration = Duration::from_secs(120);
/// How long sending a snapshot may take in all: 8 GiB at 20 Mbit/s.
const WHOLE: Duration = Duration::from_secs(3600);

pub struct Target {
    directory: Url,
    client: Client,
}

impl Target {
    /// `address` may contain a user name and a password.
    pub fn new(address: &Secret, proxy: Option<&config::Proxy>, factor: u32) -> anyhow::Result<Self> {
        let mut text = address.expose().to_owned();
        if !text.ends_with('/') {
            text.push('/');
        }
        let directory = Url::parse(&text).context("understanding the snapshot target")?;
        let mut client = Client::builder().no_proxy().connect_timeout(CONNECT * factor).read_timeout(SILENCE * factor);
        // reqwest would not send the body again to another address, and a sign-in page that answers there has stored
        // nothing.
        client = client.redirect(reqwest::redirect::Policy::none());
        if let Some(proxy) = proxy {
            let direct = || NoProxy::from_string(&proxy.exclusions.join(","));
            if let Some(address) = &proxy.http {
                client = client.proxy(Proxy::http(address).context("using the HTTP proxy")?.no_proxy(direct()));
            }
            if let Some(address) = &proxy.https {
                client = client.proxy(Proxy::https(address).context("using the HTTPS proxy")?.no_proxy(direct()));
            }
        }
        Ok(Self { directory, client: client.timeout(WHOLE * factor).build().context("setting up TLS")? })
    }

    /// The server and the directory, without user name and password.
    pub fn shown(&self) -> String {
        let host = self.directory.host_str().unwrap_or_default();
        let port = self.directory.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{host}{port}{}", self.directory.scheme(), self.directory.path())
    }

    pub fn send(&self, snapshot: &Snapshot) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting to send")?;
        let name = snapshot.name();
        runtime.block_on(self.put(&snapshot.path, &name)).with_context(|| format!("sending {name} to {}", self.shown()))
    }

    async fn put(&self, file: &Path, name: &str) -> anyhow::Result<()> {
        let size = fs::metadata(file)?.len();
        let content = tokio::fs::File::open(file).await?;
        let request = self
            .client
            .put(self.directory.join(name)?)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, size)
            .body(content);
        // An error must not repeat the address: it may hold a password.
        let answer = request.send().await.map_err(reqwest::Error::without_url)?;
        if !answer.status().is_success() {
            bail!("the server answers {}", answer.status());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::path::PathBuf;

    /// A server that takes one request and answers it.
    fn server(answer: &'static str) -> (u16, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut part = [0; 4096];
            while !request.ends_with(b"a store") {
                let length = stream.read(&mut part).unwrap();
                assert!(length > 0, "the request ended early");
                request.extend_from_slice(&part[..length]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request).into_owned()
        });
        (port, serving)
    }

    fn snapshot(directory: &Path) -> Snapshot {
        let path = directory.join("c-20261121T143005Z.db");
        fs::write(&path, "a store").unwrap();
        Snapshot { path, taken: String::new(), size: 7 }
    }

    fn target(port: u16) -> Target {
        let address = Secret::new(format!("http://backup:hunter2@127.0.0.1:{port}/clusters/one"));
        Target::new(&address, None, 1).unwrap()
    }

    #[test]
    fn snapshot_is_put_into_directory_with_its_length() {
        let (port, serving) = server("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
        let directory = tempfile::tempdir().unwrap();
        target(port).send(&snapshot(directory.path())).unwrap();
        let request = serving.join().unwrap();
        assert!(request.starts_with("PUT /clusters/one/c-20261121T143005Z.db HTTP/1.1\r\n"), "{request}");
        let request = request.to_lowercase();
        assert!(request.contains("content-length: 7\r\n"), "{request}");
        assert!(request.contains("authorization: basic "), "{request}");
    }

    #[test]
    fn refusal_is_reported_without_the_password() {
        let (port, serving) = server("HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n");
        let directory = tempfile::tempdir().unwrap();
        let refused = format!("{:#}", target(port).send(&snapshot(directory.path())).unwrap_err());
        serving.join().unwrap();
        assert!(refused.contains("507 Insufficient Storage") && refused.contains("/clusters/one/"), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }

    /// A proxy with an expired session answers like this.
    #[test]
    fn redirecting_server_has_stored_nothing() {
        let page = TcpListener::bind("127.0.0.1:0").unwrap();
        let elsewhere = page.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = page.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        let answer =
            format!("HTTP/1.1 303 See Other\r\nLocation: http://{elsewhere}/login\r\nContent-Length: 0\r\n\r\n");
        let (port, serving) = server(answer.leak());
        let directory = tempfile::tempdir().unwrap();
        let refused = format!("{:#}", target(port).send(&snapshot(directory.path())).unwrap_err());
        serving.join().unwrap();
        assert!(refused.contains("303 See Other"), "{refused}");
    }

    #[test]
    fn unreachable_server_is_reported_without_the_password() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let directory = tempfile::tempdir().unwrap();
        let failed = target(port).send(&snapshot(directory.path())).unwrap_err();
        assert!(!format!("{failed:#} {failed:?}").contains("hunter2"), "{failed:?}");
        let missing = Snapshot { path: PathBuf::from("/nowhere/x.db"), taken: String::new(), size: 0 };
        assert!(target(port).send(&missing).is_err());
    }
}
