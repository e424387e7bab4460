//! Rows about a VM that runs, and about one that has just been powered off.

use std::time::Instant;

use contract::statement::Statement;
use uuid::Uuid;
use vsphere::{ConfigSpec, DiskMode, ExistingDisk, MoRef};

use super::Probe;
use super::answer::{Failed, Tried, fault, judged};
use crate::hypervisor::Hypervisor as _;
use crate::vcenter::disks::first_controller;
use crate::vcenter::trouble::Asking;

/// An entry that is set from outside before power-on.
const ENTRY: &str = "guestinfo.kaas.probe";
/// How many SCSI controllers are added for volumes: buses 1 to 3.
const BUSES: [i32; 3] = [1, 2, 3];

impl Probe<'_> {
    pub(super) async fn controllers_added(&mut self) -> Tried {
        let vm = self.linked().await?;
        let spec = BUSES.into_iter().fold(ConfigSpec::of(&vm).extra(ENTRY, "outside"), ConfigSpec::scsi_controller);
        self.client.changes(&Asking(self.permit)).reconfigure(&vm.reference, &spec).await?;
        self.has_controllers().await
    }

    async fn has_controllers(&self) -> Tried {
        let vm = self.linked().await?;
        let found = vm.devices.controllers.iter().filter(|one| one.is_scsi() && BUSES.contains(&one.bus)).count();
        judged(found == BUSES.len(), format!("{found} of {} empty controllers", BUSES.len()))
    }

    pub(super) async fn controllers_stay(&mut self) -> Tried {
        self.has_controllers().await
    }

    pub(super) async fn power_on(&mut self) -> Tried {
        let vm = self.linked().await?;
        self.hypervisor.power_on(&self.shown(&vm).await?, self.permit).await?;
        judged(true, "on")
    }

    /// The guest of the image says the BIOS UUID that it reads. It may say another one than vCenter, in the order of its bytes or as a whole.
    pub(super) async fn bios_uuid(&mut self) -> Tried {
        let linked = self.linked.clone().ok_or_else(|| Failed::NotTried("the linked clone was not made".to_owned()))?;
        let (begin, limit) = (Instant::now(), self.setup.guest);
        let said = loop {
            let said = self.hypervisor.statement(&linked).await?.and_then(|statement| statement.machine);
            if said.is_some() || begin.elapsed() >= limit {
                break said;
            }
            tokio::time::sleep(self.setup.rest.min(limit)).await;
        };
        let Some(said) = said else {
            return Err(Failed::NotTried(format!("the guest has said no BIOS UUID within {} s", limit.as_secs())));
        };
        self.said = Some(Statement::GUESTINFO);
        match said {
            said if said == linked.uuid => judged(true, "the same, in the same order"),
            said if said == Uuid::from_bytes(linked.uuid.to_bytes_le()) => {
                judged(false, "the same, with its first three groups in the other order")
            }
            _ => judged(false, "another one"),
        }
    }

    pub(super) async fn properties_while_on(&mut self) -> Tried {
        let vm = self.linked().await?;
        let property = vm.properties.iter().find(|property| property.is_configurable && property.is_given);
        let property = property.ok_or_else(|| Failed::NotTried("no property has a value".to_owned()))?;
        let spec = ConfigSpec::of(&vm).value_alone(property, "while-on");
        fault(self.client.changes(&Asking(self.permit)).reconfigure(&vm.reference, &spec).await, &["InvalidPowerState"])
    }

    pub(super) async fn attach_held(&mut self) -> Tried {
        let (linked, full) = (self.linked().await?, self.full().await?);
        let disk = linked.devices.disks.iter().find(|disk| disk.mode == "independent_persistent");
        let path = disk.and_then(|disk| disk.path.clone());
        let path = path.ok_or_else(|| Failed::NotTried("the linked clone has no data disk".to_owned()))?;
        let controller = first_controller(&full).ok_or_else(|| Failed::NotTried("no SCSI controller".to_owned()))?;
        let existing = ExistingDisk { path: &path, controller, mode: DiskMode::IndependentPersistent };
        let spec = ConfigSpec::of(&full).attach(&existing)?;
        let asking = Asking(self.permit);
        let changes = self.client.changes(&asking);
        let attached = changes.reconfigure(&full.reference, &spec).await;
        // It is the linked clone's: whatever is tried next finds it held by that one alone.
        let now = self.full().await?;
        if let Some(held) = now.devices.disks.iter().find(|disk| disk.path.as_ref() == Some(&path)) {
            changes.reconfigure(&now.reference, &ConfigSpec::of(&now).detach(held)).await?;
        }
        fault(attached, &["FileLocked"])
    }

    pub(super) async fn power_off(&mut self) -> Tried {
        let vm = self.linked().await?;
        self.hypervisor.cut_power(&self.shown(&vm).await?, self.permit).await?;
        judged(true, "off")
    }

    pub(super) async fn entry_after_off(&mut self) -> Tried {
        let is_kept = self.linked().await?.extra.get(ENTRY).is_some();
        judged(is_kept, if is_kept { "it is shown" } else { "it is gone" })
    }

    pub(super) async fn guest_entry_after_off(&mut self) -> Tried {
        let key = self.said.ok_or_else(|| Failed::NotTried("the guest has said nothing".to_owned()))?;
        let is_kept = self.linked().await?.extra.get(key).is_some();
        judged(!is_kept, if is_kept { "it is shown" } else { "it is gone" })
    }

    /// An override with two settings of which the program changes one.
    pub(super) async fn restart_override(&mut self) -> Tried {
        const OTHER: (&str, &str) = ("isolationResponse", "shutdown");
        let vm = self.linked().await?;
        let cluster = self.hypervisor.cluster_of(&vm).await?;
        let cluster: MoRef = cluster.ok_or_else(|| Failed::NotTried("the host is in no cluster".to_owned()))?;
        let asking = Asking(self.permit);
        let changes = self.client.changes(&asking);
        changes.add_override(&cluster, &vm.reference, &[("restartPriority", "low"), OTHER]).await?;
        let edited = changes.set_restart_priority(&cluster, &vm.reference, Some(vsphere::RestartPriority::High)).await;
        let now = self.client.override_of(&cluster, &vm.reference).await;
        changes.remove_override(&cluster, &vm.reference).await?;
        edited?;
        let now = now?.ok_or_else(|| Failed::Differs("the override is gone after the edit".to_owned()))?;
        let (is_edited, is_kept) =
            (now.text_of("restartPriority") == Some("high"), now.text_of(OTHER.0) == Some(OTHER.1));
        let words = |is: bool| if is { "yes" } else { "no" };
        judged(
            is_edited && is_kept,
            format!("priority changed: {}, the other setting kept: {}", words(is_edited), words(is_kept)),
        )
    }
}
