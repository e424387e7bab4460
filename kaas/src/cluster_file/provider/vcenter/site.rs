//! A vCenter that answers: one session for the duration of a command.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ::vsphere::{About, Client, Connect, DatastorePath, Error, Secret};
use anyhow::Context;
use contract::deployer::PrivateKey;
use contract::statement::Statement;
use fleet::control_plane::{DesiredState, moved};
use fleet::hypervisor::{Hypervisor as _, Placement, Vm};
use fleet::lease::DirectoryStore;
use fleet::vcenter::{DatastoreStore, VcenterHypervisor};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::VcenterProvider;
use super::inventory::MissingJournal;
use super::judge::{is_named, judge};
use super::look::{look, look_around, look_at_policies};
use super::requirements::Requirements;
use crate::cluster_file::described::FileContext;
use crate::cluster_file::provider::{CheckReport, ClusterBackend, Site};
use crate::signals::{SignalPolicy, until_ended};
use crate::uploads::upload_progress;

/// How long to wait for the end of the session. vCenter itself ends it after half an hour.
const LOG_OUT: Duration = Duration::from_secs(5);

/// The namespace of deployment IDs.
const DEPLOYMENTS: Uuid = Uuid::from_u128(0x9d3a_7a51_5c0e_4c0b_8a53_2f6f_7d1c_90e4);

/// A vCenter, and the place of one cluster on it.
pub struct VcenterSite {
    described: VcenterProvider,
    client: Client,
    runtime: Rc<Runtime>,
    deployment: Uuid,
    journal: DatastorePath,
    snapshots: PathBuf,
}

/// The ID of the deployment with this journal and folder. All operators who name the same vCenter, journal and folder get the
/// same ID, without a record of it. A copied description with another folder gets another ID.
pub(super) fn deployment(about: &About, journal: &DatastorePath, datacenter: &str, folder: &str) -> Uuid {
    let (datacenter, folder) = (datacenter.trim_matches('/'), folder.trim_matches('/'));
    Uuid::new_v5(&DEPLOYMENTS, format!("{} {journal} {datacenter}/{folder}", about.instance_uuid).as_bytes())
}

impl VcenterSite {
    /// Logs in. May ask the operator for the password.
    pub(super) fn open(
        described: &VcenterProvider,
        cluster: &str,
        snapshots: &Path,
        runtime: &Rc<Runtime>,
    ) -> anyhow::Result<Self> {
        let password = described.password.value.value().context("the password of the vCenter's user")?;
        let connect = Connect {
            address: described.server.value.clone(),
            trust: described.trust.clone(),
            user: described.user.value.clone(),
            password: Secret::new(password.as_str()),
            settings: described.settings.clone(),
        };
        let client = runtime.block_on(Client::connect(connect)).map_err(|error| match error {
            Error::Unreached { ref reason, .. } if reason.contains("certificate") => anyhow::anyhow!(
                "{error}. If that is the vCenter's own certificate, name its CA with ca-file, or itself with thumbprint"
            ),
            error => error.into(),
        })?;
        let journal = described.journal_of(cluster);
        let named = || {
            let (datacenter, folder) = (&described.datacenter.value, &described.folder.value);
            deployment(&client.service().about, &journal, datacenter, folder)
        };
        let deployment = described.deployment.unwrap_or_else(named);
        let (described, runtime, snapshots) = (described.clone(), Rc::clone(runtime), snapshots.to_owned());
        Ok(Self { described, client, runtime, deployment, journal, snapshots })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    async fn hypervisor(&self) -> fleet::hypervisor::Result<VcenterHypervisor> {
        let names = self.described.names();
        let hypervisor = VcenterHypervisor::new(self.client.clone(), self.deployment, &names, &self.journal).await?;
        Ok(hypervisor.telling_upload(upload_progress()))
    }

    /// The statement of a node. `None` if it has made none, or has no VM.
    async fn statement(&self, node: &str) -> fleet::hypervisor::Result<Option<Statement>> {
        let hypervisor = self.hypervisor().await?;
        let is_nodes = |vm: &Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node);
        match hypervisor.vms().await?.into_iter().find(is_nodes) {
            Some(vm) => hypervisor.statement(&vm.reference).await,
            None => Ok(None),
        }
    }

    /// Runs a look, and closes the session if a signal ends the command.
    fn looking<T>(&self, look: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        until_ended(&self.runtime, SignalPolicy::AtOnce, async |_| look.await, || self.close())
    }

