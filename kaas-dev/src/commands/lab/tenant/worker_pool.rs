//! Runs a command on the workers of one tenant, and reports the result.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use contract::minor::Minor;
use fleet::Cancelled;
use fleet::hypervisor::{Hypervisor, Size};
use fleet::lease::DirectoryStore;
use fleet::nodes::Client;
use fleet::upgrade::Target;
use fleet::workers::{
    Cluster, Goal, Image, Notice, OvaImage, Placed, Pool, Rollout, RunOutcome, Site, Template, UnreachableCluster,
    Workers, WorkersStatus, cluster_minor, worker_minor,
};
use kaas::output::{PAUSED, STOPPED, ended, warn};
use kaas::signals::{SignalPolicy, until_ended};
use kaas::work::advised;
use lab::{Lab as OpenLab, LabHypervisor};

use super::arguments::{TenantArgs, UpArguments};
use super::words;

/// The default number of workers of a new tenant.
const FIRST: usize = 2;

/// The only pool of a lab's tenant.
const POOL: &str = "workers";

/// The image of an OVA for new workers.
pub fn ova_image(target: Target) -> OvaImage {
    let Target { name, image, digest, ova, kubernetes, .. } = target;
    OvaImage { image: Image { digest, name: format!("{name} {image}") }, ova, carries: kubernetes }
}

fn api(lab: &OpenLab) -> anyhow::Result<(Client, Site)> {
    Ok((Client::from_inside(&lab.kubeconfig()?, lab.network_namespace())?, lab.site()?))
}

/// The workers of one tenant, and the options of the command.
pub struct WorkerPool<'a> {
    lab: Arc<OpenLab>,
    at: &'a TenantArgs,
    /// The API of the tenant and the workers' site, or why the API cannot be asked.
    api: anyhow::Result<(Client, Site)>,
}

impl<'a> WorkerPool<'a> {
    /// The workers of a lab's tenant. An unreachable API is reported once a command needs it.
    pub(super) fn of(lab: OpenLab, at: &'a TenantArgs) -> Self {
        Self { api: api(&lab), lab: Arc::new(lab), at }
    }

    fn client(&self) -> anyhow::Result<&Client> {
        match &self.api {
            Ok((client, _)) => Ok(client),
            Err(why) => Err(anyhow::anyhow!("{why:#}")),
        }
    }

    pub(super) fn first(&self, target: Target, arguments: &UpArguments) -> anyhow::Result<Pool> {
        let OvaImage { image, ova, carries } = ova_image(target);
        let kubernetes = worker_minor(&carries, self.minor()?, None).map_err(|why| anyhow::anyhow!("{why}"))?;
        let template = Template {
            image,
            kubernetes: kubernetes.to_string(),
            size: Size { processors: 2, memory: 2048, data_disk: None },
            labels: BTreeMap::new(),
            taints: BTreeSet::new(),
        };
        let mut pool = Pool {
            name: POOL.to_owned(),
            prefix: self.at.name.clone(),
            count: arguments.workers.unwrap_or(FIRST),
            template,
            ova,
            carries,
            addresses: self.lab.worker_addresses(),
            rollout: Rollout::default(),
            last_index: 0,
            powers_on: false,
            keeps_lost: false,
            failed_joins: None,
            remove_first: BTreeSet::new(),
        };
        arguments.made.changes().apply(&mut pool);
        Ok(pool)
    }

    /// The minor version of the cluster's API servers, if all run the same one.
    pub(super) fn minor(&self) -> anyhow::Result<Minor> {
        let client = self.client()?;
        client.wait(cluster_minor(client))
    }

    /// The state of the workers. `None` before the first worker.
    pub(super) fn looked(&self) -> anyhow::Result<Option<WorkersStatus>> {
        self.with("lab tenant status", SignalPolicy::AtOnce, async |workers| workers.status().await)
    }

    pub(super) fn status(&self) -> anyhow::Result<ExitCode> {
        let status = self.looked()?.with_context(|| words::none_yet(&self.at.name))?;
        let disks = self.lab.kept_disks()?.into_iter();
        let kept: Vec<_> = disks.map(|(disk, path)| words::KeptDisk { disk, path }).collect();
        self.at.work.output.result(&words::StatusReport { status: &status, kept_disks: &kept }, || {
            let reasons = words::reasons(&status.waits, &status.stopped, &self.at.name);
            let unattended = words::unattended(&status, &self.at.name);
            words::status(&status) + &unattended + &reasons + &words::kept(&kept)
        })
    }

