use rcgen::{CertificateParams, KeyPair as CertifiedKey, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256};

use super::*;

const MANIFEST: &[u8] = b"SHA256(a.ovf)= 00\n";

fn pair(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
    let key = CertifiedKey::generate_for(algorithm).unwrap();
    let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    (key.serialize_pem(), certificate.pem())
}

fn rsa() -> (String, String) {
    pair(&PKCS_RSA_SHA256)
}

fn ecdsa() -> (String, String) {
    pair(&PKCS_ECDSA_P256_SHA256)
}

#[test]
fn the_file_is_one_line_and_the_certificate() {
    let (key, certificate) = rsa();
    let signer = Signer::from_pem(&key, &format!("# a comment\n{certificate}")).unwrap();
    let file = signer.sign("a.mf", MANIFEST).unwrap();
    let (line, rest) = file.split_once('\n').unwrap();
    assert!(line.starts_with("SHA256(a.mf)= "));
    assert_eq!(line.len(), "SHA256(a.mf)= ".len() + 512);
    assert_eq!(rest, certificate.replace("\r\n", "\n"));
    assert_eq!(signer.sign("a.mf", MANIFEST).unwrap(), file, "RSA signatures are the same each time");
}

#[test]
fn signatures_are_verified_by_certificate_or_public_key() {
    for (key, certificate) in [rsa(), ecdsa()] {
        let signer = Signer::from_pem(&key, &certificate).unwrap();
        let signature = Signature::parse(&signer.sign("a.mf", MANIFEST).unwrap()).unwrap();
        let bare = CertifiedKey::from_pem(&key).unwrap().public_key_pem();
        for trusted in [&certificate, &bare] {
            let trusted = PublicKey::from_pem(trusted).unwrap();
            assert_eq!(trusted.fingerprint(), signer.public_key().fingerprint());
            signature.verify("a.mf", MANIFEST, &trusted).unwrap();
            assert_eq!(signature.verify("a.mf", b"SHA256(a.ovf)= 01\n", &trusted), Err(Error::Changed));
            assert!(matches!(signature.verify("b.mf", MANIFEST, &trusted), Err(Error::Form(_))));
        }
    }
}

#[test]
fn signatures_of_other_publishers_are_refused() {
    let (key, certificate) = ecdsa();
    let (_, other) = ecdsa();
    let signer = Signer::from_pem(&key, &certificate).unwrap();
    let text = signer.sign("a.mf", MANIFEST).unwrap();
    let trusted = PublicKey::from_pem(&other).unwrap();
    let error = Signature::parse(&text).unwrap().verify("a.mf", MANIFEST, &trusted).unwrap_err();
    assert!(matches!(error, Error::OtherKey { .. }), "{error}");
    // A trusted certificate next to another key's signature does not help.
    let forged = format!("{}\n{other}", text.lines().next().unwrap());
    assert_eq!(Signature::parse(&forged).unwrap().verify("a.mf", MANIFEST, &trusted), Err(Error::Changed));
}

#[test]
fn mismatched_keys_are_refused() {
    let (key, certificate) = rsa();
    let (_, other) = rsa();
    assert_eq!(Signer::from_pem(&key, &other).unwrap_err(), Error::Mismatch);
    assert_eq!(Signer::from_pem(&ecdsa().0, &certificate).unwrap_err(), Error::Mismatch);
    let (ed_key, ed_certificate) = pair(&PKCS_ED25519);
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let cases = [
        (ed_key.as_str(), certificate.as_str(), "neither RSA nor ECDSA"),
        (&key, &ed_certificate, "neither RSA nor ECDSA"),
        (encrypted, &certificate, "encrypted"),
        (&certificate, &certificate, "no PEM block"),
        (&key, "", "no PEM block"),
        (&key, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not an X.509"),
        (&key, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n", "not PEM"),
    ];
    for (key, certificate, expected) in cases {
        let error = Signer::from_pem(key, certificate).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    }
}

#[test]
fn other_files_are_refused() {
    let (_, certificate) = ecdsa();
    let lines = ["", "SHA256(a.mf)=00", "SHA1(a.mf)= 00", "SHA256(a.mf)= ", "SHA256(a.mf)= 0", "SHA256(a.mf)= zz"];
    for line in lines {
        let error = Signature::parse(&format!("{line}\n{certificate}")).unwrap_err();
        assert!(matches!(error, Error::Form(_)), "{line:?}: {error}");
    }
    assert!(Signature::parse("SHA256(a.mf)= 00\n").is_err());
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(?s)(SHA256\\(a.mf\\)= [0-9a-f]{8}\n)?(-----BEGIN CERTIFICATE-----\n)?.{0,100}") {
        let _ = Signature::parse(&text);
    }
}
