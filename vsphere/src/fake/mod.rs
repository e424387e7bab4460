//! A vCenter with scripted answers, for tests. Each method has a queue of replies, the last of which is repeated. All
//! requests are kept.

mod http;
mod replies;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(crate) use replies::*;

use crate::client::{Client, Connect, Settings};
use crate::connection::{Thumbprint, Trust};
use crate::guard::Fence;
use crate::secret::Secret;

#[derive(Clone)]
pub(crate) enum Reply {
    /// The content of the response.
    Response(String),
    /// A fault of this type, with fields.
    Fault(&'static str, String),
    /// An HTTP status, and a body that is not an envelope.
    Status(u16, String),
    /// The request is read, and the connection ends.
    Cut,
    /// The reply follows a notification.
    When(Arc<Notify>, Box<Reply>),
}

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The SOAP method. For other requests, the HTTP method and the path.
    pub(crate) method: String,
    /// The headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The content of the SOAP body.
    pub(crate) fn call(&self) -> String {
        let text = self.text();
        let (_, call) = text.split_once("<soapenv:Body>").unwrap_or(("", &text));
        let call = call.split_once("</soapenv:Body>").map_or(call, |(call, _)| call);
        call.replace("><", ">\n<")
    }
}

#[derive(Default)]
struct Script {
    replies: HashMap<String, VecDeque<Reply>>,
    asked: Vec<Asked>,
    arrived: Arc<Notify>,
}

/// A server with scripted answers on loopback. It ends with its runtime.
#[derive(Clone)]
pub(crate) struct Fake {
    script: Arc<Mutex<Script>>,
    pub(crate) address: String,
}

impl Fake {
    /// A server with answers for the begin and the end of a session.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let fake = Self { script: Arc::default(), address };
        fake.says("RetrieveServiceContent", &service_content("VirtualCenter", "8.0.3.0"));
        fake.says("Login", "<returnval><key>k</key><userName>LAB\\deployer</userName></returnval>");
        fake.says("Logout", "");
        fake.says("DestroyPropertyCollector", "");
        fake.says("DestroyView", "");
        let server = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move { http::serve(stream, &server).await });
            }
        });
        fake
    }

    /// Serves one connection that a test accepted.
    pub(crate) async fn serve(&self, stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
        http::serve(stream, self).await;
    }

    /// A server, and a logged-in client of it.
    pub(crate) async fn connected() -> (Self, Client) {
        let fake = Self::start().await;
        let client = fake.client().await;
        (fake, client)
    }

    /// A logged-in client of it, without long pauses.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.connect()).await.unwrap()
    }

    /// A client with other settings.
    pub(crate) async fn client_with(&self, change: impl FnOnce(&mut Settings)) -> Client {
        let mut connect = self.connect();
        change(&mut connect.settings);
        Client::connect(connect).await.unwrap()
    }

    pub(crate) fn connect(&self) -> Connect {
        let settings = Settings {
            pause: Duration::from_millis(1),
            wait: Duration::from_secs(5),
            lease_interval: Duration::from_millis(20),
            keep_alive: Duration::from_secs(3600),
            // Longer than this machine may pause meanwhile.
            returns: Duration::from_secs(3600),
            page: 2,
            ..Settings::default()
        };
        let (user, password) = ("deployer".to_owned(), Secret::new("pa<ss>"));
        Connect {
            address: self.address.clone(),
            trust: Trust::Thumbprint(Thumbprint([0; 32])),
            user,
            password,
            settings,
        }
    }

    /// Sets the answer of a method.
    pub(crate) fn says(&self, method: &str, response: &str) {
        self.replies(method, [Reply::Response(response.to_owned())]);
    }

    /// Sets the answers of a method, one after the other. The last one is repeated.
    pub(crate) fn replies(&self, method: &str, replies: impl IntoIterator<Item = Reply>) {
        self.script.lock().unwrap().replies.insert(method.to_owned(), replies.into_iter().collect());
    }

    pub(crate) fn asked(&self, method: &str) -> Vec<Asked> {
        self.script.lock().unwrap().asked.iter().filter(|asked| asked.method == method).cloned().collect()
    }

    /// The methods of all requests, in their order.
    pub(crate) fn order(&self) -> Vec<String> {
        self.script.lock().unwrap().asked.iter().map(|asked| asked.method.clone()).collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.asked(method).len()
    }

    /// Waits until `times` requests for a method have arrived.
    pub(crate) async fn arrived(&self, method: &str, times: usize) {
        loop {
            let arrived = self.script.lock().unwrap().arrived.clone();
            let notified = arrived.notified();
            if self.count(method) >= times {
                return;
            }
            notified.await;
        }
    }

    fn reply(&self, asked: Asked) -> Reply {
        let mut script = self.script.lock().unwrap();
        let method = asked.method.clone();
        script.asked.push(asked);
        script.arrived.notify_waiters();
        let Some(replies) = script.replies.get_mut(&method) else {
            return Reply::Status(404, format!("the test says nothing of {method}"));
        };
        if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() }
    }
}

/// Lets all other tasks run, so that a request of theirs would have arrived.
pub(crate) async fn others_had_their_turn() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Panics unless these calls succeed.
pub(crate) async fn succeed<T>(calls: impl IntoIterator<Item = JoinHandle<crate::error::Result<T>>>) {
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// A guard that permits this number of requests.
pub(crate) struct Permits(pub(crate) AtomicUsize);

#[async_trait]
impl Fence for Permits {
    async fn still(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let taken = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        taken.map(|_| ()).map_err(|_| "another command has taken over".into())
    }
}
