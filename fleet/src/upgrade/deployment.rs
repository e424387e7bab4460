//! The verbs of the operator on one deployment: each takes the hold, opens the journal, goes the way, and gives the
//! hold back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use tokio::sync::watch;
use uuid::Uuid;

use super::entry::{Direction, Entry, Outcome, parse, plan_of};
use super::journal::{self, Journal};
use super::notice::Notice;
use super::plan::Step;
use super::progress::{Next, Progress};
use super::reason::Reason;
use super::run::{Arrived, Run};
use super::verb::{Verb, permits};
use super::{Inventory, Nodes, Options, Plan, Target, plan};
use crate::authority::{Hold, Snapshots, Store, TakeOver, standing};
use crate::hypervisor::Hypervisor;

/// One cluster's VMs on one hypervisor, and who may change them.
pub struct Deployment<'a> {
    /// Where the VMs are.
    pub hypervisor: &'a dyn Hypervisor,
    /// The nodes and their cluster.
    pub nodes: &'a dyn Nodes,
    /// Where holds and journals are kept: never in the cluster.
    pub store: &'a dyn Store,
    /// Where snapshots of etcd are kept.
    pub snapshots: &'a dyn Snapshots,
    /// Told what is happening.
    pub watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    /// The pause between two looks at a node: a second, but for tests.
    pub pace: Duration,
    /// How long a run waits for what it cannot do now, before it ends paused.
    pub pause_limit: Duration,
    /// Becomes true when a run is to end at the next moment at which it can be continued.
    pub cancelled: watch::Receiver<bool>,
}

/// Where an upgrade stands.
#[derive(Clone, Debug, Serialize)]
pub struct UpgradeStatus {
    /// Its plan.
    pub id: Uuid,
    /// The way that it goes.
    pub direction: Direction,
    /// The one node that the way is for, by its name; none for all.
    pub only: Option<String>,
    /// Why it turned, if it did.
    pub reason: Option<Reason>,
    /// Its end, if it is reached.
    pub outcome: Option<Outcome>,
    /// Whether one node is back, and a person decides how to go on.
    pub waits_for_a_person: bool,
    /// Why it cannot go on now, if it cannot.
    pub paused: Option<Reason>,
    /// How many steps of the way are done.
    pub done: usize,
    /// How many there are.
    pub total: usize,
    /// The next step.
    pub next: Option<Step>,
    /// Who is at work on the deployment now.
    pub held_by: Option<String>,
    /// The plan.
    pub plan: Plan,
    /// The journal.
    pub entries: Vec<Entry>,
}

