//! The proof that the VM of a lost control-plane node does not run, so that another one may take its place and address.
//!
//! | Proof | What vCenter shows |
//! |---|---|
//! | off | exactly one VM with the BIOS UUID, powered off, on a host that responds, without a data disk |
//! | gone | no VM with the BIOS UUID, and a reachable datastore that has neither its settings file nor its data disk |
//! | unknown | everything else. A VM that the inventory lacks may run: a host that was removed keeps its VMs running |

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, Node};
use super::go::Deploy;
use super::records::begun;
use super::upgraded::Upgraded;
use crate::hypervisor::{Absence, DiskRef, Host, LastSeen, Place, PowerState, Vm};

/// Whether the VM of a lost node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerProof {
    Off,
    Gone,
    Unknown {
        why: String,
        /// The host of its VM, if vCenter shows one.
        host: Option<Host>,
    },
}

impl PowerProof {
    /// Returns why the VM of a lost node does not run. `host_is_off` is the host that the operator has switched off.
    ///
    /// # Errors
    /// The VM may run. The error says what to do.
    pub fn evidence(self, node: &str, host_is_off: Option<&str>) -> anyhow::Result<String> {
        Ok(match self {
            Self::Off => "its VM is off, without its data disk".to_owned(),
            Self::Gone => "its VM and its data disk are gone".to_owned(),
            Self::Unknown { host: Some(host), .. } if !host.responds && host_is_off == Some(host.name.as_str()) => {
                format!("the operator said that the host {} is off", host.name)
            }
            Self::Unknown { why, host } => match host.filter(|host| !host.responds) {
                Some(host) => bail!(
                    "whether the VM of {node} runs is unknown: {why}. Switch the host {0} off, and confirm \
                     that the host {0} is off",
                    host.name
                ),
                None => bail!("{node} is not proved lost: {why}"),
            },
        })
    }
}

/// The hypervisor's view of one VM.
#[derive(Clone, Debug)]
pub struct PowerEvidence {
    /// The VMs with its BIOS UUID, with the host of each.
    pub found: Vec<(Vm, Host)>,
    /// Whether its settings file is gone, if no VM was found.
    pub absence: Absence,
    /// Whether its data disk exists, if no VM was found. The error says why that is unknown.
    pub has_disk: Result<bool, String>,
}

impl PowerEvidence {
    /// The verdict on one VM.
    pub fn prove(&self) -> PowerProof {
        let unknown = |why: String| PowerProof::Unknown { why, host: None };
        match self.found.as_slice() {
            [] => match (&self.absence, &self.has_disk) {
                (Absence::Unknown(why), _) | (Absence::Gone, Err(why)) => unknown(why.clone()),
                (Absence::Gone, Ok(true)) => unknown(
                    "its VM is gone, and its data disk exists: attach the disk to a VM, or delete it".to_owned(),
                ),
                (Absence::Gone, Ok(false)) => PowerProof::Gone,
            },
            [(vm, host)] if !host.responds => PowerProof::Unknown {
                why: format!("{vm} is on the host {}, which does not respond", host.name),
                host: Some(host.clone()),
            },
            [(vm, _)] if vm.power != PowerState::Off => unknown(format!("{vm} is {}", vm.power)),
            [(vm, _)] if vm.data_disks().next().is_some() => unknown(format!(
                "{vm} is off and holds a data disk: power it on; if the disk is lost, detach it from the VM"
            )),
            [_] => PowerProof::Off,
            several => {
                let names: Vec<String> = several.iter().map(|(vm, _)| vm.to_string()).collect();
                unknown(format!("several VMs have its BIOS UUID: {}", names.join(", ")))
            }
        }
    }
}

