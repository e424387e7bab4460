//! `NodeImage`: an image that nodes of tenant clusters may run.

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
    /// SHA-256 over the digests of the OVA's manifest. It cannot change.
    #[schemars(
        schema_with = "shapes::digest",
        example = &"sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866"
    )]
    pub digest: String,
    /// Fingerprint of the publisher's key that must have signed the OVA. Unset for a development image without a signature. It
    /// cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub publisher: Option<String>,
    /// The phases of the image and when each begins. Without any, the image is `Supported`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), transform = shapes::keyed(&["phase"]))]
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

/// A phase of an image and when it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// The phase.
    pub phase: LifecyclePhase,
    /// When the phase begins.
    #[schemars(schema_with = "shapes::time", example = &"2027-01-01T00:00:00Z")]
    pub from: Time,
}

/// The phase of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum LifecyclePhase {
    /// The image is used where it is named, and never chosen by default.
    Preview,
    /// New clusters use the newest of these images.
    Supported,
    /// Clusters that have the image keep it, and report this. New clusters do not use it.
    Deprecated,
    /// Clusters that have the image report that they must leave it. New VMs are created from it only to keep the size of a
    /// cluster.
    Expired,
}

/// The state of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeImageStatus {
    /// The generation of the spec that was evaluated.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Whether VMs can be created from the image, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// Name of the appliance, from its templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub appliance: Option<String>,
    /// Version of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::version")]
    pub version: Option<String>,
    /// 32 hexadecimal digits that follow from the image's content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"), length(min = 32, max = 32))]
    pub build: Option<String>,
    /// The minor versions of Kubernetes that the image carries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::minors")]
    pub kubernetes: Vec<String>,
    /// The minor version of etcd that the image runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub etcd: Option<String>,
    /// The versions that can be upgraded to this image. Unset if any older version can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub upgrades_from: Option<String>,
    /// The current phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<LifecyclePhase>,
    /// The templates that VMs can be cloned from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), transform = shapes::keyed(&["provider", "datastore"]))]
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
    /// Whether the template has the stamp of this digest and this publisher.
    #[serde(default)]
    pub stamped: bool,
}

reasons! {
    /// Why a condition of an image has its status.
    NodeImageReason:
    /// VMs can be created from the image.
    Ready {
        /// Each datastore that clusters need it on has a template.
        TemplatesReady = True,
        /// No Provider has a template of it: push the OVA there.
        NoTemplate = False helps "push the OVA with `kaas image push`",
        /// A template lacks the stamp of this digest and this publisher, so it is not trusted; the message names it. Delete it
        /// and push the OVA again.
        NotStamped = False for operator helps "delete it, then push the OVA again with `kaas image push`",
        /// Its last phase has begun: use another image.
        Expired = False for operator helps "name another one in `spec.image` of the clusters",
        /// No Provider could be asked.
        NotAsked = Unknown,
    }
    /// This controller can run the image.
    Compatible {
        /// The controller can run it.
        Understood = True,
        /// The image needs something that this controller does not know: upgrade the control cluster first.
        TooNew = False for operator helps "upgrade the control cluster first: `kaas control upgrade`",
        /// The image is not one for tenant clusters.
        OtherAppliance = False for operator helps "push an OVA for tenant clusters with `kaas image push`",
        /// No template was read yet.
        NotRead = Unknown,
    }
}
