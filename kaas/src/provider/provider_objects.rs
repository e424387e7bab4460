//! A Provider and what is made with it, from a file; and the Secret of its account, whose password is in no file of objects and in
//! no argument.

use std::path::Path;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use controller::objects::SYSTEM;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::cluster_file::Source;
use crate::control::{ResourcePath, read, text};

/// A Provider, what it names, and its account.
pub struct ProviderObjects {
    pub provider: Value,
    others: Vec<(&'static str, Value)>,
    account: Option<Value>,
}

/// Where a password comes from.
pub struct Password(Source);

impl Password {
    /// From a file, or from whoever sits there.
    pub fn of(file: Option<&Path>, user: &str) -> Self {
        let asked = || Source::Prompt(format!("Password of {user}"));
        Self(file.map_or_else(asked, |file| Source::File(file.to_owned())))
    }

    /// The password.
    pub fn value(&self) -> anyhow::Result<Zeroizing<String>> {
        self.0.value().context("the password of the account")
    }
}

impl ProviderObjects {
    /// What a file has.
    ///
    /// # Errors
    /// It cannot be read, has not one Provider, or something that is none of its own.
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

    /// The same, with the Secret that the Provider names.
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

    /// All, in the order in which they are made.
    pub fn objects(&self) -> impl Iterator<Item = (ResourcePath<'static>, &Value)> {
        let account = self.account.iter().map(|account| (ResourcePath::within("secrets", SYSTEM), account));
        let others = self.others.iter().map(|(plural, object)| (ResourcePath::anywhere(plural), object));
        account.chain(others).chain([(super::PROVIDERS, &self.provider)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
