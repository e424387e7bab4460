//! The step that starts this node's etcd member. Only the newest data disk of the cluster's own node may access the
//! store.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use contract::codes;

use super::{StepContext, StepError, StepOutcome};
use crate::cluster::REQUEST;
use crate::cluster::certificates::revocation_list;
use crate::cluster::etcd;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::damage;
use crate::cluster::etcd::data_version;
use crate::cluster::etcd::guard;
use crate::cluster::etcd::member::{self, InitialCluster};
use crate::cluster::etcd::quota;
use crate::cluster::etcd::restore::{self, RestoreRecord};
use crate::cluster::etcd::snapshot;
use crate::cluster::etcd::upkeep;
use crate::cluster::pki;
use crate::cluster::rendezvous::RendezvousRecord;
use crate::host::disk::ownership::Claimant;
use crate::host::files;
use crate::status;
use crate::upgrade::swap::adopt;
use crate::upgrade::swap::node_record::{self, Epoch};
use crate::upgrade::swap::peers::{self, Verdict};

/// How long other nodes may take to say whether the data disk is an old copy, times the timeout factor. Nodes that
/// start together reach this step within seconds of each other. If a firewall separates them, the cluster still starts.
pub(super) const ANSWERING: Duration = Duration::from_secs(180);

/// How long etcd may take to stop, times the timeout factor. systemd kills it after 90 s (`DefaultTimeoutStopSec=`).
const STOP_LIMIT: Duration = Duration::from_secs(100);

impl StepContext {
    pub(super) fn etcd_certificates(&mut self) -> Result<StepOutcome, StepError> {
        Ok(pki::ensure_member(self.node.control_node()?, &self.node.pki(), Self::now())?.into())
    }

    pub(super) fn etcd(&mut self) -> Result<StepOutcome, StepError> {
        // Another process has started this agent: the restore itself stopped the former one.
        if guard::is_restoring(self.node.root())? {
            return Err(StepError::Waiting(
                "waiting for the end of a restore that is under way on this node".to_owned(),
            ));
        }
        let stopped = matches!(self.node.services().state(etcd::UNIT)?.as_str(), "inactive" | "failed");
        if stopped {
            restore::settle(self.node.root(), &self.node.records)?;
        }
        if let Err(error) = snapshot::relieve(self.node.root()) {
            log::warn!("making room for etcd: {error:#}");
        }
        if self.progress.etcd && !member::has_data(self.node.root()) {
            let seen = "this member was part of the cluster, but its data is gone from the data disk";
            let action = format!(
                "On another control-plane node: `kaas-agent replace-member {}`; then deploy this VM again with a blank data disk \
                 and the code as its deployment secret",
                self.node.config.node().name
            );
            return Err(codes::ETCD_DATA_LOST.finding(etcd::DATA, seen, action).into());
        }
        if stopped {
            data_version::check(&self.node.records, &self.node.image.etcd)??;
        }
        // An admitted node has no record until it has joined. The present record is the lost node's.
        if stopped && (self.progress.formed || !self.node.records.rendezvous()?.admitted()) {
            self.check_data_disk()?;
        }
        let before = self.generation()?;
        self.adopt_data_disk()?;
        if !self.progress.etcd && stopped && member::start_over_if_never_begun(self.node.root())? {
            log::info!("etcd was cut off before it began: it starts over");
        }
        // A joining member has begun with the configuration that exists.
        let record = self.node.records.rendezvous()?;
        let joining = record.admitted() && !self.progress.etcd;
        let laid = self.node.path(etcd::CONFIGURATION);
        if !(joining && member::has_data(self.node.root()) && laid.exists()) {
            let beginning = self.beginning(&record, joining)?;
            let others = if joining { self.others_database()? } else { 0 };
            let quota = quota::settle(self.node.root(), &self.node.records, others, before, self.generation()?)?;
            let configuration = member::configuration(self.node.control_plane()?, &beginning, quota)
                .context("this node has no etcd member")?;
            self.configure_etcd(&format!("{configuration:#}\n"))?;
        }
        data_version::note(&self.node.records, &self.node.image.etcd)?;
        let started = self.node.services().start(etcd::UNIT)?;
        // Another process restarts etcd.
        if member::own_is_stopping(self.node.root()) {
            return Err(StepError::Waiting("waiting for etcd, which is stopping, to start again".to_owned()));
        }
        let config = self.node.control_plane()?;
        // A member that has yet to join ends while no other member answers it.
        if self.progress.etcd
            && let Some(damaged) = damage::look(config, self.node.root(), &self.node.services(), self.node.runner())?
        {
            return Err(damaged.into());
        }
        if !member::own_healthy(self.node.config.timeout(REQUEST)) {
            let own = self.own_etcd()?;
            if own.status().is_ok_and(|status| upkeep::is_corrupt(&status)) {
                return Err(upkeep::findings(&[], &own.alarms()?).into());
            }
            return Err(StepError::Waiting(self.missing_members()));
        }
        // The API server here uses no other member, and a learner does not answer it.
        let own = self.own_etcd()?;
        if own.status()?.is_learner {
            return Err(StepError::Waiting("waiting for this node's etcd, a learner, to be given its vote".to_owned()));
        }
        if joining {
            self.note_epoch()?;
        }
        // The endpoint is open, and a node that was off does not know which certificates were revoked. Maintenance
        // tries again.
        if let Err(error) = revocation_list::share(self.node.root(), &own) {
            log::warn!("learning which certificates are revoked: {error:#}");
        }
        self.node.reporter.update(|status| status.times.etcd = status.times.etcd.or_else(status::since_power_on));
        Ok((self.save_progress(|progress| progress.etcd = true)? || started).into())
    }

