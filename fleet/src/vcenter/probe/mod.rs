//! Tests on a vCenter what this program assumes of every vCenter.
//!
//! 1. [`run`] acquires the lease of the probe's directory, and removes what an earlier probe of the folder has left.
//! 2. It runs the rows in their order: each is an assumption and a function. Later rows use what earlier ones have made.
//! 3. It removes what the rows have made. It removes only VMs with its stamp whose BIOS UUID it has noted before the request. Templates
//!    are found by the notes of images.
//!
//! Observations hold words of this program, numbers and type names of the API, and no names of the vCenter.

mod answer;
mod disks;
mod left;
mod rows;
mod vms;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;
use uuid::Uuid;
use vsphere::{Changes, Client, ConfigSpec, DatastorePath, MoRef, StorageObject};

pub(crate) use answer::Answered;
pub use answer::{AS_ASSUMED, DIFFERS, NOT_TRIED};

use self::answer::{judged, made};
use self::vms::{Cloned, Template};
use super::datastore_directory::DatastoreDirectory;
use super::{DatastoreStore, Site, VcenterHypervisor};
use crate::cancel::unless_cancelled;
use crate::engine::may;
use crate::hypervisor::{ErrorKind, Fence, Result, Stamp};
use crate::lease::{Lease, TakeOver};

/// The namespace of the deployment IDs of probes.
const PROBES: Uuid = Uuid::from_u128(0x5b1c_0f0e_8a34_4d6f_9f21_6c3b_47d9_a052);

/// The help for objects that cannot be removed.
pub const LEFT: &str = "move or remove what is named, then run the command again, which removes the rest";

/// The inputs of a probe.
pub struct Setup {
    /// The folder, resource pool, datastore and networks.
    pub site: Site,
    /// The probe's directory on the datastore. No other command uses it.
    pub directory: DatastorePath,
    pub ova: PathBuf,
    /// How long the probe waits for the guest's first statement.
    pub guest: Duration,
    /// How long a template's settings stay the same before it is used.
    pub rest: Duration,
    /// Whose lease the probe may take over.
    pub over: TakeOver,
}

/// The answers. In JSON they contain no names and no addresses.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    format: u32,
    kaas: &'static str,
    /// Product, version and build.
    vcenter: String,
    api: String,
    pub(crate) rows: Vec<Answered>,
    /// The objects that could not be removed, with the reason. It contains names.
    #[serde(skip)]
    pub left: Vec<String>,
    /// Whether the operator ended the run before its last row.
    #[serde(skip)]
    pub is_cancelled: bool,
}

impl Report {
    /// How many rows have this verdict.
    pub fn count(&self, verdict: &str) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

/// Runs the rows, and removes their objects, even if the operator ends the run.
///
/// # Errors
/// The vCenter does not answer, an object of the setup is missing, or another probe uses the folder. Some objects may
/// be left: the next run removes them.
pub async fn run(
    client: &Client,
    setup: &Setup,
    cancelled: watch::Receiver<bool>,
    tell: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Report> {
    let (about, datacenter) = (&client.service().about, &setup.site.datacenter);
    let directory = setup.directory.to_string();
    let place = [&about.instance_uuid, datacenter, &setup.site.folder, &directory];
    let place = place.map(|name| name.trim_matches('/')).join("/");
    let deployment = Uuid::new_v5(&PROBES, place.as_bytes());
    let hypervisor = VcenterHypervisor::new(client.clone(), deployment, &setup.site, &setup.directory).await?;
    let store = DatastoreStore::new(client.clone(), datacenter, setup.directory.clone()).await?;
    let hold = Lease::take_unless(&store, "a probe", setup.over, tell, &cancelled).await?;
    let mut probe = Probe {
        client,
        hypervisor: &hypervisor.resting(setup.rest),
        permit: &Ours(&hold),
        setup,
        directory: DatastoreDirectory::find(client.clone(), datacenter, setup.directory.clone()).await?,
        name: format!("kaas-probe-{}", &deployment.simple().to_string()[..8]),
        template: None,
        linked: None,
        full: None,
        disk: None,
        object: None,
        has_stated: false,
    };
    tell("removing what an earlier probe has left");
    let left = probe.remove_all().await;
    if !left.is_empty() {
        hold.release().await;
        anyhow::bail!("cannot remove what an earlier probe has left: {}\nhelp: {LEFT}", left.join("; "));
    }
    let mut rows = Vec::new();
    let all = [rows::ROWS, vms::ROWS, disks::ROWS].concat();
    for row in &all {
        if *cancelled.borrow() {
            break;
        }
        let run = (row.run)(&mut probe);
        let tried = if row.is_whole { Ok(run.await) } else { unless_cancelled(&cancelled, run).await };
        let Ok(tried) = tried else { break };
        if tried.as_ref().is_err_and(|error| error.kind == ErrorKind::Fenced) {
            anyhow::bail!("another probe has taken over the folder");
        }
        let (verdict, observation) = judged(tried);
        let answered = Answered { row: row.name, assumption: row.assumption, observation, verdict };
        let Answered { row, assumption, observation, verdict } = &answered;
        let number = rows.len() + 1;
        tell(&format!("{number}/{} {row}: {verdict}\n    assumed: {assumption}\n    seen: {observation}", all.len()));
        rows.push(answered);
    }
    tell("removing what this probe has made");
    let mut left = probe.remove_all().await;
    if left.is_empty() {
        // The lease goes with the directory.
        let gone = probe.directory.remove(&probe.permit).await;
        left.extend(gone.err().map(|error| format!("the directory {}: {error}", setup.directory)));
    }
    if !left.is_empty() {
        hold.release().await;
    }
    let is_cancelled = rows.len() < all.len();
    let (vcenter, api) = (about.full_name.clone(), about.api_version.clone());
    Ok(Report { format: 1, kaas: env!("CARGO_PKG_VERSION"), vcenter, api, rows, left, is_cancelled })
}

/// The permit of the probe that holds the lease.
struct Ours<'a>(&'a Lease<'a>);

#[async_trait]
impl Fence for Ours<'_> {
    async fn still(&self) -> Result<()> {
        may(self.0).await
    }
}

/// The state of a run: inputs, and the results of earlier rows.
struct Probe<'a> {
    client: &'a Client,
    hypervisor: &'a VcenterHypervisor,
    permit: &'a dyn Fence,
    setup: &'a Setup,
    directory: DatastoreDirectory,
    /// The begin of the names of its VMs and disks.
    name: String,
    template: Option<Template>,
    linked: Option<Cloned>,
    full: Option<Cloned>,
    /// The data disk of the linked clone, once it is detached.
    disk: Option<vsphere::Disk>,
    object: Option<StorageObject>,
    /// Whether the guest has set its entry of `guestinfo`.
    has_stated: bool,
}

impl Probe<'_> {
    fn changes(&self) -> Changes<'_> {
        self.client.changes(&self.permit)
    }

    fn stamp(&self, node: &str) -> Stamp {
        Stamp { deployment: self.hypervisor.deployment, node: node.to_owned(), swap: None }
    }

    fn datastore(&self) -> &MoRef {
        &self.hypervisor.places.datastore.datastore
    }

    async fn now(&self, clone: &Option<Cloned>) -> Result<vsphere::Vm> {
        Ok(self.client.whole_vm(&made(clone)?.made.reference).await?)
    }

    async fn reconfigure(&self, vm: &vsphere::Vm, spec: ConfigSpec) -> Result<()> {
        Ok(self.changes().reconfigure(&vm.reference, &spec).await?)
    }
}
