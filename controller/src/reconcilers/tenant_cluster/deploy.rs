//! `fleet` at work on the control nodes of one cluster: one run, which ends once all is so, or something has to be waited for.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet::authority::TakeOver;
use fleet::deploy::{Arrived, Deploy, DeployStatus, Guests, Notice, Wish};
use fleet::hypervisor::Placement;
use kube::ResourceExt;
use tokio::sync::watch;

use super::Work;
use super::place::Opened;
use crate::context::Trouble;
use crate::decisions::{Said, leaving};
use crate::objects::{TenantCluster, TenantClusterReason};
use crate::reach::{ClusterStore, Failure};

/// The pause between two looks, and how long a run waits for what cannot be done now. Each run takes a hold; and as long as one waits,
/// nothing of the cluster's object is looked at.
const PACE: Duration = Duration::from_secs(2);
const PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// So often a run that is under way says in the cluster's status what it does, if that is new.
const TELLING: Duration = Duration::from_secs(5);

/// What became of a run.
pub(super) enum Ran {
    /// Where it has come to.
    Arrived(Arrived, DeployStatus),
    /// It was asked to end before it had begun.
    Cancelled,
    /// It was refused, or could not begin: why.
    Refused(String),
}

/// What a run does now, in words.
#[derive(Default)]
struct Doing(Mutex<String>);

impl Doing {
    fn told(&self, notice: &Notice<'_>) {
        let words = match notice {
            Notice::TakingOver(words) => return log::info!("{words}"),
            Notice::Staging => "laying the image ready".to_owned(),
            Notice::Begun(action) => action.to_string(),
            Notice::Waits(wait) => {
                log::debug!("waiting: {wait}");
                return self.is(wait.to_string());
            }
        };
        log::info!("{words}");
        self.is(words);
    }

    fn is(&self, words: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    fn now(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a cluster says of itself while a run does this for it.
fn said(wish: Wish<'_>, words: String) -> Vec<Said> {
    match wish {
        Wish::Deploy(_) => vec![(TenantClusterReason::ControlNodesChange, words)],
        Wish::Destroy { .. } => leaving(&words),
    }
}

/// The place goes with its Provider.
fn stays() -> anyhow::Result<()> {
    Ok(())
}

impl Work<'_> {
    fn store(&self, cluster: &TenantCluster) -> ClusterStore<'_> {
        ClusterStore::new(self.objects, &cluster.namespace().unwrap_or_default(), &cluster.name_any(), self.term)
    }

    /// Has `fleet` go on with a cluster. It ends with the term: whoever leads then goes on from what is kept. Where a person wants
    /// something else meanwhile, it ends as soon as it can be gone on with, and does not wait for what nobody wants any more.
    pub(super) async fn go(
        &self,
        cluster: &TenantCluster,
        opened: &Opened,
        guests: &dyn Guests,
        wish: Wish<'_>,
    ) -> Result<Ran, Trouble> {
        let (store, (end, cancelled), doing) = (self.store(cluster), watch::channel(false), Doing::default());
        let told = |notice: &Notice<'_>| doing.told(notice);
        let deploy = deploy(opened, guests, &store, placement(wish), &told, cancelled);
        // Nobody else works on a cluster but controllers before this one, of which nothing more is begun.
        let going = deploy.go(wish, TakeOver::FromAnyone);
        tokio::pin!(going);
        let mut is_heard = false;
        let gone = loop {
            tokio::select! {
                gone = &mut going => break gone,
                () = self.term.ended() => {
                    end.send_replace(true);
                    return Err(self.over());
                }
                () = self.is_wanted_otherwise(cluster), if !is_heard => {
                    is_heard = true;
                    end.send_replace(true);
                }
                () = self.tells(cluster, wish, &doing) => {}
            }
        };
        self.term.may()?;
        match gone {
            Ok((arrived, status)) => Ok(Ran::Arrived(arrived, status)),
            // Who has taken over, or an API server that does not answer: that is not what the cluster waits for.
            Err(error) if error.is::<fleet::authority::Lost>() || is_of_api(&error) => Err(Trouble::Other(error)),
            Err(error) if error.is::<fleet::Cancelled>() => Ok(Ran::Cancelled),
            Err(error) => Ok(Ran::Refused(format!("{error:#}"))),
        }
    }

    /// Says what a run does, for as long as it does.
    async fn tells(&self, cluster: &TenantCluster, wish: Wish<'_>, doing: &Doing) {
        let mut before = String::new();
        loop {
            tokio::time::sleep(TELLING).await;
            let now = doing.now();
            if now != before {
                if let Err(trouble) = self.note(cluster, &said(wish, now.clone()), |_| ()).await {
                    log::debug!("saying what is done: {trouble}");
                }
                before = now;
            }
        }
    }

    /// Where the control nodes stand; none if nothing was begun. Changes nothing.
    pub(super) async fn seen(
        &self,
        cluster: &TenantCluster,
        opened: &Opened,
        guests: &dyn Guests,
    ) -> Result<Option<DeployStatus>, Trouble> {
        let (store, cancelled) = (self.store(cluster), watch::channel(false).1);
        let seen = deploy(opened, guests, &store, Placement::default(), &|_| (), cancelled).status().await;
        self.term.may()?;
        Ok(seen?)
    }

    /// The numbers of a cluster's holds, the lowest first.
    pub(super) async fn holds(&self, cluster: &TenantCluster) -> Result<Vec<u64>, Trouble> {
        use fleet::authority::Store as _;
        let mut numbers = self.store(cluster).numbers().await?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(super) async fn remove_hold(&self, cluster: &TenantCluster, number: u64) -> Result<(), Trouble> {
        use fleet::authority::Store as _;
        Ok(self.store(cluster).remove(number).await?)
    }

    pub(super) fn over(&self) -> Trouble {
        self.term.may().err().map_or_else(|| Trouble::Other(anyhow::anyhow!("the term goes on")), Trouble::Ended)
    }
}

/// Whether it is the API server that failed.
pub(super) fn is_of_api(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Failure>())
}

fn placement(wish: Wish<'_>) -> Placement {
    match wish {
        Wish::Deploy(wanted) => wanted.placement.clone(),
        Wish::Destroy { .. } => Placement::default(),
    }
}

fn deploy<'d>(
    opened: &'d Opened,
    guests: &'d dyn Guests,
    store: &'d ClusterStore<'d>,
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
        cancelled,
    }
}
