//! A small blocking HTTPS client for services of control-plane nodes: one
//! request, one connection, answers that fit in memory. It does not interpret
//! the answers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use contract::secret::Secret;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, Identity, Method, RequestBuilder, Url};
use tokio::runtime::Builder;
use url::Position;
use zeroize::Zeroizing;

/// The longest answer that is read, in bytes. Kubernetes keeps objects of up to 1.5 MiB (etcd's `--max-request-bytes`), and writes
/// up to six bytes for one of them: `<` is `\u003c` (Go's `json.Encoder`). So each object is read, whatever its content is.
pub(crate) const LONGEST: usize = 16 << 20;

/// How much of a path is shown, in characters.
const LONGEST_SHOWN: usize = 300;

/// A whole exchange may take so many times as long as one wait: a server that sends a byte now and then blocks no caller.
const WAITS: u32 = 6;

/// An answer of more than [`LONGEST`] bytes, of which nothing is given.
#[derive(Debug, thiserror::Error)]
#[error("an answer of more than {LONGEST} bytes")]
pub struct TooLong;

/// A client of one server.
pub struct Client {
    server: SocketAddr,
    scheme: &'static str,
    http: reqwest::Client,
    /// For a whole exchange.
    limit: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, such as 200.
    pub code: u16,
    pub body: Vec<u8>,
}

/// The beginning of a client that trusts servers of `authority` alone and shows
/// `certificate` with `key`; all in PEM. It goes straight to the server, and nowhere else.
pub fn builder(authority: &str, certificate: &str, key: &str) -> anyhow::Result<ClientBuilder> {
    let pair = Zeroizing::new([certificate, "\n", key].concat());
    let authority = Certificate::from_pem_bundle(authority.as_bytes()).context("reading the CA")?;
    let identity = Identity::from_pem(pair.as_bytes()).context("reading the client certificate and its key")?;
    let builder = reqwest::Client::builder().no_proxy().redirect(Policy::none());
    Ok(builder.https_only(true).tls_certs_only(authority).identity(identity))
}

impl Client {
    /// A client that speaks plain HTTP: for loopback only. `timeout` limits
    /// connecting and each wait, not their sum.
    pub fn plain(server: SocketAddr, timeout: Duration) -> anyhow::Result<Self> {
        // No certificates at all: otherwise the system's would be read for nothing.
        Self::of(server, "http", reqwest::Client::builder().no_proxy().tls_certs_only([]), timeout)
    }

    /// A client as [`builder`] begins it. `timeout` limits connecting and each
    /// wait, not their sum.
    pub fn new(
        server: SocketAddr,
        authority: &str,
        certificate: &str,
        key: &str,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        Self::of(server, "https", builder(authority, certificate, key)?, timeout)
    }

    /// A client of any server: nothing proves the server, and no credential is shown to it. Its answers must prove themselves.
    pub fn without_verification(server: SocketAddr, timeout: Duration) -> anyhow::Result<Self> {
        let builder = reqwest::Client::builder().no_proxy().https_only(true);
        Self::of(server, "https", builder.tls_certs_only([]).tls_danger_accept_invalid_certs(true), timeout)
    }

    /// A client that trusts servers of `authority` alone, in PEM, and shows a bearer token (RFC 6750).
    ///
    /// # Errors
    /// The CA or the token cannot be parsed.
    pub fn with_token(server: SocketAddr, authority: &str, token: &Secret, timeout: Duration) -> anyhow::Result<Self> {
        let authority = Certificate::from_pem_bundle(authority.as_bytes()).context("reading the CA")?;
        let shown = Zeroizing::new(format!("Bearer {}", token.expose()));
        let mut shown = HeaderValue::from_str(&shown).context("a token that no header can hold")?;
        shown.set_sensitive(true);
        let builder = reqwest::Client::builder().no_proxy().https_only(true).tls_certs_only(authority);
        Self::of(server, "https", builder.default_headers([(AUTHORIZATION, shown)].into_iter().collect()), timeout)
    }

    fn of(server: SocketAddr, scheme: &'static str, builder: ClientBuilder, timeout: Duration) -> anyhow::Result<Self> {
        let builder = builder.connect_timeout(timeout).read_timeout(timeout);
        // A connection does not outlive its request.
        let builder = builder.pool_max_idle_per_host(0).redirect(Policy::none());
        Ok(Self { server, scheme, http: builder.build().context("setting up TLS")?, limit: timeout * WAITS })
    }

