//! TLS 1.3 with the node whose certificate has the fingerprint that the hypervisor shows.

use anyhow::Context;
use contract::deployer::Fingerprint;
use rustls::ClientConfig;
use rustls::version::TLS13;

pub(super) fn only(certificate: Fingerprint) -> anyhow::Result<ClientConfig> {
    let judge = move |shown: &[u8]| {
        let shown = Fingerprint::of(shown);
        if shown == certificate {
            return Ok(());
        }
        Err(format!("the server's certificate is {shown}, and the hypervisor shows {certificate} of this node"))
    };
    let mut config = tls_pin::client(&[&TLS13], judge).context("setting up TLS 1.3")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
