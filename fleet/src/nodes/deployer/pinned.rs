//! TLS 1.3 with a node: whose certificate has the fingerprint that the hypervisor shows, or that the cluster's CA has certified.

use std::sync::Arc;

use anyhow::Context;
use contract::deployer::Fingerprint;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};

const HTTP: &[u8] = b"http/1.1";

pub(super) fn only(certificate: Fingerprint) -> anyhow::Result<ClientConfig> {
    let judge = move |shown: &[u8]| {
        let shown = Fingerprint::of(shown);
        if shown == certificate {
            return Ok(());
        }
        Err(format!("the server's certificate is {shown}, and the hypervisor shows {certificate} of this node"))
    };
    let mut config = tls_pin::client(&[&TLS13], judge).context("setting up TLS 1.3")?;
    config.alpn_protocols = vec![HTTP.to_vec()];
    Ok(config)
}

/// Trusts the certificates that this CA has issued for the node's address.
pub(super) fn by(ca: CertificateDer<'static>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(ca).context("using the cluster's CA")?;
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_protocol_versions(&[&TLS13]).context("setting up TLS 1.3")?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![HTTP.to_vec()];
    Ok(config)
}
