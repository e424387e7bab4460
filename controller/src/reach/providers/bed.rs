//! A vCenter without bodies for one test, and a Provider for it.

use std::ops::{Deref, DerefMut};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use testbed::{ADMINISTRATOR, PASSWORD};

use crate::objects::{Provider, SYSTEM};

/// A vCenter that ends when this value is dropped.
pub(crate) struct Bed(testbed::Bed);

impl Deref for Bed {
    type Target = testbed::Bed;

    fn deref(&self) -> &testbed::Bed {
        &self.0
    }
}

impl DerefMut for Bed {
    fn deref_mut(&mut self) -> &mut testbed::Bed {
        &mut self.0
    }
}

impl Bed {
    pub(crate) fn start() -> Self {
        Self(testbed::Bed::with_users(&[]))
    }

    /// As `start`, with this version of the API.
    pub(crate) fn of_api(version: &str) -> Self {
        Self(testbed::Bed::with_users(&["-api", version]))
    }

    /// A Provider for it, with `change` merged into its vSphere spec. The folder is not created.
    pub(crate) fn provider(&self, change: &Value) -> Provider {
        let zone = json!({"name": "a", "cluster": "DC0_C0", "datastore": "LocalDS_0"});
        let mut vsphere = json!({
            "server": self.address(), "thumbprint": self.thumbprint().to_string(), "datacenter": "DC0", "folder": "tenants",
            "zones": [zone],
            "networks": [{"name": "blue", "portGroup": "VM Network", "addressing": "DHCP"}],
        });
        for (name, value) in change.as_object().into_iter().flatten() {
            vsphere[name] = value.clone();
        }
        let object = json!({
            "apiVersion": "kaas.local/v1alpha1", "kind": "Provider", "metadata": {"name": "dc1"},
            "spec": {"type": "vSphere", "vsphere": vsphere, "credentialsRef": {"name": "dc1"}},
        });
        serde_json::from_value(object).unwrap()
    }

    pub(crate) async fn make_tenants(&self) {
        let client = self.client_of(ADMINISTRATOR, PASSWORD, vsphere::Settings::default()).await;
        self.make_folder(&client, "tenants").await;
        client.log_out().await.unwrap();
    }
}

pub(crate) fn secret(user: &str, password: &str) -> Secret {
    let data = [("username", user), ("password", password)];
    let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
    let metadata =
        ObjectMeta { name: Some("dc1".to_owned()), namespace: Some(SYSTEM.to_owned()), ..ObjectMeta::default() };
    Secret { metadata, data: Some(data.into()), ..Secret::default() }
}
