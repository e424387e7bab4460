//! `kaas control kubeconfig`: a new kubeconfig of a control cluster. Changes nothing of the cluster.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use fleet::control_plane::USER;
use fleet::nodes::Credentials;
use zeroize::Zeroizing;

use super::arguments::Kubeconfig;
use crate::cluster_file::{ClusterFile, SiteSession, credentials_by_key};
use crate::commands::cluster::WrittenKubeconfig;
use crate::keys::existing_deployer_key;
use crate::kubeconfig_file;
use crate::signals::SignalPolicy;

/// Writes the kubeconfig that a node issues for the deployer's key. Replaces an existing file only if this program wrote it for the
/// cluster, or if its certificate has expired. After an error, the file is unchanged.
pub fn kubeconfig(arguments: &Kubeconfig) -> anyhow::Result<ExitCode> {
    let file = ClusterFile::read(&arguments.file)?;
    let key = existing_deployer_key(&file.deployer_key)?;
    let key = key.with_context(|| format!("there is no deployer's key {}", file.deployer_key.display()))?;
    let site = SiteSession::of(&file)?;
    let place = site.find()?.with_context(|| format!("{} does not exist", site.words()))?;
    let (deployer, nodes) = (place.deployer(key)?, file.addresses());
    let credentials = site.run(SignalPolicy::AtOnce, async |_| {
        credentials_by_key(&deployer, &place, &nodes, &file.kubeconfig, None).await
    })?;
    let path = std::path::absolute(arguments.to_file.as_ref().unwrap_or(&file.kubeconfig))?;
    write(&path, &file.name.value, &credentials)?;
    let hints = site.access_hints()?;
    let text = || format!("kubeconfig, valid for a day: {}\n{}", path.display(), hints.join("\n"));
    arguments.output.result(&WrittenKubeconfig::of(&path, &credentials), text)
}

fn forms(credentials: &Credentials) -> Vec<Zeroizing<String>> {
    vec![credentials.kubeconfig(USER)]
}

/// Fails if a run would replace a file that this program has not written.
pub fn require_own(path: &Path) -> anyhow::Result<()> {
    kubeconfig_file::require_own(path, &forms)
}

/// Writes the file, and creates missing directories.
fn write(path: &Path, cluster: &str, credentials: &Credentials) -> anyhow::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    kubeconfig_file::place(path, cluster, credentials, &forms)
}

#[cfg(test)]
mod tests {
    use contract::kubeconfig::Kubeconfig as Content;
    use contract::secret::Secret;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn only_the_deployers_kubeconfig_is_replaced() {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
        let own = Content {
            server: "https://192.168.10.10:6443".to_owned(),
            server_name: None,
            authority: certificate.clone(),
            certificate,
            key: Secret::new(key.serialize_pem()),
        };
        let credentials = Credentials::parse(&own.render(USER)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/kubeconfig");
        for _ in 0..2 {
            write(&path, "control", &credentials).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), *own.render(USER));
        }
        let mine = own.render("anna");
        require_own(&path).unwrap();
        fs::write(&path, &*mine).unwrap();
        assert!(require_own(&path).unwrap_err().to_string().contains("this program has not written it"));
        let refused = write(&path, "control", &credentials).unwrap_err().to_string();
        assert!(refused.contains("is no kubeconfig of the cluster control that this command has written"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), *mine);
    }
}
