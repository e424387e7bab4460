//! The records in which control-plane nodes note the workers that they have admitted. A deployer of workers reads there which
//! key was admitted with a worker's name, and frees that name. The other fields are the control-plane nodes' own.

use serde::Deserialize;

/// The name of the ConfigMap. Its keys are names of nodes.
pub const NAME: &str = "kaas-worker-records";

/// The API path of the ConfigMaps of its namespace.
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";

/// The API path of the ConfigMap.
pub fn path() -> String {
    format!("{CONFIG_MAPS}/{NAME}")
}

/// The part of a worker's record that says which key was admitted with its name. The value of its key is JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AdmittedWorker {
    /// The key that was admitted last ([`crate::statement::Statement::key`]). `None` if it is no longer known.
    #[serde(default)]
    let_in: Option<String>,
    /// The UID of its Node object, once there is one.
    #[serde(default)]
    uid: Option<String>,
}

impl AdmittedWorker {
    /// Reads the record of one worker. `None` if it cannot be parsed.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The key that was admitted last, if it is recorded and may be that of the Node object with this UID.
    pub fn key_of(&self, uid: &str) -> Option<&str> {
        let is_its_own = self.uid.as_deref().is_none_or(|noted| noted == uid);
        self.let_in.as_deref().filter(|_| is_its_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_admitted_key_belongs_to_the_recorded_object() {
        let key = |text: &str| AdmittedWorker::read(text).and_then(|noted| noted.key_of("u").map(str::to_owned));
        assert_eq!(key(r#"{"joined":"t","let_in":"b","key":"a","uid":"u"}"#).as_deref(), Some("b"));
        assert_eq!(key(r#"{"joined":"t","let_in":"b"}"#).as_deref(), Some("b"), "before its object exists");
        assert_eq!(key(r#"{"joined":"t","let_in":"b","uid":"another"}"#), None);
        assert_eq!(key(r#"{"joined":"t","uid":"u"}"#), None);
        assert_eq!(key("[]"), None);
    }
}
