//! Where control nodes note which workers they have let in. Who has made a worker's VM finds there with which key somebody was
//! let in by its name, and frees that name. What else is noted of each is theirs.

use serde::Deserialize;

/// The name of the ConfigMap. Its keys are names of nodes.
pub const NAME: &str = "kaas-worker-records";

/// Where ConfigMaps of its namespace are.
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";

/// Where it is.
pub fn path() -> String {
    format!("{CONFIG_MAPS}/{NAME}")
}

/// Of what is noted of a worker, what tells who was let in by its name. The value of its key is JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AdmittedWorker {
    /// The key that was let in last ([`crate::statement::Statement::key`]); none where nobody knows it any more.
    #[serde(default)]
    let_in: Option<String>,
    /// The same until that key's token is no more, as earlier images note it.
    #[serde(default)]
    key: Option<String>,
    /// The UID of its Node object, once there is one.
    #[serde(default)]
    uid: Option<String>,
}

impl AdmittedWorker {
    /// Reads what is noted of one worker; none where that cannot be understood.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The key that was let in last, if it is noted and may be that of the Node object with this UID.
    pub fn key_of(&self, uid: &str) -> Option<&str> {
        let is_its_own = self.uid.as_deref().is_none_or(|noted| noted == uid);
        self.let_in.as_deref().or(self.key.as_deref()).filter(|_| is_its_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_let_in_last_is_that_of_the_noted_object_alone() {
        let key = |text: &str| AdmittedWorker::read(text).and_then(|noted| noted.key_of("u").map(str::to_owned));
        assert_eq!(key(r#"{"joined":"t","let_in":"b","key":"a","uid":"u"}"#).as_deref(), Some("b"));
        assert_eq!(
            key(r#"{"joined":"t","key":"a"}"#).as_deref(),
            Some("a"),
            "an earlier image's, before its object is there"
        );
        assert_eq!(key(r#"{"joined":"t","let_in":"b","uid":"another"}"#), None);
        assert_eq!(key(r#"{"joined":"t","uid":"u"}"#), None);
        assert_eq!(key("[]"), None);
    }
}
