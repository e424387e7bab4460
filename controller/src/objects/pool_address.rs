//! `PoolAddress`: one address in use. Creating the object claims the address: the object has the address's name, and an API
//! server creates each name once. Earlier releases put the pool's name before it; the controller replaces such objects.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reference::Reference;
use super::rules::{rule, unchanged};
use super::shapes;

/// An address in use.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "PoolAddress",
    plural = "pooladdresses",
    doc = "An address of an IPPool that is in use. The controller creates it, and removes it once the VM that had it is proved deleted.",
    derive = "PartialEq",
    shortname = "pa",
    validation = kube::core::Rule::new("oldSelf.hasValue() || self.metadata.name == self.spec.address.replace('.', '-')")
        .message("the name is not the address with dashes for dots: this prevents two claims")
        .optional_old_self(true),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.claimant.namespace"),
    printcolumn(name = "For", type_ = "string", json_path = ".spec.claimant.name"),
    printcolumn(name = "Purpose", type_ = "string", json_path = ".spec.claimant.purpose"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.poolRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [unchanged(
    "an address in use stays as it is: it is released and claimed again"
)]))]
pub struct PoolAddressSpec {
    /// The pool of the address.
    pub pool_ref: Reference,
    /// The address.
    #[schemars(schema_with = "shapes::ipv4", example = &"192.168.10.21")]
    pub address: String,
    /// The owner of the address.
    pub claimant: Claimant,
    /// Whether the cluster names the address itself. Then it need not be in a range of the pool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named: bool,
}

/// The owner of an address, and its purpose: a claimant has one address for each purpose and number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = claimant_rules()))]
pub struct Claimant {
    /// The kind: `Machine` for a node's address, `TenantCluster` for an endpoint and for Services.
    #[schemars(schema_with = "shapes::word", example = &"Machine")]
    pub kind: String,
    /// Namespace of the claimant.
    #[schemars(schema_with = "shapes::label", example = &"team-blue")]
    pub namespace: String,
    /// Name of the claimant.
    #[schemars(schema_with = "shapes::name", example = &"shop-general-w1")]
    pub name: String,
    /// UID of the claimant. Another object of the same name has no right to the address.
    #[schemars(schema_with = "shapes::uuid")]
    pub uid: String,
    /// Use of the address.
    pub purpose: Purpose,
    /// Number of the address among those with the same purpose, from 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 255))]
    pub index: u32,
}

fn claimant_rules() -> Vec<Value> {
    vec![
        rule(
            "(self.kind == 'Machine') == (self.purpose == 'Node')",
            "a Machine's address is for its node, and a node's address is a Machine's",
        ),
        rule("self.purpose == 'ServiceVIP' || self.index == 0", "only for Services there are several"),
    ]
}

/// Use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Purpose {
    /// The address of a node.
    Node,
    /// The Kubernetes API of a cluster.
    Endpoint,
    /// Services of the type LoadBalancer.
    #[serde(rename = "ServiceVIP")]
    ServiceVip,
}