impl Deployment<'_> {
    /// Plans an upgrade; changes nothing.
    ///
    /// # Errors
    /// Why there is no plan: [`super::Refusals`] if it was judged.
    pub async fn plan(&self, ova: &Path, options: &Options) -> anyhow::Result<Plan> {
        self.plan_to(&read(ova).await?, options, None).await
    }

    async fn plan_to(&self, target: &Target, options: &Options, own: Option<&Hold<'_>>) -> anyhow::Result<Plan> {
        let inventory = Inventory::take(self.hypervisor, self.nodes, self.store, &options.placement, own).await?;
        Ok(plan(&inventory, target, options, Uuid::new_v4())?)
    }

    /// Plans an upgrade and carries it out.
    ///
    /// # Errors
    /// As [`Deployment::plan`]; or it cannot be gone on with. That everything went back is no error here.
    pub async fn apply(
        &self,
        ova: &Path,
        options: &Options,
        over: TakeOver,
    ) -> anyhow::Result<(Arrived, UpgradeStatus)> {
        let target = read(ova).await?;
        if over == TakeOver::FromTheDead {
            self.plan_to(&target, options, None).await?;
        }
        let hold = self.take("upgrade apply", over).await?;
        let gone = async {
            // Until now others could change what the plan rests on.
            let plan = self.plan_to(&target, options, Some(&hold)).await?;
            let mut journal = Journal::begin(&hold, plan).await?;
            self.go(&mut journal, &hold, None, Verb::Resume).await
        }
        .await;
        hold.release().await;
        gone
    }

    /// Goes on with the upgrade that there is, as `verb` says. `ova` is where the OVA is now, if it was moved.
    ///
    /// # Errors
    /// When there is no upgrade, it has gone too far for the verb, somebody else is at work on it, or it cannot be
    /// gone on with.
    pub async fn go_on(
        &self,
        verb: Verb,
        ova: Option<PathBuf>,
        over: TakeOver,
    ) -> anyhow::Result<(Arrived, UpgradeStatus)> {
        self.go_on_with(None, verb, ova, over).await
    }

    /// Ends the upgrade `id` where it stands.
    ///
    /// # Errors
    /// As [`Deployment::go_on`]; or the last upgrade is another one.
    pub async fn abandon(&self, id: Uuid, over: TakeOver) -> anyhow::Result<(Arrived, UpgradeStatus)> {
        self.go_on_with(Some(id), Verb::Abandon, None, over).await
    }

    /// Goes on with the upgrade `id`, or with whichever is the last. What is in the way is looked for before the hold is
    /// taken, and again under it.
    async fn go_on_with(
        &self,
        id: Option<Uuid>,
        verb: Verb,
        ova: Option<PathBuf>,
        over: TakeOver,
    ) -> anyhow::Result<(Arrived, UpgradeStatus)> {
        let text = journal::last(self.store).await?.context("there is no upgrade of this deployment")?;
        let entries = parse(&text).context("reading the journal")?;
        let plan = plan_of(&entries).context("a journal without a plan")?;
        self.is_of_this_cluster(plan).await?;
        permits(verb, id, plan, &entries)?;
        let hold = self.take(verb.name(), over).await?;
        let gone = async {
            let mut journal = Journal::continued(&hold).await?;
            permits(verb, id, journal.plan(), journal.entries())?;
            self.go(&mut journal, &hold, ova, verb).await
        }
        .await;
        hold.release().await;
        gone
    }

    /// Where the upgrade stands; changes nothing.
    ///
    /// # Errors
    /// When there is none.
    pub async fn status(&self) -> anyhow::Result<UpgradeStatus> {
        let text = journal::last(self.store).await?.context("there is no upgrade of this deployment")?;
        let held_by = standing(self.store).await?.holder();
        status(parse(&text).context("reading the journal")?, held_by)
    }

    pub(super) async fn take(&self, what: &str, over: TakeOver) -> anyhow::Result<Hold<'_>> {
        let hold = Hold::take(self.store, what, over, &|words| self.tell(&Notice::TakingOver { words })).await?;
        journal::prune(&hold).await;
        Ok(hold)
    }

    pub(super) fn tell(&self, notice: &Notice<'_>) {
        (self.watch)(notice);
    }

    /// Turns the journal as the verb says, and goes.
    async fn go(
        &self,
        journal: &mut Journal<'_>,
        hold: &Hold<'_>,
        ova: Option<PathBuf>,
        verb: Verb,
    ) -> anyhow::Result<(Arrived, UpgradeStatus)> {
        let run = Run::new(self, hold, ova);
        let gone = match run.ask(journal, verb).await? {
            Some(arrived) => Ok(arrived),
            None => run.go(journal).await,
        };
        run.show_last(journal).await;
        let (arrived, mut status) = (gone?, status(journal.entries().to_vec(), None)?);
        // What could not be written down is said all the same.
        if let Arrived::Paused(reason) = &arrived {
            status.paused = Some(reason.clone());
        }
        Ok((arrived, status))
    }

    /// Refuses a journal of another cluster than the nodes': with a kubeconfig whose context has changed, the steps of
    /// one cluster's upgrade would be taken on the other. While the API is away nobody can say.
    async fn is_of_this_cluster(&self, plan: &Plan) -> anyhow::Result<()> {
        if plan.deployment != self.hypervisor.deployment() {
            let (of, here) = (plan.deployment, self.hypervisor.deployment());
            bail!("the journal is of the deployment {of}, and this is {here}");
        }
        match self.nodes.cluster().await {
            Ok(cluster) if cluster != plan.cluster => bail!(
                "the journal is of cluster {}, and the kubeconfig leads to cluster {cluster}: give that cluster's",
                plan.cluster
            ),
            _ => Ok(()),
        }
    }
}

/// Reads and verifies an OVA, which takes seconds.
async fn read(ova: &Path) -> anyhow::Result<Target> {
    let ova = ova.to_owned();
    tokio::task::spawn_blocking(move || Target::read(&ova)).await.context("verifying the OVA")?
}

fn status(entries: Vec<Entry>, held_by: Option<String>) -> anyhow::Result<UpgradeStatus> {
    let plan = plan_of(&entries).context("a journal without a plan")?.clone();
    let progress = Progress::of(&plan, &entries);
    let (next, (done, total)) = (progress.next(&plan), progress.count(&plan));
    let step = match next {
        Next::Take { step, .. } => Some(step),
        Next::End(_) | Next::Ended(_) | Next::NodeIsBack(_) => None,
    };
    Ok(UpgradeStatus {
        id: plan.id,
        direction: progress.direction,
        only: progress.only.map(|node| plan.nodes[node].name.clone()),
        reason: progress.reason,
        outcome: progress.outcome,
        waits_for_a_person: matches!(next, Next::NodeIsBack(_)),
        paused: progress.paused,
        done,
        total,
        next: step,
        held_by,
        plan,
        entries,
    })
}
