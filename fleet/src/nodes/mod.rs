//! HTTPS client for a cluster from outside, with an administrator's kubeconfig: asks a node's endpoint or the Kubernetes API.
//! Knows how to ask, not what.

mod add_ons;
mod bodies;
mod credentials;
mod deployer;
mod issue;
mod network;
mod snapshot;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use contract::configure::{self, ConfigureRefusal, Configured, Properties};
use contract::ports;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vsphere::{Clock, Over, Until};

use bodies::SMALL;
use credentials::GONE;
use network::Network;

use crate::lease::MARGIN;

pub use add_ons::AddOnSeen;
pub use bodies::Bodies;
pub use credentials::{Credentials, SelectedContext};
pub use deployer::{Deployer, DeployerError};
pub use reqwest::Method;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;

/// How long a request and its whole response may take by default.
const LIMIT: Duration = Duration::from_secs(14);

/// A request arrives within this time, or never. A command that takes a deployment over from its sender waits as long.
const _: () = assert!(LIMIT.as_secs() + GONE.as_secs() < MARGIN.as_secs());

/// The largest response, in bytes: the server may be malicious. Kubernetes keeps objects of up to 1.5 MiB (etcd's
/// `--max-request-bytes`), and writes up to six bytes for one of them: `<` is `\u003c` (Go's `json.Encoder`).
pub(crate) const LARGEST: usize = 16 << 20;

/// The most objects and lists of JSON in a response. Each takes hundreds of bytes of memory, and two of the response. An object
/// of Kubernetes has at most as many as etcd can keep empty ones with names: `"a":{},`.
const MOST: usize = 300_000;

/// Asks with an administrator's credentials. Created once: connections are kept, and clones share them.
#[derive(Clone)]
pub struct Client {
    /// The Kubernetes API's address, as `https://address:port`.
    server: String,
    http: reqwest::Client,
    /// The thread of its connections. `None` if they live in the caller's runtime.
    network: Option<Arc<Network>>,
    /// How long a request and its whole response may take.
    limit: Duration,
    /// The room that large responses share. `None` if the server belongs to the caller.
    bodies: Option<Bodies>,
    /// The clock for the limit, in addition to Tokio's timers, which stop while the machine sleeps.
    clock: Clock,
}

/// The default type of a request's body.
const JSON: &str = "application/json";

/// A node's answer to a change of its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigureAnswer {
    /// It was changed, or was checked and can be changed.
    Configured(Configured),
    /// Nothing was changed.
    Refused(ConfigureRefusal),
    /// The node's image is older than the route.
    UnknownRoute,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    /// The room of a large response that shares it, as long as the response exists.
    room: Option<Arc<bodies::Room>>,
}

/// Large responses that share room are parsed one at a time: parsing takes many times their bytes.
static READING: Mutex<()> = Mutex::new(());

/// The server answered, but not with the requested data. A silent server does not lead to this error.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Answered {
    words: String,
    source: Option<reqwest::Error>,
    /// The HTTP status of an error response.
    pub(crate) status: Option<u16>,
    /// Whether the response was too long to be read.
    pub(crate) too_long: bool,
}

impl Answered {
    /// An error response with these words.
    pub(crate) fn with(words: impl Into<String>) -> Self {
        Self { words: words.into(), source: None, status: None, too_long: false }
    }

    /// An error response of `server`, such as `the API server`.
    pub(crate) fn by(server: &str, answer: &Answer) -> Self {
        Self { status: Some(answer.status), ..Self::with(format!("{server} answered {}", answer.refusal())) }
    }

    /// A response that is not read.
    fn too_long() -> Self {
        Self { too_long: true, ..Self::with(format!("the answer is longer than {} MiB", LARGEST >> 20)) }
    }

    /// A response that would need more memory than it has bytes.
    fn too_many() -> Self {
        Self { too_long: true, ..Self::with(format!("the answer has more than {MOST} objects and lists")) }
    }

    /// A response that ended too early.
    fn cut(error: reqwest::Error) -> Self {
        Self { source: Some(error), ..Self::with("the answer has ended too early") }
    }
}

/// Why there is no response. If the connection was established and TLS trusts it, only a timeout means a silent server. Otherwise
/// the server has ended the connection.
fn unanswered(error: reqwest::Error) -> anyhow::Error {
    if error.is_connect() || error.is_timeout() { error.into() } else { Answered::cut(error).into() }
}

