//! For the tests: an API server on loopback that knows the pods of one node, and an administrator's kubeconfig for it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use contract::ports;
use contract::properties::ControlNode;
use contract::secret::Secret;
use serde_json::{Value, json};

use crate::cluster::kubernetes::ADMINISTRATOR;
use crate::cluster::pki::{self, CertificateWithKey};
use crate::host::fake_server;
use crate::host::files;

/// The pods, and why the first may not be evicted, if it may not.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<(Vec<Value>, Option<&'static str>)>>);

impl FakeApi {
    /// Starts it on a node, with the keys of its etcd in the directory `pki`.
    pub(crate) fn start(node: &ControlNode, pki: &Path) -> Self {
        pki::ensure_member(node, pki, SystemTime::now()).unwrap();
        let api = Self::default();
        let own = api.clone();
        let answer = move |path: &str, _: &Value| own.answer(path);
        fake_server::serve(SocketAddr::from((node.address, ports::API)), &pki.join("etcd/server"), Box::new(answer));
        api
    }

    pub(crate) fn lay_kubeconfig(root: &Path, pki: &Path) {
        let read = |name: &str| std::fs::read_to_string(pki.join("etcd").join(name)).unwrap();
        let key = Secret::new(read("healthcheck-client.key"));
        let client = CertificateWithKey { certificate: read("healthcheck-client.crt"), key };
        let text = pki::kubeconfig("https://127.0.0.1:1".into(), read("ca.crt"), client).render("administrator");
        files::write_atomically(&files::below(root, ADMINISTRATOR), text.as_bytes(), 0o600).unwrap();
    }

    /// From now on these are the pods, and the first may not be evicted for this reason, if there is one.
    pub(crate) fn has(&self, pods: Vec<Value>, refusal: Option<&'static str>) {
        *self.0.lock().unwrap() = (pods, refusal);
    }

    fn answer(&self, path: &str) -> (u16, Value) {
        let (pods, refusal) = &*self.0.lock().unwrap();
        match (path.split(['?']).next(), refusal) {
            (Some("/api/v1/nodes/node1"), _) => (200, json!({"spec": {}})),
            (Some("/api/v1/pods"), _) => (200, json!({"items": pods})),
            (Some(path), Some(why)) if path.ends_with("/eviction") => {
                (429, json!({"message": "Cannot evict", "details": {"causes": [{"message": why}]}}))
            }
            (Some(path), None) if path.ends_with("/eviction") => (201, json!({})),
            _ => panic!("{path} is not asked of the API here"),
        }
    }
}
