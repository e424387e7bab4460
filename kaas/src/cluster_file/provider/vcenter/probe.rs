//! The probe of a folder, with the session, the names and the journal's datastore of the cluster that the file describes.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use fleet::lease::TakeOver;
use fleet::vcenter::probe::{Report, Setup, run};
use fleet::vcenter::{Clones, Site as Names};
use tokio::runtime::Builder;

use super::VcenterProvider;
use super::site::VcenterSite;
use crate::cluster_file::provider::Site as _;
use crate::output::say;
use crate::signals::{SignalPolicy, until_ended};

impl VcenterProvider {
    /// Runs the probe, with an OVA or a directory with one. If the operator ends it, it removes what it made first.
    pub(in crate::cluster_file::provider) fn probe(
        &self,
        cluster: &str,
        ova: &Path,
        guest: Duration,
        over: TakeOver,
    ) -> anyhow::Result<Report> {
        let runtime = Rc::new(Builder::new_current_thread().enable_all().build().context("starting a runtime")?);
        // A probe has no snapshots of etcd.
        let site = VcenterSite::open(self, cluster, Path::new(""), &runtime)?;
        // One folder, and no settings of the cluster of hosts.
        let (templates, other_folders, clones) = (None, Vec::new(), Clones::Linked);
        let names = Names { templates, other_folders, clones, different_hosts: false, restart: None, ..self.names() };
        let (directory, ova) = (self.journal_of(cluster).join("probe"), fleet::find_ova(ova)?);
        // Longer than vCenter takes to hear from a host what a task has changed there.
        let setup = Setup { site: names, directory, ova, guest, rest: Duration::from_secs(3), over };
        let probe = async |cancelled| run(site.client(), &setup, cancelled, &say).await;
        let report = until_ended(&runtime, SignalPolicy::WhereItCanBeContinued, probe, || site.close());
        site.close();
        report
    }
}
