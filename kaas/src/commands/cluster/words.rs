//! Clusters in words for people.

use std::time::SystemTime;

use serde_json::Value;

use super::cluster_state::ClusterState;
use crate::control::{age, conditions, note, read_conditions, status, table, text};

/// A cell: `-` where there is nothing.
fn cell(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// Clusters, one a line, with the columns that kubectl shows.
pub fn clusters(clusters: &[Value], now: SystemTime) -> String {
    let head = ["NAMESPACE", "NAME", "READY", "VERSION", "IMAGE", "CP", "NODES", "OPERATION", "AGE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(clusters.iter().map(|cluster| {
        vec![
            cell(text(cluster, "/metadata/namespace")),
            cell(text(cluster, "/metadata/name")),
            status(cluster, "Ready").to_owned(),
            cell(text(cluster, "/status/version")),
            cell(text(cluster, "/status/resolved/image")),
            number(&cluster["status"]["controlPlane"]["ready"]),
            number(&cluster["status"]["nodes"]["ready"]),
            cell(text(cluster, "/status/operation")),
            age(cluster, now),
        ]
    }));
    table(&rows)
}

/// One cluster: what it is, and what its conditions say.
pub fn cluster(known: &ClusterState, now: SystemTime) -> String {
    let mut lines = vec![clusters(std::slice::from_ref(&known.cluster), now)];
    let endpoint = text(&known.cluster, "/status/resolved/endpoint");
    if !endpoint.is_empty() {
        lines.push(format!("\nKubernetes API: https://{endpoint}:6443"));
    }
    lines.push(format!("\n{}", conditions(&known.cluster)));
    if !known.pools.is_empty() {
        let head = ["POOL", "REPLICAS", "READY", "UPDATED", "CLASS"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(known.pools.iter().map(|pool| {
            vec![
                cell(text(pool, "/metadata/name")),
                number(&pool["spec"]["replicas"]),
                number(&pool["status"]["readyReplicas"]),
                number(&pool["status"]["updatedReplicas"]),
                cell(text(pool, "/spec/vmClass")),
            ]
        }));
        lines.push(format!("\n{}", table(&rows)));
        let why = |pool: &Value| {
            let stands = read_conditions(pool)
                .into_iter()
                .filter(|said| !said.holds())
                .map(|said| note(&said))
                .collect::<Vec<_>>();
            stands.into_iter().map(|line| format!("{}: {line}", text(pool, "/metadata/name"))).collect::<Vec<_>>()
        };
        lines.extend(known.pools.iter().flat_map(why));
    }
    if known.operation.is_some() {
        let of_operation = known.lines().pop().map(|(_, line)| line).unwrap_or_default();
        lines.push(format!("\n{of_operation}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_shows_known_values_alone() {
        let now = humantime::parse_rfc3339("2026-12-01T10:00:00Z").unwrap();
        let known = ClusterState {
            cluster: json!({
                "metadata": {"name": "shop", "namespace": "team-blue", "generation": 2,
                             "creationTimestamp": "2026-12-01T09:30:00Z"},
                "status": {
                    "version": "1.36.3",
                    "controlPlane": {"ready": 3},
                    "resolved": {"endpoint": "192.168.10.10", "image": "kaas-tenant-0.2.0"},
                    "operation": "shop-3f2504e0-4f89-41d3-9a0c-0305e82c3301",
                    "conditions": [
                        {"type": "Preflight", "status": "True", "reason": "Passed", "message": "", "observedGeneration": 1},
                        {"type": "Ready", "status": "False", "reason": "Provisioning", "message": "cp2 joins", "observedGeneration": 2},
                    ],
                },
            }),
            pools: vec![json!({
                "metadata": {"name": "shop-general", "generation": 1},
                "spec": {"replicas": 3, "vmClass": "medium"},
                "status": {"readyReplicas": 1},
            })],
            operation: Some(json!({
                "metadata": {"name": "shop-3f2504e0-4f89-41d3-9a0c-0305e82c3301"},
                "spec": {"type": "ImageSwap", "steps": [{}]},
            })),
            workers: None,
        };
        let expected = "\
NAMESPACE  NAME  READY  VERSION  IMAGE              CP  NODES  OPERATION                                  AGE
team-blue  shop  False  1.36.3   kaas-tenant-0.2.0  3   -      shop-3f2504e0-4f89-41d3-9a0c-0305e82c3301  30m

Kubernetes API: https://192.168.10.10:6443

Preflight is True (Passed) [of the spec as it was before]
Ready is False (Provisioning): cp2 joins

POOL          REPLICAS  READY  UPDATED  CLASS
shop-general  3         1      -        medium

shop-3f2504e0-4f89-41d3-9a0c-0305e82c3301 (ImageSwap): 0 of 1 steps are done";
        assert_eq!(cluster(&known, now), expected);
    }
}