    /// Writes etcd's configuration while no etcd runs with another one. When systemd answers a restart, it has only
    /// queued it, and an etcd that is about to stop still reports healthy. Therefore any etcd that answers later has
    /// this configuration. If interrupted at any point, the next call repeats it.
    fn configure_etcd(&self, content: &str) -> anyhow::Result<()> {
        let laid = self.node.path(etcd::CONFIGURATION);
        if !fs::read(&laid).is_ok_and(|present| present == content.as_bytes()) {
            // A node whose agent has just started does not watch its API.
            self.release_virtual_ip()?;
            self.node.services().stop(etcd::UNIT, self.node.config.timeout(STOP_LIMIT))?;
            files::write_atomically(&laid, content.as_bytes(), 0o600)?;
        }
        Ok(())
    }

    /// An old copy of the data disk must not access the cluster's store.
    fn check_data_disk(&mut self) -> Result<(), StepError> {
        let identity = self.identity.as_ref().context("the data disk is not mounted")?;
        let (node, build) = (&self.node, &self.node.image.build);
        match peers::judge(node.control_plane()?, identity, build, &node.records, &node.pki())? {
            Verdict::True => Ok(()),
            Verdict::Refused(findings) => Err(StepError::Refused(findings)),
            // While the cluster forms, possibly no node knows yet.
            Verdict::Unknown if !self.progress.formed => Ok(()),
            Verdict::Unknown => {
                let limit = node.config.timeout(ANSWERING);
                if self.unanswered.get_or_insert_with(Instant::now).elapsed() < limit {
                    return Err(StepError::Waiting(
                        "waiting for another control-plane node, which knows whether this data disk is an old copy"
                            .to_owned(),
                    ));
                }
                log::warn!(
                    "no other control-plane node has said within {} s which node this data disk belongs to",
                    limit.as_secs()
                );
                Ok(())
            }
        }
    }

    /// A node that replaces a lost one in a restored cluster belongs to the restored cluster from now on.
    fn note_epoch(&self) -> anyhow::Result<()> {
        let known = node_record::list(&self.own_etcd()?).context("looking whether the cluster was restored")?;
        let Some(Epoch { token, at }) = node_record::epoch(&known).cloned() else { return Ok(()) };
        let members = self.node.config.control_nodes().iter().map(|node| node.name.clone()).collect();
        self.node.records.begin_entry(&RestoreRecord { token, members, at }).map(drop)
    }

    /// Assigns the disk to this VM. From now on the former VM can take it again only as its image swap allows.
    fn adopt_data_disk(&mut self) -> anyhow::Result<()> {
        let disk = self.plan.data_disk().context("the plan has no data disk")?;
        let claimant = Claimant::of(&self.node.platform, &self.node.image);
        self.identity = Some(adopt::take(self.node.root(), disk, &claimant)?);
        self.node.endpoint.swaps().taken()
    }

    /// How many VMs have taken over the data disk.
    fn generation(&self) -> anyhow::Result<u64> {
        Ok(self.identity.as_ref().context("the data disk is not mounted")?.generation)
    }

    /// How this node's member becomes part of its cluster.
    fn beginning(&self, record: &RendezvousRecord, joining: bool) -> Result<InitialCluster, StepError> {
        let cluster = record.state().cluster().context("this node belongs to no cluster yet")?;
        let config = self.node.control_plane()?;
        if let Some(restored) = self.node.records.entry::<RestoreRecord>()? {
            return Ok(InitialCluster::of_restored(config, &restored));
        }
        if !joining {
            return Ok(InitialCluster::of_forming(config, cluster));
        }
        let (pki, timeout) = (self.node.pki(), config.timeout(REQUEST));
        let members = config.peers().find_map(|peer| EtcdClient::new(peer, &pki, timeout).ok()?.members().ok());
        let members = members.ok_or_else(|| StepError::Waiting("no member of the cluster answers".to_owned()))?;
        InitialCluster::of_joining(config, cluster, &members)
            .ok_or_else(|| StepError::Waiting("waiting for a member to add this node's etcd as a learner".to_owned()))
    }

    /// The size of the largest database of another member, in bytes. A joining node receives it.
    fn others_database(&self) -> Result<u64, StepError> {
        let (config, pki) = (self.node.control_plane()?, self.node.pki());
        let status = |peer| EtcdClient::new(peer, &pki, config.timeout(REQUEST)).ok()?.status().ok();
        let largest = config.peers().filter_map(status).map(|status| status.db_size).max();
        largest.ok_or_else(|| StepError::Waiting("no member of the cluster reports its size".to_owned()))
    }

    /// Names the members that do not listen.
    fn missing_members(&self) -> String {
        let silent: Vec<&str> = self
            .node
            .config
            .peers()
            .filter(|peer| !etcd::listens(peer, Duration::from_millis(500)))
            .map(|peer| peer.name.as_str())
            .collect();
        match silent.as_slice() {
            [] => "waiting for etcd to find a leader".to_owned(),
            silent => format!("waiting for etcd to find a leader; no etcd answers on {}", silent.join(", ")),
        }
    }

    pub(super) fn own_etcd(&self) -> anyhow::Result<EtcdClient> {
        EtcdClient::new(self.node.control_node()?, &self.node.pki(), self.node.config.timeout(REQUEST))
    }
}
