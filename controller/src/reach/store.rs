//! The store in which `fleet` keeps leases and journals of a cluster's control-plane nodes, as objects.
//!
//! - A lease is a Lease object. The number in its name is the lock.
//! - The record of the deployment is in the status of the TenantCluster.
//! - The plan and journal of an upgrade are an Operation.
//!
//! The last two are one object each, with the number of their lease; `fleet` has a file for each lease. A new lease begins by
//! writing the records of the former one again, which rejects the former one from then on. Each write fails if the object was
//! changed since it was read.

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use fleet::control_plane::DeploymentRecord;
use fleet::journals::{File, beginning, record_text, whole};
use fleet::lease::{Holder, Store, number_of};
use fleet::upgrade::{Entry, Event, Plan};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use super::failure::Failure;
use super::kind::read;
use super::objects::{Collection, Objects};
use crate::decisions::{CLUSTER, CLUSTER_REF};
use crate::objects::{
    ControlPlaneSize, Deployment, JournalEntry, Operation, OperationKind, OperationSpec, PlannedStep, Reference,
    SYSTEM, TenantCluster,
};
use crate::records::{add, entry_of, journal_entry, plan_of};
use crate::term::{Term, is_controller};

/// The prefix of annotations that hold the files of a lease.
const FILE: &str = "kaas.local/";
/// The number of attempts of a write that conflicts with another one. Only this controller writes these objects, one task at a
/// time.
const TRIES: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The former NodeImage.
    pub from_image: String,
    /// The new NodeImage.
    pub to_image: String,
    /// The former size of nodes, if it is known, and the new one.
    pub sizes: (Option<ControlPlaneSize>, Option<ControlPlaneSize>),
    /// The VMClass that the operator set for the new size, if any.
    pub class: Option<String>,
    /// The generation of the cluster's spec from which the swap was planned.
    pub generation: i64,
}

pub struct ClusterStore<'a> {
    objects: &'a dyn Objects,
    namespace: String,
    cluster: String,
    term: Term,
    /// The swap of an upgrade that begins.
    swap: Option<Swap>,
}

impl<'a> ClusterStore<'a> {
    /// The store of a cluster, for a leader.
    pub fn new(objects: &'a dyn Objects, namespace: &str, cluster: &str, term: &Term) -> Self {
        let [namespace, cluster] = [namespace, cluster].map(str::to_owned);
        Self { objects, namespace, cluster, term: term.clone(), swap: None }
    }

    /// Sets the swap for an upgrade that begins.
    #[must_use]
    pub fn beginning(self, swap: Swap) -> Self {
        Self { swap: Some(swap), ..self }
    }

    /// Leases are in the controller's namespace, so that tenants, who edit objects in their own namespaces, cannot change them.
    fn leases(&self) -> Collection {
        Collection::of::<Lease>(Some(SYSTEM))
    }

    fn clusters(&self) -> Collection {
        Collection::of::<TenantCluster>(Some(&self.namespace))
    }

    fn operations(&self) -> Collection {
        Collection::of::<Operation>(Some(&self.namespace))
    }

    fn lease(&self, number: u64) -> String {
        format!("{}.{}-{number:06}", self.namespace, self.cluster)
    }

    async fn found(&self, of: &Collection, name: &str) -> anyhow::Result<Option<Value>> {
        match self.objects.get(of, name).await {
            Err(Failure::Missing) => Ok(None),
            found => found.map(Some).with_context(|| format!("reading {} {name}", of.plural)),
        }
    }

