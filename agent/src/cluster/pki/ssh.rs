//! One CA for all SSH servers of a cluster. A single line in a client's `known_hosts` accepts the keys of all nodes and
//! of the virtual IP on any node. It stays valid after a node was replaced.
//!
//! The CA's key is derived from that of the cluster's CA. Every control-plane node has that key, so that no SSH key
//! must be transferred or saved, and none can be lost. A node's certificate is made again at each boot, always the
//! same.
//!
//! Formats: OpenSSH's PROTOCOL.certkeys; RFC 4251, section 5; RFC 8709.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

use super::{CertificateAuthorities, Error, derive};
use crate::intake::config::ControlPlane;

const SALT: &[u8] = b"kaas ssh hosts 1";
const KEY_TYPE: &str = "ssh-ed25519";
const CERTIFICATE_TYPE: &str = "ssh-ed25519-cert-v01@openssh.com";
/// A host's certificate (`SSH_CERT_TYPE_HOST`).
const HOST: u32 = 2;

pub struct SshCa(Ed25519KeyPair);

impl SshCa {
    pub fn of(authorities: &CertificateAuthorities) -> Result<Self, Error> {
        let seed = derive(&authorities.kubernetes, SALT, b"ed25519")?;
        Ed25519KeyPair::from_seed_unchecked(&*seed)
            .map(Self)
            .map_err(|error| Error::Unusable { what: "the SSH CA's key".to_owned(), reason: error.to_string() })
    }

    /// The CA's key in a `known_hosts` file, after the names.
    pub fn public(&self) -> String {
        format!("{KEY_TYPE} {}", STANDARD.encode(self.blob()))
    }

    /// As `ssh-keygen -l` shows it.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(self.blob())))
    }

    /// The certificate of a server with this key, `ssh-ed25519 …`, under these names and addresses. It never expires.
    pub fn certify(&self, host_key: &str, node: &str, names: &[String]) -> Result<String, Error> {
        let public = public_key(host_key).ok_or_else(|| Error::Unusable {
            what: "the SSH host key".to_owned(),
            reason: "it is no Ed25519 key".to_owned(),
        })?;
        let principals: Vec<u8> = names.iter().flat_map(|name| string(name.as_bytes())).collect();
        // The same each time. It need not be random: no other signature uses it.
        let nonce = Sha256::digest([public.as_slice(), &principals].concat());
        let mut blob = Vec::new();
        for field in [CERTIFICATE_TYPE.as_bytes(), &nonce, &public] {
            blob.extend(string(field));
        }
        blob.extend(0_u64.to_be_bytes());
        blob.extend(HOST.to_be_bytes());
        blob.extend(string(node.as_bytes()));
        blob.extend(string(&principals));
        // Always valid, like the key itself.
        blob.extend(0_u64.to_be_bytes());
        blob.extend(u64::MAX.to_be_bytes());
        // No critical options, no extensions, nothing reserved.
        blob.extend([string(b""), string(b""), string(b"")].concat());
        blob.extend(string(&self.blob()));
        let signature = [string(KEY_TYPE.as_bytes()), string(self.0.sign(&blob).as_ref())].concat();
        blob.extend(string(&signature));
        Ok(format!("{CERTIFICATE_TYPE} {} {node}\n", STANDARD.encode(blob)))
    }

    fn blob(&self) -> Vec<u8> {
        [string(KEY_TYPE.as_bytes()), string(self.0.public_key().as_ref())].concat()
    }
}

/// The names and addresses of this node's server, including the virtual IP.
pub fn names(config: &ControlPlane) -> Vec<String> {
    let node = &config.node;
    let mut names = with_domains(&node.name, config);
    names.extend(node.interfaces.iter().filter_map(|interface| Some(interface.address.known()?.addr().to_string())));
    names.extend(config.cluster.virtual_address.map(|address| address.to_string()));
    names
}

/// The line of a `known_hosts` file for the servers of all control-plane nodes (sshd(8)).
pub fn known_hosts(config: &ControlPlane, authority: &SshCa) -> String {
    let cluster = &config.cluster;
    let mut names = Vec::new();
    for node in &cluster.control_nodes {
        names.extend(with_domains(&node.name, config));
        names.push(node.address.to_string());
    }
    names.extend(cluster.virtual_address.map(|address| address.to_string()));
    format!("@cert-authority {} {} kaas-{}\n", names.join(","), authority.public(), cluster.name)
}

fn with_domains(name: &str, config: &ControlPlane) -> Vec<String> {
    let whole = config.node.search_domains.iter().map(|domain| format!("{name}.{domain}"));
    std::iter::once(name.to_owned()).chain(whole).collect()
}

