//! Kubeconfig files for host services, with the keys inside.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use contract::kubeconfig::{Kubeconfig, with_server};
use zeroize::Zeroizing;

use super::{CertificateAuthorities, CertificateWithKey, Error, Leaf};
use crate::host::files;

/// Reads a kubeconfig of the agent or of kubeadm.
pub fn read(path: &Path) -> Result<Kubeconfig, Error> {
    Kubeconfig::parse(&text_of(path)?).map_err(|error| unusable(path.display(), &error))
}

/// The client certificate and key inside a kubeconfig.
pub fn embedded(text: &str) -> Result<CertificateWithKey, Error> {
    Kubeconfig::parse(text).map(client_of).map_err(|error| unusable("the kubeconfig", &error))
}

pub fn kubeconfig(server: String, authority: String, client: CertificateWithKey) -> Kubeconfig {
    let CertificateWithKey { certificate, key } = client;
    Kubeconfig { server, server_name: None, authority, certificate, key }
}

fn client_of(kubeconfig: Kubeconfig) -> CertificateWithKey {
    CertificateWithKey { certificate: kubeconfig.certificate, key: kubeconfig.key }
}

fn text_of(path: &Path) -> Result<Zeroizing<String>, Error> {
    fs::read_to_string(path).map(Zeroizing::new).map_err(|source| Error::Read { path: path.to_owned(), source })
}

fn unusable(what: impl ToString, error: &contract::kubeconfig::Error) -> Error {
    Error::Unusable { what: what.to_string(), reason: error.to_string() }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    files::write_atomically(path, text.as_bytes(), 0o600)
        .map_err(|source| Error::Write { path: path.to_owned(), source })
}

/// Ensures that a kubeconfig, in JSON or as kubeadm writes it, names this `server`. Returns whether it named another
/// one. An error if it names none.
pub fn point_at(path: &Path, server: &str) -> Result<bool, Error> {
    let changed = with_server(&text_of(path)?, server).map_err(|error| unusable(path.display(), &error))?;
    let Some(changed) = changed else { return Ok(false) };
    write(path, &changed)?;
    Ok(true)
}

/// Ensures that `path` is a kubeconfig for `leaf` at `server` whose certificate is valid. Returns whether it was
/// created again. After [`Error::Write`] the old file remains.
pub fn ensure_kubeconfig(
    path: &Path,
    server: &str,
    leaf: &Leaf,
    authorities: &CertificateAuthorities,
    now: SystemTime,
) -> Result<bool, Error> {
    let authority = &authorities.kubernetes;
    if let Ok(present) = read(path)
        && present.server == server
        && present.authority == authority.certificate
        && leaf.unfit(&client_of(present), authority, now).is_none()
    {
        return Ok(false);
    }
    let client = leaf.issue(authority, now)?;
    let config = kubeconfig(server.to_owned(), authority.certificate.clone(), client);
    write(path, &config.render(&leaf.common_name))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_in_a_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.conf");
        let text = "clusters:\n- cluster:\n    certificate-authority-data: YQ==\n    server: https://10.0.0.10:6443\n  name: lab\n";
        fs::write(&path, text).unwrap();
        assert!(point_at(&path, "https://10.0.0.11:6443").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), text.replace("10.0.0.10", "10.0.0.11"));
        assert!(!point_at(&path, "https://10.0.0.11:6443").unwrap());
        fs::write(&path, text.replace("    server: https://10.0.0.10:6443\n", "")).unwrap();
        let refused = point_at(&path, "https://10.0.0.11:6443").unwrap_err().to_string();
        assert!(refused.contains("kubelet.conf") && refused.contains("server is missing"), "{refused}");
    }
}
