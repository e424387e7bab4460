//! The storage policy of new VMs and of their disks.

use vsphere::Client;

use super::VcenterHypervisor;
use crate::hypervisor::{Error, ErrorKind, Result};

impl VcenterHypervisor {
    /// The identifier of the storage policy that the site names; none if it names none. It is looked up when it is first needed: VMs that
    /// are there are seen to, also where somebody has renamed or removed it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when there is no such one, with those that there are.
    pub(super) async fn policy(&self) -> Result<Option<&str>> {
        let Some(name) = &self.places.policy else { return Ok(None) };
        let id = self.policy.get_or_try_init(|| named(&self.client, name)).await?;
        Ok(Some(id))
    }

    /// What vCenter says of a VM that it does not make, with the policy that the VM was to have: a datastore that is not compatible with it
    /// is refused by faults of many types, and few of them name it.
    pub(super) fn with_policy(&self, error: vsphere::Error) -> Error {
        let (Some(name), Some(fault)) = (&self.places.policy, error.fault()) else { return error.into() };
        // By their words alone: both come as the general fault of a server that cannot say what has become of the call, and before it has
        // made anything. The words are English: sessions ask for them so.
        let (kind, help) = if fault.says("Data Service") {
            (
                Some(ErrorKind::Refused),
                "a policy with encryption, I/O filters or I/O control cannot be given to a clone",
            )
        } else if fault.says("PBM error occurred during Pre") {
            (Some(ErrorKind::Transient), "vCenter's storage policy service did not answer it")
        } else {
            let help = "vSphere Client shows which datastores are compatible with it; one with replication, which wants a replication \
                        group, cannot be given here";
            (None, help)
        };
        let error = Error::from(error).context(format!("making a VM with the storage policy {name} ({help})"));
        Error { kind: kind.unwrap_or(error.kind), ..error }
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
