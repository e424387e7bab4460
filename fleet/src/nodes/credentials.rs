//! An administrator's credentials: what the current context of a kubeconfig
//! holds, its certificates inside it.

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use contract::deployer::Fingerprint;
use contract::kubeconfig::Kubeconfig;
use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

/// How long reaching a server may take, and how long it may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// How long what was sent may go unacknowledged: the kernel goes on sending what is in the buffer of a connection that was closed (tcp(7),
/// `TCP_USER_TIMEOUT`), and gives up connecting after it as well.
const UNACKNOWLEDGED: Duration = Duration::from_secs(4);
/// So long after a request was given up it may still arrive: Linux counts [`UNACKNOWLEDGED`] from the first retransmission, which follows the
/// writing after a time-out ([`vsphere::GONE`] says of how long).
pub(super) const GONE: Duration = UNACKNOWLEDGED.saturating_add(Duration::from_secs(1));
/// Both are of the same kernel.
const _: () = assert!(GONE.as_millis() == vsphere::GONE.as_millis());

/// What is shown to a server, and what is trusted.
#[derive(Clone, Debug)]
pub struct Credentials(Kubeconfig);

impl Credentials {
    /// Reads a kubeconfig as kubeadm and `kaas-agent kubeconfig` write them.
    ///
    /// # Errors
    /// When it cannot be read or lacks a certificate.
    pub fn read(kubeconfig: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        let text = Zeroizing::new(text);
        Self::parse(&text).with_context(|| format!("understanding {}", kubeconfig.display()))
    }

    /// The same of a kubeconfig's text, wherever it is kept.
    ///
    /// # Errors
    /// When it lacks a certificate, or names a server by another name than its address.
    pub fn parse(kubeconfig: &str) -> anyhow::Result<Self> {
        Self::of_address(Kubeconfig::parse(kubeconfig)?)
    }

    /// The same of one that is handed on, and that others may have written: with nothing in it but what is read, and with a certificate that
    /// its authority has signed.
    ///
    /// # Errors
    /// As of [`Self::parse`]; or there is more in it, or its certificate is another authority's.
    pub fn handed_on(kubeconfig: &str) -> anyhow::Result<Self> {
        Self::of_address(Kubeconfig::parse_untrusted(kubeconfig)?)
    }

    /// The name is not quoted: others may have written it, with lines of their own.
    fn of_address(read: Kubeconfig) -> anyhow::Result<Self> {
        if read.server_name.is_some() {
            bail!(
                "it names a tls-server-name, which is not supported here: give a kubeconfig with the address of the Kubernetes API \
                 itself"
            );
        }
        Ok(Self(read))
    }

    /// Those that somebody was given.
    pub(super) fn of(given: Kubeconfig) -> Self {
        Self(given)
    }

    /// When they end; none if that cannot be told.
    pub fn ends(&self) -> Option<SystemTime> {
        self.0.valid_until()
    }

    /// Fingerprints of the authorities that servers are known by, each of its public key.
    ///
    /// # Errors
    /// When one of them is no certificate.
    pub fn authorities(&self) -> anyhow::Result<Vec<Fingerprint>> {
        let certificates = CertificateDer::pem_slice_iter(self.0.authority.as_bytes());
        let fingerprint = |certificate: Result<CertificateDer<'_>, _>| -> anyhow::Result<Fingerprint> {
            Fingerprint::of_key_of(&certificate?).context("it is no certificate")
        };
        certificates.map(fingerprint).collect::<Result<_, _>>().context("reading the kubeconfig's authority")
    }

    /// Where the Kubernetes API is; none if that is said by a name, or with more than `https://address:port`.
    pub fn address(&self) -> Option<SocketAddrV4> {
        self.server().strip_prefix("https://")?.parse().ok()
    }

    /// The text of a kubeconfig with them, its private key inside. `user` names the entry and the context.
    pub fn kubeconfig(&self, user: &str) -> Zeroizing<String> {
        self.0.render(user)
    }

    /// The same with one name for all entries: it may stand beside those of other clusters.
    pub fn kubeconfig_named(&self, name: &str) -> Zeroizing<String> {
        self.0.render_named(name)
    }

    /// The Kubernetes API's address, as `https://address:port`.
    pub(super) fn server(&self) -> &str {
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

/// The beginning of a client: straight to who is asked and nowhere else, whatever is answered.
pub(super) fn transport() -> ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(SILENCE)
        .read_timeout(SILENCE)
        // A connection to a VM that was stopped is given up soon, and another one made.
        .tcp_user_timeout(UNACKNOWLEDGED)
}