    async fn checked(&self, asked: &Requirements, written: FileContext<'_>) -> anyhow::Result<CheckReport> {
        let described = &self.described;
        let mut seen = look(&self.client, described).await.context("looking at what is named")?;
        // Objects of the deployment can be read only if all named objects exist.
        if let Some(datacenter) = seen.datacenter.as_mut().filter(|there| is_named(described, asked, there, written)) {
            let hypervisor = self.hypervisor().await?;
            let mut own = hypervisor.vms().await.context("looking for VMs of the cluster")?;
            let store =
                DatastoreStore::new(self.client.clone(), &described.datacenter.value, self.journal.clone()).await?;
            let moved =
                moved(&hypervisor, &store, &own).await.context("looking for VMs of the cluster that were moved")?;
            own.extend(moved);
            look_around(&self.client, described, asked, &own, datacenter)
                .await
                .context("looking for conflicting objects")?;
            // The image is needed only for new VMs.
            if asked.nodes.iter().any(|(name, _)| !datacenter.own.contains(name)) {
                datacenter.staged =
                    hypervisor.find_template(&asked.digest, None, &Placement::default()).await?.is_some();
                // Without an import, there are only clones.
                datacenter.lacks_drs &= !(datacenter.staged && self.client.clones_to_any_host());
            }
            datacenter.unmade_journal = self.unmade_journal().await.context("looking for the journal's directory")?;
        }
        if let Some(datacenter) = &mut seen.datacenter {
            look_at_policies(&self.client, described, asked, datacenter)
                .await
                .context("looking for storage policies")?;
        }
        Ok(judge(described, asked, &seen, written))
    }

    /// The directory of leases and journals. `None` if it exists.
    async fn unmade_journal(&self) -> anyhow::Result<Option<MissingJournal>> {
        let is_made = async |directory: DatastorePath| {
            let datacenter = &self.described.datacenter.value;
            DatastoreStore::new(self.client.clone(), datacenter, directory).await?.is_made().await
        };
        let directory = self.journal.clone();
        if is_made(directory.clone()).await? {
            return Ok(None);
        }
        let top = directory.path.split('/').next().unwrap_or_default();
        let has_top = is_made(DatastorePath::new(&directory.datastore, top)).await?;
        Ok(Some(MissingJournal { directory, has_top }))
    }
}

impl Site for VcenterSite {
    fn words(&self) -> String {
        super::Provider::words(&self.described)
    }

    fn check(&self, wanted: &DesiredState, written: FileContext<'_>) -> anyhow::Result<CheckReport> {
        let asked = Requirements::read(wanted)?;
        self.looking(self.checked(&asked, written))
    }

    /// The place exists if all named objects exist: a folder may hold VMs that are to be adopted.
    fn find(&self) -> anyhow::Result<Option<ClusterBackend>> {
        self.looking(async {
            let datacenter = &self.described.datacenter.value;
            let store = DatastoreStore::new(self.client.clone(), datacenter, self.journal.clone()).await?;
            Ok(Some(ClusterBackend {
                hypervisor: Box::new(self.hypervisor().await?),
                store: Box::new(store),
                snapshots: Box::new(DirectoryStore::at(self.snapshots.clone())),
                network: None,
                kubeconfig: None,
                // Templates remain, because clusters share them. The journal's directory remains too: it may hold files of
                // other owners.
                empties: Box::new(|| Ok(())),
            }))
        })
    }

    fn make(&self, _wanted: &DesiredState, _key: &PrivateKey, _say: &dyn Fn(&str)) -> anyhow::Result<ClusterBackend> {
        // Acquiring the lease creates the journal's directory. The template is imported under that lease.
        self.find()?.context("the place exists")
    }

    fn may_destroy(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn journal(&self) -> String {
        format!("the numbered files in {}, except the last one, which records the deletion", self.journal)
    }

    fn templates(&self) -> anyhow::Result<Vec<String>> {
        let folder = self.described.templates.as_ref().unwrap_or(&self.described.folder).value.trim_matches('/');
        self.looking(async {
            let names = self.hypervisor().await?.laid_ready().await.context("looking for templates")?;
            Ok(names.into_iter().map(|name| format!("{folder}/{name}")).collect())
        })
    }

    fn access_hints(&self) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn complaints(&self, node: &str) -> Vec<String> {
        let said = self.runtime.block_on(self.statement(node));
        let said = said.inspect_err(|error| log::debug!("looking what {node} says: {error}")).ok().flatten();
        let code = said.as_ref().and_then(|said| said.code.as_ref().map(|code| (code, &said.words)));
        let mut complaints = Vec::from_iter(code.map(|(code, words)| format!("{node} says: {words} [{code}]")));
        complaints.push(format!("{node}'s console in vSphere Client shows what it waits for"));
        complaints
    }

    fn ova(&self, path: &Path) -> anyhow::Result<PathBuf> {
        fleet::find_ova(path)
    }

    fn workers_hint(&self, _: &str) -> anyhow::Result<Option<String>> {
        Ok(None)
    }

    fn close(&self) {
        let left = self.runtime.block_on(async { tokio::time::timeout(LOG_OUT, self.client.log_out()).await });
        match left {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::debug!("{error}"),
            Err(_) => log::debug!("the end of the session was not answered"),
        }
    }
}
