//! Which VM a guest runs in, by the BIOS UUID that it reports.

use std::collections::BTreeSet;

use contract::bios_uuid::BiosUuid;
use uuid::Uuid;

use super::Vm;

impl Vm {
    /// Whether a guest that reports this BIOS UUID may run in this VM.
    pub fn is_named(&self, guest: Option<BiosUuid>) -> bool {
        guest == Some(self.uuid().into())
    }
}

/// The BIOS UUIDs to search for: both byte orders of the UUID that a guest reports.
pub fn uuids_of(guest: BiosUuid) -> impl Iterator<Item = Uuid> {
    let [reported, other] = guest.orders();
    [Some(reported), Some(other).filter(|other| *other != reported)].into_iter().flatten()
}

/// The reason why these VMs do not identify the one that a guest with this BIOS UUID runs in: each byte order names
/// another VM. An image up to 0.1 reports the byte order that vCenter does not show, and later images report the other
/// one. The report of a guest fits both.
pub fn named_twice<'v>(vms: impl IntoIterator<Item = &'v Vm>, guest: Option<BiosUuid>) -> Option<String> {
    let guest = guest?;
    let named: BTreeSet<Uuid> = vms.into_iter().filter(|vm| vm.is_named(Some(guest))).map(Vm::uuid).collect();
    // The message omits their names: root of a guest can make it report any BIOS UUID.
    let [reported, other] = guest.orders();
    (named.len() > 1).then(|| {
        format!(
            "the BIOS UUID {reported} names a VM, and {other}, which has the same bytes in another order, names another VM: \
             remove the VM that is not the node's, or power it off and change its uuid.bios"
        )
    })
}
