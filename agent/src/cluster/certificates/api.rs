//! The operator's own certificate of the Kubernetes API. Clients that ask for one of its DNS names get it (TLS server
//! name indication). Clients that connect by address, as all clients inside the cluster do, still get the certificate
//! of the cluster's own CA.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use zeroize::Zeroizing;

use crate::cluster::kubernetes::DOMAIN;
use crate::host::{files, tls};
use crate::intake::config::ControlPlane;

/// The chain and its key in one PEM file, so that a power cut leaves the old pair or the new one. The file is on the
/// data disk. The API server's pod mounts the directory.
pub const PATH: &str = "/etc/kubernetes/pki/kaas-api.pem";

/// The longest chain that is accepted.
const CHAIN: usize = 10;

/// The smallest RSA key that is accepted, in bits.
const RSA: usize = 2048;

#[derive(Debug)]
pub struct ApiCertificate {
    /// The DNS names for which it is used.
    pub names: Vec<String>,
    pub issuer: String,
    pub ends: SystemTime,
    pem: Zeroizing<String>,
}

impl ApiCertificate {
    /// Checks a chain, the server's certificate first, and its key, both in PEM. Without `now`, an expired or early
    /// certificate is accepted as well.
    pub fn examine(chain: &str, key: &str, config: &ControlPlane, now: Option<SystemTime>) -> anyhow::Result<Self> {
        let ders = tls::certificates(chain).context("reading the certificate")?;
        ensure!(!ders.is_empty(), "there is no certificate in PEM");
        ensure!(ders.len() <= CHAIN, "the chain has {} certificates; {CHAIN} are the most", ders.len());
        let parsed: Vec<X509Certificate<'_>> = ders
            .iter()
            .map(|der| X509Certificate::from_der(der).map(|(_, certificate)| certificate))
            .collect::<Result<_, _>>()
            .context("understanding the certificate")?;
        chain_holds_together(&parsed)?;
        let leaf = &parsed[0];
        serves(leaf)?;
        if let Some(now) = now {
            in_date(leaf, now)?;
        }
        ensure!(
            !key.contains("ENCRYPTED"),
            "the private key is encrypted; take the passphrase off first: openssl pkey -in FILE -out NEW"
        );
        let private = tls::key(key).ok().context("there is no private key in PEM (PKCS #8, PKCS #1 or SEC 1)")?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        CertifiedKey::from_der(ders.clone(), private.clone_key(), &provider)
            .context("the private key is not the certificate's")?;
        let pem = Zeroizing::new(encode(&ders, &private));
        Ok(Self {
            names: names(leaf, config)?,
            issuer: leaf.issuer().to_string(),
            ends: UNIX_EPOCH + Duration::from_secs(leaf.validity().not_after.timestamp().unsigned_abs()),
            pem,
        })
    }

    /// The certificate that is installed below `root`, even if it has expired.
    pub fn installed(root: &Path, config: &ControlPlane) -> anyhow::Result<Option<Self>> {
        let pem = match fs::read_to_string(files::below(root, PATH)) {
            Ok(pem) => Zeroizing::new(pem),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {PATH}")),
        };
        Self::examine(&pem, &pem, config, None).map(Some).with_context(|| PATH.to_owned())
    }

    /// Installs it below `root`. Returns whether there was another one or none before. The API server uses it once its
    /// manifest has been written again. After an error the former certificate remains.
    pub fn install(&self, root: &Path) -> io::Result<bool> {
        files::ensure_content(&files::below(root, PATH), self.pem.as_bytes(), 0o600)
    }
}

/// Returns whether there was one.
pub fn remove(root: &Path) -> io::Result<bool> {
    files::remove(&files::below(root, PATH))
}

fn chain_holds_together(chain: &[X509Certificate<'_>]) -> anyhow::Result<()> {
    for pair in chain.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        if one.verify_signature(Some(next.public_key())).is_err() {
            bail!(
                "the chain does not hold together: {} is followed by {}, which has not signed it; put the server's \
                 certificate first, then who signed it, and so on",
                one.subject(),
                next.subject()
            );
        }
    }
    Ok(())
}

fn serves(leaf: &X509Certificate<'_>) -> anyhow::Result<()> {
    ensure!(!leaf.is_ca(), "the first certificate, {}, is a CA's; put the server's first", leaf.subject());
    let usage = leaf.extended_key_usage().context("reading what the certificate may be used for")?;
    if let Some(usage) = usage {
        ensure!(usage.value.server_auth || usage.value.any, "the certificate may not be used by servers (serverAuth)");
    }
    if let Ok(PublicKey::RSA(key)) = leaf.public_key().parsed() {
        ensure!(key.key_size() >= RSA, "the RSA key has {} bits; {RSA} are the least", key.key_size());
    }
    Ok(())
}

fn in_date(leaf: &X509Certificate<'_>, now: SystemTime) -> anyhow::Result<()> {
    let now = i64::try_from(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())?;
    let validity = leaf.validity();
    ensure!(validity.not_after.timestamp() > now, "the certificate has expired: it ended {}", validity.not_after);
    ensure!(validity.not_before.timestamp() <= now, "the certificate is not valid before {}", validity.not_before);
    Ok(())
}

/// The names for which it is used. Names by which the cluster's own clients connect are left out: these trust the
/// cluster's CA alone.
fn names(leaf: &X509Certificate<'_>, config: &ControlPlane) -> anyhow::Result<Vec<String>> {
    let alternatives = leaf.subject_alternative_name().context("reading the certificate's names")?;
    let mut names: Vec<String> = Vec::new();
    for name in alternatives.iter().flat_map(|names| &names.value.general_names) {
        let GeneralName::DNSName(name) = name else { continue };
        let name = name.to_ascii_lowercase();
        let plain = name.strip_prefix("*.").unwrap_or(&name);
        let usable = !plain.is_empty()
            && plain.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte));
        if usable && !is_internal(&name, config) && !names.contains(&name) {
            names.push(name);
        }
    }
    ensure!(
        !names.is_empty(),
        "the certificate has no DNS name that clients from outside could use (subjectAltName); it is shown to those who \
         connect by name, while those who connect by address get the cluster's own"
    );
    Ok(names)
}

fn is_internal(name: &str, config: &ControlPlane) -> bool {
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].contains(&name)
        || name.ends_with(".svc")
        || name.ends_with(&format!(".{DOMAIN}"))
        || config.cluster.control_nodes.iter().any(|node| node.name == name)
}

/// PEM again, without any other content of the files.
fn encode(chain: &[CertificateDer<'_>], key: &PrivateKeyDer<'_>) -> String {
    use base64::Engine as _;
    let block = |label: &str, der: &[u8]| {
        let encoded = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(der));
        let mut text = format!("-----BEGIN {label}-----\n");
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text + &format!("-----END {label}-----\n")
    };
    let mut text: String = chain.iter().map(|der| block("CERTIFICATE", der)).collect();
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    text.push_str(&block(label, key.secret_der()));
    text
}

#[cfg(test)]
mod tests;
