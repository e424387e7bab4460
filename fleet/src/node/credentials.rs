//! An administrator's credentials: what a kubeconfig of one cluster and one
//! user holds, its certificates inside it.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::{Certificate, Identity};

/// How long reaching a server may take, and how long it may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// What is shown to a server, and what is trusted.
#[derive(Clone)]
pub struct Credentials {
    /// PEM of the client's certificate and key.
    identity: Vec<u8>,
    /// PEM of the cluster's authority.
    authority: Vec<u8>,
    /// The Kubernetes API, if the file names it.
    server: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads a kubeconfig as kubeadm and `kaas-agent kubeconfig` write them.
    ///
    /// # Errors
    /// When it cannot be read, lacks a certificate or is of several clusters.
    pub fn read(kubeconfig: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        Self::parse(&text).with_context(|| format!("understanding {}", kubeconfig.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut identity = embedded(text, "client-certificate-data")?;
        identity.extend(embedded(text, "client-key-data")?);
        let authority = embedded(text, "certificate-authority-data")?;
        let server = match values(text, "server").as_slice() {
            [server] => Some(server.trim_end_matches('/').to_owned()),
            _ => None,
        };
        Ok(Self { identity, authority, server })
    }

    /// The Kubernetes API's address, as `https://address:port`.
    pub(super) fn server(&self) -> anyhow::Result<&str> {
        self.server.as_deref().context("the kubeconfig names no server")
    }

    /// A client that shows and trusts these.
    pub(super) fn client(&self) -> anyhow::Result<reqwest::Client> {
        Ok(reqwest::Client::builder()
            .https_only(true)
            .no_proxy()
            .tls_certs_only(Certificate::from_pem_bundle(&self.authority)?)
            .identity(Identity::from_pem(&self.identity).context("using the kubeconfig's certificate")?)
            .connect_timeout(SILENCE)
            .read_timeout(SILENCE)
            .build()?)
    }
}

/// The one value of this name, decoded.
fn embedded(kubeconfig: &str, name: &str) -> anyhow::Result<Vec<u8>> {
    match values(kubeconfig, name).as_slice() {
        [value] => BASE64_STANDARD.decode(value).with_context(|| format!("{name} is not base64")),
        [] => bail!("{name} is not in it: a kubeconfig with its certificates inside is needed"),
        _ => bail!("it has several {name}: give a kubeconfig of this one cluster and one user"),
    }
}

/// The values of this name. JSON and YAML of this kind have each on a line of its own.
fn values<'a>(kubeconfig: &'a str, name: &str) -> Vec<&'a str> {
    kubeconfig
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").trim_start_matches('"').strip_prefix(name))
        .filter_map(|rest| rest.trim_start_matches('"').strip_prefix(':'))
        .map(|value| value.trim().trim_end_matches(',').trim_matches('"'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: https://10.0.0.1:6443\n\
                        users:\n- name: a\n  user:\n    client-certificate-data: Qg==\n    client-key-data: Qw==\n";

    #[test]
    fn credentials_are_found_in_yaml_and_json_and_must_be_of_one_cluster() {
        assert_eq!(embedded(YAML, "certificate-authority-data").unwrap(), b"A");
        assert_eq!(embedded(YAML, "client-key-data").unwrap(), b"C");
        let json = "{\n  \"user\": {\n    \"client-key-data\": \"Qw==\"\n  }\n}";
        assert_eq!(embedded(json, "client-key-data").unwrap(), b"C");
        let two = format!("{YAML}{YAML}");
        assert!(embedded(&two, "client-key-data").unwrap_err().to_string().contains("several client-key-data"));
        assert!(embedded("{}", "client-key-data").unwrap_err().to_string().contains("is not in it"));
    }

    #[test]
    fn the_server_is_the_clusters_and_the_key_is_not_shown() {
        let credentials = Credentials::parse(YAML).unwrap();
        assert_eq!(credentials.server().unwrap(), "https://10.0.0.1:6443");
        assert_eq!(format!("{credentials:?}"), "Credentials { server: Some(\"https://10.0.0.1:6443\"), .. }");
    }
}
