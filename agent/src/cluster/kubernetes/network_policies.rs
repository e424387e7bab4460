//! The NetworkPolicies of the cluster, which the pod network does not enforce. The API server accepts them without a warning.

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use serde::Deserialize;

use super::api::Api;

const NAMED: usize = 3;

/// `GET /apis/networking.k8s.io/v1/networkpolicies` (Kubernetes API reference, `NetworkPolicyList`).
#[derive(Deserialize)]
struct List {
    metadata: Rest,
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rest {
    /// Missing when the list is whole.
    #[serde(default)]
    remaining_item_count: usize,
}

#[derive(Deserialize)]
struct Item {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    namespace: String,
    name: String,
}

impl Api {
    /// The finding about the cluster's NetworkPolicies. However many exist, only a few are read.
    ///
    /// # Errors
    /// The API does not answer, or not with a list of them.
    pub fn network_policies(&self) -> anyhow::Result<Findings> {
        let list = self.get(&format!("/apis/networking.k8s.io/v1/networkpolicies?limit={NAMED}"));
        judge(&list.context("listing the NetworkPolicies")?)
    }
}

fn judge(list: &[u8]) -> anyhow::Result<Findings> {
    let List { metadata, items } = serde_json::from_slice(list).context("understanding the list of NetworkPolicies")?;
    if items.is_empty() {
        return Ok(Findings::default());
    }
    let names: Vec<String> =
        items.iter().map(|Item { metadata: at }| format!("{}/{}", at.namespace, at.name)).collect();
    let more = match metadata.remaining_item_count {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Ok(Findings::from(codes::NETWORK_POLICY_NOT_ENFORCED.finding(
        "NetworkPolicy",
        format!("nothing enforces {}{more}", names.join(", ")),
        "Do not rely on them: separate workloads by other means, such as client certificates or separate clusters",
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(list: &serde_json::Value) -> Vec<String> {
        judge(list.to_string().as_bytes()).unwrap().iter().map(|finding| finding.seen.clone()).collect()
    }

    #[test]
    fn only_the_first_policies_are_named() {
        let item = |name: &str| json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"podSelector": {}}});
        assert_eq!(judged(&json!({"metadata": {"resourceVersion": "7"}, "items": []})), [""; 0]);
        let one = json!({"metadata": {}, "items": [item("deny")]});
        assert_eq!(judged(&one), ["nothing enforces shop/deny"]);
        let findings = judge(one.to_string().as_bytes()).unwrap();
        assert!(findings.iter().all(|finding| finding.code == "network-policy.not-enforced"), "{findings}");
        let many = json!({"metadata": {"continue": "x", "remainingItemCount": 12}, "items": [item("a"), item("b")]});
        assert_eq!(judged(&many), ["nothing enforces shop/a, shop/b and 12 more"]);
        assert!(judge(b"{}").is_err());
    }
}