/// The 32 bytes of a public key in its file.
fn public_key(text: &str) -> Option<Vec<u8>> {
    let mut words = text.split_whitespace();
    let blob = (words.next() == Some(KEY_TYPE)).then(|| STANDARD.decode(words.next()?).ok()).flatten()?;
    let key = blob.strip_prefix(string(KEY_TYPE.as_bytes()).as_slice())?.strip_prefix(&32_u32.to_be_bytes())?;
    (key.len() == 32).then(|| key.to_vec())
}

/// `string` of RFC 4251: a length and that many bytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::SystemTime;

    use super::*;
    use crate::host::command::{Command, Host, Runner};

    fn made() -> SshCa {
        SshCa::of(&CertificateAuthorities::make(SystemTime::now()).unwrap()).unwrap()
    }

    fn keygen(arguments: &[&str], file: &Path) -> String {
        String::from_utf8(Host.run(&Command::new("ssh-keygen").args(arguments).arg(file)).unwrap()).unwrap()
    }

    #[test]
    fn each_cluster_has_one_ssh_ca() {
        let authorities = CertificateAuthorities::make(SystemTime::now()).unwrap();
        let one = SshCa::of(&authorities).unwrap();
        assert_eq!(one.public(), SshCa::of(&authorities).unwrap().public());
        assert_ne!(one.public(), made().public());
        let mut damaged = authorities;
        damaged.kubernetes.key = contract::secret::Secret::new("none".to_owned());
        assert!(SshCa::of(&damaged).is_err());
    }

    #[test]
    fn lines_in_known_hosts_stay_valid() {
        let authorities = CertificateAuthorities {
            kubernetes: crate::cluster::pki::fixed_authority(),
            ..CertificateAuthorities::make(SystemTime::now()).unwrap()
        };
        assert_eq!(
            SshCa::of(&authorities).unwrap().public(),
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOFA05VxYOFpfUnEJSRT+Tne7+4L2JBSBOdiV3U7Gq/j"
        );
    }

    #[test]
    fn openssh_reads_the_certificate() {
        let (directory, authority) = (tempfile::tempdir().unwrap(), made());
        let key = directory.path().join("key");
        keygen(&["-q", "-t", "ed25519", "-N", "", "-f"], &key);
        let public = fs::read_to_string(key.with_extension("pub")).unwrap();
        let names = ["cp1".to_owned(), "192.168.10.11".to_owned(), "192.168.10.10".to_owned()];
        let certificate = authority.certify(&public, "cp1", &names).unwrap();
        assert_eq!(certificate, authority.certify(&public, "cp1", &names).unwrap());
        let file = directory.path().join("key-cert.pub");
        fs::write(&file, &certificate).unwrap();
        let said = keygen(&["-L", "-f"], &file);
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "ssh-ed25519-cert-v01@openssh.com host certificate",
            &format!("Signing CA: ED25519 {}", authority.fingerprint()),
            "Key ID: \"cp1\"",
            "Valid: forever",
            "Principals: cp1 192.168.10.11 192.168.10.10",
            "Critical Options: (none)",
        ] {
            assert!(words.contains(expected), "{expected} is not in {said}");
        }
        fs::write(&file, authority.public()).unwrap();
        assert!(keygen(&["-l", "-f"], &file).contains(&authority.fingerprint()));
    }

    #[test]
    fn one_line_accepts_every_node_and_virtual_ip() {
        let mut config = crate::intake::config::fixture::three_nodes();
        config.node.search_domains = vec!["example.com".to_owned()];
        assert_eq!(names(&config), ["node1", "node1.example.com", "10.0.0.11", "10.0.0.10"]);
        let authority = made();
        let expected = "@cert-authority node1,node1.example.com,10.0.0.11,node2,node2.example.com,10.0.0.12,\
                        node3,node3.example.com,10.0.0.13,10.0.0.10";
        assert_eq!(known_hosts(&config, &authority), format!("{expected} {} kaas-lab\n", authority.public()));
    }

    #[test]
    fn signature_is_from_the_ca() {
        let authority = made();
        let host = STANDARD.encode([string(KEY_TYPE.as_bytes()), string(&[7; 32])].concat());
        let certificate = authority.certify(&format!("{KEY_TYPE} {host} comment"), "cp1", &[]).unwrap();
        let blob = STANDARD.decode(certificate.split(' ').nth(1).unwrap()).unwrap();
        let (signed, signature) = blob.split_at(blob.len() - 4 - 4 - KEY_TYPE.len() - 4 - 64);
        let key = aws_lc_rs::signature::UnparsedPublicKey::new(
            &aws_lc_rs::signature::ED25519,
            authority.0.public_key().as_ref().to_vec(),
        );
        key.verify(signed, &signature[signature.len() - 64..]).unwrap();
    }

    #[test]
    fn only_ed25519_keys_are_certified() {
        let authority = made();
        for key in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa AAAAB3NzaC1yc2E=", "ssh-ed25519 ?"] {
            assert!(authority.certify(key, "cp1", &[]).is_err(), "{key}");
        }
    }
}
