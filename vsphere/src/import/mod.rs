//! Imports VMs from OVAs. The file's bytes are sent unchanged to the target host and compared with the manifest.

mod lease;
mod package;
mod plan;
mod send;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use crate::changes::Changes;
use crate::collector::Object;
use crate::error::{Error, Result};
use crate::method::{IMPORT_VAPP, LEASE_COMPLETE};
use crate::reference::MoRef;
use crate::soap::Element;
use crate::treatment::Outcome;
use crate::vm::ConfigSpec;

use lease::Lease;
use package::Package;
use plan::Plan;

/// The import of a VM from an OVA.
#[derive(Clone, Debug)]
pub struct Import<'a> {
    /// The OVA.
    pub ova: &'a Path,
    /// The VM's name.
    pub name: &'a str,
    /// The VM's folder.
    pub folder: &'a MoRef,
    /// The resource pool.
    pub pool: &'a MoRef,
    /// The datastore.
    pub datastore: &'a MoRef,
    /// The host. `None` lets vCenter select one.
    pub host: Option<&'a MoRef>,
    /// The networks of vCenter, by the names of the OVA's networks.
    pub networks: BTreeMap<String, MoRef>,
    /// Values of OVF properties by name. Some may be secrets.
    pub properties: &'a BTreeMap<String, String>,
    /// The identifier of a deployment option of the OVA. `None` is the default option.
    pub option: Option<&'a str>,
    /// Settings that differ from the OVA's. The VM is created with them.
    pub config: &'a ConfigSpec,
    /// Whether it gets the OVA's disks without a file, which are blank.
    pub blank_disks: bool,
}

/// An imported VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Its reference.
    pub vm: MoRef,
    /// Parts of the OVA that vCenter left out or changed, in its words.
    pub warnings: Vec<String>,
}

impl Changes<'_> {
    /// Creates a VM from an OVA, powered off.
    ///
    /// On an error the import is aborted, and vCenter removes the incomplete VM. If the abort does not arrive, or the
    /// guard does not permit it, vCenter removes the VM after five minutes. If the caller is dropped, the import is
    /// aborted in the background. [`crate::Client::log_out`] waits for the abort.
    ///
    /// # Errors
    /// When the OVA differs from its manifest ([`crate::Outcome::Refused`]), vCenter rejects it, or the host cannot be
    /// reached. [`crate::Outcome::InDoubt`] when the first or the last call got no answer, and the lease does not show
    /// success: the VM may exist.
    pub async fn import(&self, import: &Import<'_>) -> Result<Imported> {
        let package = Package::open(import.ova).await?;
        let plan = self.client.plan(import, &package).await?;
        let _slot = self.client.import_slot(&format!("importing {}", import.name)).await;
        let lease = self.begin(import, &plan).await?;
        match self.fill(&lease, &plan, &package).await {
            Ok(vm) => {
                self.complete(lease).await?;
                Ok(Imported { vm, warnings: plan.warnings })
            }
            // Starts no other request.
            Err(Error::Stopped(reason)) => {
                lease.release();
                Err(Error::Stopped(reason))
            }
            Err(error) => {
                lease.abort().await;
                Err(error)
            }
        }
    }

    async fn begin(&self, import: &Import<'_>, plan: &Plan) -> Result<Lease> {
        let arguments = [plan.spec.clone(), Element::reference("folder", import.folder)];
        let arguments = arguments.into_iter().chain(import.host.map(|host| Element::reference("host", host)));
        let begun = self.change(IMPORT_VAPP, import.pool, arguments.collect()).await?;
        let unnamed = || Error::in_doubt(format!("importing {}", import.name), "vCenter does not name the lease");
        Ok(Lease::hold(self.client, begun.reference_of("returnval").ok_or_else(unnamed)?))
    }

    /// Starts an import and aborts it: vCenter removes the VM. Returns the VM with `config.uuid`, and the
    /// `HttpNfcLeaseInfo`.
    pub async fn offer(&self, import: &Import<'_>) -> Result<(Object, Element)> {
        let package = Package::open(import.ova).await?;
        let plan = self.client.plan(import, &package).await?;
        let lease = self.begin(import, &plan).await?;
        let read = async {
            let vm = lease.ready(&plan).await?.vm;
            let info = self.client.look(lease.reference()?, &["info"]).await?.need("info")?.clone();
            Ok((self.client.look(&vm, &["config.uuid"]).await?, info))
        };
        let read = read.await;
        lease.abort().await;
        read
    }

    /// Completes an import. All bytes were sent, and a lease that was not completed stays ready for minutes. A call
    /// without effect is repeated, each time under the guard. The import is aborted only after the client's patience.
    async fn complete(&self, mut lease: Lease) -> Result<()> {
        let (begin, mut tries) = (Instant::now(), 0);
        loop {
            // A request that was sent ends the lease, or is in doubt. In both cases, the lease must not be aborted.
            let reference = lease.release();
            let Err(error) = self.change(LEASE_COMPLETE, &reference, Vec::new()).await else { return Ok(()) };
            // A look needs no permission, and a complete VM is not created again.
            if error.outcome() == Outcome::InDoubt && lease::is_done(self.client, &reference).await {
                return Ok(());
            }
            if error.outcome() != Outcome::Transient {
                return Err(error);
            }
            // The lease has not ended. It is aborted again if the caller is dropped.
            lease = Lease::hold(self.client, reference);
            if begin.elapsed() >= self.client.settings().patience {
                lease.abort().await;
                return Err(error);
            }
            log::debug!("ending an import: {error}");
            tries += 1;
            tokio::time::sleep(self.client.settings().pause_before(tries)).await;
        }
    }
}
