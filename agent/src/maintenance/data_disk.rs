//! Grows the data partition when the virtual disk was enlarged in the hypervisor, while the node runs. Also grows the partition
//! of a worker's local volumes.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::Config;
    use crate::intake::config::fixture::one_node;
    use crate::node::fixture;

    #[test]
    fn finding_names_a_disk_that_cannot_grow() {
        let root = tempfile::tempdir().unwrap();
        // It has an identity and no partition table.
        let findings = look(&fixture::node(root.path(), Config::ControlPlane(one_node()))).unwrap();
        let found: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(found, ["disk.not-grown"]);
        assert!(!findings.has_errors());
    }
}
