//! An administrator's credentials: the current context of a kubeconfig, with its certificates inside.

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use contract::deployer::Fingerprint;
use contract::kubeconfig::{self, Kubeconfig};
use contract::secret::Secret;
use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

/// How long connecting to a server may take, and how long it may send nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// How long sent data may stay unacknowledged. The kernel continues to send the buffer of a closed connection (tcp(7),
/// `TCP_USER_TIMEOUT`). It also gives up connecting after this time.
const UNACKNOWLEDGED: Duration = Duration::from_secs(4);
/// How long a request may still arrive after it was given up. Linux counts [`UNACKNOWLEDGED`] from the first retransmission,
/// which follows the write after a timeout (see [`vsphere::GONE`]).
pub(super) const GONE: Duration = UNACKNOWLEDGED.saturating_add(Duration::from_secs(1));
/// Both describe the same kernel.
const _: () = assert!(GONE.as_millis() == vsphere::GONE.as_millis());

/// The client's certificate and key, the server's address, and the CAs that are trusted.
#[derive(Clone, Debug)]
pub struct Credentials(Kubeconfig);

/// A context of one kubeconfig or several.
#[derive(Clone, Debug)]
pub struct SelectedContext {
    pub credentials: Credentials,
    /// The name of the context. `None` if the kubeconfig has no current context.
    pub name: Option<String>,
    /// The namespace of the context. `None` if the context has none.
    pub namespace: Option<String>,
}

impl SelectedContext {
    /// Reads several kubeconfigs as kubectl does with those of `KUBECONFIG`: the first entry with a name is used. `context` names
    /// another context than the current one. Each file is read once.
    pub fn read(files: &[PathBuf], context: Option<&str>) -> anyhow::Result<Self> {
        let texts = texts(files)?;
        let texts: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
        Self::of_texts(&texts, context).with_context(|| {
            let of = context.map(|context| format!(" the context {context} of")).unwrap_or_default();
            format!("understanding{of} {}", listed(files))
        })
    }

    fn of_texts(texts: &[&str], context: Option<&str>) -> anyhow::Result<Self> {
        let kubeconfig::SelectedContext { kubeconfig, name, namespace } =
            kubeconfig::SelectedContext::merged(texts, context)?;
        Ok(Self { credentials: Credentials::of_address(kubeconfig)?, name, namespace })
    }
}

impl Credentials {
    /// Reads a kubeconfig as kubeadm and `kaas-agent kubeconfig` write them.
    pub fn read(kubeconfig: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        let text = Zeroizing::new(text);
        Self::parse(&text).with_context(|| format!("understanding {}", kubeconfig.display()))
    }

    /// The names of the contexts in several kubeconfigs.
    pub fn contexts(files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
        let texts = texts(files)?;
        let texts: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
        kubeconfig::contexts(&texts).with_context(|| format!("understanding {}", listed(files)))
    }

    /// Reads a kubeconfig from its text.
    pub fn parse(kubeconfig: &str) -> anyhow::Result<Self> {
        Self::of_address(Kubeconfig::parse(kubeconfig)?)
    }

    /// Reads a kubeconfig that is handed on, and that others may have written. It must contain nothing more than is read, and its
    /// certificate must be signed by its CA.
    ///
    /// # Errors
    /// As [`Self::parse`]. Also if it contains more, or another CA signed its certificate.
    pub fn handed_on(kubeconfig: &str) -> anyhow::Result<Self> {
        Self::of_address(Kubeconfig::parse_untrusted(kubeconfig)?)
    }

    /// The name is not quoted: others may have written it, with line breaks in it.
    fn of_address(read: Kubeconfig) -> anyhow::Result<Self> {
        if read.server_name.is_some() {
            bail!(
                "it names a tls-server-name, which is not supported here: give a kubeconfig with the address of the Kubernetes API \
                 itself"
            );
        }
        Ok(Self(read))
    }

