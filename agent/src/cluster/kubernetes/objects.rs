//! The paths of the objects that the agent applies, and whether the objects exist.

use anyhow::Context as _;
use serde_json::Value;

use super::api::Api;

/// The path of an object that is applied, from its own fields (Kubernetes API conventions, "Types (Kinds)" and "Resources").
/// The name of its resource is its kind, in small letters and in the plural.
fn path(object: &Value) -> Option<String> {
    let version = object["apiVersion"].as_str()?;
    let api = if version.contains('/') { "apis" } else { "api" };
    let kind = object["kind"].as_str()?.to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let name = object["metadata"]["name"].as_str()?;
    let home = object["metadata"]["namespace"].as_str().map(|home| format!("/namespaces/{home}")).unwrap_or_default();
    Some(format!("/{api}/{version}{home}/{plural}/{name}"))
}

/// An object for people: its kind, and its name with its namespace.
pub fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

impl Api {
    /// The cluster's object of this kind and name, if there is one. Nothing of a kind that the cluster does not know.
    pub fn like(&self, object: &Value) -> anyhow::Result<Option<Value>> {
        let path = path(object).context("an object without a kind or a name")?;
        self.find(&path).with_context(|| format!("asking for the {}", named(object)))
    }

    /// As [`Self::like`]. Nothing if this client may not read it: an earlier image gave no such right.
    pub fn like_if_allowed(&self, object: &Value) -> anyhow::Result<Option<Value>> {
        let path = path(object).context("an object without a kind or a name")?;
        self.find_unless(&[403, 404], &path).with_context(|| format!("asking for the {}", named(object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_objects_own_fields_give_its_path() {
        let at = |version: &str, kind: &str, namespace: Option<&str>| {
            let object =
                json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}});
            path(&object).unwrap()
        };
        assert_eq!(at("v1", "ConfigMap", Some("n")), "/api/v1/namespaces/n/configmaps/x");
        assert_eq!(at("v1", "Namespace", None), "/api/v1/namespaces/x");
        assert_eq!(at("apps/v1", "DaemonSet", Some("n")), "/apis/apps/v1/namespaces/n/daemonsets/x");
        assert_eq!(at("storage.k8s.io/v1", "StorageClass", None), "/apis/storage.k8s.io/v1/storageclasses/x");
        let policy = at("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", None);
        assert_eq!(policy, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/x");
        assert_eq!(
            at("metallb.io/v1beta1", "IPAddressPool", Some("n")),
            "/apis/metallb.io/v1beta1/namespaces/n/ipaddresspools/x"
        );
    }
}
