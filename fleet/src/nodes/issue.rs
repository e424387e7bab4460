//! Issues credentials with new keys by Kubernetes' API for certificates, which images of all versions have. Knows no
//! user by name.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::secret::Secret;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Client, Credentials, Method};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// How often the certificate is looked for, and the pause in between: Kubernetes signs within a second.
const LOOKS: usize = 20;
const PACE: Duration = Duration::from_millis(500);

impl Client {
    /// Credentials of `user` with a new key, valid for `life`. `own` are those of this client, an administrator's. They give no
    /// right until one is bound to the user. After an error a request may be left: Kubernetes removes it within a day.
    ///
    /// # Errors
    /// The API does not answer or refuses, or the cluster does not sign in time.
    pub async fn issue(&self, own: &Credentials, user: &str, life: Duration) -> anyhow::Result<Credentials> {
        let key = KeyPair::generate().context("drawing a key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        let request = params.serialize_request(&key).and_then(|request| request.pem()).context("making a request")?;
        let name = format!("kaas-{}", Uuid::new_v4());
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": BASE64_STANDARD.encode(request),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "expirationSeconds": life.as_secs(),
                "usages": ["client auth", "digital signature"],
            },
        });
        let answer = self.ask_api(Method::POST, REQUESTS, Some(&object)).await?;
        ensure!(answer.status == 201, "the API server takes no request for a certificate: {}", answer.refusal());
        let path = format!("{REQUESTS}/{name}");
        let approved = json!({"status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "Deployer", "message": "requested by the deployer of the cluster",
        }]}});
        let answer = self.ask_api(Method::PATCH, &format!("{path}/approval"), Some(&approved)).await?;
        ensure!(answer.status == 200, "the API server refuses the approval of a certificate: {}", answer.refusal());
        for _ in 0..LOOKS {
            let answer = self.ask_api(Method::GET, &path, None).await?;
            ensure!(answer.status == 200, "the API server answered {}", answer.refusal());
            // Parsed as it was sent: `Answer::json` cuts texts.
            let seen: Value = serde_json::from_slice(&answer.body).context("understanding the request")?;
            if let Some(certificate) = seen["status"]["certificate"].as_str() {
                let pem = BASE64_STANDARD.decode(certificate).context("reading the certificate")?;
                let pem = String::from_utf8(pem).context("reading the certificate")?;
                return own.with_certificate(pem, Secret::new(key.serialize_pem()));
            }
            tokio::time::sleep(PACE).await;
        }
        bail!("the cluster has not signed a certificate in time: look whether its kube-controller-manager runs")
    }

    /// Gives a user all rights in the cluster, by a binding with the user's name. Removing it revokes them.
    ///
    /// # Errors
    /// The API does not answer or refuses.
    pub async fn make_administrator(&self, user: &str) -> anyhow::Result<()> {
        const API: &str = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{API}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": API, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": API, "kind": "User", "name": user}],
        });
        let answer = self.ask_api(Method::POST, BINDINGS, Some(&binding)).await?;
        ensure!([201, 409].contains(&answer.status), "the API server refuses the binding: {}", answer.refusal());
        Ok(())
    }
}