impl Deploy<'_> {
    /// Whether the VM of a node runs. Changes nothing.
    pub async fn proof(&self, node: &str) -> anyhow::Result<PowerProof> {
        let deployment = self.hypervisor.deployment();
        let kept = begun(self.store, deployment).await?.context("no cluster is recorded here")?;
        let upgraded = Upgraded::find(self.store, deployment, Some(&kept)).await?;
        let lost = kept.node(node).with_context(|| format!("there is no control-plane node {node}"))?;
        let former = self.former_vms(&kept, &upgraded, lost, &self.hypervisor.vms().await?);
        self.proof_of(&kept, &upgraded, lost, &former).await
    }

    /// BIOS UUIDs of the VMs that a node may run in: those whose places are recorded, and those in sight. `vms` carry the
    /// deployment's stamp.
    pub(super) fn former_vms(
        &self,
        kept: &DeploymentRecord,
        upgraded: &Upgraded,
        node: &Node,
        vms: &[Vm],
    ) -> BTreeSet<Uuid> {
        let of_upgrade = upgraded.own.as_ref();
        let mut places: Vec<(&Uuid, &Place)> = kept.places.iter().collect();
        places.extend(of_upgrade.into_iter().flat_map(|own| &own.places));
        let noted = places.into_iter().filter(|(_, place)| place.node == node.name).map(|(vm, _)| *vm);
        let in_sight = vms.iter().filter(|vm| node.owns(vm)).map(Vm::uuid);
        let mut all: BTreeSet<Uuid> = noted.chain(in_sight).collect();
        // Its first VM, unless later ones are known.
        if all.is_empty() {
            all.extend(node.noted());
        }
        let is_past =
            |vm: &Uuid| kept.replaced_vms.contains(vm) || of_upgrade.is_some_and(|own| own.removed.contains(vm));
        all.retain(|vm| !is_past(vm));
        all
    }

    /// The verdict on all VMs that a node may run in: the worst of them.
    pub(super) async fn proof_of(
        &self,
        kept: &DeploymentRecord,
        upgraded: &Upgraded,
        node: &Node,
        former: &BTreeSet<Uuid>,
    ) -> anyhow::Result<PowerProof> {
        if former.is_empty() {
            let why = "no VM of it is recorded".to_owned();
            return Ok(PowerProof::Unknown { why, host: None });
        }
        let mut proof = PowerProof::Gone;
        for vm in former {
            match self.evidence(kept, upgraded, node, *vm).await?.prove() {
                PowerProof::Gone => {}
                PowerProof::Off => proof = PowerProof::Off,
                unknown => return Ok(unknown),
            }
        }
        Ok(proof)
    }

    async fn evidence(
        &self,
        kept: &DeploymentRecord,
        upgraded: &Upgraded,
        node: &Node,
        vm: Uuid,
    ) -> anyhow::Result<PowerEvidence> {
        let mut found = Vec::new();
        for vm in self.hypervisor.with_bios_uuid(vm).await? {
            let host = self.hypervisor.host(&vm.reference).await?;
            found.push((vm, host));
        }
        let (absence, has_disk) = match found.is_empty() {
            true => {
                let place = kept.places.get(&vm).or_else(|| upgraded.own.as_ref()?.places.get(&vm));
                let seen =
                    place.map_or(LastSeen::Unnoted, |place| LastSeen::At(&place.settings, place.datastore.as_deref()));
                let absence = self.hypervisor.absence(vm, &[node.name.as_str()], seen).await?;
                (absence, self.has_data_disk(place, upgraded, node).await)
            }
            false => (Absence::Gone, Ok(false)),
        };
        Ok(PowerEvidence { found, absence, has_disk })
    }

    /// Whether the data disk of a node exists where it was last seen.
    async fn has_data_disk(&self, place: Option<&Place>, upgraded: &Upgraded, node: &Node) -> Result<bool, String> {
        let of_upgrade = || {
            let own = node.own_disk()?;
            upgraded.own.as_ref()?.disks.iter().find(|disk| disk.uuid == own)
        };
        let disk: &DiskRef = place
            .and_then(|place| place.data_disk.as_ref())
            .or_else(of_upgrade)
            .ok_or_else(|| "the place of its data disk was not recorded".to_owned())?;
        let now = match place.and_then(|place| place.datastore.as_deref()) {
            Some(datastore) => self.hypervisor.present_place(disk, datastore).await,
            None => Ok(disk.clone()),
        };
        let looked = async { self.hypervisor.has_disk(&now?).await };
        looked
            .await
            .map_err(|error: crate::hypervisor::Error| format!("whether its data disk exists is unknown: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::Error;
    use crate::testing::{data_disk, vm};

    fn shown(power: PowerState, has_disk: bool, responds: bool) -> (Vm, Host) {
        let mut vm = vm("cp2", Uuid::from_u128(2), None);
        vm.power = power;
        if has_disk {
            vm.disks.push(data_disk(DiskRef { uuid: Uuid::from_u128(3), path: "[ds] cp2/data.vmdk".to_owned() }));
        }
        (vm, Host { name: "esx1".to_owned(), responds })
    }

    fn of(found: &[(Vm, Host)], absence: Absence, has_disk: Result<bool, String>) -> PowerProof {
        PowerEvidence { found: found.to_vec(), absence, has_disk }.prove()
    }

    fn why(proof: PowerProof) -> (String, Option<Host>) {
        match proof {
            PowerProof::Unknown { why, host } => (why, host),
            proved => panic!("{proved:?}"),
        }
    }

    // Finding 5 of controller.md.
    #[test]
    fn single_stopped_vm_without_data_disk_is_off() {
        let off = shown(PowerState::Off, false, true);
        assert_eq!(of(std::slice::from_ref(&off), Absence::Gone, Ok(false)), PowerProof::Off);
        for power in [PowerState::On, PowerState::Suspended, PowerState::Unknown] {
            let (why, host) = why(of(&[shown(power, false, true)], Absence::Gone, Ok(false)));
            assert!(why.contains(&power.to_string()) && host.is_none(), "{why}");
        }
        let (held, _) = why(of(&[shown(PowerState::Off, true, true)], Absence::Gone, Ok(false)));
        assert!(held.contains("power it on"), "{held}");
        let (twice, _) = why(of(&[off.clone(), off], Absence::Gone, Ok(false)));
        assert!(twice.contains("several VMs"), "{twice}");
    }

    #[test]
    fn host_that_does_not_respond_is_named() {
        for (power, has_disk) in [(PowerState::Off, false), (PowerState::Unknown, true)] {
            let (why, host) = why(of(&[shown(power, has_disk, false)], Absence::Gone, Ok(false)));
            assert!(why.contains("esx1, which does not respond"), "{why}");
            assert_eq!(host, Some(Host { name: "esx1".to_owned(), responds: false }));
        }
    }

    #[test]
    fn gone_vm_has_neither_settings_nor_data_disk() {
        assert_eq!(of(&[], Absence::Gone, Ok(false)), PowerProof::Gone);
        let unknown = |absence, has_disk| why(of(&[], absence, has_disk)).0;
        assert!(unknown(Absence::Gone, Ok(true)).contains("its data disk exists"));
        assert_eq!(unknown(Absence::Unknown("it may run".to_owned()), Ok(false)), "it may run");
        let locked = Error::refused("locked").to_string();
        assert_eq!(unknown(Absence::Gone, Err(locked.clone())), locked);
    }
}
