//! The disk of a worker's local volumes, as the worker remembers it from boot to boot.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::records::Entry;
use crate::host::disk::{Expected, VolumesOwner};
use crate::intake::config::Worker;

/// That a worker has a disk for local volumes. Decided before it joins, and for as long as its VM lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumesDisk {
    /// Its GPT disk GUID; none until it is prepared and the worker's.
    pub disk: Option<Uuid>,
}

impl Entry for VolumesDisk {
    const FILE: &'static str = "local-volumes.json";
    const WHAT: &'static str = "the disk for local volumes";
}

/// Who looks for a disk: the worker, which remembers one or not.
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
    fn an_empty_disk_is_taken_only_if_that_was_decided_before_the_worker_joined() {
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
