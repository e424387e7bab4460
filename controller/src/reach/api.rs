//! The API server itself.

use async_trait::async_trait;
use fleet::node::{Answer, Client, Method};
use serde_json::Value;

use super::objects::{Collection, Failure, Objects};

/// An API server that is asked with somebody's credentials.
pub struct Api(Client);

impl Api {
    /// The one that a client leads to.
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, Failure> {
        let answer = self.0.ask_api(method, path, body).await.map_err(Failure::Unknown)?;
        // What was refused was not done. Of all else of these nobody can say that (Kubernetes API conventions, "HTTP Status codes").
        match answer.status {
            200..=299 => Ok(answer),
            404 => Err(Failure::Missing),
            409 if reason(&answer) == "AlreadyExists" => Err(Failure::Exists),
            409 => Err(Failure::Changed),
            400..=499 if answer.status != 408 => Err(Failure::Refused(format!("{} {}", answer.status, answer.words()))),
            status => Err(Failure::Unknown(anyhow::anyhow!("it says {status}: {}", answer.words()))),
        }
    }

    async fn read(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let answer = self.ask(method, path, body).await?;
        // Not as `Answer::json` reads it, which cuts texts: they are written again.
        serde_json::from_slice(&answer.body).map_err(|error| Failure::Unknown(error.into()))
    }
}

/// Why an API server refuses, in its word.
fn reason(answer: &Answer) -> String {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    status["reason"].as_str().unwrap_or_default().to_owned()
}

fn path(of: &Collection) -> String {
    let Collection { version, plural, namespace } = of;
    format!("/apis/{version}/namespaces/{namespace}/{plural}")
}

/// The path of an object, by the name that it has itself.
fn of(of: &Collection, object: &Value) -> String {
    format!("{}/{}", path(of), object["metadata"]["name"].as_str().unwrap_or_default())
}

#[async_trait]
impl Objects for Api {
    async fn list(&self, of: &Collection, (label, value): (&str, &str)) -> Result<Vec<Value>, Failure> {
        let list = self.read(Method::GET, &format!("{}?labelSelector={label}%3D{value}", path(of)), None).await?;
        match list {
            Value::Object(mut members) => match members.remove("items") {
                Some(Value::Array(items)) => Ok(items),
                _ => Err(Failure::Unknown(anyhow::anyhow!("a list without items"))),
            },
            _ => Err(Failure::Unknown(anyhow::anyhow!("no list"))),
        }
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure> {
        self.read(Method::GET, &format!("{}/{name}", path(of)), None).await
    }

    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.read(Method::POST, &path(of), Some(object)).await
    }

    async fn replace(&self, collection: &Collection, object: &Value) -> Result<Value, Failure> {
        self.read(Method::PUT, &of(collection, object), Some(object)).await
    }

    async fn replace_status(&self, collection: &Collection, object: &Value) -> Result<Value, Failure> {
        self.read(Method::PUT, &format!("{}/status", of(collection, object)), Some(object)).await
    }

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure> {
        self.ask(Method::DELETE, &format!("{}/{name}", path(of)), None).await.map(drop)
    }
}