    /// Records the goal, runs until it is reached, and reports the result.
    pub(super) fn go(&self, what: &str, wish: &Goal) -> anyhow::Result<ExitCode> {
        self.go_with(what, wish, &|_| Ok(()))
    }

    /// As `go`. `note` stores a setting of the lab while no other command holds the lease.
    pub(super) fn go_with(
        &self,
        what: &str,
        wish: &Goal,
        note: &dyn Fn(&OpenLab) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        // A pause is only a record: it needs no API.
        if *wish != Goal::Pause {
            self.client()?;
        }
        let gone = self.with(what, SignalPolicy::WhereItCanBeContinued, async |workers| {
            workers.go_with(wish, self.at.work.over.take(), &|| note(&self.lab)).await
        });
        match gone {
            Err(error) if error.is::<Cancelled>() => {
                warn(&format!("{error:#}"));
                Ok(ExitCode::from(PAUSED))
            }
            gone => self.arrived(wish, &gone.map_err(advised)?),
        }
    }

    /// Reports the result of a run, and returns its exit status.
    fn arrived(&self, wish: &Goal, (arrived, status): &(RunOutcome, WorkersStatus)) -> anyhow::Result<ExitCode> {
        let exit = exit_status(wish, arrived, status);
        if self.at.work.output.value(&words::Outcome::of(arrived, status))? {
            return Ok(ExitCode::from(exit));
        }
        let mut text = words::arrived(arrived, status, &self.at.name);
        for wait in &status.stopped {
            let Some(worker) = &wait.worker else { continue };
            let said = self.lab.refusals_of(worker).into_iter().map(|said| format!("\n  {worker} says: {said}"));
            text.extend(said);
            text += &format!("\n  {worker}'s console log is {}", self.lab.console(worker).display());
        }
        Ok(ended(exit, &text))
    }

    fn with<T>(
        &self,
        what: &str,
        ending: SignalPolicy,
        act: impl AsyncFnOnce(&Workers<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let store = DirectoryStore::at(self.lab.workers());
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let away;
        let (cluster, site): (&dyn Cluster, Site) = match &self.api {
            Ok((client, site)) => (client, site.clone()),
            Err(why) => {
                away = UnreachableCluster(format!("{why:#}"));
                (&away, Site::default())
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let working = async |cancelled| {
            let beside = LabHypervisor::new(Arc::clone(&self.lab)).vms().await?.into_iter().next();
            let workers = Workers {
                hypervisor: &LabHypervisor::of_workers(Arc::clone(&self.lab), POOL),
                cluster,
                store: &store,
                beside,
                placed: &|_| Placed::default(),
                site,
                what,
                watch: &|notice: &Notice<'_>| self.at.work.output.tell(&words::notice(notice, &self.at.name)),
                clock: &clock,
                pace: Duration::from_secs(1),
                pause_limit: self.at.work.waiting.timeout,
                restorable: false,
                cancelled,
            };
            act(&workers).await
        };
        until_ended(&runtime, ending, working, || {})
    }
}

/// The exit status of a run. A requested pause is a success once no worker joins or leaves.
fn exit_status(wish: &Goal, arrived: &RunOutcome, status: &WorkersStatus) -> u8 {
    let moves = status.workers.iter().any(|worker| worker.state.moves());
    match arrived {
        RunOutcome::Done => 0,
        RunOutcome::Paused(_) if *wish == Goal::Pause && !moves => 0,
        RunOutcome::Paused(_) | RunOutcome::Cancelled => PAUSED,
        RunOutcome::Stopped(_) => STOPPED,
    }
}

#[cfg(test)]
mod tests {
    use fleet::workers::State;

    use super::*;

    #[test]
    fn exit_status_is_done_waiting_or_stopped() {
        let paused = || RunOutcome::Paused(Vec::new());
        let with = |wish: &Goal, arrived: &RunOutcome, state: State| {
            exit_status(wish, arrived, &words::tests::status(&[words::tests::worker("t-w1", state)]))
        };
        let of = |wish: &Goal, arrived: &RunOutcome| with(wish, arrived, State::Running);
        assert_eq!(of(&Goal::Add(1), &RunOutcome::Done), 0);
        assert_eq!(of(&Goal::GoOn, &RunOutcome::Cancelled), 3);
        assert_eq!(of(&Goal::GoOn, &paused()), 3);
        assert_eq!(of(&Goal::Pause, &paused()), 0);
        // A started action may not have ended.
        assert_eq!(with(&Goal::Pause, &paused(), State::Deleting), 3);
        assert_eq!(of(&Goal::GoOn, &RunOutcome::Stopped(Vec::new())), 4);
    }
}
