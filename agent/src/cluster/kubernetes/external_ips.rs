//! The Services of the cluster that have external IPs. The API server refuses new ones: those that are there are from an
//! earlier image.

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use serde::Deserialize;

use super::api::Api;

const NAMED: usize = 3;

/// A Service, as `GET /api/v1/services` lists it (Kubernetes API reference, `Service` v1).
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
    /// The findings about Services with external IPs.
    ///
    /// # Errors
    /// The API does not answer, or not with lists of Services.
    pub fn external_ips(&self) -> anyhow::Result<Findings> {
        Ok(judge(self.list("/api/v1/services").context("listing the Services")?))
    }
}

fn judge(services: Vec<Item>) -> Findings {
    let taking = services.into_iter().filter(|item| !item.spec.external_ips.is_empty());
    let named =
        |Item { metadata: at, spec }: Item| format!("{}/{} ({})", at.namespace, at.name, spec.external_ips.join(", "));
    let mut found: Vec<String> = taking.map(named).collect();
    if found.is_empty() {
        return Findings::default();
    }
    let more = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    found.truncate(NAMED);
    let effect = "kube-proxy routes none of these addresses to the pods of the Services";
    codes::SERVICE_EXTERNAL_IPS
        .finding(
            "Service",
            format!("there are external IPs of {}{more}: {effect}", found.join(", ")),
            "Take `externalIPs` out of them; use NodePorts, or a load balancer that gives Services their addresses",
        )
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(name: &str, addresses: &[&str]) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"externalIPs": addresses, "ports": []}})
    }

    fn judged_of(services: &[Value]) -> Findings {
        judge(serde_json::from_value(json!(services)).unwrap())
    }

    #[test]
    fn services_with_external_ips_are_found_and_the_first_are_named() {
        let cluster_dns = json!({"metadata": {"namespace": "kube-system", "name": "kube-dns"}, "spec": {"ports": []}});
        let first = [service("web", &[]), cluster_dns, service("dns", &["192.0.2.53"])];
        let judged = |others: usize| {
            let others = (0..others).map(|number| service(&format!("s{number}"), &["192.0.2.1"]));
            let found = judged_of(&first.iter().cloned().chain(others).collect::<Vec<_>>());
            assert!(!found.has_errors());
            let finding = found.iter().next().unwrap();
            assert_eq!(finding.code, "service.external-ips");
            finding.seen.clone()
        };
        let one = judged(0);
        assert!(one.starts_with("there are external IPs of shop/dns (192.0.2.53): kube-proxy routes none"), "{one}");
        let many = judged(6);
        assert!(many.contains("shop/s1 (192.0.2.1) and 4 more: kube-proxy"), "{many}");
        assert!(judged_of(&[service("web", &[])]).is_empty());
    }
}
