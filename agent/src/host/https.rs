//! A small blocking HTTPS client for services on this node: one request, one
//! connection, answers that fit in memory.
//!
//! It speaks HTTP/1.0 (RFC 1945), so that an answer ends where the connection
//! does. It knows nothing of what it asks for.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustls::pki_types::ServerName;

use super::tls;

/// The longest answer that is read, in bytes.
const LONGEST: u64 = 8 << 20;

/// A client of one server.
pub struct Client {
    server: SocketAddr,
    tls: Option<Arc<rustls::ClientConfig>>,
    patience: Duration,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, such as 200.
    pub code: u16,
    /// What follows the header.
    pub body: Vec<u8>,
}

impl Client {
    /// A client that speaks plain HTTP: for loopback only. `patience` limits
    /// each wait, not their sum.
    pub fn plain(server: SocketAddr, patience: Duration) -> Self {
        Self { server, tls: None, patience }
    }

    /// A client that trusts servers of `authority` and shows `certificate`
    /// with `key`; all in PEM.
    ///
    /// # Errors
    /// One of the three cannot be understood.
    pub fn new(
        server: SocketAddr,
        authority: &str,
        certificate: &str,
        key: &str,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let roots = tls::trust_in(authority)?;
        let chain = tls::certificates(certificate).context("reading the client certificate")?;
        let key = tls::key(key).context("reading the client key")?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        Ok(Self { server, tls: Some(Arc::new(tls)), patience })
    }

    /// Asks for a path.
    ///
    /// # Errors
    /// The server cannot be reached, is not trusted, or does not answer in time.
    pub fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.request("GET", path, None)
    }

    /// Sends JSON to a path.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<Answer> {
        self.request("POST", path, Some(&body.to_string()))
    }

    /// Deletes a path.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.request("DELETE", path, None)
    }

    fn request(&self, method: &str, path: &str, body: Option<&str>) -> anyhow::Result<Answer> {
        let what = || format!("{method} {path} at {}", self.server);
        let mut request = format!("{method} {path} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\n", self.server);
        if let Some(body) = body {
            request.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        request.push_str(body.unwrap_or_default());
        let mut stream = TcpStream::connect_timeout(&self.server, self.patience).with_context(what)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        let answer = match &self.tls {
            None => exchange(&mut stream, &request),
            Some(tls) => {
                let mut session = rustls::ClientConnection::new(Arc::clone(tls), ServerName::from(self.server.ip()))?;
                exchange(&mut rustls::Stream::new(&mut session, &mut stream), &request)
            }
        };
        parse(&answer.with_context(what)?).with_context(what)
    }
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    match stream.take(LONGEST).read_to_end(&mut answer) {
        // A server that closes without TLS's farewell: the length of what
        // came is checked below.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        other => drop(other?),
    }
    Ok(answer)
}

fn parse(answer: &[u8]) -> anyhow::Result<Answer> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        bail!("an answer without a header");
    };
    let header = std::str::from_utf8(&answer[..end]).context("an answer with a binary header")?;
    let mut lines = header.lines();
    let code = lines
        .next()
        .filter(|line| line.starts_with("HTTP/1."))
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|code| code.parse().ok())
        .context("an answer without a status")?;
    let body = answer[end + 4..].to_vec();
    let promised = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.trim().parse::<usize>().ok());
    if promised.is_some_and(|promised| promised != body.len()) {
        bail!("an answer that was cut short");
    }
    Ok(Answer { code, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_answer_is_taken_apart_and_a_short_one_refused() {
        let answer = parse(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!((answer.code, answer.body.as_slice()), (200, b"ok".as_slice()));
        for bad in ["", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok", "SMTP\r\n\r\n", "HTTP/1.0 x\r\n\r\n"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_reaches_a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.0 503 Not yet\r\n\r\nlater").unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let answer = Client::plain(server, Duration::from_secs(5)).get("/readyz").unwrap();
        assert_eq!(answer, Answer { code: 503, body: b"later".to_vec() });
        assert!(serving.join().unwrap().starts_with("GET /readyz HTTP/1.0\r\n"));
    }
}
