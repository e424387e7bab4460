//! The lease of an import: where the files would go, and for how long vCenter waits for them. No file is sent.

use super::Import;
use super::lease::Lease;
use super::package::Package;
use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::method::IMPORT_VAPP;
use crate::reference::MoRef;
use crate::soap::Element;

/// What a lease states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The VM, which goes with the lease.
    pub vm: MoRef,
    /// The BIOS UUID of the VM, if vCenter shows it.
    pub bios_uuid: Option<String>,
    /// The URL of the first file.
    pub url: String,
    /// For how long the lease lives without progress, in seconds (`HttpNfcLeaseInfo.leaseTimeout`).
    pub timeout: u64,
}

impl Changes<'_> {
    /// Begins an import, reads its lease, and aborts it: vCenter removes the VM.
    ///
    /// # Errors
    /// As [`Changes::import`].
    pub async fn offer(&self, import: &Import<'_>) -> Result<Offer> {
        let plan = self.client.plan(import, &*Package::open(import.ova).await?).await?;
        let arguments = vec![plan.spec.clone(), Element::reference("folder", import.folder)];
        let begun = self.change(IMPORT_VAPP, import.pool, arguments).await?;
        let unnamed = || Error::in_doubt(format!("importing {}", import.name), "vCenter does not name the lease");
        let lease = Lease::hold(self.client, begun.reference_of("returnval").ok_or_else(unnamed)?);
        let read = async {
            let ready = lease.ready(&plan).await?;
            let seen = self.client.look(lease.reference()?, &["info"]).await?;
            let vm = self.client.look(&ready.vm, &["config.uuid"]).await?;
            Ok(Offer {
                bios_uuid: vm.get("config.uuid").map(|uuid| uuid.value().to_owned()),
                vm: ready.vm,
                url: ready.targets.into_iter().map(|target| target.url).next().unwrap_or_default(),
                timeout: seen.need("info")?.parsed("leaseTimeout").unwrap_or_default(),
            })
        };
        let read = read.await;
        lease.abort().await;
        read
    }
}
