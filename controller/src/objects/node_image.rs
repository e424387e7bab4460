//! `NodeImage`: an image that nodes of tenants may run.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, reasons};
use super::rules::{at, fixed, fixed_if_given};
use super::shapes;

/// An image by its content.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "NodeImage",
    doc = "An image that nodes of tenant clusters may run, by the digest of its OVA and the key that has signed it.",
    derive = "PartialEq",
    status = "NodeImageStatus",
    category = "kaas",
    shortname = "nimg",
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Kubernetes", type_ = "string", json_path = ".status.kubernetes"),
    printcolumn(name = "Lifecycle", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "Compatible",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Compatible\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = image_rules()))]
pub struct NodeImageSpec {
    /// SHA-256 over the digests of the OVA's manifest. It stays.
    #[schemars(
        schema_with = "shapes::digest",
        example = &"sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866"
    )]
    pub digest: String,
    /// Fingerprint of the publisher's key that must have signed the OVA; none for a development image, which nobody has signed.
    /// It stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub publisher: Option<String>,
    /// From when on the image is what. Without any it is supported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 4),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["phase"])
    )]
    pub lifecycle: Vec<Lifecycle>,
}

fn image_rules() -> Vec<Value> {
    let place = |phase: &str| format!("{{'Preview': 0, 'Supported': 1, 'Deprecated': 2, 'Expired': 3}}[{phase}]");
    vec![
        fixed("digest", "an image is its content: make another NodeImage"),
        fixed_if_given("publisher", "the publisher of an image stays: make another NodeImage"),
        at(
            "lifecycle",
            format!(
                "!has(self.lifecycle) || self.lifecycle.all(one, self.lifecycle.all(other, {} >= {} || one.from < other.from))",
                place("one.phase"),
                place("other.phase"),
            ),
            "phases do not follow each other as Preview, Supported, Deprecated, Expired",
        ),
    ]
}

/// From when on an image is what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// What it is.
    pub phase: LifecyclePhase,
    /// From when on.
    #[schemars(example = &"2027-01-01T00:00:00Z")]
    pub from: Time,
}

/// How far an image is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum LifecyclePhase {
    /// It is taken where it is named, and never by itself.
    Preview,
    /// New clusters take the newest one of these.
    Supported,
    /// Clusters that have it keep it, and say so; no new one takes it.
    Deprecated,
    /// Clusters that have it say that they must leave it; no VM is made of it for any other reason than to keep their size.
    Expired,
}

/// What is known of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeImageStatus {
    /// The generation of the spec that this was judged by.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Whether VMs can be made of it, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// The name of the appliance, as its templates have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub appliance: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::version")]
    pub version: Option<String>,
    /// 32 hexadecimal digits that come from its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"), length(min = 32, max = 32))]
    pub build: Option<String>,
    /// The minors of Kubernetes that it carries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::minors")]
    pub kubernetes: Vec<String>,
    /// The minor of etcd that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub etcd: Option<String>,
    /// Of which versions it may take the place; none for any that is not newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub upgrades_from: Option<String>,
    /// How far it is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<LifecyclePhase>,
    /// Where VMs can be cloned from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["provider", "datastore"])
    )]
    pub templates: Vec<Template>,
}

/// A template that VMs are cloned from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// The Provider.
    #[schemars(schema_with = "shapes::label")]
    pub provider: String,
    /// The datastore.
    #[schemars(schema_with = "shapes::inventory")]
    pub datastore: String,
    /// BIOS UUID of the template.
    #[schemars(schema_with = "shapes::uuid")]
    pub uuid: String,
    /// Whether it carries the stamp of this digest and this signer.
    #[serde(default)]
    pub stamped: bool,
}

reasons! {
    /// Why a condition of an image is as it is.
    NodeImageReason:
    /// VMs can be made of it.
    Ready {
        /// Each datastore that clusters need it on has a template.
        TemplatesReady = True,
        /// No Provider has a template of it: push the OVA there.
        NoTemplate = False,
        /// A template does not carry the stamp of this digest and this signer, so it is not believed; the message names it.
        /// Delete it and push the OVA again.
        NotStamped = False,
        /// Its last phase has begun: take another one.
        Expired = False,
        /// No Provider could be asked.
        NotAsked = Unknown,
    }
    /// This controller knows how to run it.
    Compatible {
        /// It does.
        Understood = True,
        /// The image says something of itself that this controller does not know: upgrade the control cluster first.
        TooNew = False,
        /// It is no image of tenant clusters.
        OtherAppliance = False,
        /// No template was read yet.
        NotRead = Unknown,
    }
}
