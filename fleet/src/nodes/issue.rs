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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use contract::kubeconfig::Kubeconfig;
    use rcgen::{BasicConstraints, IsCa, Issuer};

    use super::super::tests::client;
    use super::*;

    /// Answers one request on each connection, and returns the requests: their first line and body.
    fn served(listener: &TcpListener, answers: &[(&str, String)]) -> Vec<(String, Value)> {
        let serve = |(status, body): &(&str, String)| {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut sent, mut part) = (Vec::new(), [0; 4096]);
            let asked = loop {
                let read = stream.read(&mut part).unwrap();
                sent.extend_from_slice(&part[..read]);
                let text = String::from_utf8_lossy(&sent).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
                if body.len() >= length.map_or(0, |(_, length)| length.parse().unwrap()) {
                    let body = serde_json::from_str(body).unwrap_or_default();
                    break (head.lines().next().unwrap().to_owned(), body);
                }
            };
            let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
            asked
        };
        answers.iter().map(serve).collect()
    }

    // Finding 1 of controller.md: the kubeconfig for users has its own user and key.
    #[test]
    fn issued_credentials_have_their_user_and_key() {
        let (signer, mut parameters) = (KeyPair::generate().unwrap(), CertificateParams::default());
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = parameters.self_signed(&signer).unwrap().pem();
        let issuer = Issuer::new(parameters, signer);
        let (own_key, mut parameters) = (KeyPair::generate().unwrap(), CertificateParams::default());
        parameters.distinguished_name.push(DnType::CommonName, "kaas:kubeconfig:1");
        let certificate = parameters.signed_by(&own_key, &issuer).unwrap().pem();
        let own = Kubeconfig {
            server: "https://10.0.0.10:6443".to_owned(),
            server_name: None,
            authority: authority.clone(),
            certificate: authority,
            key: Secret::new(own_key.serialize_pem()),
        };
        let own = Credentials::parse(&own.render("deployer")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client(format!("http://{}", listener.local_addr().unwrap()));
        let signed = json!({"status": {"certificate": BASE64_STANDARD.encode(certificate)}}).to_string();
        let answers = [("201 Created", "{}".to_owned()), ("200 OK", "{}".to_owned()), ("200 OK", signed)];
        let (issued, asked) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| served(&listener, &answers));
            let issued = client.wait(client.issue(&own, "kaas:kubeconfig:1", Duration::from_secs(600)));
            (issued.unwrap(), asked.join().unwrap())
        });
        assert_eq!(issued.user().as_deref(), Some("kaas:kubeconfig:1"));
        let kubeconfig = Kubeconfig::parse(&issued.kubeconfig("admin")).unwrap();
        assert_eq!(kubeconfig.server, "https://10.0.0.10:6443");
        assert_ne!(kubeconfig.key.expose(), own_key.serialize_pem());
        let (line, request) = &asked[0];
        assert!(line.starts_with("POST /apis/certificates.k8s.io/v1/"), "{line}");
        assert_eq!(request["spec"]["signerName"], "kubernetes.io/kube-apiserver-client");
        assert_eq!(request["spec"]["expirationSeconds"], 600);
        assert!(asked[1].0.contains("/approval") && asked[1].1["status"]["conditions"][0]["type"] == "Approved");
    }
}
