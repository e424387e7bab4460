//! vCenter as the hypervisor of one deployment: its VMs by stamp and BIOS UUID, their images as templates, its leases
//! and journals on a datastore. Knows nothing of clusters or upgrades, and of the API only what `vsphere` shows.
//!
//! The owner of a VM is in its `extraConfig`, where guests can only write `guestinfo`. The list of templates is next to
//! the deployment's journal, because others may create templates too. A look reads one entry of each VM of a few
//! folders. It reads more only of the deployment's VMs, and of these only the entries that it needs: guests write
//! others. So calls and bytes do not grow with the rest of the inventory, or with the programs in VMs.
//!
//! The kind of an error says what a call leaves behind: `vsphere` derives it from the type of a fault. After the first
//! request of a call that created something, every error is in doubt.

mod absent;
mod anti_affinity;
mod change;
mod clone;
mod complete;
mod copies;
mod datastore_directory;
mod datastore_store;
mod directory_owner;
mod disks;
mod empty_directory;
mod holders;
mod image;
mod library;
mod look;
mod place;
mod policy;
mod power;
mod preflight;
pub mod probe;
mod question;
mod request_deadline;
mod restart;
mod retry_budget;
mod settings;
mod settle;
mod site;
mod stage;
mod stamp;
mod template_catalog;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use contract::deployer::Fingerprints;
use contract::statement::Statement;
use tokio::sync::OnceCell;
use uuid::Uuid;

pub use datastore_store::DatastoreStore;
pub use library::{Library, Template};
pub use site::{Clones, Site};

use crate::hypervisor::{
    Absence, CloneRequest, DiskRef, Fence, Host, Hypervisor, ImageTemplate, LastSeen, Placement, Result, ShutDown,
    Stamp, Vm, VmRef,
};
use datastore_directory::DatastoreDirectory;
use place::Places;
use template_catalog::TemplateCatalog;
use vsphere::{DatastorePath, Sent};

/// The VMs of one deployment on a vCenter.
pub struct VcenterHypervisor {
    client: vsphere::Client,
    deployment: Uuid,
    places: Places,
    laid: TemplateCatalog,
    /// The identifier of the site's storage policy, once it was needed.
    policy: OnceCell<String>,
    /// How long [`Hypervisor::settle`] waits for requests that have arrived.
    settling: Duration,
    /// How long the settings of a template must stay the same before it is sealed.
    rest: Duration,
    /// Receives the progress of uploads.
    uploading: Box<dyn Fn(Sent) + Send + Sync>,
    /// How often a VM is checked for a question while its task runs.
    looking: Duration,
}

/// Longer than any task on a VM takes, except clones of large disks.
const SETTLING: Duration = Duration::from_secs(5 * 60);

/// Longer than vCenter takes to learn from a host what a task has changed there.
const REST: Duration = Duration::from_secs(3);

impl VcenterHypervisor {
    /// The VMs of a deployment on the vCenter of a client. The caller logs the client out. All objects of the site are
    /// looked up here, once. The storage policy is looked up when a VM is to be created. `journal` is the directory of
    /// the deployment's leases and journals ([`DatastoreStore`]): its imports are noted there as well.
    ///
    /// # Errors
    /// [`crate::hypervisor::ErrorKind::Refused`] if an object of the site does not exist or the account cannot see it.
    /// Also if the client's requests may arrive later than [`crate::lease::MARGIN`].
    pub async fn new(client: vsphere::Client, deployment: Uuid, site: &Site, journal: &DatastorePath) -> Result<Self> {
        request_deadline::in_time(&client).map_err(trouble::looking)?;
        let places = Places::find(&client, site).await?;
        let journal = DatastoreDirectory::find(client.clone(), &site.datacenter, journal.clone()).await;
        let laid = TemplateCatalog::beside(&journal.map_err(trouble::looking)?, deployment);
        let policy = OnceCell::new();
        Ok(Self {
            client,
            deployment,
            places,
            laid,
            policy,
            settling: SETTLING,
            rest: REST,
            uploading: Box::new(|sent| log::debug!("uploading: {} %", sent.percent())),
            looking: question::LOOKING,
        })
    }

    /// As [`Self::new`], for a deployment that has imported no image: its VMs are created from those of a library.
    pub async fn with_images_of(
        client: vsphere::Client,
        deployment: Uuid,
        site: &Site,
        library: &Library,
    ) -> Result<Self> {
        let made = Self::new(client, deployment, site, &library.journal).await?;
        Ok(Self { laid: made.laid.of(library.id), ..made })
    }

    /// Sets the limit of [`Hypervisor::settle`].
    #[must_use]
    pub fn settling_within(self, settling: Duration) -> Self {
        Self { settling, ..self }
    }

