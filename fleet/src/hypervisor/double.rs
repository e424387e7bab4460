//! VMs that share one BIOS UUID. They appear if a copy of a VM's files was registered in the inventory: a storage
//! snapshot, a replica or a restored backup.

use super::{Hypervisor, Result, Vm};

/// The other VMs with the BIOS UUID of this one, wherever they are. Templates and VMs with another deployment's stamp
/// are left out. It is unknown which VM is the original, and a running VM is no proof. So none of them may be powered
/// on or removed.
pub async fn doubles(hypervisor: &dyn Hypervisor, vm: &Vm) -> Result<Vec<Vm>> {
    let deployment = hypervisor.deployment();
    let mut found = hypervisor.with_bios_uuid(vm.uuid()).await?;
    found.retain(|other| other.reference != vm.reference && !other.is_anothers(deployment));
    Ok(found)
}
