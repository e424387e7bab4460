//! The disk for a worker's local volumes, as recorded from boot to boot.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::records::Entry;
use crate::host::disk::{Expected, VolumesOwner};
use crate::intake::config::Worker;

/// The record that a worker has a disk for local volumes. Decided before the join, and valid as long as the VM exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumesDisk {
    /// The GPT disk GUID. `None` until the disk is prepared and belongs to the worker.
    pub disk: Option<Uuid>,
}

impl Entry for VolumesDisk {
    const FILE: &'static str = "local-volumes.json";
    const WHAT: &'static str = "the disk for local volumes";
}

pub fn owner(worker: &Worker, remembered: Option<VolumesDisk>) -> VolumesOwner {
    let expected = match (remembered, &worker.cluster.learned) {
        (Some(VolumesDisk { disk: Some(disk) }), _) => Expected::Disk(disk),
        (Some(VolumesDisk { disk: None }), _) | (None, None) => Expected::Any,
        (None, Some(_)) => Expected::Nothing,
    };
    VolumesOwner { ca_hash: worker.cluster.ca_hash.clone(), node: worker.node.name.clone(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::{joined, worker};

    #[test]
    fn blank_disk_requires_a_decision_before_the_join() {
        let known = Uuid::from_u128(7);
        let expected = |worker: &Worker, remembered: Option<Option<Uuid>>| {
            owner(worker, remembered.map(|disk| VolumesDisk { disk })).expected
        };
        assert_eq!(expected(&worker(), None), Expected::Any);
        assert_eq!(expected(&joined(), None), Expected::Nothing);
        for worker in [worker(), joined()] {
            assert_eq!(expected(&worker, Some(None)), Expected::Any, "cut off between the join and the disk");
            assert_eq!(expected(&worker, Some(Some(known))), Expected::Disk(known));
        }
    }
}
