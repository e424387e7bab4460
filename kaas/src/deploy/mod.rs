//! `kaas deploy`, `kaas destroy` and `kaas status`: a cluster from one file.

mod arguments;
mod confirm;
mod judge;
mod tenants;
mod words;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use contract::deployer::PrivateKey;
use fleet::Cancelled;
use fleet::control_plane::{
    ByKey, Deploy as Deployment, DeployStatus, Goal, MadeOtherwise, Notice, RunOutcome, UnattachedDisk, begun,
};
use fleet::hypervisor::Vm;
use fleet::lease::{LeaseState, TakeOver, standing};
use fleet::nodes::clean;
use image::document::Mistakes;
use uuid::Uuid;
use zeroize::Zeroizing;

use self::arguments::Example;
pub use self::arguments::{ClusterFileArgs, Deploy, Destroy};
use self::confirm::DestroyConfirmation;
pub use self::judge::existing_deployer_key;
use self::judge::{Resolve, ResolvedFile, another_key, begun_with, judge};
use self::words::{Outcome, Plan};
use crate::cluster_file::{ClusterBackend, ClusterFile, SiteSession, schema};
use crate::output::{Output, PAUSED, STOPPED, ended, json, result, warn};
use crate::signals::SignalPolicy;
use crate::upgrade::advised;
use crate::work::{Work, told};

const ONE: &str = include_str!("examples/one.toml");
const THREE: &str = include_str!("examples/three.toml");
const VSPHERE: &str = include_str!("examples/vsphere.toml");