/// Whether the server did not answer in time.
pub fn is_timeout(error: &anyhow::Error) -> bool {
    let is_late = |error: &reqwest::Error| error.is_timeout();
    error.chain().any(|cause| cause.is::<Over>() || cause.downcast_ref().is_some_and(is_late))
}

impl Answer {
    /// A response that needs no room.
    pub fn of(status: u16, body: Vec<u8>) -> Self {
        Self { status, body, room: None }
    }

    /// The body, read as JSON. All text in it is plain and cut, so that it may be shown and kept.
    pub fn json<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        let _turn = self.room.as_ref().map(|_| READING.lock().unwrap_or_else(PoisonError::into_inner));
        let read = || serde_json::from_value(plain(serde_json::from_slice(&self.body)?));
        read().with_context(|| format!("understanding the answer {:?}", self.words()))
    }

    /// The status of an error response and its reason, on one line: `403 Forbidden: nodes is forbidden`.
    pub fn refusal(&self) -> String {
        let status =
            StatusCode::from_u16(self.status).map_or_else(|_| self.status.to_string(), |known| known.to_string());
        match told(&self.reason()) {
            reason if reason.is_empty() => status,
            reason => format!("{status}: {reason}"),
        }
    }

    /// The reason in an error response, on one line: the message or reason of a Kubernetes `Status`, or the beginning of the body.
    pub fn reason(&self) -> String {
        let status: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let text = status["message"].as_str().or_else(|| status["reason"].as_str());
        text.map_or_else(|| self.words(), clean)
    }

    /// The beginning of the body, for messages.
    pub fn words(&self) -> String {
        told(&String::from_utf8_lossy(&self.body))
    }
}

/// Another party's text, safe for a terminal and a journal: as [`clean`] leaves it, and cut.
pub(crate) fn told(text: &str) -> String {
    clean(text).chars().take(500).collect()
}

/// A text on one line, without characters that move, colour, turn or hide the text next to them.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect::<String>().trim().to_owned()
}

/// Whether a character only shows itself, wherever it is shown.
pub fn is_plain(c: char) -> bool {
    !c.is_control() && !is_unseen(c)
}

/// Whether a character separates lines, marks the direction of text, or takes no space. None is a control character of Unicode,
/// and each can disguise a text as another one (Unicode TR 36, section 2.5).
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A value with plain and cut texts, including the names of its fields.
fn plain(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(told(&text)),
        Value::Array(values) => values.into_iter().map(plain).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (told(&name), plain(value))).collect(),
        other => other,
    }
}

impl Client {
    /// A client with these credentials, on this process's network.
    pub fn of_credentials(credentials: &Credentials) -> anyhow::Result<Self> {
        Self::on(credentials, None)
    }

    /// A client with the credentials of a kubeconfig's current context, from inside a network namespace: a lab's.
    pub fn from_inside(kubeconfig: &Path, namespace: PathBuf) -> anyhow::Result<Self> {
        Self::on(&Credentials::read(kubeconfig)?, Some(namespace))
    }

    /// A client for a program that has a runtime: its connections live there, and it starts no thread.
    pub fn new(credentials: &Credentials) -> anyhow::Result<Self> {
        Ok(Self {
            server: credentials.server().to_owned(),
            http: credentials.client()?,
            network: None,
            limit: LIMIT,
            bodies: None,
            clock: Clock::default(),
        })
    }

    /// As [`Client::of_credentials`], from inside a network namespace, if one is given.
    pub fn on(credentials: &Credentials, namespace: Option<PathBuf>) -> anyhow::Result<Self> {
        Ok(Self { network: Some(Arc::new(Network::start(namespace)?)), ..Self::new(credentials)? })
    }

