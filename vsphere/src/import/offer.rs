//! What vCenter offers to an import: where the files would go, and for how long it waits for them. Nothing is sent.

use url::Url;

use super::Import;
use super::lease::Lease;
use super::package::Package;
use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::method::IMPORT_VAPP;
use crate::reference::MoRef;
use crate::soap::Element;

/// What a lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The VM, which goes with the lease.
    pub vm: MoRef,
    /// The host of each file's URL, as it is written: a name, an address, or `*`.
    pub hosts: Vec<String>,
    /// Whether each URL comes with the sum of a certificate.
    pub has_thumbprints: bool,
    /// For how long the lease lives without a word of progress, in seconds (`HttpNfcLeaseInfo.leaseTimeout`).
    pub timeout: u64,
}

impl Changes<'_> {
    /// Begins an import, reads its lease, and aborts it: vCenter removes the VM.
    ///
    /// # Errors
    /// As [`Changes::import`].
    pub async fn offer(&self, import: &Import<'_>) -> Result<Offer> {
        let package = Package::open(import.ova).await?;
        let plan = self.client.plan(import, &package).await?;
        let arguments = vec![plan.spec.clone(), Element::reference("folder", import.folder)];
        let begun = self.change(IMPORT_VAPP, import.pool, arguments).await?;
        let unnamed = || Error::in_doubt(format!("importing {}", import.name), "vCenter does not name the lease");
        let lease = Lease::hold(self.client, begun.reference_of("returnval").ok_or_else(unnamed)?);
        let read = async {
            let ready = lease.ready(&plan).await?;
            let seen = self.client.look(lease.reference()?, &["info"]).await?;
            let host =
                |url: &str| Url::parse(&url.replacen("://*", "://star.invalid", 1)).ok()?.host_str().map(str::to_owned);
            let hosts = ready.targets.iter().filter_map(|target| host(&target.url));
            Ok(Offer {
                vm: ready.vm,
                hosts: hosts.map(|host| if host == "star.invalid" { "*".to_owned() } else { host }).collect(),
                has_thumbprints: ready.targets.iter().all(|target| !target.thumbprint.is_empty()),
                timeout: seen.need("info")?.parsed("leaseTimeout").unwrap_or_default(),
            })
        }
        .await;
        lease.abort().await;
        read
    }
}
