//! `kaas lab tenant …`: tenant clusters beside a control cluster, and their workers.

mod arguments;
mod words;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use fleet::authority::DirectoryStore;
use fleet::hypervisor::{Hypervisor, Placement, Size};
use fleet::node::Client;
use fleet::upgrade::{Cancelled, Target};
use fleet::workers::{
    Arrived, Image, Notice, Pool, Rollout, Template, Wish, Workers, WorkersStatus, cluster_minor, kubelet_minor,
};
use lab::{EngineRecord, Lab as OpenLab, LabHypervisor, Source, Tools, Unpacked, Up, Wishes, cache_directory};
use tokio::sync::watch;

pub use self::arguments::Tenant;
use self::arguments::{At, Made, TENANT_OVA, UpArguments, WorkerAddresses};
use super::{open_door, tools};
use crate::output::{json, result, say, warn};
use crate::ova::Output;
use crate::upgrade::{Ending, Signals, advised};

/// Ended otherwise than was asked for; exit status 4.
const STOPPED: u8 = 4;
/// Not at an end; resuming goes on; exit status 3.
const PAUSED: u8 = 3;

/// The one pool of a lab's tenant.
const POOL: &str = "workers";

/// Runs one of the commands. Exit statuses: 0 when it is done, 3 when it waits for something or somebody, 4 when workers
/// did not join.
///
/// # Errors
/// Why it was refused or could not go on.
pub fn run(state: &Path, command: Tenant) -> anyhow::Result<ExitCode> {
    let what = command.what();
    let open = |at: &At| OpenLab::open_tenant(state, &at.name);
    match command {
        Tenant::Up(arguments) => up(state, &arguments),
        Tenant::AddWorker { count, at } => Crew::of(open(&at)?, &at)?.go(what, &Wish::Add(count)),
        Tenant::RemoveWorker { worker, at } => Crew::of(open(&at)?, &at)?.go(what, &Wish::Remove(worker)),
        Tenant::ReplaceWorkers { ova, made, rollout, at } => {
            let crew = Crew::of(open(&at)?, &at)?;
            let target = Target::read(&lab::find_ova_of(&ova, TENANT_OVA)?)?;
            let template = Box::new(crew.template(&target, &made)?);
            crew.go(what, &Wish::Replace { template, ova: target.ova, rollout: rollout.rollout() })
        }
        Tenant::Pause(at) => Crew::of(open(&at)?, &at)?.go(what, &Wish::Pause),
        Tenant::Resume(at) => Crew::of(open(&at)?, &at)?.go(what, &Wish::GoOn),
        Tenant::Status(at) => Crew::of(open(&at)?, &at)?.status(),
        Tenant::ReplaceControlPlane { node, ova, data_disk, limit, at } => {
            let lab = open(&at)?;
            let say = |what: &str| at.say(what);
            let source =
                ova.map(|ova| unpacked(&lab::find_ova_of(&ova, TENANT_OVA)?, &lab.tools(), &say)).transpose()?;
            let replaced = lab.replace_node(&node, source, data_disk << 20)?;
            for disk in &replaced.disks {
                at.say(&format!("the disk {disk} of the lost node is kept; nobody holds it"));
            }
            at.say(&format!("{node} is on; its console log is {}", lab.console(&node).display()));
            // What Kubernetes says of a node of its name may still be of the lost one.
            let (limit, good) = (Duration::from_secs(limit * 60), ["test", "-e", "/run/kaas/good.json"]);
            lab::until(&format!("{node} to be found good"), limit, || {
                lab.run_inside(&node, &good, limit).map(|_| true)
            })?;
            lab.wait_until_ready(limit)?;
            match at.output {
                Output::Json => json(&serde_json::json!({"node": node, "vm": replaced.vm, "disks": replaced.disks}))?,
                Output::Text => result(&format!("{node} is a control node again"))?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn unpacked(ova: &Path, tools: &Tools, say: &dyn Fn(&str)) -> anyhow::Result<Source> {
    Ok(Source::Ova { unpacked: Unpacked::ensure(ova, &cache_directory()?, tools, say)? })
}

/// Makes what is not there yet: given again after it was killed, it goes on.
fn up(state: &Path, arguments: &UpArguments) -> anyhow::Result<ExitCode> {
    let (at, say) = (&arguments.at, |what: &str| arguments.at.say(what));
    let ova = lab::find_ova_of(&arguments.ova, TENANT_OVA)?;
    let target = Target::read(&ova)?;
    let lab = if OpenLab::exists(state, &at.name)? {
        OpenLab::open_tenant(state, &at.name)?
    } else {
        let tools = tools(arguments.tools.clone())?;
        let engine = arguments.engine.record(&tools, lab::Hardware::Quick)?;
        let workers = match arguments.worker_engine {
            None => engine,
            Some(workers) => workers.record(&tools, lab::Hardware::Quick)?,
        };
        import(state, arguments, unpacked(&ova, &Tools::at(&tools), &say)?, (engine, workers), tools)?
    };
    for node in &lab.plan().nodes {
        lab.power_on(&node.name)?;
        say(&format!("{} is on; its console log is {}", node.name, lab.console(&node.name).display()));
    }
    if let Err(error) = lab.wait_until_ready(Duration::from_secs(arguments.limit * 60)) {
        let kept: Vec<String> = lab.keep_evidence().iter().map(|path| path.display().to_string()).collect();
        return Err(error.context(format!("the tenant goes on running; see {}", kept.join(", "))));
    }
    say(&format!("kubeconfig: {}", open_door(&lab)?.display()));
    let crew = Crew::of(lab, at)?;
    let wish = match crew.looked()? {
        Some(_) => Wish::GoOn,
        None => Wish::Create(Box::new(Pool {
            name: POOL.to_owned(),
            prefix: at.name.clone(),
            count: arguments.workers,
            template: crew.template(&target, &arguments.made)?,
            ova: target.ova,
            addresses: crew.lab.worker_addresses(),
            rollout: Rollout::default(),
            made: 0,
        })),
    };
    crew.go("lab tenant up", &wish)
}

fn import(
    state: &Path,
    arguments: &UpArguments,
    source: Source,
    (engine, workers): (EngineRecord, EngineRecord),
    tools: std::path::PathBuf,
) -> anyhow::Result<OpenLab> {
    if arguments.worker_addresses == WorkerAddresses::Dhcp {
        lab::check_dhcp()?;
    }
    OpenLab::import_cluster(
        state,
        Up {
            wishes: Wishes {
                name: arguments.at.name.clone(),
                nodes: arguments.control_planes,
                properties: arguments.properties.iter().cloned().collect(),
                timeout_factor: engine.timeout_factor(),
                workers_by_dhcp: arguments.worker_addresses == WorkerAddresses::Dhcp,
                ..Wishes::default()
            },
            engine,
            replacements: workers,
            source,
            tools,
            memory: arguments.memory,
            processors: 2,
            data_disk: arguments.data_disk << 20,
            beside: Some(arguments.beside.clone()),
        },
    )
}

/// The workers of one tenant, and how they are told of.
struct Crew<'a> {
    lab: Arc<OpenLab>,
    at: &'a At,
    client: Client,
}

impl<'a> Crew<'a> {
    fn of(lab: OpenLab, at: &'a At) -> anyhow::Result<Self> {
        let client = Client::from_inside(&lab.kubeconfig()?, lab.network_namespace())?;
        Ok(Self { lab: Arc::new(lab), at, client })
    }

    /// What workers are made like from now on: from an image whose kubelet may join the cluster.
    fn template(&self, target: &Target, made: &Made) -> anyhow::Result<Template> {
        let cluster = self.client.wait(cluster_minor(&self.client))?;
        kubelet_minor(&target.kubernetes, cluster).map_err(|why| anyhow::anyhow!("{why}"))?;
        Ok(Template {
            image: Image { digest: target.digest.clone(), name: format!("{} {}", target.name, target.image) },
            kubernetes: cluster.to_string(),
            size: Size {
                processors: made.worker_processors,
                memory: made.worker_memory,
                data_disk: made.worker_data_disk.map(|size| size << 20),
            },
            labels: made.labels.iter().cloned().collect(),
            taints: made.taints.iter().cloned().collect(),
        })
    }

    fn looked(&self) -> anyhow::Result<Option<WorkersStatus>> {
        self.with("lab tenant status", Ending::AtOnce, async |workers| workers.status().await)
    }

    fn status(&self) -> anyhow::Result<ExitCode> {
        let status = self.looked()?.context("there are no workers yet; `kaas lab tenant up` makes them")?;
        match self.at.output {
            Output::Json => json(&status)?,
            Output::Text => result(&words::status(&status))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn go(&self, what: &str, wish: &Wish) -> anyhow::Result<ExitCode> {
        let gone =
            self.with(what, Ending::WhereItCanBeContinued, async |workers| workers.go(wish, self.at.over.take()).await);
        match gone {
            Err(error) if error.is::<Cancelled>() => {
                warn(&format!("{error:#}"));
                Ok(ExitCode::from(PAUSED))
            }
            gone => self.arrived(wish, &gone.map_err(advised)?),
        }
    }

    /// Says where a run has come to, and with which status to end. Who wanted a pause has it.
    fn arrived(&self, wish: &Wish, (arrived, status): &(Arrived, WorkersStatus)) -> anyhow::Result<ExitCode> {
        let exit = exit_status(wish, arrived);
        if let Output::Json = self.at.output {
            json(&words::Outcome::of(arrived, status))?;
            return Ok(ExitCode::from(exit));
        }
        let mut text = words::arrived(arrived, status);
        for wait in &status.stopped {
            let Some(worker) = &wait.worker else { continue };
            let said = self.lab.refusals_of(worker).into_iter().map(|said| format!("\n  {worker} says: {said}"));
            text.extend(said);
            text += &format!("\n  {worker}'s console log is {}", self.lab.console(worker).display());
        }
        match exit {
            0 => say(&text),
            PAUSED => warn(&text),
            _ => warn(&format!("error: {text}")),
        }
        Ok(ExitCode::from(exit))
    }

    fn with<T>(
        &self,
        what: &str,
        ending: Ending,
        act: impl AsyncFnOnce(&Workers<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let store = DirectoryStore::at(self.lab.workers());
        let (cancel, cancelled) = watch::channel(false);
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let site = self.lab.site()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let control = LabHypervisor::new(Arc::clone(&self.lab)).vms().await?;
            let beside = control.into_iter().next().context("the tenant has no control node to put workers beside")?;
            let workers = Workers {
                hypervisor: &LabHypervisor::of_workers(Arc::clone(&self.lab), POOL),
                cluster: &self.client,
                store: &store,
                beside,
                placement: Placement::default(),
                site,
                what,
                watch: &|notice: &Notice<'_>| self.at.say(&words::notice(notice)),
                clock: &clock,
                pace: Duration::from_secs(1),
                pause_limit: Duration::from_secs(self.at.pause_limit),
                cancelled,
            };
            let signals = Signals::taken()?;
            tokio::select! {
                acted = act(&workers) => acted,
                // What is being done on other threads is not waited for.
                status = signals.ended(ending, &cancel) => std::process::exit(status.into()),
            }
        })
    }
}

fn exit_status(wish: &Wish, arrived: &Arrived) -> u8 {
    match arrived {
        Arrived::Done => 0,
        Arrived::Paused(waits)
            if *wish == Wish::Pause && waits.iter().all(|wait| wait.reason.code == words::PAUSED) =>
        {
            0
        }
        Arrived::Paused(_) | Arrived::Cancelled => PAUSED,
        Arrived::Stopped(_) => STOPPED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_says_done_waiting_or_stopped() {
        assert_eq!(exit_status(&Wish::Add(1), &Arrived::Done), 0);
        assert_eq!(exit_status(&Wish::GoOn, &Arrived::Cancelled), 3);
        assert_eq!(exit_status(&Wish::GoOn, &Arrived::Paused(Vec::new())), 3);
        assert_eq!(exit_status(&Wish::Pause, &Arrived::Paused(Vec::new())), 0);
        assert_eq!(exit_status(&Wish::GoOn, &Arrived::Stopped(Vec::new())), 4);
    }
}
