//! The probe of a folder, with the session, the names and the journal's datastore of the cluster that the file describes.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use fleet::authority::TakeOver;
use fleet::vcenter::probe::{Probed, Setup, run};
use fleet::vcenter::{Clones, Site as Names};
use tokio::runtime::Builder;

use super::VcenterProvider;
use super::site::VcenterSite;
use crate::cluster_file::provider::Site as _;
use crate::output::Output;
use crate::signals::{Ending, until_ended};

/// Longer than vCenter takes to hear from a host what a task has changed there.
const REST: Duration = Duration::from_secs(3);

/// How a probe is run.
pub struct Probing<'a> {
    /// The name of the cluster. The journal's directory is named after it.
    pub cluster: &'a str,
    /// The OVA, or a directory with one.
    pub ova: &'a Path,
    /// How long the probe waits for the guest's first statement.
    pub guest: Duration,
    /// Whose lease the probe may take over.
    pub over: TakeOver,
}

impl VcenterProvider {
    /// Runs the probe. If the operator ends it, it removes what it made first.
    ///
    /// # Errors
    /// As [`run`]; or the vCenter does not accept the login.
    pub(in crate::cluster_file::provider) fn probe(&self, probing: &Probing<'_>) -> anyhow::Result<Probed> {
        let runtime = Rc::new(Builder::new_current_thread().enable_all().build().context("starting a runtime")?);
        // A probe has no snapshots of etcd.
        let site = VcenterSite::open(self, probing.cluster, Path::new(""), &runtime)?;
        // One folder, and no settings of the cluster of hosts.
        let (templates, other_folders, clones) = (None, Vec::new(), Clones::Linked);
        let names = Names { templates, other_folders, clones, different_hosts: false, restart: None, ..self.names() };
        let setup = Setup {
            site: names,
            directory: self.journal_of(probing.cluster).join("probe"),
            ova: lab::find_ova(probing.ova)?,
            guest: probing.guest,
            rest: REST,
            over: probing.over,
        };
        let tell = |words: &str| Output::Text.tell(words);
        let probe = async |cancelled| run(site.client(), &setup, cancelled, &tell).await;
        let probed = until_ended(&runtime, Ending::WhereItCanBeContinued, probe, || site.close());
        site.close();
        probed
    }
}
