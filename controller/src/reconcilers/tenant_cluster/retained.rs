//! The remains of a deleted cluster: data disks that are not its own or whose deletion was not confirmed, and copies of its VMs.
//! No object names them afterwards.

use fleet::control_plane::{LeftVm, left_in_words};
use kube::ResourceExt;

use crate::objects::{Deployment, TenantCluster};

/// A log line for each of these disks, from the record in the cluster's status.
pub(super) fn what_is_left(cluster: &TenantCluster) -> Vec<String> {
    let deployment = cluster.status.as_ref().and_then(|status| status.deployment.as_ref());
    let Some(Deployment { record: kept, .. }) = deployment else { return Vec::new() };
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let said = kept.retained_disks.iter().map(|disk| {
        let words = left_in_words(disk, kept.requested_disk_deletions.contains(&disk.uuid));
        format!("{namespace}/{name}: left: {words}")
    });
    said.collect()
}

/// A log line for each copy of a control-plane node's VM that the removal found: it contains the cluster's Secrets. Copies are
/// not recorded, so the caller that removed the VMs logs them.
pub(super) fn replicas_left(cluster: &TenantCluster, replicas: &[LeftVm]) -> Vec<String> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    replicas.iter().map(|vm| format!("{namespace}/{name}: left: {vm}")).collect()
}

#[cfg(test)]
mod tests {
    use fleet::hypervisor::VmRef;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::objects::TenantClusterStatus;

    #[test]
    fn an_unconfirmed_deletion_is_mentioned() {
        let [there, doubtful] = ["4", "5"].map(|digit| format!("00000000-0000-0000-0000-00000000000{digit}"));
        let deployment = json!({
            "lease": 1, "cluster": "shop", "lifecycle": "Deleted", "image": {"name": "kaas-tenant 0.2.0"},
            "retainedDisks": [{"uuid": there, "path": "[ds] 4.vmdk"}, {"uuid": doubtful, "path": "[ds] 5.vmdk"}],
            "requestedDiskDeletions": [doubtful],
        });
        let deployment = Some(serde_json::from_value(deployment).unwrap());
        let mut cluster = cluster();
        assert_eq!(what_is_left(&cluster), [""; 0]);
        cluster.metadata.namespace = Some("tenants".to_owned());
        cluster.status = Some(TenantClusterStatus { deployment, ..TenantClusterStatus::default() });
        let said = what_is_left(&cluster);
        assert_eq!(said[0], format!("tenants/shop: left: the data disk {there} at [ds] 4.vmdk"));
        assert!(said[1].contains(&doubtful) && said[1].contains("its removal was asked for"), "{said:?}");
        assert_eq!(said.len(), 2);
    }

    #[test]
    fn a_copy_of_a_vm_is_named() {
        let vm = VmRef { uuid: Uuid::from_u128(5), id: "vm-5".to_owned() };
        let mut cluster = cluster();
        cluster.metadata.namespace = Some("tenants".to_owned());
        assert_eq!(replicas_left(&cluster, &[]), [""; 0]);
        let said = replicas_left(&cluster, &[LeftVm { name: "shop-cp1-replica".to_owned(), vm }]);
        assert!(said[0].starts_with("tenants/shop: left: the VM shop-cp1-replica ("), "{said:?}");
        assert!(said[0].contains("vm-5") && said.len() == 1, "{said:?}");
    }
}
