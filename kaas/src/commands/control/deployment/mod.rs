//! `kaas control create`, `status`, `kubeconfig`, `replace-node` and `delete`: a cluster from one file.

mod arguments;
mod confirm;
mod judge;
mod kubeconfig;
mod replace;
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
use document::Mistakes;
use fleet::Cancelled;
use fleet::control_plane::{
    ByKey, Deploy as Deployment, DeployStatus, Goal, MadeOtherwise, Notice, RunOutcome, UnattachedDisk, begun,
};
use fleet::hypervisor::Vm;
use fleet::lease::{LeaseState, TakeOver, standing};
use fleet::nodes::clean;
use uuid::Uuid;
use zeroize::Zeroizing;

pub use self::arguments::{ClusterFileArgs, Create, Delete, Kubeconfig};
use self::confirm::DeletionConfirmation;
pub use self::confirm::DeletionPlan;
use self::judge::{Resolve, ResolvedFile, another_key, begun_with, judge};
pub use self::kubeconfig::kubeconfig;
pub use self::replace::{ReplaceNode, ReplacementPlan, replace_node};
pub use self::words::{Outcome, Plan};
use crate::cluster_file::{ClusterBackend, ClusterFile, SiteSession, schema};
use crate::keys::existing_deployer_key;
use crate::output::{Output, PAUSED, STOPPED, ended, json, result, warn};
use crate::signals::SignalPolicy;
use crate::work::{Work, advised, told};

const EXAMPLE: &str = include_str!("examples/vsphere.toml");

