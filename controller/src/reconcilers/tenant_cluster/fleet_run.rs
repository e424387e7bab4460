//! Runs of `fleet`: for a cluster's control-plane nodes, an Operation or a pool. A run lasts until it ends by itself, has to wait,
//! the term ends, or it is superseded. The last part creates, powers on or removes control-plane nodes.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet::control_plane::{Deploy, DeployStatus, Goal, Notice, PowerProof, RunOutcome};
use fleet::hypervisor::Placement;
use fleet::lease::TakeOver;
use kube::ResourceExt;
use tokio::sync::watch;

use super::{Reconciler, Round};
use crate::context::ReconcileError;
use crate::decisions::{ClusterCondition, leaving};
use crate::objects::{TenantCluster, TenantClusterReason};
use crate::reach::{ClusterStore, Failure};

/// The pause between two looks, and the limit of a wait. Each run acquires a lease, and the cluster's object is not reconciled
/// while one waits.
pub(super) const PACE: Duration = Duration::from_secs(2);
pub(super) const PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// How often a run writes its activity, if that has changed.
pub(super) const TELLING: Duration = Duration::from_secs(5);

/// The activity of a run, as text.
#[derive(Default)]
pub(super) struct CurrentActivity(Mutex<String>);

impl CurrentActivity {
    pub(super) fn are(&self, words: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    pub(super) fn now(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) enum RunResult<T> {
    Arrived(T),
    /// It was asked to end.
    Cancelled,
    /// It was rejected, or cannot be done now: the reason.
    Failed(anyhow::Error),
}

impl<T> RunResult<T> {
    /// From the end of a run.
    ///
    /// # Errors
    /// The lease was taken over, or the API server does not answer. The cluster does not report these.
    pub(super) fn of(ended: anyhow::Result<T>) -> Result<Self, ReconcileError> {
        match ended {
            Ok(arrived) => Ok(Self::Arrived(arrived)),
            Err(error) if error.is::<fleet::Cancelled>() => Ok(Self::Cancelled),
            Err(error) if error.is::<fleet::lease::Lost>() || is_of_api(&error) => Err(ReconcileError::Other(error)),
            Err(error) => Ok(Self::Failed(error)),
        }
    }
}

fn is_of_api(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Failure>())
}

impl Reconciler<'_> {
    /// Polls a run until it ends, together with `tells`. Once `otherwise` returns, `end` asks the run to end where it can be
    /// resumed. Returns the run's result, and whether it was asked. The futures are large, so each is boxed.
    ///
    /// # Errors
    /// The term is over. The run is dropped: the next leader continues from the stored record.
    pub(in crate::reconcilers) async fn run_until_superseded<T>(
        &self,
        mut going: Pin<Box<impl Future<Output = T>>>,
        end: &watch::Sender<bool>,
        mut otherwise: Pin<Box<impl Future<Output = ()>>>,
        mut tells: Pin<Box<impl Future<Output = ()>>>,
    ) -> Result<(T, bool), ReconcileError> {
        let (mut is_heard, mut is_told) = (false, false);
        let gone = loop {
            tokio::select! {
                gone = &mut going => break gone,
                () = self.term.ended() => {
                    end.send_replace(true);
                    return Err(self.over());
                }
                () = &mut otherwise, if !is_heard => {
                    is_heard = true;
                    end.send_replace(true);
                }
                () = &mut tells, if !is_told => is_told = true,
            }
        };
        self.term.ensure_active()?;
        Ok((gone, is_heard))
    }

    /// The result of a future. `None` after the limit.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        doing: Pin<Box<impl Future<Output = T>>>,
    ) -> Result<Option<T>, ReconcileError> {
        let ended = tokio::select! {
            ended = tokio::time::timeout(limit, doing) => ended.ok(),
            () = self.term.ended() => return Err(self.over()),
        };
        self.term.ensure_active()?;
        Ok(ended)
    }

    /// The error of a term that is over.
    pub(super) fn over(&self) -> ReconcileError {
        self.term
            .ensure_active()
            .err()
            .map_or_else(|| ReconcileError::Other(anyhow::anyhow!("the term goes on")), ReconcileError::Ended)
    }

    pub(super) fn store(&self, cluster: &TenantCluster) -> ClusterStore<'_> {
        ClusterStore::new(self.objects, &cluster.namespace().unwrap_or_default(), &cluster.name_any(), self.term)
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

