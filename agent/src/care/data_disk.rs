//! The data partition follows the virtual disk: made larger in the hypervisor,
//! it is larger on the running node shortly after.

use contract::codes;
use contract::finding::Findings;

use crate::disk::{DataDisk, Disk, grow};
use crate::steps::Machine;

pub(super) fn look(machine: &Machine) -> anyhow::Result<Findings> {
    let DataDisk::Ours { disk, identity } = &machine.data_disk else { return Ok(Findings::default()) };
    grow::rescan(disk, &machine.platform);
    let disk = Disk::open(&disk.path, &machine.platform)?;
    Ok(match grow::online(&disk, identity.disk, &machine.platform, machine.runner()) {
        Ok(_) => Findings::default(),
        Err(error) => codes::DISK_NOT_GROWN
            .finding(
                disk.path.display().to_string(),
                error,
                "Restart the VM; if it stays, check the storage behind the disk",
            )
            .into(),
    })
}
