//! The steps that make a node part of its cluster: the rendezvous and the end of forming. Later tasks of the first node
//! for other nodes are part of maintenance.

use std::ops::ControlFlow;

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;

use super::{StepContext, StepError, StepOutcome};
use crate::boot::{LOOP, STEP};
use crate::cluster::join_window::{self, JoinWindows};
use crate::cluster::pki::{self, ssh, ssh::SshCa};
use crate::cluster::rendezvous::{self, Rendezvous, RendezvousRecord, Report};
use crate::host::disk;
use crate::host::disk::ownership::own_use;
use crate::status::{Phase, Reporter};
use crate::system::access;
use crate::upgrade::swap::context::{AnnouncementLock, SwapContext};
use crate::upgrade::swap::node_record::Announcer;
use crate::upgrade::swap::publisher;

impl StepContext {
    pub(super) fn meet(&mut self) -> Result<StepOutcome, StepError> {
        let before = self.node.records.rendezvous()?;
        if self.progress.formed {
            return Ok(self.reopen_rendezvous(before));
        }
        if self.rendezvous.is_none() {
            self.rendezvous = Some(self.open_rendezvous(before.clone())?);
        }
        let (reporter, findings) = (self.node.reporter.clone(), self.findings());
        let rendezvous = self.rendezvous.as_ref().context("the rendezvous is not open")?;
        let mut watch = |report: &Report| {
            show(&reporter, &findings, report)?;
            if self.sees_corrections() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let bundle = match rendezvous.meet(&mut watch) {
            Err(rendezvous::Error::Stopped) => {
                return Err(StepError::Waiting("the node was given other properties".to_owned()));
            }
            met => met?,
        };
        let written = bundle.ensure(self.node.control_node()?, &self.node.pki(), Self::now())?;
        Ok((written || before != self.node.records.rendezvous()?).into())
    }

    fn open_rendezvous(&self, record: RendezvousRecord) -> Result<Rendezvous, StepError> {
        let Some(secret) = &self.secret else {
            let seen = "the deployment secret is missing although the cluster is not complete";
            let action = "Deploy this VM again with a blank data disk";
            return Err(codes::SECRET_LOST.finding("data disk", seen, action).into());
        };
        Ok(self.node.open_rendezvous(secret, record)?)
    }

    /// For a first node of a running cluster that other nodes have yet to join. The quorum may need a node without keys, so
    /// the rendezvous opens before etcd starts. A failure does not stop the node, because maintenance tries again.
    fn reopen_rendezvous(&mut self, record: RendezvousRecord) -> StepOutcome {
        let opened = self.secret.take().map(|secret| self.node.open_rendezvous(&secret, record));
        match opened {
            Some(Ok(open)) => {
                self.node.leave_rendezvous(Some(open));
                return StepOutcome::Changed;
            }
            Some(Err(error)) => log::warn!("{error:#}"),
            None => log::warn!("the deployment secret is missing, and other nodes have not joined yet"),
        }
        StepOutcome::Unchanged
    }

    /// If the endpoint cannot be opened, the node still works in the cluster, and maintenance tries again.
    pub(super) fn endpoint(&mut self) -> Result<StepOutcome, StepError> {
        self.open_manager().context("opening the manager of swaps")?;
        if let Err(error) = self.certify_ssh() {
            log::warn!("certifying the SSH server: {error:#}");
        }
        match self.node.endpoint.open(self.node.control_plane()?, Self::now()) {
            Ok(opened) => Ok(opened.into()),
            Err(error) => {
                log::warn!("opening the endpoint: {error:#}");
                Ok(StepOutcome::Unchanged)
            }
        }
    }

    /// Writes the SSH server's certificate. SSH works without one: clients are then asked to trust the server's own
    /// key.
    fn certify_ssh(&self) -> anyhow::Result<bool> {
        let (config, platform) = (self.node.control_plane()?, &self.node.platform);
        if config.node.ssh_authorized_keys.is_empty() {
            return Ok(false);
        }
        let authority = SshCa::of(&pki::CertificateAuthorities::read(&self.node.pki())?)?;
        let certificate = authority.certify(&access::host_key(platform)?, &config.node.name, &ssh::names(config))?;
        access::show_certificate(platform, &self.node.services(), &certificate)
    }

    fn open_manager(&self) -> anyhow::Result<()> {
        let disk = self.plan.data_disk().context("the plan has no data disk")?.to_owned();
        let (root, pki) = (self.node.root().to_owned(), self.node.pki());
        let config = self.node.control_plane()?;
        let announcer = Announcer::new(config, &pki, &root, &disk, &self.node.image.build)?;
        self.node.endpoint.swaps().open(SwapContext {
            config: config.clone(),
            own: own_use(&self.node.platform, &self.node.image),
            image: self.node.image.clone(),
            reporter: self.node.reporter.clone(),
            root,
            pki,
            disk,
            announcer,
            announcement_lock: AnnouncementLock::default(),
        })
    }

    /// Records in the cluster that this node has joined, even if other nodes are away. Only the first node keeps its
    /// rendezvous and the deployment secret, for nodes that have not joined yet.
    pub(super) fn complete(&mut self) -> Result<StepOutcome, StepError> {
        if matches!(self.node.records.rendezvous()?, RendezvousRecord::Closed { .. }) {
            return Ok(StepOutcome::Unchanged);
        }
        let swaps = self.node.endpoint.swaps();
        let context = swaps.context().context("the manager of swaps is not open")?;
        context.announce(|| swaps.under_way()).context("recording in the cluster's store")?;
        let open = self.rendezvous.as_ref().context("the rendezvous is not open")?;
        if self.node.records.rendezvous()?.awaited().is_empty() {
            open.close()?;
            self.rendezvous = None;
        } else {
            self.node.leave_rendezvous(self.rendezvous.take());
        }
        Ok(StepOutcome::Changed)
    }

    pub(super) fn finish(&mut self) -> Result<StepOutcome, StepError> {
        let cluster = self.node.records.rendezvous()?.state().cluster();
        if let (Some(identity), Some(path)) = (&self.identity, self.plan.data_disk()) {
            let publisher = publisher::pinned(&self.own_etcd()?)?;
            match &publisher {
                Some(key) => log::info!("the publisher's key {key} is pinned"),
                None => log::info!("no publisher's key is pinned"),
            }
            let state = disk::DiskState::Formed;
            let formed = disk::Identity { cluster_id: cluster, state, publisher, ..identity.clone() };
            if formed != *identity {
                disk::slots::write(path, &formed).context("marking the data disk as a cluster's")?;
                self.identity = Some(formed);
            }
        }
        self.secret = None;
        // The cluster works, so nodes that have not joined must fetch their keys within one hour from now.
        let record = self.node.records.rendezvous()?;
        JoinWindows::begin(&self.node.records, &record.awaited(), join_window::uptime()?)?;
        if matches!(self.node.records.rendezvous()?, RendezvousRecord::Closed { .. }) {
            self.node.records.erase_secret()?;
        }
        Ok(self.save_progress(|progress| progress.formed = true)?.into())
    }

    /// Pins the publisher's key of the image that the cluster forms with. The first node at this step decides. A node that
    /// replaces a lost one pins no key: only a forming cluster trusts the image of its nodes.
    pub(super) fn pin_publisher(&self) -> anyhow::Result<()> {
        match self.node.records.rendezvous()?.is_forming() {
            true => publisher::pin(&self.own_etcd()?, self.node.image.publisher.as_deref()),
            false => Ok(()),
        }
    }
}

/// Shows the state of the rendezvous, and continues to wait.
fn show(reporter: &Reporter, findings: &Findings, report: &Report) -> ControlFlow<()> {
    reporter.alive(LOOP, STEP);
    reporter.update(|status| {
        status.phase = Phase::Waiting;
        if let Some(work) = &mut status.work {
            work.waiting = Some(report.to_string());
        }
        status.findings = findings.clone();
        status.findings.extend(report.findings.clone());
    });
    ControlFlow::Continue(())
}

impl From<rendezvous::Error> for StepError {
    fn from(error: rendezvous::Error) -> Self {
        Self::Failed(error.into())
    }
}
