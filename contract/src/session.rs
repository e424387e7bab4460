//! The identity of a TLS session. Proofs that are valid for one session only are made over it.

use rustls::{ConnectionCommon, Error, ProtocolVersion};
use zeroize::Zeroizing;

/// Keying material that only both ends of a session know (RFC 8446, section 7.5). It covers the handshake up to the server's
/// certificate. It therefore differs on the two legs of an attacker that ends TLS in between. Each purpose has its own label.
///
/// # Errors
/// The handshake is not over, or gave an older version of TLS. There two sessions may have the same material (RFC 7627).
pub fn exporter<D>(connection: &ConnectionCommon<D>, label: &[u8]) -> Result<Zeroizing<[u8; 32]>, Error> {
    match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => connection.export_keying_material([0; 32], label, None).map(Zeroizing::new),
        _ => Err(Error::General("the session is not of TLS 1.3".to_owned())),
    }
}
