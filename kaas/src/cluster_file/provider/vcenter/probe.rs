//! The probe of a folder: with the session, the names and the journal's datastore of the cluster that the file describes.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use fleet::authority::TakeOver;
use fleet::vcenter::probe::{Probed, Setup, Told, run};
use fleet::vcenter::{Clones, Site as Names};
use tokio::runtime::Builder;

use super::VcenterProvider;
use super::site::VcenterSite;
use crate::cluster_file::provider::Site as _;
use crate::signals::{Ending, until_ended};

/// Longer than vCenter takes to hear from a host what a task has changed there.
const REST: Duration = Duration::from_secs(3);

/// How a probe is run.
pub struct Probing<'a> {
    /// The cluster's name, which the journal's directory is named after.
    pub cluster: &'a str,
    /// The OVA, or a directory with one.
    pub ova: &'a Path,
    /// How long a guest's first statement is waited for.
    pub guest: Duration,
    /// From whom it may be taken over.
    pub over: TakeOver,
}

impl VcenterProvider {
    /// Runs the probe. One that is asked to end removes what it made first.
    ///
    /// # Errors
    /// As [`run`]; or the vCenter does not accept the login.
    pub(in crate::cluster_file::provider) fn probe(
        &self,
        probing: &Probing<'_>,
        tell: &(dyn Fn(Told<'_>) + Sync),
    ) -> anyhow::Result<Probed> {
        let runtime = Rc::new(Builder::new_current_thread().enable_all().build().context("starting a runtime")?);
        // Of a probe there are no snapshots of etcd.
        let site = VcenterSite::open(self, probing.cluster, Path::new(""), &runtime)?;
        let setup = Setup {
            // All in one folder, and no settings of the cluster of hosts.
            site: Names {
                templates: None,
                other_folders: Vec::new(),
                clones: Clones::Linked,
                different_hosts: false,
                restart: None,
                ..self.names()
            },
            directory: self.journal_of(probing.cluster).join("probe"),
            ova: lab::find_ova(probing.ova)?,
            guest: probing.guest,
            rest: REST,
            over: probing.over,
        };
        let client = site.client();
        let probed = until_ended(
            &runtime,
            Ending::WhereItCanBeContinued,
            async |cancelled| run(client, &setup, cancelled, tell).await,
            || site.close(),
        );
        site.close();
        probed
    }
}
