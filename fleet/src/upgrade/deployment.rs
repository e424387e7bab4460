//! The operator's commands on one deployment: upgrade, rollback, commit, abandon. Each acquires the lease, opens the
//! journal, runs the remaining steps, and releases the lease.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use uuid::Uuid;

use super::context::StepContext;
use super::entry::{Entry, plan_of};
use super::guarded_nodes::GuardedNodes;
use super::hold_view::HoldView;
use super::journal::Journal;
use super::notice::Notice;
use super::offline_nodes::OfflineNodes;
use super::request::{Request, permits};
use super::run::{Run, RunOutcome};
use super::salvage::{self, Damaged};
use super::status::UpgradeStatus;
use super::{ClusterSeen, Inventory, Nodes, Options, Plan, Target, plan};
use crate::cancel::unless_cancelled;
use crate::engine::GuardedHypervisor;
use crate::hypervisor::{Hypervisor, Placement};
use crate::journals;
use crate::lease::{Lease, Snapshots, Store, TakeOver, standing};

/// One cluster's VMs on one hypervisor, and who may change them.
pub struct Deployment<'a> {
    pub hypervisor: &'a dyn Hypervisor,
    /// The nodes and their cluster.
    pub nodes: &'a dyn Nodes,
    /// The store of leases and journals: never in the cluster.
    pub store: &'a dyn Store,
    /// Where snapshots of etcd are kept.
    pub snapshots: &'a dyn Snapshots,
    /// The caller's work, such as the name of its command. Others see it while it holds the deployment.
    pub what: &'a str,
    /// Told what is happening.
    pub watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    /// The pause between two looks at a node: a second, but for tests.
    pub pace: Duration,
    /// How long a run waits for a blocked step, before it ends paused.
    pub pause_limit: Duration,
    /// The cluster that the operator says is the deployment's, though the API called it otherwise when its last upgrade
    /// was planned. The stamp says whose the VMs are. The API's name of the cluster does not stop an operator who knows
    /// better.
    pub other_cluster: Option<Uuid>,
    /// Becomes true when a run is to end at the next moment at which it can be continued.
    pub cancelled: watch::Receiver<bool>,
}

