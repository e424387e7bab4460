//! VMs that have one BIOS UUID, as where a copy of a VM's files was taken into the inventory beside it: a snapshot of its storage, a
//! replica, or a backup that was restored as what it was.

use super::{Hypervisor, Result, Vm};

/// The other VMs that have the BIOS UUID of this one, wherever they are; templates are none. Nobody can say then which of them is the one that
/// was made, and which runs is no proof: none of them is to be powered on or removed. One that carries another deployment's stamp is that
/// one's matter.
pub async fn doubles(hypervisor: &dyn Hypervisor, vm: &Vm) -> Result<Vec<Vm>> {
    let deployment = hypervisor.deployment();
    let mut found = hypervisor.with_bios_uuid(vm.uuid()).await?;
    found.retain(|other| other.reference != vm.reference && !other.is_anothers(deployment));
    Ok(found)
}
