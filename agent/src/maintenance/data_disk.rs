//! The data partition follows the virtual disk: made larger in the hypervisor,
//! it is larger on the running node shortly after.

use contract::codes;
use contract::finding::Findings;

use crate::host::disk::{DataDisk, Disk, grow};
use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let DataDisk::Ours { disk, identity } = &node.data_disk else { return Ok(Findings::default()) };
    grow::rescan(disk, &node.platform);
    let disk = Disk::open(&disk.path, &node.platform)?;
    Ok(match grow::online(&disk, identity.disk, &node.platform, node.runner()) {
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
