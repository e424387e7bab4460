//! The renewal of a node's certificates that an operator has asked for. It is noted on the data disk: the agent does it, and after
//! a power cut goes on with it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::records::{Entry, Records};

/// The last renewal that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The client draws it. A second request with it begins nothing.
    pub id: Uuid,
    pub stage: Stage,
}

/// How far a renewal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Asked,
    /// The new certificates are on the disk, and what reads them starts again.
    Renewed,
    /// The control plane of this node runs with them.
    Done,
}

impl Entry for Renewal {
    const FILE: &'static str = "renewal.json";
    const WHAT: &'static str = "the renewal of certificates";
}

/// Asks for a renewal, or how far it is; says whether it is done. It begins after one that is under way.
///
/// # Errors
/// The record cannot be read or understood, or the file system's.
pub fn ask(records: &Records, id: Uuid) -> anyhow::Result<bool> {
    match records.entry::<Renewal>()? {
        Some(known) if known.id == id => Ok(known.stage == Stage::Done),
        Some(known) if known.stage != Stage::Done => Ok(false),
        _ => records.begin_entry(&Renewal { id, stage: Stage::Asked }).map(|_| false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_renewal_is_done_after_the_other_and_each_once() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("data/kaas")).unwrap();
        let (records, [one, two]) = (Records::new(root.path()), [Uuid::from_u128(1), Uuid::from_u128(2)]);
        let done = |id| records.update_entry(&Renewal { id, stage: Stage::Done }).unwrap();
        let kept = || records.entry::<Renewal>().unwrap().unwrap();
        assert!(!ask(&records, one).unwrap() && !ask(&records, one).unwrap() && !ask(&records, two).unwrap());
        assert_eq!(kept(), Renewal { id: one, stage: Stage::Asked });
        done(one);
        assert!(ask(&records, one).unwrap(), "it is done, and not begun again");
        assert!(!ask(&records, two).unwrap());
        assert_eq!(kept(), Renewal { id: two, stage: Stage::Asked });
    }
}
