//! The serving certificates of workers' kubelets, which the API server verifies: a kubelet asks for its own, and Kubernetes
//! leaves it to others whether that is right. Control nodes approve what names the node that asks, at the address that
//! the cluster knows it by, and nothing else.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::json;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::answer;
use super::api::Api;

/// Who signs such a certificate.
const SIGNER: &str = "kubernetes.io/kubelet-serving";

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// What such a certificate may be used for.
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

#[derive(Deserialize)]
struct Requests {
    items: Vec<Request>,
}

#[derive(Deserialize)]
struct Request {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    request: String,
    signer_name: String,
    username: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    usages: Vec<String>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Nodes {
    items: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    metadata: Metadata,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    addresses: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl Node {
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.status.addresses.iter().filter(|one| one.kind == "InternalIP").filter_map(|one| one.address.parse().ok())
    }
}

impl Api {
    /// Approves what kubelets of workers have asked for. `reserved` are addresses that no worker has. Gives the names of those
    /// approved, and of those that are not, with the reason.
    ///
    /// # Errors
    /// The API does not answer.
    pub fn approve_serving(&self, reserved: &[Ipv4Addr]) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let path = format!("{REQUESTS}?fieldSelector=spec.signerName={SIGNER}");
        let requests: Requests = self.read(&path).context("listing the requests for serving certificates")?;
        let open: Vec<Request> = requests.items.into_iter().filter(|one| one.status.conditions.is_empty()).collect();
        let (mut approved, mut left) = (Vec::new(), Vec::new());
        if open.is_empty() {
            return Ok((approved, left));
        }
        let nodes: Nodes = self.read("/api/v1/nodes").context("listing the nodes")?;
        for request in open {
            let name = &request.metadata.name;
            if let Err(error) = judge(&request.spec, &nodes.items, reserved) {
                left.push(format!("{name} of {}: {error:#}", request.spec.username));
                continue;
            }
            let condition = json!({
                "type": "Approved", "status": "True", "reason": "KaasWorker",
                "message": "It names the node that asks, at the address of its Node object.",
            });
            let answer =
                self.merge(&format!("{REQUESTS}/{name}/approval"), &json!({"status": {"conditions": [condition]}}))?;
            match answer.code {
                200 => approved.push(request.spec.username),
                // Another control node was first.
                404 | 409 => {}
                _ => return Err(answer::refused(&answer).context(format!("approving the request {name}"))),
            }
        }
        Ok((approved, left))
    }
}

