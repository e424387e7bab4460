//! Runs `fleet`'s deploy for the control-plane nodes of one cluster: it creates, powers on or removes them. A run ends when it is
//! done, or has to wait.

use fleet::control_plane::{Deploy, DeployStatus, Goal, Guests, Notice, RunOutcome};
use fleet::hypervisor::Placement;
use fleet::lease::TakeOver;
use kube::ResourceExt;
use tokio::sync::watch;

use super::Reconciler;
use super::fleet_run::{CurrentActivity, PACE, PAUSE_LIMIT, RunResult, TELLING};
use super::place::ProviderSession;
use crate::context::ReconcileError;
use crate::decisions::{ClusterCondition, leaving};
use crate::objects::{TenantCluster, TenantClusterReason};
use crate::reach::ClusterStore;
use crate::term::Term;

pub(super) enum DeployResult {
    /// Where the run ended, and the state of the cluster.
    Arrived(RunOutcome, Box<DeployStatus>),
    /// The run was asked to end before it had begun.
    Cancelled,
    /// The run was rejected, or could not begin: the reason.
    Refused(String),
}

/// Records the current activity of a run.
fn told(words: &CurrentActivity, notice: &Notice<'_>) {
    let now = match notice {
        Notice::TakingOver(words) => return log::info!("{words}"),
        Notice::Staging => "laying the image ready".to_owned(),
        Notice::Begun(action) => action.to_string(),
        Notice::Waits(wait) => {
            log::debug!("waiting: {wait}");
            return words.are(wait.to_string());
        }
    };
    log::info!("{now}");
    words.are(now);
}

/// The conditions of a cluster during a run.
fn said(wish: Goal<'_>, words: String) -> Vec<ClusterCondition> {
    match wish {
        Goal::Deploy(_) => vec![(TenantClusterReason::ControlPlaneChanges, words)],
        Goal::Destroy { .. } => leaving(&words),
    }
}

/// The place belongs to the Provider, so it is not removed.
fn stays() -> anyhow::Result<()> {
    Ok(())
}

/// The Secret with the kubeconfig is written once all control-plane nodes exist.
fn is_handed_over_at_the_end(_kubeconfig: &str) {}

impl Reconciler<'_> {
    fn store(&self, cluster: &TenantCluster) -> ClusterStore<'_> {
        ClusterStore::new(self.objects, &cluster.namespace().unwrap_or_default(), &cluster.name_any(), self.term)
    }

    /// Runs `fleet` for a cluster. The run ends with the term: the next leader continues from the stored record. If the desired
    /// state changes, it ends as soon as it can be resumed.
    pub(super) async fn run_deploy(
        &self,
        cluster: &TenantCluster,
        opened: &ProviderSession,
        guests: &dyn Guests,
        wish: Goal<'_>,
    ) -> Result<DeployResult, ReconcileError> {
        let (store, (end, cancelled), words) = (self.store(cluster), watch::channel(false), CurrentActivity::default());
        let told = |notice: &Notice<'_>| told(&words, notice);
        let deploy = deploy(opened, guests, (&store, self.term), placement(wish), &told, cancelled);
        // Only former controllers have worked on a cluster, and their calls have ended.
        let going = Box::pin(deploy.go(wish, TakeOver::FromAnyone));
        let otherwise = Box::pin(self.until_superseded(cluster));
        let tells = Box::pin(self.tells(cluster, wish, &words));
        let (gone, _) = self.run_until_superseded(going, &end, otherwise, tells).await?;
        Ok(match RunResult::of(gone)? {
            RunResult::Arrived((arrived, status)) => DeployResult::Arrived(arrived, Box::new(status)),
            RunResult::Cancelled => DeployResult::Cancelled,
            RunResult::Failed(error) => DeployResult::Refused(format!("{error:#}")),
        })
    }

    /// Writes the activity of a run, until the future is dropped.
    async fn tells(&self, cluster: &TenantCluster, wish: Goal<'_>, words: &CurrentActivity) {
        let mut before = String::new();
        loop {
            tokio::time::sleep(TELLING).await;
            let now = words.now();
            if now != before {
                if let Err(trouble) = self.note(cluster, &said(wish, now.clone()), |_| ()).await {
                    log::debug!("saying what is done: {trouble}");
                }
                before = now;
            }
        }
    }

    /// The state of the control-plane nodes. `None` if nothing was begun. Read-only.
    pub(super) async fn seen(
        &self,
        cluster: &TenantCluster,
        opened: &ProviderSession,
        guests: &dyn Guests,
    ) -> Result<Option<DeployStatus>, ReconcileError> {
        let (store, cancelled) = (self.store(cluster), watch::channel(false).1);
        let seen = deploy(opened, guests, (&store, self.term), Placement::default(), &|_| (), cancelled).status().await;
        self.term.ensure_active()?;
        Ok(seen?)
    }

    /// The numbers of a cluster's leases in ascending order.
    pub(super) async fn lease_numbers(&self, cluster: &TenantCluster) -> Result<Vec<u64>, ReconcileError> {
        use fleet::lease::Store as _;
        let mut numbers = self.store(cluster).numbers().await?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(super) async fn remove_lease(&self, cluster: &TenantCluster, number: u64) -> Result<(), ReconcileError> {
        use fleet::lease::Store as _;
        Ok(self.store(cluster).remove(number).await?)
    }
}

fn placement(wish: Goal<'_>) -> Placement {
    match wish {
        Goal::Deploy(wanted) => wanted.placement.clone(),
        Goal::Destroy { .. } => Placement::default(),
    }
}

fn deploy<'d>(
    opened: &'d ProviderSession,
    guests: &'d dyn Guests,
    (store, term): (&'d ClusterStore<'d>, &'d Term),
    placement: Placement,
    watch: &'d (dyn Fn(&Notice<'_>) + Sync),
    cancelled: watch::Receiver<bool>,
) -> Deploy<'d> {
    Deploy {
        hypervisor: &*opened.hypervisor,
        guests,
        store,
        placement,
        what: "a TenantCluster",
        watch,
        pace: PACE,
        pause_limit: PAUSE_LIMIT,
        empties: &stays,
        renewed: &is_handed_over_at_the_end,
        restorable: Some(term.unfinished()),
        cancelled,
    }
}