    /// Sets the receiver of the progress of uploads.
    #[must_use]
    pub fn telling_upload(self, tell: impl Fn(Sent) + Send + Sync + 'static) -> Self {
        Self { uploading: Box::new(tell), ..self }
    }

    /// Sets how long a template's settings must stay the same before it is used.
    #[must_use]
    pub fn resting(self, rest: Duration) -> Self {
        Self { rest, ..self }
    }
}

delegate! {
    impl Hypervisor for VcenterHypervisor {
        preflight(placement: &Placement) -> Result<()> = check;
        may_change_own() -> Result<()> = check_own;
        vms() -> Result<Vec<Vm>> = own_vms;
        host(vm: &VmRef) -> Result<Host> = host_of;
        with_bios_uuid(uuid: Uuid) -> Result<Vec<Vm>> = of_bios_uuid;
        absence(uuid: Uuid, nodes: &[&str], seen: LastSeen<'_>) -> Result<Absence> = proves_absence;
        may_be_replaced(vm: &Vm) -> Result<()> = disks_may_move;
        is_sole_holder(vm: &Vm) -> Result<()> = holds_its_disks_alone;
        stamp(vm: &Vm, stamp: &Stamp, permit: &dyn Fence) -> Result<()> = stamp_vm;
        find_template(digest: &str, like: Option<&Vm>, placement: &Placement) -> Result<Option<ImageTemplate>>
            = found_staged;
        import_template(ova: &Path, digest: &str, like: Option<&Vm>, placement: &Placement, permit: &dyn Fence)
            -> Result<ImageTemplate> = lay_ready;
        clone_vm(request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> = clone_template;
        set_properties(vm: &Vm, properties: &BTreeMap<String, String>, permit: &dyn Fence) -> Result<()> = give_properties;
        property(vm: &VmRef, key: &str) -> Result<Option<String>> = given_to;
        power_on(vm: &Vm, permit: &dyn Fence) -> Result<()> = switch_on;
        shut_down(vm: &Vm, limit: Duration, permit: &dyn Fence) -> Result<ShutDown> = ask_to_shut_down;
        cut_power(vm: &Vm, permit: &dyn Fence) -> Result<()> = switch_off;
        connect(vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()> = connect_adapter;
        detach(vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> = detach_disk;
        attach(vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> = attach_disk;
        has_disk(disk: &DiskRef) -> Result<bool> = lies_there;
        disk_datastore(disk: &DiskRef) -> Result<Option<String>> = reference_of_datastore;
        present_place(disk: &DiskRef, datastore: &str) -> Result<DiskRef> = by_present_name;
        is_in_node_directory(disk: &DiskRef, nodes: &[&str]) -> Result<bool> = lies_beside_a_nodes_vm;
        copy_disk(disk: &DiskRef, mark: &str, nodes: &[&str], permit: &dyn Fence) -> Result<DiskRef> = copy_beside;
        delete_disk(disk: &DiskRef, permit: &dyn Fence) -> Result<()> = remove_disk;
        remove_empty_directory(disk: &DiskRef, nodes: &[&str], permit: &dyn Fence) -> Result<()> = remove_emptied_directory;
        destroy(vm: &Vm, permit: &dyn Fence) -> Result<()> = destroy_vm;
        disown(vm: &Vm, name: &str, permit: &dyn Fence) -> Result<()> = release_vm;
    }

    fn deployment(&self) -> Uuid {
        self.deployment
    }

    async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        self.shown(self.named(vm).await?).await
    }

    async fn unread(&self, nodes: &[&str]) -> Result<Option<String>> {
        self.unread_of(nodes, None).await
    }

    async fn fingerprints(&self, vm: &VmRef) -> Result<Option<Fingerprints>> {
        let said = self.said(vm, Fingerprints::GUESTINFO).await?;
        Ok(said.and_then(|text| Fingerprints::read(text.as_bytes())))
    }

    async fn statement(&self, vm: &VmRef) -> Result<Option<Statement>> {
        let said = self.said(vm, Statement::GUESTINFO).await?;
        Ok(said.and_then(|text| Statement::read(text.as_bytes())))
    }

    async fn settle(&self, _permit: &dyn Fence) -> Result<()> {
        self.settled().await
    }

    async fn may_be_stamped(&self, vm: &Vm) -> Result<()> {
        self.would_be_found(vm, &self.named(&vm.reference).await?).await
    }

    async fn has_pending_deletes(&self) -> Result<bool> {
        Ok(self.anybodys_tasks_on_files().await?.iter().any(settle::removes))
    }
}