/// `kaas control create`. Exit statuses: 0 if the cluster runs, 3 if it waits for something, 4 if the operator must act.
pub fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    if arguments.example {
        return result(EXAMPLE).map(|()| ExitCode::SUCCESS);
    }
    if arguments.schema {
        return json(&schema()).map(|()| ExitCode::SUCCESS);
    }
    let file = ClusterFile::read(arguments.file.as_deref().context("give a description with --file")?)?;
    // Judges the existing parts, before a key is drawn, the operator is asked or the site is reached.
    let judged = judge(&file, Resolve::WhatIsThere)?;
    let site = SiteSession::of(&file)?;
    let mut checked = site.check(&judged.wanted, file.written())?;
    if !checked.mistakes.is_empty() {
        let mut mistakes = std::mem::take(&mut checked.mistakes);
        mistakes.sort_by_key(|mistake| mistake.line);
        return Err(Mistakes(mistakes).into());
    }
    let run = Run::working(&file, &site, "control create", &arguments.work);
    let FormerRun { resolve, another_key, untold } = run.begun(&judged, arguments.work.over.take())?;
    checked.warnings.extend(another_key);
    if arguments.dry_run {
        checked.warnings.extend(untold);
        let plan = Plan::of(&judged.wanted, &file, judged.warnings, checked);
        return arguments.work.output.result(&plan, || plan.text());
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

/// `kaas control delete`. Exit statuses as of `create`.
pub fn delete(arguments: &Delete) -> anyhow::Result<ExitCode> {
    let file = ClusterFile::read(&arguments.file)?;
    let site = SiteSession::of(&file)?;
    let Some(place) = site.find()? else {
        bail!("{} does not exist: there is nothing of the cluster {}", site.words(), file.name.value)
    };
    site.may_destroy()?;
    let (name, over) = (&file.name.value, arguments.work.over.take());
    let run = Run::working(&file, &site, "control delete", &arguments.work);
    // Until the name is confirmed, the command only looks. A signal then ends it at once, before anything is removed.
    let looks = Run { ending: SignalPolicy::AtOnce, ..run };
    let also = looks.named(&place, &arguments.also_vm)?;
    let unheld = if arguments.data_disks {
        looks.with(&place, None, async |deploy| deploy.unheld().await).map_err(advised)?
    } else {
        UnattachedDisk::default()
    };
    let copies = looks.with(&place, None, async |deploy| deploy.copies().await).map_err(advised)?;
    // Templates are looked up now: later, a failed lookup must not hide the result.
    let templates = looks.templates();
    let going = DeletionConfirmation {
        also: also.iter().map(words::goes_as_well).collect(),
        left: unheld.goes.iter().map(words::disk_goes_as_well).collect(),
        doubtful: unheld.doubtful.iter().map(words::disk_in_doubt).collect(),
        held: unheld.held.iter().map(words::disk_held).collect(),
        copies: copies.iter().map(words::copy_stays).collect(),
        tenants: looks.tenants(&place)?,
        ..DeletionConfirmation::of(name, &*site, arguments.data_disks)
    };
    if arguments.dry_run {
        return arguments.work.output.result(&going.plan(), || going.summary());
    }
    let given = arguments.confirm.clone();
    if given.is_some() {
        // Without a question, its parts are written as progress.
        going.named().for_each(|named| run.output.tell(named));
    }
    // On a separate thread, so that Ctrl-C works while the command waits for the answer.
    site.run(SignalPolicy::AtOnce, async |_| {
        tokio::task::spawn_blocking(move || going.confirmed(given.as_deref())).await.context("asking")?
    })?;
    let (disks, UnattachedDisk { goes, doubtful, held }) = (arguments.data_disks, &unheld);
    let wish = Goal::Destroy { cluster: name, disks, left: goes, doubtful, held, also: &also };
    // One run, so that a signal during the check for an empty place cancels all of it.
    let gone = run.with(&place, None, async |deploy| {
        // A command that was killed may have created only the place.
        if deploy.remove_empty(over).await? { Ok(None) } else { deploy.go(wish, over).await.map(Some) }
    });
    match gone {
        Err(error) if error.is::<Cancelled>() => Ok(asked_to_end(&error)),
        Err(error) => Err(advised(error)),
        Ok(Some(gone)) => run.arrived(&gone, None, templates),
        Ok(None) => {
            run.output.tell(&format!("nothing of the cluster {name} is left"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// `kaas control status`. Exit statuses: 0 if the cluster has its wanted state, 3 if not.
pub fn status(arguments: &ClusterFileArgs) -> anyhow::Result<ExitCode> {
    let file = ClusterFile::read(&arguments.file)?;
    let name = &file.name.value;
    let site = SiteSession::of(&file)?;
    let Some(place) = site.find()? else { bail!("{} does not exist: `kaas control create` creates it", site.words()) };
    let ending = SignalPolicy::AtOnce;
    let run = Run {
        file: &file,
        site: &site,
        what: "control status",
        output: arguments.output,
        pause_limit: Duration::ZERO,
        ending,
    };
    let key = existing_deployer_key(&file.deployer_key)?;
    let status = run.with(&place, key, async |deploy| deploy.status().await)?;
    let status =
        status.with_context(|| format!("nothing was begun for the cluster {name} by `kaas control create`"))?;
    arguments.output.result(&status, || words::status(&status))?;
    Ok(if status.done { ExitCode::SUCCESS } else { ExitCode::from(PAUSED) })
}

/// The exit status of a command that was cancelled before the first change.
fn asked_to_end(error: &anyhow::Error) -> ExitCode {
    warn(&format!("{error:#}"));
    ExitCode::from(PAUSED)
}

/// The consequences of an earlier run for this one.
struct FormerRun {
    resolve: Resolve,
    /// A warning that the cluster has formed with another deployer's key.
    another_key: Option<String>,
    /// A warning that a check must wait until prompted values are typed.
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
    /// A run that changes something.
    fn working(file: &'a ClusterFile, site: &'a SiteSession, what: &'a str, work: &Work) -> Self {
        let (output, pause_limit) = (work.output, work.waiting.timeout);
        Self { file, site, what, output, pause_limit, ending: SignalPolicy::WhereItCanBeContinued }
    }

    /// Reads what an earlier run has begun, before a key is drawn or the operator is asked. Changes nothing. Returns
    /// which values to resolve, and warnings. Errors have the messages of [`Run::go`].
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
                // The VMs also depend on values that are yet to be typed.
                Err(error) if error.is::<MadeOtherwise>() && self.file.needs_prompt() => {
                    let words = "the command compares the values of its VMs once all prompted values are typed";
                    Ok(FormerRun { resolve, another_key, untold: Some(words.to_owned()) })
                }
                may => may.map(|()| FormerRun { resolve, another_key, untold: None }),
            }
        });
        looked.map_err(advised)
    }

    /// Records the goal, runs until it is reached, and reports the result.
    fn go(
        &self,
        place: &ClusterBackend,
        key: Option<PrivateKey>,
        wish: Goal<'_>,
        over: TakeOver,
    ) -> anyhow::Result<ExitCode> {
        if matches!(wish, Goal::Deploy(_)) {
            kubeconfig::require_own(&self.file.kubeconfig)?;
        }
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

    /// Writes the kubeconfig and reports the result of a run. `renewed` is the last kubeconfig that a node issued during the
    /// run. `templates` remain after the cluster is gone.
    fn arrived(
        &self,
        (arrived, status): &(RunOutcome, DeployStatus),
        renewed: Option<&str>,
        templates: Vec<String>,
    ) -> anyhow::Result<ExitCode> {
        let kubeconfig = handed_over(&self.file.kubeconfig, arrived, renewed)?;
        let exit = exit_status(arrived);
        let templates = if let RunOutcome::Gone = arrived { templates } else { Vec::new() };
        if self.output.value(&Outcome::of(arrived, kubeconfig, status).leaving(templates.clone()))? {
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

    /// The templates that remain after the cluster is gone. They do not block the removal: if they cannot be listed, only a
    /// warning is written.
    fn templates(&self) -> Vec<String> {
        self.site.templates().unwrap_or_else(|error| {
            warn(&format!("warning: cannot list the templates that are left: {error:#}"));
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
                // An interrupted command may have removed some already. A VM that was moved to a place which the account cannot
                // see gives the same result.
                if deploy.has_granted(*uuid).await? && deploy.hypervisor.with_bios_uuid(*uuid).await?.is_empty() {
                    gone.push(*uuid);
                }
            }
            Ok((all, gone))
        })?;
        for uuid in &gone {
            let words = "an earlier command removed it, or it was moved to where this account has no right";
            self.output.tell(&format!("no VM with the BIOS UUID {uuid} is visible: {words}"));
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

    /// The line on tenant clusters of the cluster. `None` if it has none.
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

    /// As `with`. Calls `renewed` with each kubeconfig that a node of a formed cluster issues.
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

/// Writes the kubeconfig of the result, or the last one that a node issued during the run. An operator needs it for a
/// formed cluster that waits for a node. Returns its path. `None` if there is no kubeconfig. A failed write is an error
/// if the cluster runs.
fn handed_over<'p>(path: &'p Path, arrived: &RunOutcome, renewed: Option<&str>) -> anyhow::Result<Option<&'p Path>> {
    match arrived {
        RunOutcome::Up(given) => fleet::files::write(path, given).map(|()| Some(path)),
        RunOutcome::Gone => Ok(None),
        // A failed write must not hide what the run waits for.
        RunOutcome::Paused(_) | RunOutcome::Stopped(_) | RunOutcome::Cancelled => Ok(renewed_at(path, renewed)),
    }
}

/// Passes a run's result through. After an error, it writes the last kubeconfig that a node issued during the run.
fn renewed_all_the_same<T>(gone: anyhow::Result<T>, path: &Path, renewed: Option<&str>) -> anyhow::Result<T> {
    if gone.is_err() {
        renewed_at(path, renewed);
    }
    gone
}

/// Writes the kubeconfig that a node issued during the run, and returns its path. `None` without a kubeconfig, or after a
/// failed write, which gives a warning.
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
