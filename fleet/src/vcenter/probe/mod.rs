//! Tries on a vCenter what this program assumes of every vCenter: each row is one assumption, one function, one answer.
//!
//! The rows make the calls that deployments and upgrades make, with VMs of their own in one folder. Whatever they make is named after the
//! folder, stamped, or written to the probe's directory on the datastore before it is made. [`run`] removes it before the first row and
//! after the last one. Observations hold words of this program, numbers and type names of the API, and no names of the vCenter.

mod answer;
mod disks;
mod files;
mod left;
mod objects;
mod power;
mod rows;
mod shown;
mod vms;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use serde::Serialize;
use tokio::sync::watch;
use uuid::Uuid;
use vsphere::{About, Client, DatastorePath, MoRef, StorageObject};

pub use answer::{Answered, Verdict};

use self::answer::Failed;
use self::left::Notes;
use self::rows::ROWS;
use self::shown::Shown;
use self::vms::Cloned;
use super::datastore_directory::DatastoreDirectory;
use super::{DatastoreStore, Site, VcenterHypervisor};
use crate::authority::{Hold, TakeOver};
use crate::ending::{Cancelled, unless_cancelled};
use crate::hypervisor::{DiskRef, Error, Hypervisor as _, Permit, Result, Staged, Stamp, VmRef};
use crate::upgrade::may;

/// What deployments of probes are numbered under.
const PROBES: Uuid = Uuid::from_u128(0x5b1c_0f0e_8a34_4d6f_9f21_6c3b_47d9_a052);

/// What is tried, and where.
pub struct Setup {
    /// The folder, resource pool, datastore and networks.
    pub site: Site,
    /// The probe's directory on the datastore. No other command uses it.
    pub directory: DatastorePath,
    /// The OVA.
    pub ova: PathBuf,
    /// How long a guest's first statement is waited for.
    pub guest: Duration,
    /// How long a template's settings stay the same before it is used.
    pub rest: Duration,
    /// From whom the folder's probe may be taken over.
    pub over: TakeOver,
}

/// What the operator sees meanwhile.
pub enum Told<'t> {
    /// What is done between rows.
    Words(&'t str),
    /// A row was answered: its number, the number of all, and the answer.
    Answered(usize, usize, &'t Answered),
}

/// What a run brought.
pub struct Probed {
    /// The answers, in the order of the rows.
    pub report: Report,
    /// What could not be removed, with the reason: here are names.
    pub left: Vec<String>,
    /// Whether the operator has ended it before the last row.
    pub is_cancelled: bool,
}

/// The answers, and what they were given by. It holds no names and no addresses.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The form of this report.
    pub format: u32,
    /// The version of this program.
    pub kaas: String,
    /// The vCenter's product and version.
    pub vcenter: String,
    /// The version of its API.
    pub api: String,
    /// The answers.
    pub rows: Vec<Answered>,
}

/// The rows: for each its name and the assumption.
pub fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROWS.iter().map(|row| (row.name, row.assumption))
}

/// The stamp's deployment of the probe of a folder.
fn deployment(about: &About, site: &Site) -> Uuid {
    let (datacenter, folder) = (site.datacenter.trim_matches('/'), site.folder.trim_matches('/'));
    Uuid::new_v5(&PROBES, format!("{} {datacenter}/{folder}", about.instance_uuid).as_bytes())
}