    /// The client with another limit for a request and its response.
    ///
    /// # Panics
    /// A request could arrive after [`MARGIN`].
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        let most = MARGIN.saturating_sub(GONE);
        assert!(limit < most, "a request may take less than {} s, not {}", most.as_secs(), limit.as_secs());
        Self { limit, ..self }
    }

    /// The client with shared room for large responses. Waiting for room is part of the time that a response may take.
    #[must_use]
    pub fn within(self, bodies: Bodies) -> Self {
        Self { bodies: Some(bodies), ..self }
    }

    /// Waits for a response, for callers that are not asynchronous.
    ///
    /// # Panics
    /// It was created with [`Client::new`]: the caller has a runtime to wait in.
    pub fn wait<T>(&self, asking: impl Future<Output = T>) -> T {
        self.network.as_ref().expect("a client with a thread").wait(asking)
    }

    /// Runs work on the thread of the connections.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
    ) -> anyhow::Result<T> {
        match &self.network {
            Some(network) => network.run(work).await,
            None => work.await,
        }
    }

    /// Sends a request to a node's endpoint.
    pub async fn ask_node(
        &self,
        node: Ipv4Addr,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        self.ask(method, &format!("https://{node}:{}{path}", ports::NODE), JSON, body).await
    }

    /// Asks the agent of a node for its status document.
    pub async fn node_status(&self, node: SocketAddrV4) -> anyhow::Result<Answer> {
        self.ask(Method::GET, &format!("https://{node}/v1/status"), JSON, None).await
    }

    /// Changes properties of a node. `dry_run` only checks the change.
    pub async fn configure(
        &self,
        node: Ipv4Addr,
        asked: &Properties,
        dry_run: bool,
    ) -> anyhow::Result<ConfigureAnswer> {
        let path = if dry_run { format!("{}?{}", configure::PATH, configure::DRY_RUN) } else { configure::PATH.into() };
        let answer = self.ask_node(node, Method::POST, &path, Some(&serde_json::to_value(asked)?)).await?;
        match StatusCode::from_u16(answer.status) {
            // Values go back to nodes as they are. They may be secrets, so errors do not show them.
            Ok(StatusCode::OK) => {
                let configured = serde_json::from_slice(&answer.body).context("understanding a node's properties")?;
                Ok(ConfigureAnswer::Configured(configured))
            }
            Ok(StatusCode::CONFLICT) => {
                let refusal: ConfigureRefusal =
                    serde_json::from_slice(&answer.body).context("understanding why a node refuses")?;
                Ok(ConfigureAnswer::Refused(ConfigureRefusal { reason: told(&refusal.reason), ..refusal }))
            }
            Ok(StatusCode::NOT_FOUND) => Ok(ConfigureAnswer::UnknownRoute),
            _ => anyhow::bail!("{node} cannot change its properties: {}", answer.refusal()),
        }
    }

    /// Sends a request to the Kubernetes API of the kubeconfig. A patch is a part of an object, merged into the present one (RFC
    /// 7386).
    pub async fn ask_api(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let form = if method == Method::PATCH { "application/merge-patch+json" } else { JSON };
        self.ask(method, &format!("{}{path}", self.server), form, body).await
    }

    /// Creates an object through the Kubernetes API, or changes it to these fields (Kubernetes, "Server-Side Apply"). `path` is
    /// the object's own, with the field manager.
    pub async fn apply(&self, path: &str, object: &Value) -> anyhow::Result<Answer> {
        // YAML includes JSON.
        self.ask(Method::PATCH, &format!("{}{path}", self.server), "application/apply-patch+yaml", Some(object)).await
    }

    async fn ask(&self, method: Method, address: &str, form: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        // A change is requested right after it was permitted. A connection that is established after the limit sends nothing.
        let until = Until::within(&self.clock, self.limit);
        let mut request = self.http.request(method, address).timeout(self.limit);
        if let Some(body) = body {
            // A header that is already set stays.
            request = request.header(CONTENT_TYPE, form).json(body);
        }
        let (bodies, whose) = (self.bodies.clone(), self.server.clone());
        let asking = async move {
            let mut room = None;
            let mut answer = request.send().await.map_err(unanswered)?;
            let mut body = Vec::new();
            while let Some(part) = answer.chunk().await.map_err(Answered::cut)? {
                body.extend_from_slice(&part);
                if body.len() > LARGEST {
                    return Err(Answered::too_long().into());
                }
                if let Some(bodies) = bodies.as_ref().filter(|_| body.len() > SMALL && room.is_none()) {
                    room = Some(bodies.room(&whose).await?);
                }
            }
            if nested(&body) > MOST {
                return Err(Answered::too_many().into());
            }
            Ok(Answer { status: answer.status().as_u16(), body, room: room.map(Arc::new) })
        };
        self.run(async move { until.ends(asking).await }).await
    }
}

