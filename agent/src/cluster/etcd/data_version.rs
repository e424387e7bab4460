//! The version of etcd that used this node's data last. It is saved on the data disk before etcd starts.
//!
//! etcd upgrades its data by one minor version itself, but never downgrades them. Its members may differ only
//! meanwhile. An image swap can be rolled back until it is committed, so a swap keeps the minor version of etcd. Data
//! of another minor version are refused before anything is changed.

use contract::codes;
use contract::finding::Finding;
use contract::minor::Minor;
use serde::{Deserialize, Serialize};

use crate::cluster::records::{Entry, Records};

/// The etcd that used the data last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DataVersion {
    /// For example `3.6.16`.
    version: String,
}

impl Entry for DataVersion {
    const FILE: &'static str = "etcd-version.json";
    const WHAT: &'static str = "the version of etcd";
}

/// Checks whether etcd of this `version` may use the data.
///
/// # Errors
/// The record cannot be read or understood. The inner error: the data are of another minor version.
pub fn check(records: &Records, version: &str) -> anyhow::Result<Result<(), Finding>> {
    let Some(last) = records.entry::<DataVersion>()? else { return Ok(Ok(())) };
    let (had, has) = (Minor::of(&last.version), Minor::of(version));
    if had.is_some() && had == has || last.version == version {
        return Ok(Ok(()));
    }
    let of_release = had.map_or(last.version.clone(), |minor| minor.to_string());
    Ok(Err(codes::ETCD_OTHER_MINOR.finding(
        "etcd's data",
        format!("etcd {} has used them last, and this image has etcd {version}: another minor version", last.version),
        format!(
            "Give the data disk back to the node's former VM, or to a VM of an image with etcd {of_release}; an image with \
             another minor version of etcd cannot take its place"
        ),
    )))
}

/// Records that etcd of this `version` uses the data from now on. Returns whether that is new.
///
/// # Errors
/// The old record cannot be read or understood, or an error of the file system. The old record then remains.
pub fn note(records: &Records, version: &str) -> anyhow::Result<bool> {
    records.update_entry(&DataVersion { version: version.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_only_for_their_minor_version() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let verdict = |version: &str| check(&records, version).unwrap().map_err(|finding| finding.code);
        let refused = || Err("etcd.other-minor".to_owned());
        assert_eq!(verdict("3.6.16"), Ok(()), "before the first start");
        assert!(note(&records, "3.6.16").unwrap() && !note(&records, "3.6.16").unwrap());
        for (version, expected) in [
            ("3.6.16", Ok(())),
            ("3.6.2", Ok(())),
            ("3.6.99-rc.1", Ok(())),
            ("3.7.0", refused()),
            ("3.5.24", refused()),
            ("4.6.0", refused()),
            ("new", refused()),
        ] {
            assert_eq!(verdict(version), expected, "{version}");
        }
        let finding = check(&records, "3.7.0").unwrap().unwrap_err().to_string();
        assert!(
            finding.contains("etcd 3.6.16 has used them last") && finding.contains("image with etcd 3.6"),
            "{finding}"
        );
        // The version that used them last may always continue.
        note(&records, "own").unwrap();
        assert_eq!((verdict("own"), verdict("3.6.16")), (Ok(()), refused()));
    }

    #[test]
    fn unreadable_version_record_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        note(&records, "3.6.16").unwrap();
        std::fs::write(root.path().join("data/kaas/etcd-version.json"), "{").unwrap();
        assert!(check(&records, "3.6.16").is_err() && note(&records, "3.6.16").is_err());
    }
}