/// Runs all rows. Removes what an earlier run has left first, and what this one has made last; also when the operator ends it.
///
/// # Errors
/// When the vCenter does not answer, an object of the setup is missing, or another probe runs in the folder. What was made may be left
/// then: the next run removes it.
pub async fn run(
    client: &Client,
    setup: &Setup,
    cancelled: watch::Receiver<bool>,
    tell: &(dyn Fn(Told<'_>) + Sync),
) -> anyhow::Result<Probed> {
    let about = &client.service().about;
    let deployment = deployment(about, &setup.site);
    let hypervisor = VcenterHypervisor::new(client.clone(), deployment, &setup.site, &setup.directory).await?;
    let hypervisor = hypervisor.resting(setup.rest);
    let directory = DatastoreDirectory::find(client.clone(), &setup.site.datacenter, setup.directory.clone()).await?;
    let above = left::missing(&directory, client, setup).await?;
    let store = DatastoreStore::new(client.clone(), &setup.site.datacenter, setup.directory.clone()).await?;
    let say = |words: &str| tell(Told::Words(words));
    let hold = Hold::take_unless(&store, "kaas provider probe", setup.over, &say, &cancelled).await?;
    let permit = Ours(&hold);
    let notes = left::noted(&directory).await?;
    let name = format!("kaas-probe-{}", &deployment.simple().to_string()[..8]);
    let mut probe = Probe {
        client,
        hypervisor: &hypervisor,
        permit: &permit,
        setup,
        directory,
        name,
        notes,
        files: AtomicU32::new(0),
        staged: None,
        template: None,
        linked: None,
        clone: None,
        import_shown: None,
        full: None,
        disk: None,
        object: None,
        said: None,
    };
    say("removing what an earlier probe of this folder has left");
    let left = probe.remove_all().await?;
    anyhow::ensure!(left.is_empty(), "an earlier probe has left what cannot be removed: {}", left.join("; "));
    let (mut rows, mut is_cancelled) = (Vec::new(), false);
    for (index, row) in ROWS.iter().enumerate() {
        // What a row has begun when the operator ends it is waited for before anything is removed.
        let answered = match unless_cancelled(&cancelled, (row.run)(&mut probe)).await {
            Err(Cancelled) => {
                is_cancelled = true;
                break;
            }
            Ok(Err(Failed::Over(error))) => {
                return Err(anyhow::Error::new(error).context("the probe has lost its folder"));
            }
            Ok(tried) => Answered::of(row.name, row.assumption, tried),
        };
        tell(Told::Answered(index + 1, ROWS.len(), &answered));
        rows.push(answered);
    }
    say("removing what was made");
    let mut left = probe.remove_all().await?;
    if left.is_empty() {
        let gone = left::remove_directories(&probe, above).await;
        left.extend(gone.err().map(|error| format!("the directory {}: {error}", setup.directory)));
    }
    if !left.is_empty() {
        hold.release().await;
    }
    let (kaas, vcenter) = (env!("CARGO_PKG_VERSION").to_owned(), about.full_name.clone());
    let report = Report { format: 1, kaas, vcenter, api: about.api_version.clone(), rows };
    Ok(Probed { report, left, is_cancelled })
}

/// The permit of whoever holds the folder's probe.
struct Ours<'a>(&'a Hold<'a>);

#[async_trait]
impl Permit for Ours<'_> {
    async fn still(&self) -> Result<()> {
        may(self.0).await
    }
}

/// What the rows work with, and what earlier rows have made.
struct Probe<'a> {
    client: &'a Client,
    hypervisor: &'a VcenterHypervisor,
    permit: &'a dyn Permit,
    setup: &'a Setup,
    directory: DatastoreDirectory,
    /// How the names of all VMs and disks begin that it makes.
    name: String,
    notes: Notes,
    files: AtomicU32,
    staged: Option<Staged>,
    /// What the template's settings came to when it was laid ready.
    template: Option<BTreeMap<String, String>>,
    linked: Option<VmRef>,
    /// The linked clone as vCenter made it.
    clone: Option<Cloned>,
    import_shown: Option<Shown>,
    full: Option<VmRef>,
    /// The data disk of the linked clone.
    disk: Option<DiskRef>,
    object: Option<StorageObject>,
    /// The key of `guestinfo` that the guest has set.
    said: Option<&'static str>,
}

impl Probe<'_> {
    fn stamp(&self, node: &str) -> Stamp {
        Stamp { deployment: self.hypervisor.deployment, node: node.to_owned(), swap: None }
    }

    fn datastore(&self) -> &MoRef {
        &self.hypervisor.places.datastore.datastore
    }

    /// A path in the probe's directory that no row has used.
    fn unused(&self, name: &str) -> DatastorePath {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.setup.directory.join(&format!("{number}-{name}"))
    }

    async fn linked(&self) -> std::result::Result<vsphere::Vm, Failed> {
        self.vm(self.linked.as_ref(), "the linked clone").await
    }

    async fn full(&self) -> std::result::Result<vsphere::Vm, Failed> {
        self.vm(self.full.as_ref(), "the full clone").await
    }

    async fn vm(&self, vm: Option<&VmRef>, what: &str) -> std::result::Result<vsphere::Vm, Failed> {
        let vm = vm.ok_or_else(|| Failed::NotTried(format!("{what} was not made")))?;
        Ok(self.client.whole_vm(&MoRef::vm(&vm.id)).await?)
    }

    /// A VM as the contract of hypervisors shows it.
    async fn shown(&self, vm: &vsphere::Vm) -> Result<crate::hypervisor::Vm> {
        let uuid = vm.bios_uuid.parse::<Uuid>().context("reading a BIOS UUID").map_err(Error::transient)?;
        self.hypervisor.vm(&VmRef { uuid, id: vm.reference.id.clone() }).await
    }
}
