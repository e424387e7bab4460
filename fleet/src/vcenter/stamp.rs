//! What stands in the `extraConfig` of VMs and templates: whose they are, and of which image. Guests write `guestinfo` alone;
//! users of vCenter write what they may, so this finds VMs and proves nothing.

use uuid::Uuid;

use super::trouble::not_now;
use crate::hypervisor::{Result, Stamp};

/// A VM's stamp, as JSON.
pub(super) const STAMP: &str = "kaas.stamp";
/// Of a template: the digest of the OVA that it is made from, for people. Nothing goes by it.
pub(super) const IMAGE: &str = "kaas.image";
/// Of a VM that is about to be destroyed; none that is given up has it.
pub(super) const GOING: &str = "kaas.going";
/// What is read of a VM's entries: no guest writes these.
pub(super) const READ: [&str; 2] = [STAMP, GOING];

/// The stamp of a VM; none if it carries none.
///
/// # Errors
/// When it carries one that is not understood: that of a later version may be this deployment's.
pub(super) fn read(vm: &str, extra: &vsphere::Extra) -> Result<Option<Stamp>> {
    let Some(text) = extra.get(STAMP) else { return Ok(None) };
    let unreadable = |error| not_now(format!("the stamp {STAMP} of the VM {vm} is not understood: {error}"));
    serde_json::from_str(text).map(Some).map_err(unreadable)
}

/// Whether a VM is stamped as this deployment's. One whose stamp is not understood and does not have the deployment's UUID in
/// it is another's: it is passed over.
///
/// # Errors
/// When its stamp is not understood and has the deployment's UUID in it.
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

/// Whether a UUID is somewhere in a text, in whichever of its forms.
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

/// Whether a stamp is of this deployment.
pub(super) fn is_of(stamp: Option<&Stamp>, deployment: Uuid) -> bool {
    stamp.is_some_and(|stamp| stamp.deployment == deployment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_is_written() {
        for swap in [None, Some(Uuid::from_u128(2))] {
            let stamp = Stamp { deployment: Uuid::from_u128(1), node: "a \"node\"".to_owned(), swap };
            assert_eq!(serde_json::from_str::<Stamp>(&written(&stamp)).unwrap(), stamp);
        }
    }
}
