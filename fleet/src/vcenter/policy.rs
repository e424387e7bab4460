//! The storage policy of new VMs and of their disks.

use vsphere::Client;

use super::VcenterHypervisor;
use crate::hypervisor::{Error, ErrorKind, Result};

impl VcenterHypervisor {
    /// The identifier of the site's storage policy. `None` if the site names none. It is looked up when it is first
    /// needed: existing VMs can be managed even if a user has renamed or removed it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the policy does not exist, with the existing ones.
    pub(super) async fn policy(&self) -> Result<Option<&str>> {
        let Some(name) = &self.places.policy else { return Ok(None) };
        let id = self.policy.get_or_try_init(|| named(&self.client, name)).await?;
        Ok(Some(id))
    }

    /// Adds the requested policy to vCenter's error about a VM that it does not create. An incompatible datastore
    /// causes faults of many types, and few of them name the policy.
    pub(super) fn with_policy(&self, error: vsphere::Error) -> Error {
        let (Some(name), Some(fault)) = (&self.places.policy, error.fault()) else { return error.into() };
        // By their text only: both come as the general fault of a server, which does not tell what has become of the
        // call. Both come before anything was created. The text is English, because sessions request it.
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
            let words = if names.is_empty() {
                "no policy exists".to_owned()
            } else {
                format!("there are {}", names.join(", "))
            };
            Err(Error::refused(format!("there is no storage policy {name}, or the account cannot see it: {words}")))
        }
        _ => Err(Error::refused(format!("there are {} storage policies called {name}", ids.len()))),
    }
}