    /// Credentials that were issued.
    pub(super) fn of(given: Kubeconfig) -> Self {
        Self(given)
    }

    /// The same server and CA with another certificate and its key. The CA must have signed the certificate.
    pub(super) fn with_certificate(&self, certificate: String, key: Secret) -> anyhow::Result<Self> {
        let issued = Kubeconfig { certificate, key, ..self.0.clone() };
        Self::handed_on(&issued.render("issued"))
    }

    /// The user in their certificate. `None` if it is unknown.
    pub fn user(&self) -> Option<String> {
        self.0.user()
    }

    /// The end of their validity. `None` if it is unknown.
    pub fn ends(&self) -> Option<SystemTime> {
        self.0.valid_until()
    }

    /// Fingerprints of the CAs that are trusted for servers, each of its public key.
    pub fn authorities(&self) -> anyhow::Result<Vec<Fingerprint>> {
        let certificates = CertificateDer::pem_slice_iter(self.0.authority.as_bytes());
        let fingerprint = |certificate: Result<CertificateDer<'_>, _>| -> anyhow::Result<Fingerprint> {
            Fingerprint::of_key_of(&certificate?).context("it is no certificate")
        };
        certificates.map(fingerprint).collect::<Result<_, _>>().context("reading the kubeconfig's CA")
    }

    /// The only CA that is trusted for servers, and the fingerprint of its public key.
    pub(super) fn ca(&self) -> anyhow::Result<(CertificateDer<'static>, Fingerprint)> {
        let certificates = CertificateDer::pem_slice_iter(self.0.authority.as_bytes());
        let mut certificates = certificates.collect::<Result<Vec<_>, _>>().context("reading the kubeconfig's CA")?;
        let (Some(ca), true) = (certificates.pop(), certificates.is_empty()) else {
            bail!("the kubeconfig does not have one CA");
        };
        let fingerprint = Fingerprint::of_key_of(&ca).context("the kubeconfig's CA is no certificate")?;
        Ok((ca, fingerprint))
    }

    /// The address of the Kubernetes API. `None` if it has a name, or more than `https://address:port`.
    pub fn address(&self) -> Option<SocketAddrV4> {
        self.server().strip_prefix("https://")?.parse().ok()
    }

    /// The text of a kubeconfig with them, including the private key. `user` names the entry and the context.
    pub fn kubeconfig(&self, user: &str) -> Zeroizing<String> {
        self.0.render(user)
    }

    /// The text of a kubeconfig with one name for all entries, so that it can be merged with those of other clusters.
    pub fn kubeconfig_named(&self, name: &str) -> Zeroizing<String> {
        self.0.render_named(name)
    }

    /// The Kubernetes API's address, as `https://address:port`.
    pub fn server(&self) -> &str {
        self.0.server.trim_end_matches('/')
    }

    /// A client that shows and trusts these.
    pub(super) fn client(&self) -> anyhow::Result<reqwest::Client> {
        let identity = Zeroizing::new([self.0.certificate.as_str(), "\n", self.0.key.expose()].concat());
        Ok(transport()
            .https_only(true)
            .tls_certs_only(Certificate::from_pem_bundle(self.0.authority.as_bytes())?)
            .identity(Identity::from_pem(identity.as_bytes()).context("using the kubeconfig's certificate")?)
            .build()?)
    }
}

fn texts(files: &[PathBuf]) -> anyhow::Result<Vec<Zeroizing<String>>> {
    let read = |path: &PathBuf| -> anyhow::Result<Zeroizing<String>> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Zeroizing::new(text))
    };
    files.iter().map(read).collect()
}

fn listed(files: &[PathBuf]) -> String {
    files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The base of a client: it connects only to the given server, and follows no redirection.
pub(super) fn transport() -> ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(SILENCE)
        .read_timeout(SILENCE)
        // A connection to a VM that was stopped is given up soon, and replaced.
        .tcp_user_timeout(UNACKNOWLEDGED)
}
