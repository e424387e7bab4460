//! The objects of `kaas provider create`: the Provider and others from a file, and the Secret of its account. The password
//! never comes from the file of objects or from an argument.

use std::path::Path;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use controller::objects::SYSTEM;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::cluster_file::Source;
use crate::control::{PROVIDERS, ResourcePath, read, text};

/// A Provider, the objects that it names, and its account.
pub struct ProviderObjects {
    pub provider: Value,
    others: Vec<(&'static str, Value)>,
    account: Option<Value>,
}

/// Reads the password of the account from a file, or from a prompt to the operator.
pub fn password(file: Option<&Path>, user: &str) -> anyhow::Result<Zeroizing<String>> {
    let asked = || Source::Prompt(format!("Password of {user}"));
    file.map_or_else(asked, |file| Source::File(file.to_owned())).value().context("the password of the account")
}

impl ProviderObjects {
    /// Reads the objects of a file. Fails if it does not have exactly one Provider, or has an object of another kind.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let others = "apply others with `kubectl apply --server-side`";
        Self::of(read(path, &["Provider", "IPPool", "VMClass"], others)?)
    }

    fn of(objects: Vec<Value>) -> anyhow::Result<Self> {
        let (mut providers, others): (Vec<Value>, Vec<Value>) =
            objects.into_iter().partition(|object| text(object, "/kind") == "Provider");
        ensure!(providers.len() == 1, "the file has {} Providers: give one", providers.len());
        let plural = |object: Value| (if text(&object, "/kind") == "IPPool" { "ippools" } else { "vmclasses" }, object);
        Ok(Self { provider: providers.remove(0), others: others.into_iter().map(plural).collect(), account: None })
    }

    /// Adds the Secret that the Provider names.
    #[must_use]
    pub fn with_account(self, user: &str, password: &str) -> Self {
        let account = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": text(&self.provider, "/spec/credentialsRef/name"), "namespace": SYSTEM},
            "data": {"username": BASE64_STANDARD.encode(user), "password": BASE64_STANDARD.encode(password)},
        });
        Self { account: Some(account), ..self }
    }

    /// All objects, in the order of their creation.
    pub fn objects(&self) -> impl Iterator<Item = (ResourcePath<'static>, &Value)> {
        let account = self.account.iter().map(|account| (ResourcePath::within("secrets", SYSTEM), account));
        let others = self.others.iter().map(|(plural, object)| (ResourcePath::anywhere(plural), object));
        account.chain(others).chain([(PROVIDERS, &self.provider)])
    }

    /// The objects of the file, without the Secret.
    pub fn described(&self) -> Vec<&Value> {
        self.others.iter().map(|(_, object)| object).chain([&self.provider]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_has_valid_objects() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("provider.yaml");
        std::fs::write(&path, super::super::EXAMPLE).unwrap();
        let wanted = ProviderObjects::read(&path).unwrap();
        let described = wanted.described();
        let [pool, class, provider] = described.as_slice() else { panic!("{described:?}") };
        serde_json::from_value::<controller::objects::IPPool>((*pool).clone()).unwrap();
        serde_json::from_value::<controller::objects::VMClass>((*class).clone()).unwrap();
        serde_json::from_value::<controller::objects::Provider>((*provider).clone()).unwrap();
    }

    #[test]
    fn the_account_comes_first_and_the_provider_last() {
        let provider = json!({"kind": "Provider", "metadata": {"name": "dc1"}, "spec": {"credentialsRef": {"name": "dc1-account"}}});
        let (pool, class) = (json!({"kind": "IPPool"}), json!({"kind": "VMClass"}));
        let wanted = ProviderObjects::of(vec![provider.clone(), class.clone(), pool.clone()]).unwrap();
        let wanted = wanted.with_account("kaas@vsphere.local", "s\u{e9}cret");
        let objects: Vec<(ResourcePath<'_>, &Value)> = wanted.objects().collect();
        let account = objects[0].1;
        assert_eq!(objects[0].0, ResourcePath::within("secrets", "kaas-system"));
        assert_eq!((text(account, "/metadata/name"), text(account, "/data/password")), ("dc1-account", "c8OpY3JldA=="));
        let rest = [("vmclasses", &class), ("ippools", &pool), ("providers", &provider)];
        assert_eq!(objects[1..].iter().map(|(of, object)| (of.plural, *object)).collect::<Vec<_>>(), rest);
        assert!(ProviderObjects::of(vec![]).is_err() && ProviderObjects::of(vec![provider.clone(), provider]).is_err());
    }
}
