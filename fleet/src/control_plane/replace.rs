//! The actions of a replacement: see [`super::replacement`].

use contract::deployer::Fingerprints;
use contract::properties::DEPLOYMENT_SECRET;
use contract::replacement::ReplacementGrant;

use super::act::{ActionContext, save};
use super::deployment_record::{DeploymentRecord, Node, only_data_disk};
use super::inventory::{Found, Inventory};
use super::reason;
use super::records::Records;
use super::replacement_record::Replacement;
use crate::engine::{ActionError, Reason, Scope, guarded};
use crate::hypervisor::{CloneRequest, CloneSettings, Fence as _, Networks, PowerState, Vm, VmRef};
use crate::timestamp;

impl ActionContext<'_> {
    /// Has another node admit the new VM, and creates it. Its BIOS UUID was recorded before. The code is in its properties alone:
    /// a VM of an interrupted call is removed, and the next one gets another code.
    pub(super) async fn replace(
        &self,
        records: &mut Records<'_>,
        seen: &Inventory,
        node: Node,
    ) -> Result<(), ActionError> {
        let Some(open) = records.kept().replacement.clone() else { return Ok(()) };
        let make = || {
            let wanted = self.wanted?;
            Some((wanted, wanted.nodes.iter().find(|wanted| wanted.name == node.name)?))
        };
        let Some((wanted, asked)) = make() else {
            let words = format!("{} is being replaced: its replacement has to continue first", node.name);
            return Err(ActionError::Refused(Reason::new(reason::REPLACING, words)));
        };
        let placement = wanted.placement(asked);
        // Before a member is removed: without an image there is no new VM.
        let template = self.template(wanted, placement).await?;
        let admitted = timestamp::now();
        let grant = self.admitted(records.kept(), seen, &node).await?;
        let mut properties = asked.properties.clone();
        for (key, value) in grant.properties {
            if value.is_empty() {
                properties.remove(&key);
            } else {
                properties.insert(key, value);
            }
        }
        properties.insert(DEPLOYMENT_SECRET.to_owned(), grant.code);
        let request = CloneRequest {
            name: &open.vm_name(),
            uuid: open.allocated_uuid,
            image: &template,
            settings: CloneSettings::Given {
                networks: Networks::Named(&wanted.networks),
                size: &wanted.size,
                properties: &properties,
            },
            stamp: open.stamp(self.hypervisor.deployment()),
            placement,
        };
        let call = self.hypervisor.open(Scope::Clone(&request))?;
        self.attempts.makes(open.allocated_uuid);
        let made = guarded(&call, self.hypervisor.clone_vm(&request, &call)).await?;
        self.attempts.made(open.allocated_uuid, &made);
        made?;
        note(records, Replacement { admitted: Some(admitted), ..open }).await
    }

    /// Asks the other nodes in turn until one admits the new VM.
    async fn admitted(
        &self,
        kept: &DeploymentRecord,
        seen: &Inventory,
        lost: &Node,
    ) -> Result<ReplacementGrant, ActionError> {
        let mut refused = Vec::new();
        for node in kept.nodes.iter().filter(|node| node.name != lost.name) {
            let Found::Vm(vm) = seen.later_vm(node) else { continue };
            let shown = match self.hypervisor.fingerprints(&vm.reference).await? {
                Some(shown) if kept.ca_fingerprint.is_none_or(|known| known == shown.ca) => shown,
                Some(Fingerprints { ca, .. }) => {
                    refused.push(format!("{} shows the CA {ca}, which is another cluster's", node.name));
                    continue;
                }
                None => {
                    refused.push(format!("{} shows no cluster yet", node.name));
                    continue;
                }
            };
            // The request removes a member: the lease is confirmed just before.
            self.hypervisor.call().still().await?;
            match self.deploy.guests.admit(node.address, &shown, &lost.name).await {
                Ok(grant) => return Ok(grant),
                Err(error) => refused.push(format!("{}: {error:#}", node.name)),
            }
        }
        let words = format!("no node admits a new VM for {}: {}", lost.name, refused.join("; "));
        Err(ActionError::Later(Reason::new(reason::NOT_ADMITTED, words)))
    }

    pub(super) async fn start_replacement(
        &self,
        records: &mut Records<'_>,
        seen: &Inventory,
        name: &str,
    ) -> Result<(), ActionError> {
        let Some(open) = records.kept().replacement.clone() else { return Ok(()) };
        let Some(vm) = seen.vms.iter().find(|vm| vm.uuid() == open.allocated_uuid) else { return Ok(()) };
        if !open.started {
            let data_disk = only_data_disk(vm).map(|disk| disk.uuid);
            note(records, Replacement { started: true, data_disk, ..open }).await?;
        }
        self.is_on(vm);
        self.attempts.powers_on(vm.uuid());
        if vm.power == PowerState::Off {
            let call = self.hypervisor.open(Scope::Vm(vm))?;
            let on = guarded(&call, self.hypervisor.power_on(vm, &call)).await?;
            self.attempts.powered_on(name, &on);
            on?;
        }
        Ok(())
    }

    /// Takes the next step with a former VM of a replaced node. First the VM is cut off from the network, because it has the
    /// address of the node.
    pub(super) async fn retire(&self, seen: &Inventory, vm: &VmRef) -> Result<(), ActionError> {
        let Some(vm) = seen.replaced.iter().find(|other| other.reference == *vm) else { return Ok(()) };
        let call = self.hypervisor.open(Scope::Vm(vm))?;
        if let Some(adapter) = vm.adapters.iter().find(|adapter| adapter.connected) {
            return Ok(guarded(&call, self.hypervisor.connect(vm, &adapter.key, false, &call)).await??);
        }
        if vm.power != PowerState::Off {
            return Ok(guarded(&call, self.hypervisor.cut_power(vm, &call)).await??);
        }
        log::warn!("{vm} was replaced: it stays off, with its data disk, and is no longer the deployment's");
        Ok(guarded(&call, self.hypervisor.disown(vm, &given_up(vm), &call)).await??)
    }
}

/// The name of a VM that is given up: another VM of the node may get its former name.
fn given_up(vm: &Vm) -> String {
    let uuid = vm.uuid().simple().to_string();
    format!("{}-replaced-{}", vm.name, uuid.get(..7).unwrap_or_default())
}

async fn note(records: &mut Records<'_>, open: Replacement) -> Result<(), ActionError> {
    let noted = DeploymentRecord { replacement: Some(open), ..records.kept().clone() };
    save(records, noted).await
}