pub(super) enum DeployResult {
    /// Where the run ended, and the state of the cluster.
    Arrived(RunOutcome, Box<DeployStatus>),
    /// The run was asked to end before it had begun.
    Cancelled,
    /// The run was rejected, or could not begin: the reason.
    Refused(String),
}

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
fn said(goal: Goal<'_>, words: String) -> Vec<ClusterCondition> {
    match goal {
        Goal::Replace { .. } => vec![(TenantClusterReason::ReplacingNode, words)],
        Goal::Deploy(_) | Goal::Continue => vec![(TenantClusterReason::ControlPlaneChanges, words)],
        Goal::Destroy { .. } => leaving(TenantClusterReason::Deleting, &words),
    }
}

impl Round<'_> {
    /// Runs `fleet` for a cluster. The run ends with the term: the next leader continues from the stored record. If the desired
    /// state changes, it ends as soon as it can be resumed.
    pub(super) async fn run_deploy(&self, goal: Goal<'_>) -> Result<DeployResult, ReconcileError> {
        let (store, (end, cancelled), words) =
            (self.store(self.cluster), watch::channel(false), CurrentActivity::default());
        let placement = match goal {
            Goal::Deploy(wanted) | Goal::Replace { wanted, .. } => wanted.placement.clone(),
            Goal::Continue | Goal::Destroy { .. } => Placement::default(),
        };
        let told = |notice: &Notice<'_>| told(&words, notice);
        let deploy = self.deploy(&store, placement, &told, cancelled);
        // Only former controllers have worked on a cluster, and their calls have ended.
        let going = Box::pin(deploy.go(goal, TakeOver::FromAnyone));
        let otherwise = Box::pin(self.until_superseded(self.cluster));
        let tells = Box::pin(self.tells(goal, &words));
        let (gone, _) = self.run_until_superseded(going, &end, otherwise, tells).await?;
        Ok(match RunResult::of(gone)? {
            RunResult::Arrived((arrived, status)) => DeployResult::Arrived(arrived, Box::new(status)),
            RunResult::Cancelled => DeployResult::Cancelled,
            RunResult::Failed(error) => DeployResult::Refused(format!("{error:#}")),
        })
    }

    /// Writes the activity of a run, until the future is dropped.
    async fn tells(&self, goal: Goal<'_>, words: &CurrentActivity) {
        let mut before = String::new();
        loop {
            tokio::time::sleep(TELLING).await;
            let now = words.now();
            if now != before {
                if let Err(trouble) = self.note(self.cluster, &said(goal, now.clone()), |_| ()).await {
                    log::debug!("saying what is done: {trouble}");
                }
                before = now;
            }
        }
    }

    /// The state of the control-plane nodes. `None` if nothing was begun. Read-only.
    pub(super) async fn seen(&self) -> Result<Option<DeployStatus>, ReconcileError> {
        let (store, cancelled) = (self.store(self.cluster), watch::channel(false).1);
        let seen = self.deploy(&store, Placement::default(), &|_| (), cancelled).status().await;
        self.term.ensure_active()?;
        Ok(seen?)
    }

    /// Whether the VM of a control-plane node runs. Read-only.
    pub(super) async fn power_proof(&self, node: &str) -> Result<anyhow::Result<PowerProof>, ReconcileError> {
        let (store, cancelled) = (self.store(self.cluster), watch::channel(false).1);
        let proof = self.deploy(&store, Placement::default(), &|_| (), cancelled).proof(node).await;
        self.term.ensure_active()?;
        Ok(proof)
    }

    fn deploy<'d>(
        &'d self,
        store: &'d ClusterStore<'d>,
        placement: Placement,
        watch: &'d (dyn Fn(&Notice<'_>) + Sync),
        cancelled: watch::Receiver<bool>,
    ) -> Deploy<'d> {
        Deploy {
            hypervisor: &*self.opened.hypervisor,
            guests: self.guests,
            store,
            placement,
            what: "a TenantCluster",
            watch,
            pace: PACE,
            pause_limit: PAUSE_LIMIT,
            // The place belongs to the Provider, so it is not removed.
            empties: &|| Ok(()),
            // The Secret with the kubeconfig is written once all control-plane nodes exist.
            renewed: &|_| (),
            restorable: Some(self.term.unfinished()),
            cancelled,
        }
    }
}