fn judge(spec: &Spec, nodes: &[Node], reserved: &[Ipv4Addr]) -> anyhow::Result<()> {
    let name = spec.username.strip_prefix("system:node:").context("it is no node that asks")?;
    ensure!(
        spec.signer_name == SIGNER && spec.groups.iter().any(|group| group == "system:nodes"),
        "it is no node that asks"
    );
    let server = spec.usages.iter().any(|usage| usage == "server auth");
    ensure!(server && spec.usages.iter().all(|usage| USAGES.contains(&usage.as_str())), "it is for other uses");
    let node = nodes.iter().find(|node| node.metadata.name == name).context("there is no such node")?;
    let own: BTreeSet<IpAddr> = node.addresses().collect();
    let foreign = |address: &IpAddr| {
        let others = || nodes.iter().filter(|other| other.metadata.name != name);
        reserved.iter().any(|one| IpAddr::V4(*one) == *address)
            || others().any(|other| other.addresses().any(|one| one == *address))
    };
    ensure!(!own.iter().any(foreign), "the node claims the address of another one");
    let pem = BASE64_STANDARD.decode(&spec.request).context("decoding it")?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).context("reading it")?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).context("understanding it")?;
    let subject = &request.certification_request_info.subject;
    let text = |mut names: Vec<Result<&str, x509_parser::error::X509Error>>| match names.len() {
        1 => names.pop().and_then(Result::ok).unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    let common = text(subject.iter_common_name().map(|name| name.as_str()).collect());
    let group = text(subject.iter_organization().map(|name| name.as_str()).collect());
    ensure!(common == spec.username && group == "system:nodes", "its subject is another one's");
    let mut named = false;
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for one in &names.general_names {
            match one {
                GeneralName::DNSName(dns) => ensure!(*dns == name, "it names {dns}"),
                GeneralName::IPAddress(bytes) => {
                    let address = address(bytes).context("it names an address of no length")?;
                    ensure!(own.contains(&address), "it names {address}, which is not the node's");
                    named = true;
                }
                other => anyhow::bail!("it names {other}"),
            }
        }
    }
    ensure!(named, "it names no address");
    Ok(())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes).map(IpAddr::from).or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    fn nodes() -> Vec<Node> {
        let node = |name: &str, address: &str| {
            json!({"metadata": {"name": name}, "status": {"addresses": [
                {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]}})
        };
        serde_json::from_value(json!([
            node("cp1", "10.0.0.11"),
            node("worker1", "10.0.0.21"),
            node("liar", "10.0.0.21")
        ]))
        .unwrap()
    }

    struct Asked {
        user: &'static str,
        common: &'static str,
        names: &'static [&'static str],
        addresses: &'static [&'static str],
        usages: &'static [&'static str],
    }

    const GOOD: Asked = Asked {
        user: "system:node:worker1",
        common: "system:node:worker1",
        names: &["worker1"],
        addresses: &["10.0.0.21"],
        usages: &["digital signature", "server auth"],
    };

    fn spec(asked: &Asked) -> Spec {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, asked.common);
        let dns = asked.names.iter().map(|name| SanType::DnsName((*name).try_into().unwrap()));
        let addresses = asked.addresses.iter().map(|address| SanType::IpAddress(address.parse().unwrap()));
        params.subject_alt_names = dns.chain(addresses).collect();
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        Spec {
            request: BASE64_STANDARD.encode(request),
            signer_name: SIGNER.to_owned(),
            username: asked.user.to_owned(),
            groups: vec!["system:nodes".to_owned(), "system:authenticated".to_owned()],
            usages: asked.usages.iter().map(|usage| (*usage).to_owned()).collect(),
        }
    }

    #[test]
    fn a_kubelet_gets_a_certificate_for_itself_and_for_nobody_else() {
        let (mut nodes, reserved) = (nodes(), [Ipv4Addr::new(10, 0, 0, 10)]);
        let refused = |nodes: &[Node], asked: &Asked| judge(&spec(asked), nodes, &reserved).unwrap_err().to_string();
        assert!(refused(&nodes, &GOOD).contains("claims the address of another one"));
        nodes.pop();
        judge(&spec(&GOOD), &nodes, &reserved).unwrap();
        for (asked, why) in [
            (Asked { user: "system:serviceaccount:x:y", ..GOOD }, "no node that asks"),
            (Asked { user: "system:node:worker9", common: "system:node:worker9", ..GOOD }, "no such node"),
            (Asked { common: "system:node:cp1", ..GOOD }, "another one's"),
            (Asked { names: &["worker1", "cp1"], ..GOOD }, "it names cp1"),
            (Asked { addresses: &["10.0.0.11"], ..GOOD }, "it names 10.0.0.11"),
            (Asked { addresses: &[], ..GOOD }, "no address"),
            (Asked { usages: &["server auth", "client auth"], ..GOOD }, "other uses"),
            (Asked { usages: &["digital signature"], ..GOOD }, "other uses"),
        ] {
            let said = refused(&nodes, &asked);
            assert!(said.contains(why), "{said}");
        }
        let reserved = [Ipv4Addr::new(10, 0, 0, 21)];
        assert!(judge(&spec(&GOOD), &nodes, &reserved).is_err(), "the virtual IP is no worker's");
    }
}
