//! How a command gets at the deployment of a lab, and ends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fleet::authority::DirectoryStore;
use fleet::node::Client;
use fleet::upgrade::{Cancelled, Deployment, Nodes, Notice, Unasked};
use lab::{Lab, LabHypervisor, state_directory};
use tokio::sync::watch;

use super::arguments::{At, GoingOn, Whose};
use super::signals::{Ending, Signals};
use super::{PAUSED, words};
use crate::output::warn;

/// What a command does that cannot ask nodes: without credentials, or in a lab that is off.
#[derive(Clone, Copy)]
pub(super) enum Lacking {
    /// It fails.
    Fails,
    /// It goes on without them.
    Goes,
}

impl GoingOn {
    pub(super) fn with(
        &self,
        what: &str,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.at.changing(what, Some(&self.whose), Duration::from_secs(self.waiting.pause_limit), act)
    }
}

impl At {
    fn open(&self) -> anyhow::Result<Lab> {
        Lab::open(&state_directory()?, &self.lab)
    }

    /// The OVA that a path means for this lab's VMs.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub(super) fn ova(&self, path: &Path) -> anyhow::Result<PathBuf> {
        self.open()?.find_ova(path)
    }

    /// The name of the tenant that it is; none if it is a control cluster.
    ///
    /// # Errors
    /// When there is no such lab.
    pub(super) fn tenant(&self) -> anyhow::Result<Option<String>> {
        let lab = self.open()?;
        Ok(lab.plan().tenant.is_some().then(|| lab.name().to_owned()))
    }

    /// Does what changes nothing that would have to be continued.
    pub(super) fn looking(
        &self,
        what: &str,
        whose: Option<&Whose>,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, Duration::ZERO, Lacking::Fails, Ending::AtOnce, act)
    }

    /// Does what can be continued when it was asked to end.
    pub(super) fn changing(
        &self,
        what: &str,
        whose: Option<&Whose>,
        pause_limit: Duration,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, pause_limit, Lacking::Fails, Ending::WhereItCanBeContinued, act)
    }

    /// How nodes are asked.
    fn client(&self, lab: &Lab) -> anyhow::Result<Client> {
        let kubeconfig = self.kubeconfig.clone().map_or_else(|| lab.kubeconfig(), Ok)?;
        Client::from_inside(&kubeconfig, lab.network_namespace())
    }

    pub(super) fn with(
        &self,
        what: &str,
        whose: Option<&Whose>,
        pause_limit: Duration,
        lacking: Lacking,
        ending: Ending,
        act: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let lab = Arc::new(self.open()?);
        let nodes: Box<dyn Nodes> = match (self.client(&lab), lacking) {
            (Ok(client), _) => Box::new(client),
            (Err(error), Lacking::Goes) => {
                let because = format!("{error:#}");
                warn(&format!("warning: no node can be asked: {because}"));
                Box::new(Unasked::because(because))
            }
            (Err(error), Lacking::Fails) => return Err(error),
        };
        let store = DirectoryStore::at(lab.upgrades());
        let (cancel, cancelled) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let acted = runtime.block_on(async {
            let deployment = Deployment {
                hypervisor: &LabHypervisor::new(lab),
                nodes: &*nodes,
                store: &store,
                snapshots: &store,
                what,
                watch: &|notice: &Notice<'_>| words::tell(notice),
                pace: Duration::from_secs(1),
                pause_limit,
                other_cluster: whose.and_then(|whose| whose.other_cluster),
                cancelled,
            };
            let signals = Signals::taken()?;
            tokio::select! {
                acted = act(&deployment) => acted,
                // What is being done on other threads is not waited for.
                status = signals.ended(ending, &cancel) => std::process::exit(status.into()),
            }
        });
        match acted {
            Err(error) if error.is::<Cancelled>() => {
                warn(&format!("{error:#}"));
                Ok(ExitCode::from(PAUSED))
            }
            acted => acted.map_err(words::advised),
        }
    }
}
