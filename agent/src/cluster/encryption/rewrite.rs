//! Makes the API server write the Secrets again that are not encrypted with the current key yet. The list of them comes
//! from etcd itself, so it is certain when none is left.

use anyhow::Context as _;

use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::kubernetes::answer;
use crate::cluster::kubernetes::api::Api;

const SECRETS: &str = "/registry/secrets/";

/// The number of Secrets in one answer, which then fits in memory: a Secret has 1 MiB at most.
const PAGE: u32 = 4;

/// A Secret: its namespace and its name.
pub type Name = (String, String);

/// The prefix of encrypted values (`k8s.io/apiserver`, `encryptionconfig`).
fn prefix(id: &str) -> String {
    format!("k8s:enc:secretbox:v1:{id}:")
}

/// The Secrets in etcd that are not encrypted with the key of this name.
pub fn others(etcd: &EtcdClient, id: &str) -> anyhow::Result<Vec<Name>> {
    let (wanted, mut found, mut after) = (prefix(id), Vec::new(), None);
    loop {
        let page = etcd.page(SECRETS, after.as_deref(), PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        after = Some(last.clone());
        for (key, value) in page {
            if !value.starts_with(wanted.as_bytes()) {
                found.push(name(&key).with_context(|| format!("{key} in the store is no Secret's"))?);
            }
        }
    }
}

fn name(key: &str) -> Option<Name> {
    let (namespace, name) = key.strip_prefix(SECRETS)?.split_once('/')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then(|| (namespace.to_owned(), name.to_owned()))
}

/// Secrets that were changed or deleted meanwhile are skipped. An admission webhook may refuse. The next call
/// continues.
pub fn again(api: &Api, secrets: &[Name]) -> anyhow::Result<()> {
    for (namespace, name) in secrets {
        // The request has no change: the API server writes because the stored value is not encrypted with its first
        // key.
        let answer = api.merge(&format!("/api/v1/namespaces/{namespace}/secrets/{name}"), &serde_json::json!({}))?;
        match answer.code {
            200 | 404 | 409 => {}
            _ => return Err(answer::refused(&answer).context(format!("writing the Secret {namespace}/{name} again"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_in_the_store_names_a_secret() {
        assert_eq!(name("/registry/secrets/kube-system/a.b"), Some(("kube-system".into(), "a.b".into())));
        for strange in
            ["/registry/secrets/a", "/registry/secrets//a", "/registry/secrets/a/", "/registry/secrets/a/b/c", "/x"]
        {
            assert_eq!(name(strange), None, "{strange}");
        }
        // A key whose name has another one's name as a prefix is not taken for it.
        assert!(!"k8s:enc:secretbox:v1:k12:x".starts_with(&prefix("k1")));
    }
}