/// The number of objects and lists in a text of JSON (RFC 8259), counted without memory for them.
fn nested(json: &[u8]) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use contract::kubeconfig::Kubeconfig;
    use contract::secret::Secret;

    use super::*;

    pub(crate) fn client(server: String) -> Client {
        let network = Some(Arc::new(Network::start(None).unwrap()));
        let clock = Clock::default();
        Client { server, http: credentials::transport().build().unwrap(), network, limit: LIMIT, bodies: None, clock }
    }

    /// The result of a request if the server sends this over a trusted connection, and closes it.
    pub(crate) fn said(what: &[u8]) -> anyhow::Result<Answer> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client(format!("http://{}", listener.local_addr().unwrap()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]);
                // The client may have read enough.
                let _ = stream.write_all(what);
            });
            client.wait(client.ask_api(Method::GET, "/v1/node", None))
        })
    }

    /// A kubeconfig for this server, with a certificate that signs itself.
    fn kubeconfig(server: &str) -> Kubeconfig {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
        Kubeconfig {
            server: server.to_owned(),
            server_name: None,
            authority: certificate.clone(),
            certificate,
            key: Secret::new(key.serialize_pem()),
        }
    }

    #[test]
    fn a_redirection_is_an_answer_and_not_followed() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        elsewhere.set_nonblocking(true).unwrap();
        let to = elsewhere.local_addr().unwrap();
        let answer = format!("HTTP/1.1 307 Elsewhere\r\nLocation: http://{to}/\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(said(answer.as_bytes()).unwrap().status, 307);
        assert!(elsewhere.accept().is_err(), "no other server is asked");
    }

    #[test]
    fn an_answer_with_too_many_objects_is_refused() {
        let answered = |item: &str, count: usize| {
            let body = format!("{{\"items\":[{}]}}", vec![item; count].join(","));
            said(
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                    .as_bytes(),
            )
        };
        let refused = answered(r#"{"":0}"#, 400_000).unwrap_err();
        assert!(refused.downcast_ref::<Answered>().is_some_and(|answered| answered.too_long), "{refused:#}");
        // Brackets within texts take no more than their length.
        assert!(answered(r#""\"{[{[\\""#, 400_000).is_ok());
        assert_eq!(nested(br#"{"a{":[1,{"b\"[":"\\"}]}"#), 3);
    }

    #[test]
    fn silent_server_is_a_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client(format!("http://{}", listener.local_addr().unwrap()));
        let client = client.with_limit(Duration::from_millis(50));
        let silent = client.wait(client.ask_api(Method::GET, "/version", None)).unwrap_err();
        assert!(is_timeout(&silent.context("asking")));
        let cut = said(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nx").unwrap_err();
        assert!(!is_timeout(&cut), "{cut:#}");
    }

    #[test]
    fn only_a_large_answer_waits_for_room() {
        let bodies = Bodies::new(1);
        let asked = |length: usize| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = client(format!("http://{}", listener.local_addr().unwrap())).within(bodies.clone());
            let client = client.with_limit(Duration::from_secs(2));
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let _ = stream.read(&mut [0; 1024]);
                    let _ = stream.write_all(head.as_bytes());
                    // The client may have given up.
                    let _ = stream.write_all(&vec![b'x'; length]);
                });
                client.wait(client.ask_api(Method::GET, "/api/v1/nodes", None))
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let room = runtime.block_on(bodies.room("somebody else")).unwrap();
        assert_eq!(asked(SMALL).unwrap().body.len(), SMALL);
        assert!(asked(4 * SMALL).is_err());
        drop(room);
        let answer = asked(4 * SMALL).unwrap();
        assert_eq!(answer.body.len(), 4 * SMALL);
        // The response is in memory, and holds its room.
        assert!(asked(4 * SMALL).is_err());
        assert!(answer.json::<Value>().is_err());
        drop(answer);
        assert!(asked(4 * SMALL).is_ok());
    }

    #[tokio::test]
    async fn a_client_in_a_runtime_starts_no_thread() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap());
        let credentials = Credentials::parse(&kubeconfig(&server).render("admin")).unwrap();
        let client = Client::new(&credentials).unwrap();
        assert!(client.network.is_none());
        // The server accepts the connection and does not speak TLS: the request came from this runtime.
        let taken = tokio::spawn(async move { drop(listener.accept().await.unwrap()) });
        client.ask_api(Method::GET, "/version", None).await.unwrap_err();
        taken.await.unwrap();
    }

    #[tokio::test]
    async fn no_change_is_sent_after_the_machine_slept() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let chain = vec![certificate.der().clone()];
        let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap());
        let given = Kubeconfig { authority: certificate.pem(), ..kubeconfig(&server) };
        let own = Client::new(&Credentials::parse(&given.render("admin")).unwrap()).unwrap();
        // Its connections live in this runtime, or on a separate thread.
        let apart = Client { network: Some(Arc::new(Network::start(None).unwrap())), ..own.clone() };
        // Longer than this machine may be suspended meanwhile.
        let limit = Duration::from_secs(3600);
        for (client, slept) in [(&own, 0), (&own, 7200), (&apart, 0), (&apart, 7200)] {
            let client = Client { limit, clock: Clock::default(), ..client.clone() };
            let node = async {
                let (stream, _) = listener.accept().await.unwrap();
                // The client is connecting, and its request was permitted.
                client.clock.sleep(Duration::from_secs(slept));
                let Ok(mut stream) = acceptor.accept(stream).await else { return 0 };
                tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1024]).await.unwrap_or(0)
            };
            let (read, asked) = tokio::join!(node, client.ask_api(Method::POST, "/v1/commit", None));
            let said = format!("{:#}", asked.unwrap_err());
            assert_eq!(read > 0, slept == 0, "{read} bytes of a change: {said}");
            assert_eq!(said.contains("no answer within 3600 s"), slept > 0, "{said}");
        }
    }

    #[test]
    fn credentials_with_a_tls_server_name_are_refused() {
        let name = Some("x\nerror: the cluster is gone".to_owned());
        let named = Kubeconfig { server_name: name, ..kubeconfig("https://10.0.0.10:6443") };
        let error = Credentials::parse(&named.render("admin")).unwrap_err().to_string();
        assert!(error.contains("it names a tls-server-name") && !error.contains('\n'), "{error}");
        let error = Credentials::parse("{}").unwrap_err().to_string();
        assert!(error.contains("is missing"), "{error}");
    }

    #[test]
    #[should_panic(expected = "a request may take less than 15 s, not 15")]
    fn a_limit_beyond_the_lease_margin_is_refused() {
        drop(client(String::new()).with_limit(MARGIN.saturating_sub(GONE)));
    }

    #[test]
    fn error_response_shows_its_message_on_one_line() {
        let refusal = |status, body: &str| Answer::of(status, body.as_bytes().to_vec()).refusal();
        let forbidden =
            r#"{"kind":"Status","message":"nodes is forbidden:\n User \"deployer\" cannot list","code":403}"#;
        assert_eq!(refusal(403, forbidden), "403 Forbidden: nodes is forbidden:  User \"deployer\" cannot list");
        assert_eq!(refusal(503, "not now\n"), "503 Service Unavailable: not now");
        assert_eq!(refusal(500, ""), "500 Internal Server Error");
        let error = Answered::by("the API server", &Answer::of(401, Vec::new()));
        assert_eq!((error.to_string().as_str(), error.status), ("the API server answered 401 Unauthorized", Some(401)));
    }

    #[test]
    fn text_of_an_answer_cannot_change_the_terminal() {
        assert_eq!(told("a\u{1b}[2J\r\nb\u{9b}1A\u{202e}c\u{2028}d\u{200b}e"), "a [2J  b 1A c d e");
        assert_eq!(told(&"\n".repeat(600)), "");
        let body = serde_json::json!({"a": ["x\u{1b}[1A", {"\u{7f}b": "y\nz"}], "c": 7, "long": "l".repeat(600)});
        let answer = Answer::of(200, body.to_string().into_bytes());
        let long = "l".repeat(500);
        let plain = serde_json::json!({"a": ["x [1A", {"b": "y z"}], "c": 7, "long": long});
        assert_eq!(answer.json::<Value>().unwrap(), plain);
    }
}
