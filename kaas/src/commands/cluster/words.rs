//! Clusters in words for people.

use std::time::SystemTime;

use serde_json::Value;

use super::cluster_state::ClusterState;
use crate::control::{Cell, age, conditions, note, read_conditions, table, text};
use crate::styled::Text;

/// Clusters, one a line, with the main columns that kubectl shows.
pub fn clusters(clusters: &[Value], now: SystemTime) -> Text {
    let head = ["NAMESPACE", "NAME", "READY", "VERSION", "IMAGE", "CP", "NODES", "OPERATION", "AGE"];
    let row = |cluster: &Value| {
        let cell = |pointer: &str| Cell::text(text(cluster, pointer));
        [
            cell("/metadata/namespace"),
            cell("/metadata/name"),
            Cell::status(cluster, "Ready"),
            cell("/status/version"),
            cell("/status/resolved/image"),
            Cell::number(&cluster["status"]["controlPlane"]["ready"]),
            Cell::number(&cluster["status"]["nodes"]["ready"]),
            cell("/status/operation"),
            Cell::text(&age(cluster, now)),
        ]
    };
    table(head, clusters.iter().map(row))
}

/// One cluster, with its conditions, pools and Operation.
pub fn cluster(known: &ClusterState, now: SystemTime) -> Text {
    let mut shown = clusters(std::slice::from_ref(&known.cluster), now);
    let endpoint = text(&known.cluster, "/status/resolved/endpoint");
    if !endpoint.is_empty() {
        shown.append(format!("\n\nKubernetes API: https://{endpoint}:6443"));
    }
    shown.append(format!("\n\n{}", conditions(&known.cluster)));
    if !known.pools.is_empty() {
        let row = |pool: &Value| {
            [
                Cell::text(text(pool, "/metadata/name")),
                Cell::number(&pool["spec"]["replicas"]),
                Cell::number(&pool["status"]["readyReplicas"]),
                Cell::number(&pool["status"]["updatedReplicas"]),
                Cell::text(text(pool, "/spec/vmClass")),
            ]
        };
        shown.append("\n\n");
        shown.append(table(["POOL", "REPLICAS", "READY", "UPDATED", "CLASS"], known.pools.iter().map(row)));
        for pool in &known.pools {
            for said in read_conditions(pool).iter().filter(|said| !said.holds()) {
                shown.append(format!("\n{}: {}", text(pool, "/metadata/name"), note(said)));
            }
        }
    }
    if known.operation.is_some() {
        let of_operation = known.lines().pop().map(|(_, line)| line).unwrap_or_default();
        shown.append(format!("\n\n{of_operation}"));
    }
    shown
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
        assert_eq!(cluster(&known, now).to_string(), expected);
    }
}
