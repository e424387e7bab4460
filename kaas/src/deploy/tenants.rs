//! The tenant clusters that a control cluster has, before it is destroyed: whoever is asked for its name sees them. What cannot be found
//! out is said, and is in nobody's way.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use contract::deployer::PrivateKey;
use controller::objects::{GROUP, VERSION};
use fleet::deploy::begun;
use fleet::node::{Answer, Method, clean};
use serde_json::Value;

use crate::cluster_file::Place;
use crate::control::text;
use crate::upgrade::client_by_key;

/// How long it is looked for them.
const LIMIT: Duration = Duration::from_secs(10);
/// So many are named.
const NAMED: usize = 20;

/// What there is to say of them, in a line; none if there are none. `nodes` are the cluster's control nodes with their addresses.
pub async fn told(
    key: anyhow::Result<Option<PrivateKey>>,
    place: &Place,
    nodes: &[(String, Ipv4Addr)],
) -> Option<String> {
    let late = || Err(anyhow!("nobody has said it within {} s", LIMIT.as_secs()));
    words(tokio::time::timeout(LIMIT, asked(key, place, nodes)).await.unwrap_or_else(|_| late()))
}

/// Their names, as the cluster's API has them.
async fn asked(
    key: anyhow::Result<Option<PrivateKey>>,
    place: &Place,
    nodes: &[(String, Ipv4Addr)],
) -> anyhow::Result<Vec<String>> {
    let kept = begun(&*place.store, place.hypervisor.deployment()).await?;
    if !kept.is_some_and(|kept| kept.formed) {
        return Ok(Vec::new());
    }
    let key = key?.context("the deployer's key is not at hand")?;
    let client = client_by_key(&place.deployer(key)?, place, nodes).await?;
    let path = format!("/apis/{GROUP}/{VERSION}/tenantclusters?limit={}", NAMED + 1);
    named(&client.ask_api(Method::GET, &path, None).await?)
}

/// The names in an answer. A cluster that does not know the kind has none of it.
fn named(answer: &Answer) -> anyhow::Result<Vec<String>> {
    if answer.status == 404 {
        return Ok(Vec::new());
    }
    ensure!(answer.status == 200, "the API server says {}: {}", answer.status, answer.words());
    let said: Value = answer.json()?;
    let items = said["items"].as_array().context("the API server's answer is no list")?;
    Ok(items
        .iter()
        .map(|one| format!("{}/{}", text(one, "/metadata/namespace"), text(one, "/metadata/name")))
        .collect())
}

/// What is said of them.
fn words(named: anyhow::Result<Vec<String>>) -> Option<String> {
    match named {
        Ok(named) if named.is_empty() => None,
        Ok(mut named) => {
            let more = if named.len() > NAMED { " and others" } else { "" };
            named.truncate(NAMED);
            Some(format!(
                "It has tenant clusters, whose VMs stay, and which nobody repairs, changes or deletes any more once it is gone: {}{more}. \
                 `kaas cluster delete` deletes them before",
                named.join(", ")
            ))
        }
        Err(error) => Some(clean(&format!("Whether it has tenant clusters is not known: {error:#}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_named_and_what_is_not_known_is_said() {
        let list = |count: usize| {
            let one = |number| serde_json::json!({"metadata": {"namespace": "blue", "name": format!("c{number}")}});
            let items: Vec<Value> = (1..=count).map(one).collect();
            let body = serde_json::json!({"items": items}).to_string();
            words(named(&Answer::of(200, body.into_bytes()))).unwrap_or_default()
        };
        assert_eq!(list(0), "");
        assert!(list(2).contains("once it is gone: blue/c1, blue/c2. `kaas cluster delete`"), "{}", list(2));
        let many = list(NAMED + 1);
        assert!(many.contains("blue/c20 and others.") && !many.contains("blue/c21"), "{many}");
        let of = |status, body: &str| words(named(&Answer::of(status, body.as_bytes().to_vec())));
        assert_eq!(of(404, "404 page not found"), None, "its image is of before tenant clusters were objects");
        let unknown = "Whether it has tenant clusters is not known: ";
        for (status, body) in [(500, "broken"), (200, "{}"), (200, "["), (403, r#"{"kind": "Status"}"#)] {
            assert!(of(status, body).is_some_and(|told| told.starts_with(unknown)), "{status} {body}");
        }
    }
}
