//! The Services of the cluster that have external IPs. The API server refuses new ones: those that are there are from an
//! earlier image.

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use serde::Deserialize;

use super::api::Api;
use super::pages::pages;

/// How many are named.
const NAMED: usize = 3;

/// How many Services are asked for at once.
const PAGE: usize = 100;

/// `GET /api/v1/services` (Kubernetes API reference, `ServiceList`).
#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Name,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Name {
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "externalIPs")]
    external_ips: Vec<String>,
}

impl Api {
    /// What a person should know of Services with external IPs; `led` says whether kube-proxy here leads those to pods.
    ///
    /// # Errors
    /// The API does not answer, or not with lists of Services.
    pub fn external_ips(&self, led: bool) -> anyhow::Result<Findings> {
        let listed = pages(&format!("/api/v1/services?limit={PAGE}"), |path| self.get(path));
        judge(led, &listed.context("listing the Services")?)
    }
}

fn judge(led: bool, pages: &[Vec<u8>]) -> anyhow::Result<Findings> {
    let mut found = Vec::new();
    for page in pages {
        let List { items } = serde_json::from_slice(page).context("understanding the list of Services")?;
        let taking = items.into_iter().filter(|item| !item.spec.external_ips.is_empty());
        found.extend(taking.map(|Item { metadata: at, spec }| {
            format!("{}/{} ({})", at.namespace, at.name, spec.external_ips.join(", "))
        }));
    }
    if found.is_empty() {
        return Ok(Findings::default());
    }
    let more = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    found.truncate(NAMED);
    let effect = match led {
        true => "this node leads what goes to these addresses to the pods of the Services, whoever has the addresses",
        false => "nothing leads these addresses to the pods of the Services any more",
    };
    Ok(Findings::from(codes::SERVICE_EXTERNAL_IPS.finding(
        "Service",
        format!("there are external IPs of {}{more}: {effect}", found.join(", ")),
        "Take `externalIPs` out of them; use NodePorts, or a load balancer that gives Services their addresses",
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(name: &str, addresses: &[&str]) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"externalIPs": addresses, "ports": []}})
    }

    fn page(services: &[Value]) -> Vec<u8> {
        json!({"metadata": {}, "items": services}).to_string().into_bytes()
    }

    #[test]
    fn services_with_external_ips_are_found_on_all_pages_and_the_first_are_named() {
        let cluster_dns = json!({"metadata": {"namespace": "kube-system", "name": "kube-dns"}, "spec": {"ports": []}});
        let first = page(&[service("web", &[]), cluster_dns, service("dns", &["192.0.2.53"])]);
        let judged = |led: bool, others: usize| {
            let others: Vec<Value> = (0..others).map(|number| service(&format!("s{number}"), &["192.0.2.1"])).collect();
            let found = judge(led, &[first.clone(), page(&others)]).unwrap();
            assert!(!found.has_errors());
            let finding = found.iter().next().unwrap();
            assert_eq!(finding.code, "service.external-ips");
            finding.seen.clone()
        };
        let one = judged(true, 0);
        assert!(one.starts_with("there are external IPs of shop/dns (192.0.2.53): this node leads"), "{one}");
        let many = judged(false, 6);
        assert!(many.contains("shop/s1 (192.0.2.1) and 4 more: nothing leads"), "{many}");
        assert!(judge(true, &[page(&[service("web", &[])])]).unwrap().is_empty());
        assert!(judge(true, &[b"{}".to_vec()]).is_err());
    }
}
