//! The entries in the `extraConfig` of VMs and templates: owner and image. Guests write `guestinfo` only. Users of
//! vCenter write what they may, so the entries find VMs and prove nothing.

use uuid::Uuid;

use super::trouble::not_now;
use crate::hypervisor::{Result, Stamp};

/// A VM's stamp, as JSON.
pub(super) const STAMP: &str = "kaas.stamp";
/// Of a template: the digest of its OVA, for users. This program does not use it.
pub(super) const IMAGE: &str = "kaas.image";
/// Of a VM that is about to be destroyed. A VM that was given up does not have it.
pub(super) const GOING: &str = "kaas.going";
/// The entries that are read of a VM: no guest writes these.
pub(super) const READ: [&str; 2] = [STAMP, GOING];

/// The stamp of a VM. `None` if it has none.
///
/// # Errors
/// The stamp is not understood: one of a later version may be this deployment's.
pub(super) fn read(vm: &str, extra: &vsphere::Extra) -> Result<Option<Stamp>> {
    let Some(text) = extra.get(STAMP) else { return Ok(None) };
    let unreadable = |error| not_now(format!("the stamp {STAMP} of the VM {vm} is not understood: {error}"));
    serde_json::from_str(text).map(Some).map_err(unreadable)
}

/// Whether a VM has this deployment's stamp. A stamp that is not understood and does not contain the deployment's UUID
/// is another one's, and is ignored.
///
/// # Errors
/// The stamp is not understood and contains the deployment's UUID.
pub(super) fn is_own(vm: &str, extra: &vsphere::Extra, deployment: Uuid) -> Result<bool> {
    match read(vm, extra) {
        Ok(stamp) => Ok(is_of(stamp.as_ref(), deployment)),
        Err(error) if extra.get(STAMP).is_some_and(|text| names(text, deployment)) => Err(error),
        Err(error) => {
            log::warn!("{error}; it does not name this deployment, and is passed over");
            Ok(false)
        }
    }
}

/// Whether a text contains a UUID, in any of its notations.
fn names(text: &str, uuid: Uuid) -> bool {
    text.replace('-', "").to_lowercase().contains(&uuid.simple().to_string())
}

pub(super) fn written(stamp: &Stamp) -> String {
    let Stamp { deployment, node, swap } = stamp;
    let mut text = serde_json::json!({ "deployment": deployment, "node": node });
    if let Some(swap) = swap {
        text["swap"] = serde_json::json!(swap);
    }
    text.to_string()
}

pub(super) fn is_of(stamp: Option<&Stamp>, deployment: Uuid) -> bool {
    stamp.is_some_and(|stamp| stamp.deployment == deployment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_read_as_written() {
        for swap in [None, Some(Uuid::from_u128(2))] {
            let stamp = Stamp { deployment: Uuid::from_u128(1), node: "a \"node\"".to_owned(), swap };
            assert_eq!(serde_json::from_str::<Stamp>(&written(&stamp)).unwrap(), stamp);
        }
    }
}
