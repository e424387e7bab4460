//! The storage policy of new VMs and of their disks.

use vsphere::Client;

use super::VcenterHypervisor;
use crate::hypervisor::{Error, Result};

impl VcenterHypervisor {
    /// The identifier of the storage policy that the site names; none if it names none. It is looked up when it is first needed: VMs that
    /// are there are seen to, also where somebody has renamed or removed it.
    ///
    /// # Errors
    /// [`crate::hypervisor::Kind::Refused`] when there is no such one, with those that there are.
    pub(super) async fn policy(&self) -> Result<Option<&str>> {
        let Some(name) = &self.places.policy else { return Ok(None) };
        let id = self.policy.get_or_try_init(|| named(&self.client, name)).await?;
        Ok(Some(id))
    }

    /// What vCenter says of a VM that it does not make, with the policy that the VM was to have: a datastore that is not compatible with it
    /// is refused by faults of many types, and few of them name it.
    pub(super) fn with_policy(&self, error: vsphere::Error) -> Error {
        let is_said = error.fault().is_some();
        let error = Error::from(error);
        match &self.places.policy {
            Some(name) if is_said => error.context(format!(
                "making a VM with the storage policy {name} (vSphere Client shows which datastores are compatible with it)"
            )),
            _ => error,
        }
    }
}

async fn named(client: &Client, name: &str) -> Result<String> {
    let there = client.storage_policies().await?;
    let ids: Vec<&String> = there.iter().filter(|policy| policy.name == name).map(|policy| &policy.id).collect();
    match ids[..] {
        [id] => Ok(id.clone()),
        [] => {
            let names: Vec<&str> = there.iter().map(|policy| policy.name.as_str()).collect();
            let words =
                if names.is_empty() { "there is none".to_owned() } else { format!("there are {}", names.join(", ")) };
            Err(Error::refused(format!("there is no storage policy {name}, or the account cannot see it: {words}")))
        }
        _ => Err(Error::refused(format!("there are {} storage policies called {name}", ids.len()))),
    }
}