/// `kaas deploy`. Exit statuses: 0 when the cluster runs, 3 when it waits for something, 4 when a person has to see to
/// something.
///
/// # Errors
/// Why it was refused or could not go on: all mistakes of the description at once.
pub fn deploy(arguments: &Deploy) -> anyhow::Result<ExitCode> {
    match arguments.example {
        Some(Example::One) => return result(ONE).map(|()| ExitCode::SUCCESS),
        Some(Example::Three) => return result(THREE).map(|()| ExitCode::SUCCESS),
        Some(Example::Vsphere) => return result(VSPHERE).map(|()| ExitCode::SUCCESS),
        None if arguments.schema => {
            return json(&schema()).map(|()| ExitCode::SUCCESS);
        }
        None => {}
    }
    let file = ClusterFile::read(arguments.file.as_deref().context("give a description with --file")?)?;
    // Judged as far as it is there, before a key is drawn, anybody is asked or anything is reached.
    let judged = judge(&file, Resolve::WhatIsThere)?;
    let site = SiteSession::of(&file)?;
    let mut checked = site.check(&judged.wanted, file.written())?;
    if !checked.mistakes.is_empty() {
        let mut mistakes = std::mem::take(&mut checked.mistakes);
        mistakes.sort_by_key(|mistake| mistake.line);
        return Err(Mistakes(mistakes).into());
    }
    let run = Run::working(&file, &site, "deploy", &arguments.work);
    let FormerRun { resolve, another_key, untold } = run.begun(&judged, arguments.work.over.take())?;
    checked.warnings.extend(another_key);
    if arguments.dry_run {
        checked.warnings.extend(untold);
        let plan = Plan::of(&judged.wanted, &file, judged.warnings, checked);
        match arguments.work.output {
            Output::Json => json(&plan)?,
            Output::Text => result(&plan.text())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let ResolvedFile { wanted, key, warnings } = judge(&file, resolve)?;
    let key = key.context("there is no deployer's key")?;
    for warning in warnings.into_iter().chain(checked.warnings) {
        warn(&format!("warning: {warning}"));
    }
    let tell = |what: &str| arguments.work.output.tell(what);
    let place = site.make(&wanted, &key, &tell)?;
    run.go(&place, Some(key), Goal::Deploy(&wanted), arguments.work.over.take())
}

/// `kaas destroy`. Exit statuses as of `deploy`.
///
/// # Errors
/// The cluster's name was not typed; or why it could not go on.
pub fn destroy(arguments: &Destroy) -> anyhow::Result<ExitCode> {
    let file = ClusterFile::read(&arguments.file)?;
    let site = SiteSession::of(&file)?;
    let Some(place) = site.find()? else {
        bail!("{} is not there: there is nothing of the cluster {}", site.words(), file.name.value)
    };
    site.may_destroy()?;
    let (name, over) = (&file.name.value, arguments.work.over.take());
    let run = Run::working(&file, &site, "destroy", &arguments.work);
    // Until the name is confirmed it only looks: who asks it to end now has not said that anything goes.
    let looks = Run { ending: SignalPolicy::AtOnce, ..run };
    let also = looks.named(&place, &arguments.also_vm)?;
    let unheld = if arguments.data_disks {
        looks.with(&place, None, async |deploy| deploy.unheld().await).map_err(advised)?
    } else {
        UnattachedDisk::default()
    };
    let copies = looks.with(&place, None, async |deploy| deploy.copies().await).map_err(advised)?;
    // Looked for now: once the cluster is gone nothing keeps that from being said.
    let templates = looks.templates();
    let going = DestroyConfirmation {
        also: also.iter().map(words::goes_as_well).collect(),
        left: unheld.goes.iter().map(words::disk_goes_as_well).collect(),
        doubtful: unheld.doubtful.iter().map(words::disk_in_doubt).collect(),
        held: unheld.held.iter().map(words::disk_held).collect(),
        copies: copies.iter().map(words::copy_stays).collect(),
        tenants: looks.tenants(&place)?,
        ..DestroyConfirmation::of(name, &*site, arguments.data_disks)
    };
    let given = arguments.confirm.clone();
    if given.is_some() {
        // Nobody is asked: what would stand in the question is told.
        going.named().for_each(|named| run.output.tell(named));
    }
    // On a thread of its own: Ctrl-C is heard while it waits for the answer.
    site.run(SignalPolicy::AtOnce, async |_| {
        tokio::task::spawn_blocking(move || going.confirmed(given.as_deref())).await.context("asking")?
    })?;
    let (disks, UnattachedDisk { goes, doubtful, held }) = (arguments.data_disks, &unheld);
    let wish = Goal::Destroy { cluster: name, disks, left: goes, doubtful, held, also: &also };
    // One run: who asks it to end while it looks whether there is only the place has asked all of it.
    let gone = run.with(&place, None, async |deploy| {
        // A command that was killed may have made the place alone.
        if deploy.remove_empty(over).await? { Ok(None) } else { deploy.go(wish, over).await.map(Some) }
    });
    match gone {
        Err(error) if error.is::<Cancelled>() => Ok(asked_to_end(&error)),
        Err(error) => Err(advised(error)),
        Ok(Some(gone)) => run.arrived(&gone, None, templates),
        Ok(None) => {
            run.output.tell(&format!("there is nothing of the cluster {name} any more"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// `kaas status`. Exit statuses: 0 when the cluster is as it is to be, 3 when it is not.
///
/// # Errors
/// There is no such cluster, or it cannot be looked at.
pub fn status(arguments: &ClusterFileArgs) -> anyhow::Result<ExitCode> {
    let file = ClusterFile::read(&arguments.file)?;
    let name = &file.name.value;
    let site = SiteSession::of(&file)?;
    let Some(place) = site.find()? else { bail!("{} is not there: `kaas deploy` makes it", site.words()) };
    let ending = SignalPolicy::AtOnce;
    let run =
        Run { file: &file, site: &site, what: "status", output: arguments.output, pause_limit: Duration::ZERO, ending };
    let key = existing_deployer_key(&file.deployer_key)?;
    let status = run.with(&place, key, async |deploy| deploy.status().await)?;
    let status = status.with_context(|| format!("nothing was begun for the cluster {name} by `kaas deploy`"))?;
    match arguments.output {
        Output::Json => json(&status)?,
        Output::Text => result(&words::status(&status))?,
    }
    Ok(if status.done { ExitCode::SUCCESS } else { ExitCode::from(PAUSED) })
}

/// How a command ends that was asked to before it had begun.
fn asked_to_end(error: &anyhow::Error) -> ExitCode {
    warn(&format!("{error:#}"));
    ExitCode::from(PAUSED)
}

/// What a look at what was begun before has brought.
struct FormerRun {
    resolve: Resolve,
    /// That the cluster has formed with another deployer's key.
    another_key: Option<String>,
    /// What is told only once it was typed.
    untold: Option<String>,
}

/// One command on a cluster.
struct Run<'a> {
    file: &'a ClusterFile,
    site: &'a SiteSession,
    what: &'a str,
    output: Output,
    pause_limit: Duration,
    ending: SignalPolicy,
}

impl<'a> Run<'a> {
    /// Of a command that changes something.
    fn working(file: &'a ClusterFile, site: &'a SiteSession, what: &'a str, work: &Work) -> Self {
        let pause_limit = Duration::from_secs(work.waiting.pause_limit);
        Self { file, site, what, output: work.output, pause_limit, ending: SignalPolicy::WhereItCanBeContinued }
    }

    /// Looks at what was begun there, before a key is drawn or anybody is asked; changes nothing. What is had of the description then, and
    /// what is worth knowing.
    ///
    /// # Errors
    /// What [`Run::go`] would refuse, with the same words.
    fn begun(&self, judged: &ResolvedFile, over: TakeOver) -> anyhow::Result<FormerRun> {
        let Some(place) = self.site.find()? else {
            return Ok(FormerRun { resolve: Resolve::All, another_key: None, untold: None });
        };
        let looks = Run { ending: SignalPolicy::AtOnce, ..*self };
        let (has_key, key) = (judged.key.is_some(), judged.wanted.deployer());
        let looked = looks.with(&place, None, async |deploy| {
            if let (LeaseState::Held(held), TakeOver::FromTheDead) = (standing(deploy.store).await?, over) {
                return Err(held.into());
            }
            let kept = begun(deploy.store, deploy.hypervisor.deployment()).await?;
            let vms: BTreeSet<Uuid> = deploy.hypervisor.vms().await?.iter().map(Vm::uuid).collect();
            let resolve = kept.as_ref().map_or(Ok(Resolve::All), |kept| begun_with(self.file, has_key, kept, &vms))?;
            let another_key = kept.as_ref().and_then(|kept| another_key(key, kept));
            match deploy.may_be_wanted(Goal::Deploy(&judged.wanted)).await {
                // It is made of what is yet to be typed as well.
                Err(error) if error.is::<MadeOtherwise>() && self.file.needs_prompt() => {
                    let words = "whether its VMs were made of the same is told once all that is asked for was typed";
                    Ok(FormerRun { resolve, another_key, untold: Some(words.to_owned()) })
                }
                may => may.map(|()| FormerRun { resolve, another_key, untold: None }),
            }
        });
        looked.map_err(advised)
    }

    /// Notes a wish, goes on until it is so, and says what came of it.
    fn go(
        &self,
        place: &ClusterBackend,
        key: Option<PrivateKey>,
        wish: Goal<'_>,
        over: TakeOver,
    ) -> anyhow::Result<ExitCode> {
        let last = Mutex::new(None);
        let keep = |given: &str| {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Zeroizing::new(given.to_owned()));
        };
        let gone = self.hearing(place, key, &keep, async |deploy| deploy.go(wish, over).await);
        let last = last.lock().unwrap_or_else(PoisonError::into_inner).take();
        let gone = match renewed_all_the_same(gone, &self.file.kubeconfig, last.as_deref().map(String::as_str)) {
            Err(error) if error.is::<Cancelled>() => return Ok(asked_to_end(&error)),
            gone => gone.map_err(advised)?,
        };
        self.arrived(&gone, last.as_deref().map(String::as_str), Vec::new())
    }

    /// Hands the kubeconfig over, and says where a run has come to. `renewed` is the last one that a node has given on the way, `templates`
    /// are those that stay where the cluster is gone.
    fn arrived(
        &self,
        (arrived, status): &(RunOutcome, DeployStatus),
        renewed: Option<&str>,
        templates: Vec<String>,
    ) -> anyhow::Result<ExitCode> {
        let kubeconfig = handed_over(&self.file.kubeconfig, arrived, renewed)?;
        let exit = exit_status(arrived);
        let templates = if let RunOutcome::Gone = arrived { templates } else { Vec::new() };
        if let Output::Json = self.output {
            json(&Outcome::of(arrived, kubeconfig, status).leaving(templates))?;
            return Ok(ExitCode::from(exit));
        }
        let mut text = words::arrived(arrived, kubeconfig, status) + &words::templates_stay(&templates);
        if let RunOutcome::Up(_) = arrived {
            self.site.access_hints()?.iter().for_each(|way| text += &format!("\n{way}"));
        }
        if matches!(arrived, RunOutcome::Paused(_) | RunOutcome::Stopped(_)) && !status.formed {
            let started = status.nodes.iter().filter(|node| node.power.is_some());
            for said in started.flat_map(|node| self.site.complaints(&node.name)) {
                text += &format!("\n  {said}");
            }
        }
        Ok(ended(exit, &text))
    }

    /// The templates that stay where the cluster goes. They keep nobody from that: where they cannot be looked for it is told, and nothing
    /// more.
    fn templates(&self) -> Vec<String> {
        self.site.templates().unwrap_or_else(|error| {
            warn(&format!("warning: which templates are left cannot be told: {error:#}"));
            Vec::new()
        })
    }

    /// The VMs of the deployment with these BIOS UUIDs.
    fn named(&self, place: &ClusterBackend, uuids: &[Uuid]) -> anyhow::Result<Vec<Vm>> {
        if uuids.is_empty() {
            return Ok(Vec::new());
        }
        let (all, gone) = self.with(place, None, async |deploy| {
            let (all, mut gone) = (deploy.hypervisor.vms().await?, Vec::new());
            for uuid in uuids {
                // Of a command that was interrupted some have gone by now. What is moved to where the account sees nothing reads the
                // same.
                if deploy.has_granted(*uuid).await? && deploy.hypervisor.with_bios_uuid(*uuid).await?.is_empty() {
                    gone.push(*uuid);
                }
            }
            Ok((all, gone))
        })?;
        for uuid in &gone {
            let words = "it has gone with an earlier command, or was moved to where this account has no right";
            self.output.tell(&format!("no VM with the BIOS UUID {uuid} is to be seen any more: {words}"));
        }
        let of = |uuid: &Uuid| {
            let found: Vec<&Vm> = all.iter().filter(|vm| vm.uuid() == *uuid).collect();
            match found.as_slice() {
                [vm] => Ok((*vm).clone()),
                [] => bail!("no VM with the stamp of this deployment has the BIOS UUID {uuid}; nothing was changed"),
                several => bail!(
                    "{} have the BIOS UUID {uuid}: one is a copy of another; nothing was changed",
                    several.iter().map(|vm| clean(&vm.name)).collect::<Vec<_>>().join(" and ")
                ),
            }
        };
        uuids.iter().filter(|uuid| !gone.contains(uuid)).map(of).collect()
    }

    /// What is to say of tenant clusters that the cluster has; none if it has none.
    fn tenants(&self, place: &ClusterBackend) -> anyhow::Result<Option<String>> {
        let (key, nodes) = (existing_deployer_key(&self.file.deployer_key), self.file.addresses());
        self.site.run(self.ending, async |_| Ok(tenants::told(key, place, &nodes, &self.file.kubeconfig).await))
    }

    fn with<T>(
        &self,
        place: &ClusterBackend,
        key: Option<PrivateKey>,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.hearing(place, key, &|_| {}, act)
    }

    /// The same, told each kubeconfig that a node of a cluster which has formed gives.
    fn hearing<T>(
        &self,
        place: &ClusterBackend,
        key: Option<PrivateKey>,
        renewed: &(dyn Fn(&str) + Sync),
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let guests = ByKey(key.map(|key| place.deployer(key)).transpose()?);
        let output = self.output;
        self.site.run(self.ending, async |cancelled| {
            act(&Deployment {
                hypervisor: &*place.hypervisor,
                guests: &guests,
                store: &*place.store,
                placement: self.file.provider.placement(),
                what: self.what,
                watch: &|notice: &Notice<'_>| output.tell(&told(notice, ToString::to_string)),
                pace: Duration::from_secs(1),
                pause_limit: self.pause_limit,
                empties: &*place.empties,
                renewed,
                restorable: None,
                cancelled,
            })
            .await
        })
    }
}

/// Writes the kubeconfig that a run ends with, or has come by on its way: a cluster that has formed and waits for a node is the one that
/// somebody wants to look into. Where it was written; none if there is none.
///
/// # Errors
/// The cluster runs, and its kubeconfig cannot be written.
fn handed_over<'p>(path: &'p Path, arrived: &RunOutcome, renewed: Option<&str>) -> anyhow::Result<Option<&'p Path>> {
    match arrived {
        RunOutcome::Up(given) => fleet::files::write(path, given).map(|()| Some(path)),
        RunOutcome::Gone => Ok(None),
        // What it waits for is told all the same.
        RunOutcome::Paused(_) | RunOutcome::Stopped(_) | RunOutcome::Cancelled => Ok(renewed_at(path, renewed)),
    }
}

/// What a run has come to; where that is an error, the last kubeconfig that it came by on its way is written all the same.
fn renewed_all_the_same<T>(gone: anyhow::Result<T>, path: &Path, renewed: Option<&str>) -> anyhow::Result<T> {
    if gone.is_err() {
        renewed_at(path, renewed);
    }
    gone
}

/// Where the kubeconfig was written that a run has come by on its way; none if there is none, or it cannot be written, which is said.
fn renewed_at<'p>(path: &'p Path, renewed: Option<&str>) -> Option<&'p Path> {
    match fleet::files::write(path, renewed?) {
        Ok(()) => Some(path),
        Err(error) => {
            warn(&format!("warning: the kubeconfig was not renewed: {error:#}"));
            None
        }
    }
}

fn exit_status(arrived: &RunOutcome) -> u8 {
    match arrived {
        RunOutcome::Up(_) | RunOutcome::Gone => 0,
        RunOutcome::Paused(_) | RunOutcome::Cancelled => PAUSED,
        RunOutcome::Stopped(_) => STOPPED,
    }
}