impl Deployment<'_> {
    /// A run on the deployment, under a lease. `ova` is where the OVA is, if it is not where the plan says.
    pub fn run<'r>(&'r self, hold: &'r Lease<'r>, ova: Option<PathBuf>) -> Run<'r> {
        Run::new(self.context(hold, ova))
    }

    pub(super) fn context<'r>(&'r self, hold: &'r Lease<'r>, ova: Option<PathBuf>) -> StepContext<'r> {
        StepContext {
            hypervisor: GuardedHypervisor::new(self.hypervisor, hold, Some(&self.cancelled)),
            nodes: GuardedNodes::new(self.nodes, hold),
            hold,
            snapshots: self.snapshots,
            watch: self.watch,
            pace: self.pace,
            ova,
            pause_limit: self.pause_limit,
            cancelled: self.cancelled.clone(),
        }
    }

    /// Plans an upgrade; changes nothing.
    ///
    /// # Errors
    /// Why there is no plan: [`super::Refusals`] if it was judged.
    pub async fn plan(&self, ova: &Path, options: &Options) -> anyhow::Result<Plan> {
        self.plan_to(&read(ova).await?, options, HoldView::AsItIs).await
    }

    async fn plan_to(&self, target: &Target, options: &Options, view: HoldView<'_>) -> anyhow::Result<Plan> {
        self.may_be_upgraded().await?;
        self.has_formed_if_begun().await?;
        let inventory = self.inventory(&options.placement, view).await?;
        Ok(plan(&inventory, target, options, Uuid::new_v4())?)
    }

    /// The inventory, with the operator's word on the cluster.
    async fn inventory(&self, placement: &Placement, view: HoldView<'_>) -> anyhow::Result<Inventory> {
        let seen = Inventory::take(self.hypervisor, self.nodes, self.store, placement, view.own()).await?;
        Ok(Inventory { cluster: self.told(seen.cluster, view)?, ..seen })
    }

    /// The same of the cluster alone.
    pub(super) async fn cluster_seen(&self, view: HoldView<'_>) -> anyhow::Result<ClusterSeen> {
        self.told(ClusterSeen::take(self.nodes, self.store, view.own()).await?, view)
    }

    fn told(&self, seen: ClusterSeen, view: HoldView<'_>) -> anyhow::Result<ClusterSeen> {
        seen.earlier.iter().try_for_each(|earlier| self.is_its_upgrade(earlier.deployment))?;
        let held_by = seen.held_by.filter(|_| matches!(view, HoldView::AsItIs));
        Ok(ClusterSeen { other_cluster: self.other_cluster, held_by, ..seen })
    }

    /// Plans an upgrade to an imported template, for a caller that would take the deployment over as `over` says.
    /// Changes nothing.
    pub async fn plan_for(&self, target: &Target, options: &Options, over: TakeOver) -> anyhow::Result<Plan> {
        self.plan_to(target, options, HoldView::before(over)).await
    }

    /// As [`Deployment::plan`], for a caller that would take the deployment over as `over` says.
    pub async fn plan_over(&self, ova: &Path, options: &Options, over: TakeOver) -> anyhow::Result<Plan> {
        self.plan_for(&read(ova).await?, options, over).await
    }

    /// Plans an upgrade and carries it out.
    ///
    /// # Errors
    /// As [`Deployment::plan`]; or it cannot be continued. That all nodes went back is no error here.
    pub async fn apply(
        &self,
        ova: &Path,
        options: &Options,
        over: TakeOver,
    ) -> anyhow::Result<(RunOutcome, UpgradeStatus)> {
        self.apply_to(&read(ova).await?, options, over).await
    }

    /// The same for an image whose template is imported: no OVA is read. Its facts were verified when it was imported.
    pub async fn apply_to(
        &self,
        target: &Target,
        options: &Options,
        over: TakeOver,
    ) -> anyhow::Result<(RunOutcome, UpgradeStatus)> {
        // Refused before the lease is taken over: the holder would be stopped for nothing.
        unless_cancelled(&self.cancelled, self.plan_to(target, options, HoldView::before(over))).await??;
        let hold = self.take(over).await?;
        let gone = async {
            // Until now others could change the conditions of the plan.
            let plan = unless_cancelled(&self.cancelled, self.plan_to(target, options, HoldView::Own(&hold))).await??;
            let mut journal = Journal::begin(&hold, plan).await?;
            self.go(&mut journal, &hold, None, Request::Resume).await
        }
        .await;
        hold.release().await;
        gone
    }

    /// Goes on with the upgrade that there is, as `verb` says. `ova` is where the OVA is now, if it was moved.
    ///
    /// # Errors
    /// When there is no upgrade, it has gone too far for the verb, another command holds it, or it cannot be continued.
    pub async fn go_on(
        &self,
        verb: Request,
        ova: Option<PathBuf>,
        over: TakeOver,
    ) -> anyhow::Result<(RunOutcome, UpgradeStatus)> {
        self.go_on_with(None, verb, ova, over).await
    }

    /// Ends the upgrade `id` where it is. One whose journal cannot be read is ended, too, by its plan. Of another
    /// cluster, which the operator says is the deployment's, no node is asked.
    ///
    /// # Errors
    /// As [`Deployment::go_on`]; or the last upgrade is another one; or nothing can be read of it, not even its plan.
    pub async fn abandon(&self, id: Uuid, over: TakeOver) -> anyhow::Result<(RunOutcome, UpgradeStatus)> {
        let nodes = OfflineNodes::of_another_cluster();
        let unasked = Deployment { nodes: &nodes, cancelled: self.cancelled.clone(), ..*self };
        let deployment = if self.other_cluster.is_some() { &unasked } else { self };
        match unless_cancelled(&self.cancelled, salvage::read(self.store)).await? {
            Err(error) => deployment.abandon_by_plan(id, over, error.downcast()?).await,
            Ok(_) => deployment.go_on_with(Some(id), Request::Abandon, None, over).await,
        }
    }

    /// Ends an upgrade whose journal cannot be read, by its plan.
    async fn abandon_by_plan(
        &self,
        id: Uuid,
        over: TakeOver,
        damage: Damaged,
    ) -> anyhow::Result<(RunOutcome, UpgradeStatus)> {
        let plan = self.permitted_by_plan(id, &damage).await?;
        let hold = self.take(over).await?;
        let gone = async {
            let mut journal = Journal::salvaged(&hold, plan, salvage::unknown(&damage)).await?;
            self.go(&mut journal, &hold, None, Request::Abandon).await
        }
        .await;
        hold.release().await;
        gone
    }

    /// The plan of an upgrade whose journal cannot be read, unless an obstacle forbids to abandon it.
    pub(super) async fn permitted_by_plan(&self, id: Uuid, damage: &Damaged) -> anyhow::Result<Plan> {
        let Some(plan) = damage.plan.as_deref().cloned() else { return Err(damage.clone().into()) };
        unless_cancelled(&self.cancelled, self.is_of_this_cluster(&plan)).await??;
        permits(Request::Abandon, Some(id), &plan, &[])?;
        Ok(plan)
    }

    /// Continues the upgrade `id`, or the last one. Obstacles are looked for before the lease is acquired, and again
    /// under it.
    async fn go_on_with(
        &self,
        id: Option<Uuid>,
        verb: Request,
        ova: Option<PathBuf>,
        over: TakeOver,
    ) -> anyhow::Result<(RunOutcome, UpgradeStatus)> {
        let (Plan { id: upgrade, .. }, _) = unless_cancelled(&self.cancelled, self.permitted(id, verb)).await??;
        let hold = self.take(over).await?;
        let gone = async {
            unless_cancelled(&self.cancelled, self.goes_on(verb, upgrade)).await??;
            let mut journal = Journal::continued(&hold).await?;
            permits(verb, id, journal.plan(), journal.entries())?;
            self.go(&mut journal, &hold, ova, verb).await
        }
        .await;
        hold.release().await;
        gone
    }

    /// The plan and the journal of the last upgrade, unless an obstacle forbids to continue it.
    pub(super) async fn permitted(&self, id: Option<Uuid>, verb: Request) -> anyhow::Result<(Plan, Vec<Entry>)> {
        let entries = salvage::read(self.store).await?.context("there is no upgrade of this deployment")?;
        let plan = plan_of(&entries).context("a journal without a plan")?.clone();
        self.is_of_this_cluster(&plan).await?;
        self.goes_on(verb, plan.id).await?;
        permits(verb, id, &plan, &entries)?;
        Ok((plan, entries))
    }

    /// Refuses to continue if that is not permitted. An upgrade is ended anywhere: that changes no VM.
    async fn goes_on(&self, verb: Request, upgrade: Uuid) -> anyhow::Result<()> {
        if verb == Request::Abandon {
            return Ok(());
        }
        self.has_not_ended_with_its_cluster(upgrade).await?;
        self.may_be_upgraded().await
    }

    /// The state of the upgrade; changes nothing.
    pub async fn status(&self) -> anyhow::Result<UpgradeStatus> {
        let entries = salvage::read(self.store).await?.context("there is no upgrade of this deployment")?;
        UpgradeStatus::of(entries, standing(self.store).await?.holder())
    }

    /// Acquires the lease, waits for it until the command is asked to end, and removes old leases.
    ///
    /// # Errors
    /// The command was asked to end, another command has the lease, or something may still be written into it: nothing
    /// was begun.
    pub(super) async fn take(&self, over: TakeOver) -> anyhow::Result<Lease<'_>> {
        let say = |words: &str| self.tell(&Notice::TakingOver { words });
        let hold = Lease::take_unless(self.store, self.what, over, &say, &self.cancelled).await?;
        match journals::prune(&hold, &self.cancelled).await {
            Ok(()) => Ok(hold),
            Err(error) => {
                hold.release().await;
                Err(error)
            }
        }
    }

    pub(super) fn tell(&self, notice: &Notice<'_>) {
        (self.watch)(notice);
    }

    /// Turns the journal as the verb says, and goes.
    async fn go(
        &self,
        journal: &mut Journal<'_>,
        hold: &Lease<'_>,
        ova: Option<PathBuf>,
        verb: Request,
    ) -> anyhow::Result<(RunOutcome, UpgradeStatus)> {
        let run = self.run(hold, ova);
        let gone = match run.ask(journal, verb).await? {
            Some(arrived) => Ok(arrived),
            None => run.go(journal).await,
        };
        run.show_last(journal).await;
        let (arrived, mut status) = (gone?, UpgradeStatus::of(journal.entries().to_vec(), None)?);
        // An entry that could not be written is reported all the same.
        if let RunOutcome::Paused(reason) = &arrived {
            status.paused = Some(reason.clone());
        }
        Ok((arrived, status))
    }

    /// Refuses a journal of another cluster than the nodes'. With a kubeconfig whose context has changed, the steps of
    /// one cluster's upgrade would be taken on the other. While the API is away the cluster is unknown.
    async fn is_of_this_cluster(&self, plan: &Plan) -> anyhow::Result<()> {
        self.is_its_upgrade(plan.deployment)?;
        match self.nodes.cluster().await {
            Ok(here) if here != plan.cluster && self.other_cluster != Some(here) => {
                Err(OtherCluster { of: plan.cluster, here }.into())
            }
            _ => Ok(()),
        }
    }
}

/// The API's name of the cluster differs from the one in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the journal is of cluster {of}, and the kubeconfig leads to a cluster that calls itself {here}: give that \
     cluster's kubeconfig"
)]
pub struct OtherCluster {
    pub of: Uuid,
    /// The API's present name of the cluster.
    pub here: Uuid,
}

/// Reads and verifies an OVA, which takes seconds.
async fn read(ova: &Path) -> anyhow::Result<Target> {
    let ova = ova.to_owned();
    tokio::task::spawn_blocking(move || Target::read(&ova)).await.context("verifying the OVA")?
}
