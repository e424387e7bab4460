//! The renewal of a node's certificates that an operator has requested. It is recorded on the data disk: the agent does
//! it, and continues it after a power cut.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::records::{Entry, Records};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The client draws it. A second request with the same ID begins nothing.
    pub id: Uuid,
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Asked,
    /// The new certificates are on the disk, and the programs that read them start again.
    Renewed,
    /// The control plane of this node runs with them.
    Done,
}

impl Entry for Renewal {
    const FILE: &'static str = "renewal.json";
    const WHAT: &'static str = "the renewal of certificates";
}

/// Requests a renewal, or asks for its progress. Returns whether it is done. It begins after one that is running.
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
    fn each_renewal_is_done_once_in_order() {
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
