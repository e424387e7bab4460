use std::fs;

use super::*;
use crate::upgrade::tests::fake::new;
use crate::upgrade::tests::package::{signer, write};

#[test]
fn ova_states_build_versions_and_signer() {
    let directory = tempfile::tempdir().unwrap();
    let full = format!("0.2.0+{}", new().build);
    let signer = signer();
    let target = Target::read(&write(directory.path(), &full, Some(&signer))).unwrap();
    assert_eq!((target.name.as_str(), &target.image), ("kaas-control-plane", &new()));
    assert_eq!(target.kubernetes, ["1.36", "1.35"]);
    assert_eq!(target.signer, Some(signer.public_key().fingerprint().to_string()));
    let unsigned = Target::read(&write(directory.path(), &full, None)).unwrap();
    assert_eq!((unsigned.signer, unsigned.digest), (None, target.digest.clone()));
    assert_eq!(target.upgrades_from, None);
    assert_eq!(target.etcd, None);
    let with_etcd = Target::read(&write(directory.path(), &format!("{full} (etcd 3.6)"), Some(&signer))).unwrap();
    assert_eq!(with_etcd.etcd, Some("3.6".parse().unwrap()));
    let from =
        |text: &str| Target::read(&write(directory.path(), &format!("{full} (upgrades from {text}"), Some(&signer)));
    assert_eq!(from(">=0.1.0, <1.0.0)").unwrap().upgrades_from, Some(">=0.1.0, <1.0.0".parse().unwrap()));
    for unclear in [">=0.1.0", "whatever)"] {
        let error = format!("{:#}", from(unclear).unwrap_err());
        assert!(error.contains("of which versions"), "{error}");
    }
    target.verify(&write(directory.path(), &full, Some(&signer))).unwrap();
    // The same image without its signature, and another image, are not what was planned with.
    for other in [write(directory.path(), &full, None), write(directory.path(), &full.replace('b', "c"), Some(&signer))]
    {
        let error = target.verify(&other).unwrap_err().to_string();
        assert!(error.contains("is not the OVA that was planned with"), "{error}");
    }
}

#[test]
fn ova_without_build_or_with_changes_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for full in ["0.2.0", "0.2.0 (development image)", "0.3.0+bbbb", "0.2.0+XYZ00000000000000000000000000000"] {
        let error = format!("{:#}", Target::read(&write(directory.path(), full, None)).unwrap_err());
        assert!(error.contains("does not say clearly which image it holds") && error.contains(full), "{error}");
    }
    let ova = write(directory.path(), &format!("0.2.0+{}", new().build), Some(&signer()));
    let mut bytes = fs::read(&ova).unwrap();
    // In the disk, which comes last.
    let place = bytes.len() - 4 * 1024;
    bytes[place] ^= 1;
    fs::write(&ova, bytes).unwrap();
    let error = format!("{:#}", Target::read(&ova).unwrap_err());
    assert!(error.contains("is damaged"), "{error}");
}
