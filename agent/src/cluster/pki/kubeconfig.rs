//! Kubeconfig files for host services, with the keys inside.
//!
//! A kubeconfig may be JSON, which is YAML too: one format less to write.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::secret::Secret;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{Authorities, Certified, Error, Leaf};
use crate::host::files;

/// How a client finds and convinces the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// `https://<address>:<port>`.
    pub server: String,
    /// The cluster's authority, in PEM.
    pub authority: String,
    /// The client's certificate and key.
    pub client: Certified,
}

impl Kubeconfig {
    /// The file's content. `user` names the entry; the API server goes by the certificate.
    pub fn render(&self, user: &str) -> Zeroizing<String> {
        let encode = |text: &str| STANDARD.encode(text);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubernetes", "cluster": {
                "server": self.server,
                "certificate-authority-data": encode(&self.authority),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": encode(&self.client.certificate),
                "client-key-data": encode(self.client.key.expose()),
            }}],
            "contexts": [{"name": user, "context": {"cluster": "kubernetes", "user": user}}],
            "current-context": user,
        });
        Zeroizing::new(format!("{config:#}\n"))
    }

    /// Reads a file that [`Kubeconfig::render`] made.
    ///
    /// # Errors
    /// [`Error::Read`], or [`Error::Unusable`] naming the missing field.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let text = Zeroizing::new(text);
        let unusable = |reason: String| Error::Unusable { what: path.display().to_string(), reason };
        let config: Value = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        let field = |pointer: &str| {
            config.pointer(pointer).and_then(Value::as_str).ok_or_else(|| unusable(format!("{pointer} is missing")))
        };
        let decoded = |pointer: &str| {
            let bytes = STANDARD.decode(field(pointer)?).map_err(|error| unusable(format!("{pointer}: {error}")))?;
            String::from_utf8(bytes).map_err(|error| unusable(format!("{pointer}: {error}")))
        };
        Ok(Self {
            server: field("/clusters/0/cluster/server")?.to_owned(),
            authority: decoded("/clusters/0/cluster/certificate-authority-data")?,
            client: Certified {
                certificate: decoded("/users/0/user/client-certificate-data")?,
                key: Secret::new(decoded("/users/0/user/client-key-data")?),
            },
        })
    }
}

/// The client certificate and key inside a kubeconfig of one user, whether it
/// is JSON or, as kubeadm writes it, YAML: one line for each.
///
/// # Errors
/// [`Error::Unusable`] when one of them is missing.
pub fn embedded(kubeconfig: &str) -> Result<Certified, Error> {
    let field = |name: &str| {
        let unusable =
            |reason: &str| Error::Unusable { what: "the kubeconfig".into(), reason: format!("{name} {reason}") };
        let value = kubeconfig
            .lines()
            .filter_map(|line| line.trim().trim_start_matches('"').strip_prefix(name))
            .find_map(|rest| rest.trim_start_matches('"').strip_prefix(':'))
            .ok_or_else(|| unusable("is missing"))?;
        let encoded = value.trim().trim_end_matches(',').trim_matches('"');
        let text = STANDARD.decode(encoded).map_err(|_| unusable("is not base64"))?;
        String::from_utf8(text).map_err(|_| unusable("is not text"))
    };
    Ok(Certified { certificate: field("client-certificate-data")?, key: Secret::new(field("client-key-data")?) })
}

/// Sees to it that a kubeconfig, JSON or as kubeadm writes it, names this `server`. Says whether
/// it named another one.
///
/// # Errors
/// [`Error::Read`] and [`Error::Write`], or [`Error::Unusable`] when it names none.
pub fn point_at(path: &Path, server: &str) -> Result<bool, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let text = Zeroizing::new(text);
    let named = text.lines().find_map(|line| {
        let (before, value) = line.split_once(':')?;
        (before.trim().trim_matches('"') == "server").then(|| value.trim().trim_end_matches(',').trim_matches('"'))
    });
    let unusable = || Error::Unusable { what: path.display().to_string(), reason: "server is missing".into() };
    let named = named.filter(|named| !named.is_empty()).ok_or_else(unusable)?;
    if named == server {
        return Ok(false);
    }
    let changed = Zeroizing::new(text.replacen(named, server, 1));
    files::write_atomically(path, changed.as_bytes(), 0o600)
        .map_err(|source| Error::Write { path: path.to_owned(), source })?;
    Ok(true)
}

/// Sees to it that `path` is a kubeconfig for `leaf` at `server` whose
/// certificate is good. Says whether it was made anew.
///
/// # Errors
/// As [`Leaf::issue`], and [`Error::Write`]: the old file then still stands.
pub fn ensure_kubeconfig(
    path: &Path,
    server: &str,
    leaf: &Leaf,
    authorities: &Authorities,
    now: SystemTime,
) -> Result<bool, Error> {
    let authority = &authorities.kubernetes;
    if let Ok(present) = Kubeconfig::read(path)
        && present.server == server
        && present.authority == authority.certificate
        && leaf.unfit(&present.client, authority, now).is_none()
    {
        return Ok(false);
    }
    let client = leaf.issue(authority, now)?;
    let config = Kubeconfig { server: server.to_owned(), authority: authority.certificate.clone(), client };
    files::write_atomically(path, config.render(&leaf.common_name).as_bytes(), 0o600)
        .map_err(|source| Error::Write { path: path.to_owned(), source })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_is_named_in_either_form_and_nothing_else_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubelet.conf");
        for text in [
            "clusters:\n- cluster:\n    certificate-authority-data: YQ==\n    server: https://10.0.0.10:6443\n  name: lab\n",
            "{\n  \"cluster\": {\n    \"server\": \"https://10.0.0.10:6443\",\n    \"x\": 1\n  }\n}\n",
        ] {
            fs::write(&path, text).unwrap();
            assert!(point_at(&path, "https://10.0.0.11:6443").unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), text.replace("10.0.0.10", "10.0.0.11"));
            assert!(!point_at(&path, "https://10.0.0.11:6443").unwrap());
        }
        fs::write(&path, "users: []\n").unwrap();
        assert!(point_at(&path, "https://10.0.0.11:6443").unwrap_err().to_string().contains("server is missing"));
    }
}
