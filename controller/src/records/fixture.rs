//! Fixture: a plan of an upgrade, as `fleet` writes it.

use serde_json::{Value, json};
use uuid::Uuid;

/// A node of a plan.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "name": name, "address": "192.0.2.1", "old": Uuid::from_u128(1), "old_name": name, "new_name": "new",
        "disk": {"uuid": Uuid::from_u128(2), "path": "[ds] a.vmdk"}, "adapters": ["4000"],
        "identity": Uuid::from_u128(3), "member": "8e9e05c52164694d",
        "from": {"version": "0.1.0", "build": "0a".repeat(16)}, "swap": Uuid::from_u128(4), "leads": false,
        "holds_address": false,
    })
}

/// A plan without nodes.
pub(crate) fn plan() -> Value {
    json!({
        "id": Uuid::from_u128(5), "deployment": Uuid::from_u128(1), "cluster": Uuid::from_u128(7), "members": [],
        "target": {
            "ova": "a.ova", "digest": "0b".repeat(32), "name": "kaas-tenant", "kubernetes": ["1.36"], "signer": null,
            "image": {"version": "0.2.0", "build": "0c".repeat(16)},
        },
        "options": {
            "mode": "rolling", "gate_seconds": 900, "drain_seconds": 300, "on_failure": "node", "downgrade": false,
            "publisher": null,
        },
        "grounds": [], "nodes": [], "steps": [{"action": "verify"}, {"action": "snapshot"}],
    })
}
