//! kubeadm's phases, with a stand-in that writes what kubeadm would.

use std::time::Duration;

use super::fake::FakeKubeadm;
use super::*;
use crate::host::files;

#[test]
fn half_written_credentials_are_created_again() {
    let root = tempfile::tempdir().unwrap();
    let fake = FakeKubeadm::new(root.path());
    let kubeadm = Kubeadm::new(root.path(), &fake);
    let now = SystemTime::now();
    // Cut off while the administrator's kubeconfig was written.
    fake.write(&format!("{DIRECTORY}/admin.conf"), "");
    assert!(kubeadm.credentials(false, now).unwrap());
    let read = |path: &str| fs::read_to_string(files::below(root.path(), path)).unwrap();
    assert!(read("/etc/kubernetes/admin.conf").contains("client-certificate-data"));
    assert_eq!(read("/etc/kubernetes/pki/ca.crt"), fake.authorities.kubernetes.certificate, "the authority stays");
    fake.ran();
    assert!(!kubeadm.credentials(true, now).unwrap());
    assert_eq!(fake.ran(), [""; 0]);
}

#[test]
fn interrupted_renewals_are_repeated() {
    let root = tempfile::tempdir().unwrap();
    let fake = FakeKubeadm::new(root.path());
    let kubeadm = Kubeadm::new(root.path(), &fake);
    let now = SystemTime::now();
    kubeadm.credentials(false, now).unwrap();
    for name in MADE {
        let path = files::below(root.path(), DIRECTORY).join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(kubeadm.credentials(true, now).unwrap(), "{name} is empty");
        fs::remove_file(&path).unwrap();
        assert!(kubeadm.credentials(true, now).unwrap(), "{name} is missing");
        if !name.ends_with(".conf") {
            fs::write(&path, whole).unwrap();
            assert!(kubeadm.credentials(true, now).unwrap(), "{name} is an old one beside its new half");
        }
        assert!(!kubeadm.credentials(true, now).unwrap());
    }
}

#[test]
fn renewed_credentials_restart_the_pods() {
    let root = tempfile::tempdir().unwrap();
    let fake = FakeKubeadm::new(root.path());
    let kubeadm = Kubeadm::new(root.path(), &fake);
    assert!(!kubeadm.manifests_are_current());
    kubeadm.credentials(false, SystemTime::now()).unwrap();
    let lay = || {
        for (component, mark) in marks(root.path()) {
            let manifest = root.path().join(format!("etc/kubernetes/manifests/{component}.yaml"));
            files::write_atomically(&manifest, mark.as_bytes(), 0o600).unwrap();
        }
    };
    lay();
    assert!(kubeadm.manifests_are_current());
    kubeadm.credentials(false, SystemTime::now()).unwrap();
    assert!(!kubeadm.manifests_are_current());
    lay();
    assert!(kubeadm.manifests_are_current());
}

#[test]
fn credentials_are_renewed_before_they_expire() {
    let days = |days: u64| SystemTime::now() + Duration::from_secs(days * 24 * 60 * 60);
    for (later, renewed) in [(0, false), (270, false), (280, true), (400, true), (3000, true)] {
        let root = tempfile::tempdir().unwrap();
        Kubeadm::new(root.path(), &FakeKubeadm::new(root.path())).credentials(false, SystemTime::now()).unwrap();
        let fake = FakeKubeadm::at(root.path(), days(later));
        let kubeadm = Kubeadm::new(root.path(), &fake);
        assert_eq!(kubeadm.credentials(true, days(later)).unwrap(), renewed, "after {later} days");
        assert!(!kubeadm.credentials(true, days(later)).unwrap());
    }
    // Made while the clock was ahead: they are valid from the same time as their CAs, as kubeadm's are.
    let root = tempfile::tempdir().unwrap();
    let ahead = FakeKubeadm::at(root.path(), days(100));
    Kubeadm::new(root.path(), &ahead).credentials(false, days(100)).unwrap();
    let fake = FakeKubeadm::new(root.path());
    assert!(!Kubeadm::new(root.path(), &fake).credentials(true, SystemTime::now()).unwrap());
}

#[test]
fn the_super_administrator_exists_only_while_used() {
    let root = tempfile::tempdir().unwrap();
    let fake = FakeKubeadm::new(root.path());
    let kubeadm = Kubeadm::new(root.path(), &fake);
    kubeadm.credentials(false, SystemTime::now()).unwrap();
    let path = files::below(root.path(), SUPER_ADMINISTRATOR);
    assert!(!path.exists(), "nobody asked for it");
    let whole = || fs::read_to_string(&path).is_ok_and(|text| text.contains("client-certificate-data"));
    // Cut off while it was written, the last time.
    fake.write(SUPER_ADMINISTRATOR, "");
    assert!(kubeadm.as_super_administrator(|| Ok(whole())).unwrap());
    assert!(!path.exists());
    kubeadm.as_super_administrator(|| -> anyhow::Result<()> { anyhow::bail!("no API") }).unwrap_err();
    assert!(!path.exists(), "what fails leaves nothing behind");
    fake.write(SUPER_ADMINISTRATOR, "of an earlier image");
    assert!(kubeadm.forget_super_administrator().unwrap() && !kubeadm.forget_super_administrator().unwrap());
}

#[test]
fn another_policy_restarts_the_api_server_alone() {
    let root = tempfile::tempdir().unwrap();
    let before = marks(root.path());
    api_server::lay(root.path(), contract::pod_security::PodSecurity::Restricted).unwrap();
    let after = marks(root.path());
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).map(|(before, _)| before.0);
    assert_eq!(changed.collect::<Vec<_>>(), ["kube-apiserver"]);
}

#[test]
fn only_changed_manifests_are_written() {
    let root = tempfile::tempdir().unwrap();
    let fake = FakeKubeadm::new(root.path());
    let kubeadm = Kubeadm::new(root.path(), &fake);
    assert!(kubeadm.manifests().unwrap());
    assert!(!kubeadm.manifests().unwrap());
    *fake.manifest.lock().unwrap() = "pod of another image";
    assert!(kubeadm.manifests().unwrap());
    let manifest = root.path().join("etc/kubernetes/manifests/kube-scheduler.yaml");
    assert_eq!(fs::read_to_string(manifest).unwrap(), "kube-scheduler pod of another image");
}
