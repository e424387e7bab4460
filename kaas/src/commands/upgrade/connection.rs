//! Connects a command to a deployment, whatever runs its VMs, and ends it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use fleet::Cancelled;
use fleet::upgrade::{Deployment, Nodes, Notice};
use uuid::Uuid;

use super::arguments::{DeploymentArgs, OtherClusterArgs, ResumeArgs};
use super::words;
use crate::cluster_file::{ClusterBackend, ClusterFile, Site, SiteSession, added_provider, node_credentials};
use crate::control::ControlClusterArgs;
use crate::output::{Output, PAUSED, warn};
use crate::signals::SignalPolicy;
use crate::work::advised_with;

/// The behaviour of a command that cannot ask nodes now: without credentials, or with all VMs off.
#[derive(Clone, Copy)]
pub(super) enum MissingCredentials {
    Fail,
    /// It continues without them, by the journal and the hypervisor. It asks nodes once one issues credentials.
    Continue,
}

impl ResumeArgs {
    /// The format of the result.
    pub(super) fn output(&self) -> Output {
        self.change.at.output
    }

    /// Runs an action that needs nodes.
    pub(super) fn with(
        &self,
        what: &str,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.lacking(what, MissingCredentials::Fail, act)
    }

    /// Runs an action that also works while no node can be asked, for example because all are off.
    pub(super) fn with_or_without_nodes(
        &self,
        what: &str,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.lacking(what, MissingCredentials::Continue, act)
    }

    fn lacking(
        &self,
        what: &str,
        lacking: MissingCredentials,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let ending = SignalPolicy::WhereItCanBeContinued;
        self.change.at.with(what, Some(&self.whose), self.waiting.timeout, lacking, ending, act)
    }
}

/// The site of the VMs, as the command line names it.
struct SelectedSite {
    site: SiteSession,
    /// The description of the cluster, if the command line names one.
    file: Option<ClusterFile>,
}

impl DeploymentArgs {
    fn open(&self) -> anyhow::Result<SelectedSite> {
        if let (Some(place), Some(added)) = (&self.cluster.place, added_provider()) {
            let site = SiteSession::with(|_| Ok((added.site)(place)))?;
            return Ok(SelectedSite { site, file: None });
        }
        let path = self.cluster.file.as_deref().context("give the file that describes the cluster with --file")?;
        let file = ClusterFile::read(path)?;
        let site = SiteSession::of(&file)?;
        Ok(SelectedSite { site, file: Some(file) })
    }

    /// Runs an action that changes nothing, or nothing that must be continued.
    pub(super) fn looking(
        &self,
        what: &str,
        whose: Option<&OtherClusterArgs>,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, Duration::ZERO, MissingCredentials::Fail, SignalPolicy::AtOnce, act)
    }

    /// Runs an action that can be continued after a request to end.
    pub(super) fn changing(
        &self,
        what: &str,
        whose: Option<&OtherClusterArgs>,
        pause_limit: Duration,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, pause_limit, MissingCredentials::Fail, SignalPolicy::WhereItCanBeContinued, act)
    }

    /// Runs an action that the operator confirms. A signal ends the look and the question at once. It ends the change where it
    /// can be continued, and the lease is released. `look` returns what to change. `None` if there is nothing.
    pub(super) fn confirming<T>(
        &self,
        what: &str,
        look: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<Option<T>>,
        act: impl AsyncFnOnce(&Deployment<'_>, T) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.reaching(what, None, Duration::ZERO, MissingCredentials::Fail, |reached| {
            match reached.run(SignalPolicy::AtOnce, async |deployment, _| look(deployment).await)? {
                None => Ok(ExitCode::SUCCESS),
                Some(confirmed) => {
                    let ending = SignalPolicy::WhereItCanBeContinued;
                    reached.run(ending, async |deployment, _| act(deployment, confirmed).await)
                }
            }
        })
    }

    pub(super) fn with(
        &self,
        what: &str,
        whose: Option<&OtherClusterArgs>,
        pause_limit: Duration,
        lacking: MissingCredentials,
        ending: SignalPolicy,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.reaching(what, whose, pause_limit, lacking, |reached| reached.run(ending, act))
    }

    fn reaching(
        &self,
        what: &str,
        whose: Option<&OtherClusterArgs>,
        pause_limit: Duration,
        lacking: MissingCredentials,
        act: impl FnOnce(&ConnectedDeployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let named = self.open()?;
        let site: &SiteSession = &named.site;
        let place = site.find()?.with_context(|| format!("{} does not exist", site.words()))?;
        let selected = ControlClusterArgs::new(self.kubeconfig.clone(), self.context.clone()).named()?;
        let nodes = node_credentials(named.file.as_ref(), selected.as_ref(), &place)?;
        match (site.run(SignalPolicy::AtOnce, async |_| nodes.ready().await), lacking) {
            (Ok(()), _) => {}
            (Err(error), MissingCredentials::Continue) => {
                warn(&format!("warning: no node can be asked now: {error:#}"))
            }
            (Err(error), MissingCredentials::Fail) => return Err(error),
        }
        let other_cluster = whose.and_then(|whose| whose.other_cluster);
        let output = self.output;
        let reached =
            ConnectedDeployment { site, place: &place, nodes: &nodes, what, pause_limit, other_cluster, output };
        match act(&reached) {
            Err(error) if error.is::<Cancelled>() => {
                warn(&format!("{error:#}"));
                Ok(ExitCode::from(PAUSED))
            }
            acted => acted.map_err(|error| advised_with(error, &self.commands())),
        }
    }
}

struct ConnectedDeployment<'a> {
    site: &'a SiteSession,
    place: &'a ClusterBackend,
    nodes: &'a dyn Nodes,
    what: &'a str,
    pause_limit: Duration,
    other_cluster: Option<Uuid>,
    output: Output,
}

impl ConnectedDeployment<'_> {
    /// Runs an action on the deployment, and ends as signals demand.
    fn run<T>(
        &self,
        ending: SignalPolicy,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let output = self.output;
        self.site.run(ending, async |cancelled| {
            let deployment = Deployment {
                hypervisor: &*self.place.hypervisor,
                nodes: self.nodes,
                store: &*self.place.store,
                snapshots: &*self.place.snapshots,
                what: self.what,
                watch: &|notice: &Notice<'_>| words::tell(output, notice),
                pace: Duration::from_secs(1),
                pause_limit: self.pause_limit,
                other_cluster: self.other_cluster,
                cancelled,
            };
            act(&deployment, &**self.site).await
        })
    }
}
