//! `kaas deploy`, `kaas destroy` and `kaas status`: a cluster from one file.

mod arguments;
mod confirm;
mod described;
mod file;
mod judge;
mod provider;
mod source;
mod words;

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use contract::deployer::PrivateKey;
use fleet::authority::TakeOver;
use fleet::deploy::{Arrived, ByKey, Deploy as Deployment, DeployStatus, Notice, Wish};
use fleet::hypervisor::Placement;
use fleet::node::Deployer;
use fleet::upgrade::Cancelled;
use tokio::sync::watch;

use self::arguments::Example;
pub use self::arguments::{Deploy, Described, Destroy};
use self::file::ClusterFile;
use self::judge::{Judged, Resolve, deployer_key, judge};
use self::provider::Place;
use self::words::{Outcome, Plan};
use crate::output::{json, result, say, warn};
use crate::ova::Output;
use crate::upgrade::{Ending, Signals, advised};

/// It cannot go on without a person; exit status 4.
const STOPPED: u8 = 4;
/// Not at an end; giving the command again goes on; exit status 3.
const PAUSED: u8 = 3;

const ONE: &str = include_str!("examples/one.toml");
const THREE: &str = include_str!("examples/three.toml");

/// `kaas deploy`. Exit statuses: 0 when the cluster runs, 3 when it waits for something, 4 when a person has to see to
/// something.
///
/// # Errors
/// Why it was refused or could not go on: all mistakes of the description at once.
pub fn deploy(arguments: &Deploy) -> anyhow::Result<ExitCode> {
    match arguments.example {
        Some(Example::One) => return result(ONE).map(|()| ExitCode::SUCCESS),
        Some(Example::Three) => return result(THREE).map(|()| ExitCode::SUCCESS),
        None => {}
    }
    let file = ClusterFile::read(arguments.file.as_deref().context("give a description with --file")?)?;
    // Judged as far as it is there, before a key is drawn or anybody is asked.
    let judged = judge(&file, Resolve::WhatIsThere)?;
    if arguments.dry_run {
        let exists = file.provider.find()?.is_some();
        let plan = Plan::of(&judged.wanted, &*file.provider, exists, judged.warnings);
        match arguments.output {
            Output::Json => json(&plan)?,
            Output::Text => result(&plan.text())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Judged { wanted, key, warnings } = judge(&file, Resolve::All)?;
    let key = key.context("there is no deployer's key")?;
    for warning in warnings {
        warn(&format!("warning: {warning}"));
    }
    let tell = |what: &str| arguments.output.tell(what);
    let place = file.provider.make(&wanted, &key, &tell)?;
    let run = Run {
        file: &file,
        what: "deploy",
        output: arguments.output,
        pause_limit: arguments.pause_limit,
        ending: Ending::WhereItCanBeContinued,
    };
    run.go(&place, Some(key), Wish::Deploy(&wanted), arguments.over.take())
}

/// `kaas destroy`. Exit statuses as of `deploy`.
///
/// # Errors
/// The cluster's name was not typed; or why it could not go on.
pub fn destroy(arguments: &Destroy) -> anyhow::Result<ExitCode> {
    let Described { file, output } = &arguments.described;
    let file = ClusterFile::read(file)?;
    let Some(place) = file.provider.find()? else {
        bail!("{} is not there: there is nothing of the cluster {}", file.provider.words(), file.name.value)
    };
    file.provider.may_destroy()?;
    confirm::typed(&file, arguments.confirm.as_deref(), arguments.data_disks)?;
    let run = Run {
        file: &file,
        what: "destroy",
        output: *output,
        pause_limit: arguments.pause_limit,
        ending: Ending::WhereItCanBeContinued,
    };
    // A command that was killed may have made the place alone.
    if run.is_empty(&place)? {
        file.provider.clear()?;
        output.tell(&format!("there is nothing of the cluster {} any more", file.name.value));
        return Ok(ExitCode::SUCCESS);
    }
    let wish = Wish::Destroy { cluster: &file.name.value, disks: arguments.data_disks };
    run.go(&place, None, wish, arguments.over.take())
}

/// `kaas status`. Exit statuses: 0 when the cluster is as it is to be, 3 when it is not.
///
/// # Errors
/// There is no such cluster, or it cannot be looked at.
pub fn status(arguments: &Described) -> anyhow::Result<ExitCode> {
    let file = ClusterFile::read(&arguments.file)?;
    let name = &file.name.value;
    let Some(place) = file.provider.find()? else {
        bail!("{} is not there: `kaas deploy` makes it", file.provider.words())
    };
    let run = Run { file: &file, what: "status", output: arguments.output, pause_limit: 0, ending: Ending::AtOnce };
    let key = deployer_key(&file.deployer_key, Resolve::WhatIsThere)?;
    let status = run.with(&place, key, async |deploy| deploy.status().await)?;
    let status = status.with_context(|| format!("nothing was begun for the cluster {name} by `kaas deploy`"))?;
    match arguments.output {
        Output::Json => json(&status)?,
        Output::Text => result(&words::status(&status))?,
    }
    Ok(if status.done { ExitCode::SUCCESS } else { ExitCode::from(PAUSED) })
}

/// One command on a cluster.
struct Run<'a> {
    file: &'a ClusterFile,
    what: &'a str,
    output: Output,
    pause_limit: u64,
    ending: Ending,
}

impl Run<'_> {
    /// Notes a wish, goes on until it is so, and says what came of it.
    fn go(&self, place: &Place, key: Option<PrivateKey>, wish: Wish<'_>, over: TakeOver) -> anyhow::Result<ExitCode> {
        let gone = match self.with(place, key, async |deploy| deploy.go(wish, over).await) {
            Err(error) if error.is::<Cancelled>() => {
                warn(&format!("{error:#}"));
                return Ok(ExitCode::from(PAUSED));
            }
            gone => gone.map_err(advised)?,
        };
        self.arrived(&gone)
    }

    /// Hands the kubeconfig over or removes an empty place, and says where a run has come to.
    fn arrived(&self, (arrived, status): &(Arrived, DeployStatus)) -> anyhow::Result<ExitCode> {
        let kubeconfig = &self.file.kubeconfig;
        match arrived {
            Arrived::Up(given) => fleet::files::write(kubeconfig, given)?,
            Arrived::Gone if status.left.is_empty() => self.file.provider.clear()?,
            _ => {}
        }
        let exit = exit_status(arrived);
        if let Output::Json = self.output {
            json(&Outcome::of(arrived, kubeconfig, status))?;
            return Ok(ExitCode::from(exit));
        }
        let mut text = words::arrived(arrived, kubeconfig, status);
        if let Arrived::Up(_) = arrived {
            self.file.provider.ways_in()?.iter().for_each(|way| text += &format!("\n{way}"));
        }
        if matches!(arrived, Arrived::Paused(_) | Arrived::Stopped(_)) && !status.formed {
            let started = status.nodes.iter().filter(|node| node.power.is_some());
            for said in started.flat_map(|node| self.file.provider.complaints(&node.name)) {
                text += &format!("\n  {said}");
            }
        }
        match exit {
            0 => say(&text),
            PAUSED => warn(&text),
            _ => warn(&format!("error: {text}")),
        }
        Ok(ExitCode::from(exit))
    }

    /// Whether there is neither a VM of the cluster nor a note of one.
    fn is_empty(&self, place: &Place) -> anyhow::Result<bool> {
        self.with(place, None, async |deploy| {
            Ok(deploy.status().await?.is_none() && deploy.hypervisor.vms().await?.is_empty())
        })
    }

    fn with<T>(
        &self,
        place: &Place,
        key: Option<PrivateKey>,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let deployer = |key| match place.network.clone() {
            Some(network) => Deployer::from_inside(key, network),
            None => Ok(Deployer::new(key)),
        };
        let guests = ByKey(key.map(deployer).transpose()?);
        let (cancel, cancelled) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let deployment = Deployment {
                hypervisor: &*place.hypervisor,
                guests: &guests,
                store: &place.store,
                placement: Placement::default(),
                what: self.what,
                watch: &|notice: &Notice<'_>| self.output.tell(&words::notice(notice)),
                pace: Duration::from_secs(1),
                pause_limit: Duration::from_secs(self.pause_limit),
                cancelled,
            };
            let signals = Signals::taken()?;
            tokio::select! {
                acted = act(&deployment) => acted,
                // What is being done on other threads is not waited for.
                status = signals.ended(self.ending, &cancel) => std::process::exit(status.into()),
            }
        })
    }
}

fn exit_status(arrived: &Arrived) -> u8 {
    match arrived {
        Arrived::Up(_) | Arrived::Gone => 0,
        Arrived::Paused(_) | Arrived::Cancelled => PAUSED,
        Arrived::Stopped(_) => STOPPED,
    }
}
