//! Images as templates: which of them are whole, and where.
//!
//! A template is named by nothing but its entries: [`IMAGE`] is written once all bytes have arrived and were held against the
//! manifest, then it gets a snapshot, and becomes a template. One that is not a template is half of one.

use std::path::Path;

use ova::archive::Archive;
use vsphere::{MoRef, Outcome};

use super::VcenterHypervisor;
use super::place::At;
use super::stamp::{IMAGE, LAID_BY, STAMP};
use crate::hypervisor::{Error, Placement, Result, Staged, Vm};

/// The snapshot that clones are made from.
pub(super) const SNAPSHOT: &str = "kaas";

/// Whether a template has all that clones are made from.
pub(super) fn is_whole(vm: &vsphere::Vm) -> bool {
    vm.is_template && vm.extra.get(IMAGE).is_some() && vm.devices.disks.len() == 1 && snapshot(vm).is_some()
}

/// The snapshot of a template.
pub(super) fn snapshot(vm: &vsphere::Vm) -> Option<&MoRef> {
    vm.snapshots.iter().find(|snapshot| snapshot.name == SNAPSHOT).map(|snapshot| &snapshot.reference)
}

/// In the words of the contract.
pub(super) fn as_staged(vm: &MoRef, digest: &str) -> Staged {
    Staged { digest: digest.to_owned(), reference: vm.id.clone() }
}

/// The digest of an OVA's manifest.
///
/// # Errors
/// When it cannot be read, or has no manifest.
pub(super) async fn digest(ova: &Path) -> Result<String> {
    let path = ova.to_owned();
    let read = tokio::task::spawn_blocking(move || -> anyhow::Result<String> {
        let manifest = Archive::open(&path)?.manifest()?;
        let manifest = manifest.ok_or_else(|| anyhow::anyhow!("{} has no manifest", path.display()))?;
        Ok(Staged::digest_of(&manifest))
    });
    match read.await {
        Ok(digest) => digest.map_err(Error::refused),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

impl VcenterHypervisor {
    pub(super) async fn found_staged(
        &self,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
    ) -> Result<Option<Staged>> {
        let at = self.datastore_beside(like, placement).await?;
        let templates = self.laid(&at, |vm| vm.is_template && vm.extra.get(IMAGE) == Some(digest)).await?;
        let whole = templates.iter().find(|template| is_whole(template));
        Ok(whole.map(|template| as_staged(&template.reference, digest)))
    }

    /// The datastore where images for a placement are laid.
    pub(super) async fn datastore_beside(&self, like: Option<&Vm>, placement: &Placement) -> Result<At> {
        match like {
            Some(vm) if placement.datastore.is_none() => {
                let like = self.named(&vm.reference).await?;
                self.datastore(Some(&like), placement).await
            }
            _ => self.datastore(None, placement).await,
        }
    }

    /// Those in the templates' folder on a datastore that are wanted by their entries, by name. What is stamped is a VM.
    pub(super) async fn laid(&self, at: &At, wanted: impl Fn(&vsphere::Entries) -> bool) -> Result<Vec<vsphere::Vm>> {
        let all = self.client.entries_in(&self.places.templates, false, &[LAID_BY, IMAGE, STAMP]).await?;
        let chosen = all.into_iter().filter(|vm| vm.extra.get(STAMP).is_none() && wanted(vm));
        let mut found = Vec::new();
        for vm in chosen {
            match self.client.vm(&vm.reference).await {
                Ok(vm) => found.push(vm),
                Err(error) if error.outcome() == Outcome::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        found.retain(|vm| vm.vmx_path.starts_with(&format!("[{}]", at.name)));
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// What was staged, whole and of its digest.
    pub(super) async fn image(&self, staged: &Staged) -> Result<vsphere::Vm> {
        let Staged { digest, reference } = staged;
        let gone = |error: vsphere::Error| match error.outcome() {
            Outcome::NotFound => Error::not_found(format!("the template {reference} is not there any more")),
            _ => error.into(),
        };
        let found = self.client.vm(&MoRef::vm(reference)).await.map_err(gone)?;
        match found.extra.get(IMAGE) {
            Some(image) if image != digest => {
                Err(Error::refused(format!("the template {} is not of the image that was planned with", found.name)))
            }
            Some(_) if is_whole(&found) => Ok(found),
            _ => Err(Error::not_found(format!("{} ({reference}) is no whole template of an image", found.name))),
        }
    }
}
