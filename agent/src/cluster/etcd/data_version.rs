//! Which etcd has used this node's data last: noted on the data disk before etcd starts.
//!
//! etcd takes its data from one minor to the next by itself, but never back, and its members may differ only on the way.
//! An image swap can be turned back until it is committed, so a swap changes no minor of etcd: data of another one are
//! refused, before anything is changed. Data of which nothing is noted are from before this was, and are taken.

use contract::codes;
use contract::finding::Finding;
use contract::minor::Minor;
use serde::{Deserialize, Serialize};

use crate::cluster::records::{Entry, Records};

/// The etcd that has used the data last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DataVersion {
    /// Its version, such as `3.6.16`.
    version: String,
}

impl Entry for DataVersion {
    const FILE: &'static str = "etcd-version.json";
    const WHAT: &'static str = "the version of etcd";
}

/// Whether etcd of this `version` may use the data.
///
/// # Errors
/// The note cannot be read or understood. The inner error: it is of another minor.
pub fn check(records: &Records, version: &str) -> anyhow::Result<Result<(), Finding>> {
    let Some(last) = records.entry::<DataVersion>()? else { return Ok(Ok(())) };
    let (had, has) = (Minor::of(&last.version), Minor::of(version));
    if had.is_some() && had == has || last.version == version {
        return Ok(Ok(()));
    }
    let of_release = had.map_or(last.version.clone(), |minor| minor.to_string());
    Ok(Err(codes::ETCD_OTHER_MINOR.finding(
        "etcd's data",
        format!("etcd {} has used them last, and this image has etcd {version}: another minor", last.version),
        format!(
            "Give the data disk back to the node's former VM, or to a VM of an image with etcd {of_release}; an image with \
             another minor of etcd cannot take its place"
        ),
    )))
}

/// Notes that etcd of this `version` uses the data from now on. Says whether that is news.
///
/// # Errors
/// The old note cannot be read or understood, or the file system's; the old note then still stands.
pub fn note(records: &Records, version: &str) -> anyhow::Result<bool> {
    records.update_entry(&DataVersion { version: version.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_for_the_minor_that_had_them() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let verdict = |version: &str| check(&records, version).unwrap().map_err(|finding| finding.code);
        let refused = || Err("etcd.other-minor".to_owned());
        assert_eq!(verdict("3.6.16"), Ok(()), "from before it was noted");
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
        // Whoever has them may go on, whatever the version is.
        note(&records, "own").unwrap();
        assert_eq!((verdict("own"), verdict("3.6.16")), (Ok(()), refused()));
    }

    #[test]
    fn a_note_that_is_not_understood_is_not_taken_for_none() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        note(&records, "3.6.16").unwrap();
        std::fs::write(root.path().join("data/kaas/etcd-version.json"), "{").unwrap();
        assert!(check(&records, "3.6.16").is_err() && note(&records, "3.6.16").is_err());
    }
}
