//! For the tests: a plan of an upgrade, as `fleet` writes it.

use serde_json::{Value, json};
use uuid::Uuid;

/// One without nodes.
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