    /// Asks for a path.
    ///
    /// # Errors
    /// The server cannot be reached, is not trusted, or does not answer in time.
    pub fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.request(Method::GET, path, |request| request)
    }

    /// Sends JSON to a path.
    pub fn post(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<Answer> {
        self.request(Method::POST, path, |request| request.json(body))
    }

    /// Merges JSON into what is at a path (RFC 7396).
    pub fn merge(&self, path: &str, change: &serde_json::Value) -> anyhow::Result<Answer> {
        let change = change.to_string();
        let fill = |request: RequestBuilder| request.header(CONTENT_TYPE, "application/merge-patch+json").body(change);
        self.request(Method::PATCH, path, fill)
    }

    /// Deletes a path.
    pub fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.request(Method::DELETE, path, |request| request)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        fill: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> anyhow::Result<Answer> {
        let shown: String = path.chars().take(LONGEST_SHOWN).flat_map(char::escape_debug).collect();
        let what = format!("{method} {shown} at {}", self.server);
        let address = Url::parse(&format!("{}://{}{path}", self.scheme, self.server)).with_context(|| what.clone())?;
        // `..` and the like would lead elsewhere, with this node's credentials.
        ensure!(&address[Position::BeforePath..Position::AfterQuery] == path, "{what}: it is no plain path");
        let request = self.http.request(method, address).timeout(self.limit);
        // The connection ends with the runtime that it lives on.
        let runtime = Builder::new_current_thread().enable_all().build().with_context(|| what.clone())?;
        runtime.block_on(exchange(fill(request.header(ACCEPT, "application/json")))).context(what)
    }
}

async fn exchange(request: RequestBuilder) -> anyhow::Result<Answer> {
    // The address is in the context already.
    let mut answer = request.send().await.map_err(reqwest::Error::without_url)?;
    let (code, mut body) = (answer.status().as_u16(), Vec::new());
    while let Some(part) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        if body.len() + part.len() > LONGEST {
            return Err(TooLong.into());
        }
        body.extend_from_slice(&part);
    }
    Ok(Answer { code, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// The result of an answer, and the request.
    fn asked(answer: &'static str) -> (anyhow::Result<Answer>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let answer = Client::plain(server, Duration::from_secs(60)).unwrap().get("/readyz");
        (answer, serving.join().unwrap())
    }

    #[test]
    fn a_request_reaches_a_server() {
        let (answer, request) = asked("HTTP/1.0 503 Not yet\r\n\r\nlater");
        assert_eq!(answer.unwrap(), Answer { code: 503, body: b"later".to_vec() });
        assert!(request.starts_with("GET /readyz HTTP/1.1\r\n"), "{request}");
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let (answer, _) = asked("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(answer.unwrap().body, b"ok");
        let (chunked, _) = asked("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        assert_eq!(chunked.unwrap().body, b"ok");
        for bad in ["", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", "SMTP\r\n\r\n", "HTTP/1.1 x\r\n\r\n"] {
            let error = asked(bad).0.unwrap_err().to_string();
            assert!(error.starts_with("GET /readyz at 127.0.0.1:"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_path_leads_where_it_says_or_nowhere() {
        let client = Client::plain(([127, 0, 0, 1], 1).into(), Duration::from_secs(60)).unwrap();
        for path in [r"/a/..\..\b", "/a/../b", "/a/%2e%2e/b", "/a\nb", "/a b", "/a#b", "@127.0.0.2/a"] {
            let error = client.get(path).unwrap_err();
            assert!(!error.to_string().contains('\n'), "{error:#}");
            assert!(format!("{error:#}").contains("it is no plain path"), "{path}: {error:#}");
        }
    }

    #[test]
    fn a_server_that_trickles_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // An answer that comes before its request would be refused as such.
            assert_ne!(stream.read(&mut [0; 1024]).unwrap(), 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").unwrap();
            // Until the client closes the connection.
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let error = Client::plain(server, Duration::from_millis(200)).unwrap().get("/slow").unwrap_err();
        assert!(format!("{error:#}").contains("timed out"), "{error:#}");
        serving.join().unwrap();
    }

    #[test]
    fn a_redirection_is_an_answer() {
        let (answer, _) = asked("HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(answer.unwrap().code, 307);
    }
}
