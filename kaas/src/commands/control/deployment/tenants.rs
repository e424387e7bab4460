//! The tenant clusters of a control cluster, shown to the operator before it is destroyed. If they are unknown, the text says
//! so, and the removal is not blocked.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use contract::deployer::PrivateKey;
use controller::objects::{GROUP, VERSION};
use fleet::control_plane::{DeploymentRecord, Lifecycle, begun};
use fleet::nodes::{Answer, Method, clean};
use serde_json::Value;

use crate::cluster_file::{ClusterBackend, client_by_key, within};
use crate::control::text;

/// The time limit of the query.
const LIMIT: Duration = Duration::from_secs(10);
const NAMED: usize = 20;

/// One line on the tenant clusters. `None` if the cluster has none. `nodes` are the cluster's control-plane nodes with their
/// addresses. `kubeconfig` is the path that the description names.
pub async fn told(
    key: anyhow::Result<Option<PrivateKey>>,
    place: &ClusterBackend,
    nodes: &[(String, Ipv4Addr)],
    kubeconfig: &Path,
) -> Option<String> {
    words(within(LIMIT, asked(key, place, nodes, kubeconfig)).await)
}

/// Whether the cluster may have tenant clusters, by its journal. If the journal is missing, the cluster itself must be asked.
fn may_have(kept: Option<&DeploymentRecord>) -> anyhow::Result<bool> {
    match kept {
        Some(kept) if kept.lifecycle == Lifecycle::Deleted => Ok(false),
        Some(kept) if !kept.formed => bail!("its journal does not say that it has formed"),
        _ => Ok(true),
    }
}

/// The names of the tenant clusters, from the cluster's API.
async fn asked(
    key: anyhow::Result<Option<PrivateKey>>,
    place: &ClusterBackend,
    nodes: &[(String, Ipv4Addr)],
    kubeconfig: &Path,
) -> anyhow::Result<Vec<String>> {
    if !may_have(begun(&*place.store, place.hypervisor.deployment()).await?.as_ref())? {
        return Ok(Vec::new());
    }
    let key = key?.context("the deployer's key is not at hand")?;
    let client = client_by_key(&place.deployer(key)?, place, nodes, kubeconfig, LIMIT).await?;
    let path = format!("/apis/{GROUP}/{VERSION}/tenantclusters?limit={}", NAMED + 1);
    named(&client.ask_api(Method::GET, &path, None).await?)
}

/// The names in an answer. A cluster that does not know the kind has no tenant clusters.
fn named(answer: &Answer) -> anyhow::Result<Vec<String>> {
    if answer.status == 404 {
        return Ok(Vec::new());
    }
    ensure!(answer.status == 200, "the API server answered {}", answer.refusal());
    let said: Value = answer.json()?;
    let items = said["items"].as_array().context("the API server's answer is no list")?;
    Ok(items
        .iter()
        .map(|one| format!("{}/{}", text(one, "/metadata/namespace"), text(one, "/metadata/name")))
        .collect())
}

fn words(named: anyhow::Result<Vec<String>>) -> Option<String> {
    match named {
        Ok(named) if named.is_empty() => None,
        Ok(mut named) => {
            let more = if named.len() > NAMED { " and others" } else { "" };
            named.truncate(NAMED);
            Some(format!(
                "It has tenant clusters, whose VMs stay, and which are no longer repaired, changed or deleted once it is gone: {}{more}. \
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
    fn missing_journal_leaves_tenant_clusters_unknown() {
        let kept = |goal: &str, formed: bool| -> DeploymentRecord {
            let kept = serde_json::json!({
                "cluster": "control", "lifecycle": goal, "formed": formed, "image": {"name": "n"}, "nodes": [],
            });
            serde_json::from_value(kept).unwrap()
        };
        for goal in ["Active", "Deleting"] {
            assert!(may_have(Some(&kept(goal, true))).unwrap(), "{goal}");
            let told = words(may_have(Some(&kept(goal, false))).map(|_| Vec::new())).unwrap();
            assert!(told.ends_with("is not known: its journal does not say that it has formed"), "{goal}: {told}");
        }
        assert!(may_have(None).unwrap());
        assert!(!may_have(Some(&kept("Deleted", true))).unwrap(), "it was removed");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_cluster_is_given_up_after_the_limit() {
        let told = words(within(LIMIT, std::future::pending()).await).unwrap();
        assert_eq!(told, "Whether it has tenant clusters is not known: there was no answer within 10.0 s");
    }

    #[test]
    fn tenant_clusters_are_listed_or_reported_as_unknown() {
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
