use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use super::*;
use crate::host::files;
use crate::intake::config::fixture::three_nodes;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The certificates of a CA and of a server that it has signed, with the server's key.
struct Site {
    authority: String,
    server: String,
    key: String,
}

fn site(change: impl FnOnce(&mut CertificateParams)) -> Site {
    let signer = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&signer).unwrap().pem();
    let issuer = Issuer::from_ca_cert_pem(&authority, signer).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["api.example.com".into(), "10.0.0.10".into()]).unwrap();
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + 90 * DAY).into();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    change(&mut params);
    Site { authority, server: params.signed_by(&key, &issuer).unwrap().pem(), key: key.serialize_pem() }
}

impl Site {
    fn examine(&self) -> anyhow::Result<ApiCertificate> {
        ApiCertificate::examine(&self.chain(), &self.key, &three_nodes(), Some(SystemTime::now()))
    }

    fn chain(&self) -> String {
        format!("{}{}", self.server, self.authority)
    }
}

#[test]
fn valid_pair_is_installed_and_found_again() {
    let root = tempfile::tempdir().unwrap();
    let config = three_nodes();
    assert!(ApiCertificate::installed(root.path(), &config).unwrap().is_none());
    let examined = site(|_| {}).examine().unwrap();
    assert_eq!(examined.names, ["api.example.com"], "never an address: clients inside connect by address");
    assert!(examined.install(root.path()).unwrap());
    assert!(!examined.install(root.path()).unwrap());
    let installed = ApiCertificate::installed(root.path(), &config).unwrap().unwrap();
    assert_eq!((installed.names, installed.ends), (examined.names, examined.ends));
    use std::os::unix::fs::PermissionsExt;
    let file = files::below(root.path(), PATH);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&file, "damaged").unwrap();
    assert!(ApiCertificate::installed(root.path(), &config).unwrap_err().to_string().contains(PATH));
    assert!(remove(root.path()).unwrap() && !remove(root.path()).unwrap());
}

#[test]
fn each_mistake_is_reported() {
    let now = SystemTime::now();
    let refused = |site: &Site| format!("{:#}", site.examine().unwrap_err());
    let other = site(|_| {});
    let good = site(|_| {});
    let cases = [
        (Site { key: other.key, ..site(|_| {}) }, "is not the certificate's"),
        (Site { key: "-----BEGIN ENCRYPTED PRIVATE KEY-----".into(), ..site(|_| {}) }, "passphrase"),
        (Site { key: String::new(), ..site(|_| {}) }, "no private key"),
        (Site { server: String::new(), authority: String::new(), key: String::new() }, "no certificate"),
        (Site { authority: other.authority, ..site(|_| {}) }, "does not hold together"),
        (Site { server: good.authority, authority: good.server, key: good.key }, "does not hold together"),
        (site(|params| params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained)), "is a CA's"),
        (site(|params| params.not_after = (now - DAY / 2).into()), "has expired"),
        (site(|params| params.not_before = (now + DAY).into()), "not valid before"),
        (site(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]), "serverAuth"),
    ];
    for (site, words) in &cases {
        let said = refused(site);
        assert!(said.contains(words), "{said} should say: {words}");
    }
}

#[test]
fn internal_names_keep_the_clusters_certificate() {
    let names = |names: &[&str]| {
        let names: Vec<rcgen::SanType> =
            names.iter().map(|name| rcgen::SanType::DnsName((*name).try_into().unwrap())).collect();
        site(|params| params.subject_alt_names = names).examine()
    };
    let some =
        names(&["localhost", "kubernetes.default.svc", "*.Example.com", "node1", "x.svc.cluster.local"]).unwrap();
    assert_eq!(some.names, ["*.example.com"]);
    for inside in [vec!["localhost"], vec![], vec!["node1", "kubernetes"], vec!["bad_name:6443,x"]] {
        assert!(format!("{:#}", names(&inside).unwrap_err()).contains("no DNS name"), "{inside:?}");
    }
}

#[test]
fn expired_certificate_stays_in_use_until_its_replacement() {
    let root = tempfile::tempdir().unwrap();
    let ended = site(|params| params.not_after = (SystemTime::now() - DAY / 2).into());
    let config = three_nodes();
    ApiCertificate::examine(&ended.chain(), &ended.key, &config, None).unwrap().install(root.path()).unwrap();
    assert!(ApiCertificate::installed(root.path(), &config).unwrap().unwrap().ends < SystemTime::now());
}
