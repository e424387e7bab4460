use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use contract::properties::ControlNode;
use uuid::Uuid;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn node() -> ControlNode {
    ControlNode { name: "node-2".to_owned(), address: [10, 0, 0, 12].into() }
}

#[test]
fn cas_are_written_once_and_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let authorities = CertificateAuthorities::make(SystemTime::now()).unwrap();
    assert!(authorities.ensure(directory.path()).unwrap());
    assert!(!authorities.ensure(directory.path()).unwrap());
    assert_eq!(CertificateAuthorities::read(directory.path()).unwrap(), authorities);
    for key in ["ca.key", "front-proxy-ca.key", "etcd/ca.key", "sa.key"] {
        let mode = fs::metadata(directory.path().join(key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }

    let other = CertificateAuthorities::make(SystemTime::now()).unwrap();
    assert!(matches!(other.ensure(directory.path()), Err(Error::Another { .. })));
    assert_eq!(CertificateAuthorities::read(directory.path()).unwrap(), authorities);

    fs::remove_file(directory.path().join("etcd/ca.crt")).unwrap();
    assert!(authorities.ensure(directory.path()).unwrap());
    assert_eq!(CertificateAuthorities::read(directory.path()).unwrap(), authorities);
}

#[test]
fn leaf_is_made_again_if_it_is_outdated() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("server.v1");
    let now = SystemTime::now();
    let authorities = CertificateAuthorities::make(now).unwrap();
    let leaf = Leaf::etcd_server(&node());
    let ensure = |leaf: &Leaf, now| leaf.ensure(&authorities.etcd, &base, now).unwrap();
    assert!(ensure(&leaf, now), "missing");
    assert!(!ensure(&leaf, now), "good");
    assert!(!ensure(&leaf, now + 270 * DAY), "good for long enough");
    assert!(ensure(&leaf, now + 280 * DAY), "ends soon");
    assert!(ensure(&leaf, now + 3000 * DAY), "ended");
    assert!(!ensure(&leaf, now), "made while the clock was ahead, and valid now");
    assert!(ensure(&leaf, now + 400 * DAY + 3000 * DAY), "ends soon");

    let moved = Leaf::etcd_server(&ControlNode { address: [10, 0, 0, 13].into(), ..node() });
    assert!(ensure(&moved, now), "another address");
    assert!(ensure(&Leaf::kube_proxy(), now), "another holder");

    let (certificate, key) = (directory.path().join("server.v1.crt"), directory.path().join("server.v1.key"));
    assert!(ensure(&leaf, now));
    let old_key = fs::read(&key).unwrap();
    assert!(leaf.ensure(&authorities.kubernetes, &base, now).unwrap(), "another authority");
    assert!(ensure(&leaf, now));
    fs::write(&key, old_key).unwrap();
    assert!(ensure(&leaf, now), "another certificate's key");
    fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    assert!(ensure(&leaf, now), "garbage");
    assert!(!ensure(&leaf, now));
}

#[test]
fn certificates_begin_before_they_are_made() {
    let now = SystemTime::now();
    let authorities = CertificateAuthorities::make(now).unwrap();
    let near = |time: SystemTime, expected: SystemTime| {
        let apart = time.duration_since(expected).unwrap_or_else(|error| error.duration());
        assert!(apart < Duration::from_secs(2), "{time:?} is not {expected:?}");
    };
    near(expiry(&authorities.kubernetes.certificate).unwrap(), now + 3650 * DAY);
    let leaf = Leaf::pod_network().issue(&authorities.kubernetes, now).unwrap();
    near(expiry(&leaf.certificate).unwrap(), now + 365 * DAY);
    // For any time of the clock.
    for clock in [now, now + 300 * DAY, now + 3000 * DAY] {
        let leaf = Leaf::pod_network().issue(&authorities.kubernetes, clock).unwrap();
        near(validity(&leaf.certificate).unwrap().0, now - BACKDATE);
    }
    assert!(expiry("no certificate").is_err());
}

