use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, ConnectionCommon, ServerConfig, ServerConnection};

use super::*;

fn pass<A, B>(from: &mut ConnectionCommon<A>, to: &mut ConnectionCommon<B>) -> Result<(), Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

#[test]
fn only_the_leaf_and_the_version_count() {
    let [one, other] =
        ["one.example", "other.example"].map(|name| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap());
    let connect =
        |versions: &[&'static SupportedProtocolVersion], shown: [&rcgen::CertifiedKey<rcgen::KeyPair>; 2], speaks| {
            let pinned = one.cert.der().to_vec();
            let judge = move |leaf: &[u8]| if leaf == pinned { Ok(()) } else { Err("another one".to_owned()) };
            let key = PrivateKeyDer::try_from(shown[0].signing_key.serialize_der()).unwrap();
            let chain = shown.map(|key| key.cert.der().clone()).to_vec();
            let server = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
                .with_protocol_versions(&[speaks])
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
            let mut server = ServerConnection::new(server.into()).unwrap();
            let name = ServerName::try_from("10.0.0.1").unwrap();
            let mut client = ClientConnection::new(client(versions, judge).unwrap().into(), name).unwrap();
            while client.is_handshaking() || server.is_handshaking() {
                pass(&mut client, &mut server)?;
                pass(&mut server, &mut client)?;
            }
            Ok(())
        };
    assert_eq!(connect(&[&TLS13], [&one, &other], &TLS13), Ok(()));
    let refused = Err(Error::General("another one".to_owned()));
    assert_eq!(connect(&[&TLS13], [&other, &one], &TLS13), refused);
    assert_eq!(connect(rustls::DEFAULT_VERSIONS, [&other, &one], &TLS12), refused);
    assert_eq!(connect(rustls::DEFAULT_VERSIONS, [&one, &other], &TLS12), Ok(()));
    assert!(connect(&[&TLS13], [&one, &other], &TLS12).is_err());
}
