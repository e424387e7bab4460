//! VMs from OVAs: the file's own bytes go to the host that is to have them, and what was sent is held against the manifest.

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

/// A VM that is to be made from an OVA.
#[derive(Clone, Debug)]
pub struct Import<'a> {
    /// The OVA.
    pub ova: &'a Path,
    /// The VM's name.
    pub name: &'a str,
    /// The folder that it is to be in.
    pub folder: &'a MoRef,
    /// The resource pool.
    pub pool: &'a MoRef,
    /// The datastore.
    pub datastore: &'a MoRef,
    /// The host; vCenter chooses if nothing is said.
    pub host: Option<&'a MoRef>,
    /// The networks of vCenter by the names of the OVA's.
    pub networks: BTreeMap<String, MoRef>,
    /// Values of OVF properties by name; there may be secrets among them.
    pub properties: &'a BTreeMap<String, String>,
    /// The identifier of one of the OVA's deployment options; the default one if nothing is said.
    pub option: Option<&'a str>,
    /// What differs from the OVA's settings: the VM has it from its first moment.
    pub config: &'a ConfigSpec,
    /// Whether it gets those disks of the OVA that have no file there: they are blank.
    pub blank_disks: bool,
}

/// A VM that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// What names it.
    pub vm: MoRef,
    /// What vCenter left out of the OVA, or has changed, in its words.
    pub warnings: Vec<String>,
}

impl Changes<'_> {
    /// Makes a VM from an OVA, powered off. The progress is that of its disks.
    ///
    /// On an error the import is aborted, and vCenter removes the half VM; so it does five minutes after an abort that did
    /// not arrive, and after one that the guard did not permit. When the caller goes away meanwhile, the abort follows by itself;
    /// [`crate::Client::log_out`] waits for it.
    ///
    /// # Errors
    /// When the OVA is not what its manifest says ([`crate::Outcome::Refused`]), vCenter refuses, or the host cannot be
    /// reached. [`crate::Outcome::InDoubt`] when the import's beginning got no answer, or its end, and the lease does not show that it has
    /// ended well: the VM may be there then.
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
            // Nothing is begun any more.
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

    /// Begins an import and aborts it: vCenter removes the VM. Returns the VM with `config.uuid`, and the `HttpNfcLeaseInfo`.
    ///
    /// # Errors
    /// As [`Changes::import`].
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

    /// Ends an import well. All bytes are there by then, and a lease that was not ended stays ready for minutes: where nothing has happened
    /// it is tried again, each time under the guard, and aborted only once the client's patience is over.
    async fn complete(&self, mut lease: Lease) -> Result<()> {
        let (begin, mut tries) = (Instant::now(), 0);
        loop {
            // What is sent ends the lease, or nobody knows whether it has: neither is to be aborted.
            let reference = lease.release();
            let Err(error) = self.change(LEASE_COMPLETE, &reference, Vec::new()).await else { return Ok(()) };
            // To look needs no permission, and a VM that is whole need not be made again.
            if error.outcome() == Outcome::InDoubt && lease::is_done(self.client, &reference).await {
                return Ok(());
            }
            if error.outcome() != Outcome::Transient {
                return Err(error);
            }
            // It has not ended, and goes with its caller again.
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