/// In earlier images the validity of certificates started an hour before they were made.
#[test]
fn leaf_from_a_clock_ahead_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("server");
    let now = SystemTime::now();
    // Two CAs with one key. The CA that begins later signs the leaf.
    let authority = CertificateAuthorities::make(now).unwrap().etcd;
    let ahead = certificate_authorities::with_key_of(&authority, "etcd-ca", now + 700 * DAY);
    let leaf = Leaf::etcd_server(&node());
    leaf.issue(&ahead, now + 700 * DAY).unwrap().write(&base).unwrap();
    assert!(leaf.ensure(&authority, &base, now).unwrap());
    assert!(!leaf.ensure(&authority, &base, now).unwrap());
    // A CA that begins in the future itself makes no better certificates.
    leaf.issue(&ahead, now).unwrap().write(&base).unwrap();
    assert!(!leaf.ensure(&ahead, &base, now).unwrap());
    assert_eq!(verified(&leaf.issue(&ahead, now).unwrap(), &authority, now).unwrap(), SystemTime::UNIX_EPOCH);
}

#[test]
fn bundle_is_checked_and_written() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let authorities = CertificateAuthorities::make(now).unwrap();
    let bundle = MemberBundle::make(Uuid::new_v4(), &node(), &authorities, now).unwrap();
    let text = serde_json::to_string(&bundle).unwrap();
    let bundle: MemberBundle = serde_json::from_str(&text).unwrap();
    bundle.check(&node(), now).unwrap();
    assert!(bundle.check(&ControlNode { name: "node-3".to_owned(), ..node() }, now).is_err());
    assert!(bundle.check(&ControlNode { address: [10, 0, 0, 13].into(), ..node() }, now).is_err());
    let mixed = MemberBundle { cas: CertificateAuthorities::make(now).unwrap(), ..bundle.clone() };
    assert!(mixed.check(&node(), now).is_err());

    assert!(bundle.ensure(&node(), directory.path(), now).unwrap());
    assert!(!bundle.ensure(&node(), directory.path(), now).unwrap());
    assert!(!ensure_member(&node(), directory.path(), now).unwrap());
    for leaf in ["etcd/server", "etcd/peer", "etcd/healthcheck-client", "apiserver-etcd-client"] {
        assert!(directory.path().join(format!("{leaf}.crt")).is_file(), "{leaf}");
    }
    let later = now + 300 * DAY;
    assert!(ensure_member(&node(), directory.path(), later).unwrap());
    assert!(
        !bundle.ensure(&node(), directory.path(), later).unwrap(),
        "the bundle's old certificates are not put back"
    );
}

#[test]
fn kubeconfig_is_kept_while_it_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kube-proxy.conf");
    let now = SystemTime::now();
    let authorities = CertificateAuthorities::make(now).unwrap();
    let ensure = |server: &str, now| ensure_kubeconfig(&path, server, &Leaf::kube_proxy(), &authorities, now).unwrap();
    assert!(ensure("https://10.0.0.10:6443", now));
    assert!(!ensure("https://10.0.0.10:6443", now));
    assert!(ensure("https://10.0.0.11:6443", now), "another server");
    assert!(ensure("https://10.0.0.11:6443", now + 300 * DAY), "ends soon");
    let read = read_kubeconfig(&path).unwrap();
    assert_eq!(read.server, "https://10.0.0.11:6443");
    assert_eq!(read.authority, authorities.kubernetes.certificate);
    assert!(!format!("{read:?}").contains("PRIVATE KEY"));
}

#[test]
fn certificate_is_found_in_json_and_yaml_kubeconfigs() {
    let now = SystemTime::now();
    let authorities = CertificateAuthorities::make(now).unwrap();
    let client = Leaf::kube_proxy().issue(&authorities.kubernetes, now).unwrap();
    let server = "https://10.0.0.11:6443".to_owned();
    let json = kubeconfig(server, authorities.kubernetes.certificate.clone(), client.clone()).render("user");
    assert_eq!(embedded(&json).unwrap(), client);
    let value = |name: &str| json.split_once(&format!("\"{name}\": \"")).unwrap().1.split('"').next().unwrap();
    let yaml = ["certificate-authority-data", "server", "client-certificate-data", "client-key-data"].map(value);
    let [authority, server, certificate, key] = yaml;
    let yaml = format!(
        "clusters:\n- cluster:\n    certificate-authority-data: {authority}\n    server: {server}\n  name: lab\n\
         users:\n- name: user\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
    );
    assert_eq!(embedded(&yaml).unwrap(), client);
    for bad in ["", "client-certificate-data:", "client-certificate-data: *\nclient-key-data: *"] {
        assert!(embedded(bad).is_err(), "{bad}");
    }
}
