//! The API server itself.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::failure::Failure;
use super::objects::{Collection, Objects};

/// How long a question and its whole answer may take: shorter than [`fleet::lease::MARGIN`], so that a successor waits for it.
const LIMIT: Duration = Duration::from_secs(15);
const _: () = assert!(LIMIT.as_secs() < fleet::lease::MARGIN.as_secs());

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(5);

/// The name in `managedFields` of what the controller writes.
const MANAGER: &str = "kaas-controller";

/// So many objects are asked for at once.
const PAGE: u32 = 500;

/// An API server, with the credentials of one user. Clones share its connections.
#[derive(Clone)]
pub struct Api(Client);

impl Api {
    /// The one that a client leads to.
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// The one of a kubeconfig; without one that whose service account this process has.
    ///
    /// # Errors
    /// When the credentials cannot be read. Nothing is asked yet.
    pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Self> {
        let mut config = match kubeconfig {
            Some(file) => {
                let attempt = || format!("reading {}", file.display());
                let read = Kubeconfig::read_from(file).with_context(attempt)?;
                Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.with_context(attempt)?
            }
            None => Config::incluster().context("looking for this process's service account")?,
        };
        config.connect_timeout = Some(CONNECTING);
        Ok(Self(Client::try_from(config).context("setting up connections to the API server")?))
    }

    pub fn client(&self) -> &Client {
        &self.0
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let unknown = |error: anyhow::Error| Failure::Unknown(error);
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(serde_json::to_vec).transpose().map_err(|error| unknown(error.into()))?;
        let is_write = [Method::POST, Method::PUT, Method::PATCH].contains(&method);
        let manager = if is_write { format!("?fieldManager={MANAGER}") } else { String::new() };
        let request = Request::builder().method(method).uri(format!("{path}{manager}")).header(CONTENT_TYPE, kind);
        let request = request.body(body.unwrap_or_default()).map_err(|error| unknown(error.into()))?;
        match tokio::time::timeout(LIMIT, self.0.request::<Value>(request)).await {
            Err(_) => Err(unknown(anyhow::anyhow!("no answer within {} s", LIMIT.as_secs()))),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(refused(status.code, &status.reason, &status.message)),
            Ok(Err(error)) => Err(unknown(error.into())),
        }
    }
}

/// The failure for a status code. A refused request was not done. After any other error that is unknown (Kubernetes API
/// conventions, "HTTP Status codes").
fn refused(code: u16, reason: &str, words: &str) -> Failure {
    match code {
        404 => Failure::Missing,
        409 if reason == "AlreadyExists" => Failure::Exists,
        409 => Failure::Changed,
        // With too many requests at once (429) it was not done, but may be sent again, as after no answer.
        400..=499 if !matches!(code, 408 | 429) => Failure::Refused(format!("{code} {words}")),
        _ => Failure::Unknown(anyhow::anyhow!("it says {code}: {words}")),
    }
}

fn path(of: &Collection) -> String {
    let Collection { version, plural, namespace } = of;
    let root = if version.contains('/') { "/apis" } else { "/api" };
    match namespace {
        Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{version}/{plural}"),
    }
}

/// The path of an object, by the name that it has itself.
fn of(of: &Collection, object: &Value) -> String {
    format!("{}/{}", path(of), object["metadata"]["name"].as_str().unwrap_or_default())
}

/// The part of a query that selects by a label, or by a field whose path begins with a dot (Kubernetes, "Field Selectors").
fn selector(name: &str, value: &str) -> String {
    match name.strip_prefix('.') {
        Some(field) => format!("&fieldSelector={field}%3D{value}"),
        None => format!("&labelSelector={}%3D{value}", name.replace('/', "%2F")),
    }
}

#[async_trait]
impl Objects for Api {
    async fn list(&self, of: &Collection, label: Option<(&str, &str)>) -> Result<Vec<Value>, Failure> {
        let label = label.map(|(label, value)| selector(label, value));
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let label = label.as_deref().unwrap_or_default();
            let mut list = self.ask(Method::GET, &format!("{}?limit={PAGE}{label}{next}", path(of)), None).await?;
            match list["items"].take() {
                Value::Array(items) => all.extend(items),
                _ => return Err(Failure::Unknown(anyhow::anyhow!("a list without items"))),
            }
            match list["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => next = format!("&continue={}", token.replace('+', "%2B")),
                _ => return Ok(all),
            }
        }
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure> {
        self.ask(Method::GET, &format!("{}/{name}", path(of)), None).await
    }

    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.ask(Method::POST, &path(of), Some(object)).await
    }

    async fn replace(&self, collection: &Collection, object: &Value) -> Result<Value, Failure> {
        self.ask(Method::PUT, &of(collection, object), Some(object)).await
    }

    async fn replace_status(&self, collection: &Collection, object: &Value) -> Result<Value, Failure> {
        self.ask(Method::PUT, &format!("{}/status", of(collection, object)), Some(object)).await
    }

    async fn patch(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.ask(Method::PATCH, &format!("{}/{name}", path(of)), Some(part)).await
    }

    async fn patch_status(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.ask(Method::PATCH, &format!("{}/{name}/status", path(of)), Some(part)).await
    }

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure> {
        self.ask(Method::DELETE, &format!("{}/{name}", path(of)), None).await.map(drop)
    }

    async fn delete_as_read(&self, collection: &Collection, object: &Value) -> Result<(), Failure> {
        let metadata = &object["metadata"];
        let preconditions = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        self.ask(Method::DELETE, &of(collection, object), Some(&options)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_select_a_label_or_a_field() {
        assert_eq!(selector("kaas.local/cluster", "shop"), "&labelSelector=kaas.local%2Fcluster%3Dshop");
        assert_eq!(selector(".spec.clusterRef.name", "shop"), "&fieldSelector=spec.clusterRef.name%3Dshop");
    }
}