    /// Changes the status of an object, unless `change` returns an error. A conflict is tried again. Fields that are not changed
    /// are written as they were read, including those that this version does not know.
    async fn note(
        &self,
        of: &Collection,
        name: &str,
        change: impl Fn(&mut Value) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<()> {
        let attempt = || format!("writing the status of {} {name}", of.plural);
        for _ in 0..TRIES {
            let object = self.found(of, name).await?;
            let mut object = object.with_context(|| format!("{}: it does not exist", attempt()))?;
            change(&mut object["status"]).with_context(attempt)?;
            match self.objects.replace_status(of, &object).await {
                Err(Failure::Changed) => {}
                done => return done.map(drop).with_context(attempt),
            }
        }
        bail!("{}: another client changes it again and again", attempt())
    }

    /// The Operation whose journal this lease has begun.
    async fn operation(&self, number: u64) -> anyhow::Result<Option<Operation>> {
        let of = self.operations();
        let all = self.objects.list(&of, Some((CLUSTER_REF, &self.cluster))).await.context("looking for Operations")?;
        let mut found = None;
        // An Operation that was created and not begun has no journal.
        for operation in all.iter().filter(|operation| operation["status"]["lease"] == number) {
            ensure!(found.is_none(), "two Operations have lease {number}");
            found = Some(read(operation)?);
        }
        Ok(found)
    }

    fn journal(operation: &Operation) -> anyhow::Result<String> {
        let plan = operation.spec.plan.as_ref();
        let entries = operation.status.iter().flat_map(|status| &status.entries);
        let line = |entry| Ok(serde_json::to_string(&entry_of(entry, plan)?)? + "\n");
        beginning(&entries.map(line).collect::<anyhow::Result<String>>()?)
    }

    async fn deployment(&self, number: u64) -> anyhow::Result<Option<DeploymentRecord>> {
        let Some(cluster) = self.found(&self.clusters(), &self.cluster).await? else { return Ok(None) };
        let deployment = &cluster["status"]["deployment"];
        if deployment["lease"] != number {
            return Ok(None);
        }
        let attempt = || format!("reading status.deployment of the TenantCluster {}", self.cluster);
        let deployment: Deployment = serde_json::from_value(deployment.clone()).with_context(attempt)?;
        deployment.ensure_of(&self.cluster)?;
        Ok(Some(deployment.record))
    }

    async fn keep_deployment(&self, number: u64, text: &str) -> anyhow::Result<()> {
        let record: DeploymentRecord = serde_json::from_str(text).context("understanding what is to be kept")?;
        let deployment = Deployment { lease: number, record };
        deployment.ensure_of(&self.cluster)?;
        let deployment = serde_json::to_value(deployment)?;
        self.note(&self.clusters(), &self.cluster, |status| {
            ensure_not_superseded(&status["deployment"], number)?;
            status["deployment"] = deployment.clone();
            Ok(())
        })
        .await
    }

    /// Begins a journal, or continues that of the former lease.
    async fn begin_journal(&self, number: u64, text: &str) -> anyhow::Result<()> {
        let lines = whole(text)?.context("a journal that was cut")?;
        let entries: Vec<Entry> = lines
            .lines()
            .map(|line| serde_json::from_str(line).context("this store keeps journals of entries alone"))
            .collect::<anyhow::Result<_>>()?;
        let Some(Entry { event: Event::Planned { plan }, .. }) = entries.first() else {
            bail!("the journal does not begin with a plan");
        };
        let name = format!("{}-{}", self.cluster, plan.id);
        if self.found(&self.operations(), &name).await?.is_none() {
            let mut object = serde_json::to_value(Operation::new(&name, self.spec(&entries[0], plan)?))?;
            object["metadata"]["labels"] = json!({CLUSTER: self.cluster});
            match self.objects.create(&self.operations(), &object).await {
                // An earlier call of this controller, whose answer was lost: the name is unique.
                Ok(_) | Err(Failure::Exists) => {}
                Err(error) => return Err(error).with_context(|| format!("making the Operation {name}")),
            }
        }
        let mut kept = Vec::new();
        for entry in &entries {
            add(&mut kept, journal_entry(entry)?);
        }
        let kept = serde_json::to_value(kept)?;
        self.note(&self.operations(), &name, |status| {
            ensure_not_superseded(status, number)?;
            (status["lease"], status["entries"]) = (number.into(), kept.clone());
            Ok(())
        })
        .await
    }

    fn spec(&self, first: &Entry, plan: &Plan) -> anyhow::Result<OperationSpec> {
        let swap = self.swap.clone().context("nothing was said of the swap that is begun")?;
        let step = |step: &fleet::upgrade::Step| -> anyhow::Result<PlannedStep> {
            let action = serde_json::to_value(step.action)?.as_str().unwrap_or_default().to_owned();
            let node = step.node.map(|node| plan.nodes.get(node).map(|node| node.name.clone()));
            Ok(PlannedStep { action, node: node.map(|name| name.context("a step of no node")).transpose()? })
        };
        Ok(OperationSpec {
            cluster_ref: Reference::to(&self.cluster),
            kind: OperationKind::ImageSwap,
            from_image: Some(swap.from_image),
            to_image: Some(swap.to_image),
            from_size: swap.sizes.0,
            to_size: swap.sizes.1,
            to_class: swap.class,
            from_version: None,
            to_version: None,
            cluster_generation: swap.generation,
            steps: plan.steps.iter().map(step).collect::<anyhow::Result<_>>()?,
            plan: plan_of(first)?,
        })
    }

    /// Adds an entry to the journal that this lease has begun. An earlier attempt may have added it already.
    async fn add_entry(&self, number: u64, attempt: usize, text: &str) -> anyhow::Result<()> {
        let entry = journal_entry(&serde_json::from_str(text.trim_end()).context("understanding an entry")?)?;
        let operation = self.operation(number).await?;
        let operation =
            operation.with_context(|| format!("no journal was begun by lease {number}, or it was overtaken"))?;
        let name = operation.metadata.name.context("an Operation without a name")?;
        self.note(&self.operations(), &name, |status| {
            ensure_not_superseded(status, number)?;
            let mut entries: Vec<JournalEntry> = serde_json::from_value(status["entries"].clone())?;
            let is_there = entries.last().is_some_and(|last| (&last.event, &last.more) == (&entry.event, &entry.more));
            if attempt == 1 || !is_there {
                add(&mut entries, entry.clone());
            }
            status["entries"] = serde_json::to_value(entries)?;
            Ok(())
        })
        .await
    }
}

/// Fails if a later lease has written the record. The record has the number of its lease.
fn ensure_not_superseded(written: &Value, number: u64) -> anyhow::Result<()> {
    match written["lease"].as_u64().filter(|by| *by > number) {
        Some(by) => bail!("lease {by} has taken over from lease {number}"),
        None => Ok(()),
    }
}

#[async_trait]
impl Store for ClusterStore<'_> {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        let leases =
            self.objects.list(&self.leases(), Some((CLUSTER, &self.cluster))).await.context("looking for holds")?;
        let prefix = format!("{}.{}-", self.namespace, self.cluster);
        let number = |lease: &Value| number_of(lease["metadata"]["name"].as_str()?.strip_prefix(&prefix)?);
        Ok(leases.iter().filter_map(number).collect())
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        Ok(self.found(&self.leases(), &self.lease(number)).await?.is_some())
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.lease(number), "labels": {CLUSTER: self.cluster}},
            "spec": {"holderIdentity": self.term.identity()},
        });
        match self.objects.create(&self.leases(), &lease).await {
            Err(Failure::Exists) => Ok(false),
            made => made.map(|_| true).with_context(|| format!("making the Lease {}", self.lease(number))),
        }
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.objects.delete(&self.leases(), &self.lease(number)).await.context("removing a Lease")
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        match File::of(file) {
            File::Deployment => {
                let kept = self.deployment(number).await?;
                kept.as_ref().map(record_text).transpose()
            }
            File::UpgradeBegun => self.operation(number).await?.as_ref().map(Self::journal).transpose(),
            // The first file has the whole journal.
            File::UpgradeAdded { .. } => Ok(None),
            File::Workers => Ok(None),
            File::Other => {
                let lease = self.found(&self.leases(), &self.lease(number)).await?;
                let annotation = format!("{FILE}{file}");
                Ok(lease.and_then(|lease| lease["metadata"]["annotations"][annotation].as_str().map(str::to_owned)))
            }
        }
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        match File::of(file) {
            File::Deployment => self.keep_deployment(number, text).await,
            File::UpgradeBegun => self.begin_journal(number, text).await,
            File::UpgradeAdded { attempt } => self.add_entry(number, attempt, text).await,
            File::Workers => bail!("workers' journals are their Machines'"),
            File::Other => self.mark(number, file, text).await,
        }
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        let Some(lease) = self.found(&self.leases(), &self.lease(number)).await? else { return Ok(Vec::new()) };
        let annotations = lease["metadata"]["annotations"].as_object().into_iter().flat_map(|all| all.keys());
        let mut files: Vec<String> =
            annotations.filter_map(|name| name.strip_prefix(FILE).map(str::to_owned)).collect();
        if self.deployment(number).await?.is_some() {
            files.push(File::DEPLOYMENT.to_owned());
        }
        if self.operation(number).await?.is_some() {
            files.push(File::UPGRADE.to_owned());
        }
        Ok(files)
    }

    fn holder(&self, what: &str, now: u64) -> Holder {
        // With the process, so that it recognizes its own tasks that have ended.
        Holder { who: self.term.identity().to_owned(), ..Holder::this(what, now) }
    }

    /// A lease of another controller has ended once this one was elected: a term begins after all calls of the former one have
    /// ended. A holder that is not a controller is judged as a process.
    async fn has_ended(&self, holder: &Holder) -> anyhow::Result<bool> {
        let of_another = is_controller(&holder.who) && holder.who != self.term.identity();
        Ok(holder.is_dead() || (of_another && self.term.is_alone()))
    }
}

impl ClusterStore<'_> {
    /// Writes a small file of a lease that exists.
    async fn mark(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        let (of, name) = (self.leases(), self.lease(number));
        let attempt = || format!("noting {file} on the Lease {name}");
        for _ in 0..TRIES {
            let lease = self.found(&of, &name).await?;
            let mut lease = lease.with_context(|| format!("{}: it does not exist", attempt()))?;
            lease["metadata"]["annotations"][format!("{FILE}{file}")] = text.into();
            match self.objects.replace(&of, &lease).await {
                Err(Failure::Changed) => {}
                done => return done.map(drop).with_context(attempt),
            }
        }
        bail!("{}: another client changes it again and again", attempt())
    }
}

#[cfg(test)]
mod tests;
