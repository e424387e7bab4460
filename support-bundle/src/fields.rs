//! The fields of objects that no bundle contains. Knows no kind.

use serde_json::Value;

use crate::redact::{REMOVED, Redactor, names_a_secret};

/// Fields that are left out at any depth. Values of fields whose names mark a secret ([`names_a_secret`]) are replaced as well,
/// and secrets within other texts ([`Redactor`]).
const REMOVED_FIELDS: [&str; 12] = [
    // The content of Secrets and ConfigMaps.
    "binaryData",
    "data",
    "stringData",
    // The settings of a pod's containers, where a secret may have any form.
    "args",
    "command",
    "env",
    "httpHeaders",
    // A copy of the whole object.
    "kubectl.kubernetes.io/last-applied-configuration",
    // Long, and of no use for a diagnosis.
    "managedFields",
    // Credentials, and a hash from which a short password could be found.
    "credentials",
    "kubeconfig",
    "secretHash",
];

/// Fields below the name of a secret that only say where the secret is.
const REFERENCES: [&str; 4] = ["name", "namespace", "optional", "secretName"];

/// Removes the fields from an object, and secrets from its texts.
pub fn redact_object(object: &mut Value, redactor: &Redactor) {
    clean(object, false, redactor);
}

fn clean(value: &mut Value, is_secret: bool, redactor: &Redactor) {
    match value {
        Value::String(_) | Value::Number(_) if is_secret => *value = REMOVED.into(),
        Value::String(text) => *text = redactor.redact(text),
        Value::Array(values) => values.iter_mut().for_each(|value| clean(value, is_secret, redactor)),
        Value::Object(fields) => {
            fields.retain(|name, _| !REMOVED_FIELDS.contains(&name.as_str()));
            for (name, value) in fields {
                let is_reference = is_secret && REFERENCES.contains(&name.as_str());
                clean(value, !is_reference && (is_secret || names_a_secret(name)), redactor);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_fields_are_removed_at_any_depth() {
        let mut object = json!({
            "metadata": {
                "name": "shop",
                "managedFields": [{"manager": "kaas"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "password=x y"},
            },
            "spec": {
                "containers": [{"name": "app", "args": ["--word", "x"], "env": [{"name": "A", "value": "x"}]}],
                "volumes": [{"secret": {"secretName": "account", "items": [{"key": "x"}]}}],
                "login": {"clientSecret": ["x", 7], "passwordRef": {"name": "account"}, "caKey": {"pem": "x"}},
            },
            "data": {"tls.key": "x"},
            "status": {"secretHash": "x", "ready": true},
        });
        redact_object(&mut object, &Redactor::new([]));
        let expected = json!({
            "metadata": {"name": "shop", "annotations": {"note": "password=[removed] y"}},
            "spec": {
                "containers": [{"name": "app"}],
                "volumes": [{"secret": {"secretName": "account", "items": [{"key": REMOVED}]}}],
                "login": {"clientSecret": [REMOVED, REMOVED], "passwordRef": {"name": "account"}, "caKey": {"pem": REMOVED}},
            },
            "status": {"ready": true},
        });
        assert_eq!(object, expected);
    }
}
