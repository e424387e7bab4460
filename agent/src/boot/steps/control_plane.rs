//! The steps that bring up the container runtime and Kubernetes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;

use super::{StepContext, StepError, StepOutcome};
use crate::cluster::addons;
use crate::cluster::certificates::{self, renewal, users};
use crate::cluster::encryption::key_rotation::EncryptingNode;
use crate::cluster::join::credentials;
use crate::cluster::kubernetes::kubeadm::Kubeadm;
use crate::cluster::kubernetes::{
    CA_CERTIFICATE, MINORS, PROGRAMS, SUPER_ADMINISTRATOR, api, containerd, kubelet, proxy,
};
use crate::cluster::pod_network;
use crate::cluster::virtual_ip;
use crate::host::files;
use crate::host::services::FAILED_STARTS;
use crate::intake::config::Config;
use crate::maintenance::health::{HealthWatch, Watch};
use crate::maintenance::worker_health::WorkerWatch;
use crate::status;
use crate::system::address;
use crate::upgrade::kubernetes as kubernetes_upgrade;

/// The kubelet is restarted after this many looks without a Node object, times the timeout factor: after 30 s, then
/// each minute.
pub(super) const UNREGISTERED: u32 = 30;

impl StepContext {
    pub(super) fn programs(&mut self, minor: &str) -> Result<StepOutcome, StepError> {
        let target = Path::new(MINORS).join(minor);
        let link = self.node.path(PROGRAMS);
        if fs::read_link(&link).is_ok_and(|present| present == target) {
            return Ok(StepOutcome::Unchanged);
        }
        let temporary = link.with_extension("new");
        files::remove(&temporary)?;
        symlink(&target, &temporary)?;
        fs::rename(&temporary, &link)?;
        Ok(StepOutcome::Changed)
    }

    pub(super) fn runtime(&mut self) -> Result<StepOutcome, StepError> {
        // Completes an interrupted removal.
        files::remove_directory(&self.node.path(containerd::DAMAGED))?;
        let content = containerd::configuration(&self.node.platform, &self.node.image.pause);
        let mut changed = files::ensure_content(&self.node.path(containerd::CONFIGURATION), content.as_bytes(), 0o600)?;
        let spec = containerd::container_spec(self.node.runner())?;
        changed |= files::ensure_content(&self.node.path(containerd::CONTAINER_SPEC), &spec, 0o600)?;
        containerd::lay_registries(&self.node.platform, self.node.config.node().registry_mirror.as_deref())?;
        changed |= users::needs_restart(self.node.root(), containerd::UNIT)?;
        let started = self.node.services().start_with(containerd::UNIT, changed)?;
        users::mark_restarted(self.node.root(), containerd::UNIT)?;
        let failing =
            self.runtime_failures >= FAILED_STARTS || self.node.services().ends_at_each_start(containerd::UNIT)?;
        let begun = self.node.path(kubelet::CONFIGURATION).exists();
        if failing && !(begun && containerd::serves_kubernetes(self.node.runner()).unwrap_or(false)) {
            return Err(self.recreate_runtime(begun)?);
        }
        match self.node.services().state(containerd::UNIT)?.as_str() {
            "active" if !containerd::serves_kubernetes(self.node.runner())? => {
                self.runtime_failures += 1;
                self.node.services().restart(containerd::UNIT)?;
                Err(StepError::Waiting(
                    "the container runtime came up without its Kubernetes interface: restarting it".to_owned(),
                ))
            }
            "active" => Ok(started.into()),
            state => Err(StepError::Waiting(format!("waiting for the container runtime, which is {state}"))),
        }
    }

    /// A power cut may have damaged containerd's data. Until the kubelet has `begun` since power-on, no container runs.
    fn recreate_runtime(&mut self, begun: bool) -> anyhow::Result<StepError> {
        self.runtime_failures = 0;
        if begun || !containerd::recreate(self.node.root(), &self.node.services())? {
            return Ok(containerd::failed().into());
        }
        Ok(StepError::Waiting("the container runtime starts without what it kept, which was damaged".to_owned()))
    }

    /// etcd knows which keys exist. The keys on the disk may be older than a restore.
    pub(super) fn encryption(&mut self) -> Result<StepOutcome, StepError> {
        let (etcd, now) = (self.own_etcd()?, Self::now());
        let node = EncryptingNode {
            root: self.node.root(),
            config: self.node.control_plane()?,
            etcd: &etcd,
            runner: self.node.runner(),
        };
        // All nodes of a forming cluster have the same image. Once this node has credentials, it may work for long
        // while others have yet to join.
        if !self.progress.credentials && self.node.records.rendezvous()?.is_forming() {
            node.begin(now)?;
        }
        Ok(node.write_configuration(now)??.changed.into())
    }

    pub(super) fn credentials(&mut self) -> Result<StepOutcome, StepError> {
        let kubeadm = Kubeadm::new(self.node.root(), self.node.runner());
        kubeadm.lay(self.node.control_plane()?, &self.node.platform, self.node.kubernetes_version()?)?;
        // kubeadm's upgrade renews the certificates.
        let complete = self.progress.credentials && !self.plan.upgrades();
        let changed = renewal::kubernetes(
            self.node.root(),
            self.node.control_plane()?,
            self.node.runner(),
            complete,
            Self::now(),
        )?;
        let certificates = certificates::inventory(self.node.root());
        self.node.reporter.update(|status| status.certificates = certificates);
        Ok((self.save_progress(|progress| progress.credentials = true)? || changed).into())
    }

    pub(super) fn manifests(&mut self) -> Result<StepOutcome, StepError> {
        let kubeadm = Kubeadm::new(self.node.root(), self.node.runner());
        // The patches contain hashes of the credentials, which exist now.
        kubeadm.lay(self.node.control_plane()?, &self.node.platform, self.node.kubernetes_version()?)?;
        Ok(kubeadm.manifests()?.into())
    }

    pub(super) fn virtual_address(&mut self) -> Result<StepOutcome, StepError> {
        let device = address::device(self.node.address()?)?;
        let config = self.node.control_plane()?;
        let content = virtual_ip::configuration(config, &device).context("there is no virtual IP for this node")?;
        self.release_virtual_ip()?;
        let changed = files::ensure_content(&self.node.path(virtual_ip::CONFIGURATION), content.as_bytes(), 0o600)?;
        Ok(self.node.services().start_with(virtual_ip::UNIT, changed)?.into())
    }

    /// Until the API of this node is ready, the node does not compete for the virtual IP. A single node keeps it
    /// through a restart of the agent, because no other node could hold it.
    pub(super) fn release_virtual_ip(&self) -> anyhow::Result<()> {
        let config = self.node.control_plane()?;
        let keeps = config.peers().next().is_none() && self.node.path(virtual_ip::HEALTH).exists();
        if let Some(address) = config.cluster.virtual_address
            && self.health.is_none()
            && !keeps
        {
            virtual_ip::set_health(self.node.root(), address, false)?;
        }
        Ok(())
    }

    pub(super) fn kubelet(&mut self) -> Result<StepOutcome, StepError> {
        if !self.node.path(kubelet::CONFIGURATION).exists() {
            // This is the first start since power-on.
            kubelet::forget_pods(self.node.root())?;
        }
        let replaced = kubelet::replace_unusable_certificates(self.node.root(), Self::now())?;
        if let Config::Worker(worker) = &self.node.config {
            // After a wrong time, the certificates of the last boot may not be valid.
            credentials::renew(self.node.root(), worker, Self::now())?;
        }
        let (config, dns) = (&self.node.config, self.node.network()?.dns_address());
        let mut settings = kubelet::configuration(config.node(), dns, config.timeout_factor(), &self.node.platform);
        let mut arguments = Vec::new();
        match config {
            Config::ControlPlane(config) => kubelet::of_control_plane(&mut settings, config.role),
            Config::Worker(worker) => {
                kubelet::of_worker(&mut settings, &worker.registration, self.node.platform.bios_uuid());
                arguments.extend(kubelet::labels(&worker.registration, self.plan.volumes_disk().is_some()));
            }
        }
        let content = format!("{settings:#}\n");
        let mut changed = files::ensure_content(&self.node.path(kubelet::CONFIGURATION), content.as_bytes(), 0o600)?;
        let content = kubelet::environment(self.node.address()?, &arguments);
        changed |= files::ensure_content(&self.node.path(kubelet::ENVIRONMENT), content.as_bytes(), 0o600)?;
        changed |= users::needs_restart(self.node.root(), kubelet::UNIT)?;
        let started = self.node.services().start_with(kubelet::UNIT, changed || replaced)?;
        users::mark_restarted(self.node.root(), kubelet::UNIT)?;
        if self.health.is_none() {
            let (root, reporter) = (self.node.root(), self.node.reporter.clone());
            self.health = Some(match &self.node.config {
                Config::ControlPlane(config) => Watch::ControlPlane(HealthWatch::start(config, root, reporter)?),
                Config::Worker(config) => Watch::Worker(Box::new(WorkerWatch::new(config, root, reporter))),
            });
        }
        Ok(started.into())
    }

    pub(super) fn wait_for_api(&mut self) -> Result<StepOutcome, StepError> {
        self.node.api()?.ready().map_err(|error| StepError::Waiting(brief(&error)))?;
        self.node.reporter.update(|status| status.times.api = status.times.api.or_else(status::since_power_on));
        Ok(StepOutcome::Unchanged)
    }

    pub(super) fn rights(&mut self) -> Result<StepOutcome, StepError> {
        let (runner, address) = (self.node.runner(), self.node.address()?);
        let rights = addons::rights(&self.node.control_plane()?.cluster);
        // Before the rights exist, only the super administrator may grant them.
        let apply = || api::apply_with(SUPER_ADMINISTRATOR, runner, address, &rights);
        Ok(Kubeadm::new(self.node.root(), runner).as_super_administrator(apply)?.into())
    }

    pub(super) fn service_network(&mut self) -> Result<StepOutcome, StepError> {
        let pods = self.node.network()?.pod_cidr;
        let settings = proxy::configuration(&self.node.config, pods, &self.node.platform);
        let content = format!("{settings:#}\n");
        let mut changed = files::ensure_content(&self.node.path(proxy::CONFIGURATION), content.as_bytes(), 0o600)?;
        changed |= users::needs_restart(self.node.root(), proxy::UNIT)?;
        let started = self.node.services().start_with(proxy::UNIT, changed)?;
        users::mark_restarted(self.node.root(), proxy::UNIT)?;
        Ok(started.into())
    }

    pub(super) fn pod_network(&mut self) -> Result<StepOutcome, StepError> {
        let changed = users::needs_restart(self.node.root(), pod_network::UNIT)?;
        let started = self.node.services().start_with(pod_network::UNIT, changed)?;
        users::mark_restarted(self.node.root(), pod_network::UNIT)?;
        Ok(started.into())
    }

    pub(super) fn wait_for_node(&mut self) -> Result<StepOutcome, StepError> {
        let name = &self.node.config.node().name;
        let node = self.node.api()?.node(name).map_err(|error| StepError::Waiting(brief(&error)))?;
        match node {
            Some(node) if node.ready => {
                self.node
                    .reporter
                    .update(|status| status.times.ready = status.times.ready.or_else(status::since_power_on));
                Ok(StepOutcome::Unchanged)
            }
            Some(_) => Err(StepError::Waiting("the node is registered and not ready yet".to_owned())),
            None => {
                self.unregistered += 1;
                // Maintenance creates a deleted object after the boot. If a worker's object is deleted, the worker was
                // removed.
                let looks = UNREGISTERED * self.node.config.timeout_factor();
                if self.unregistered.is_multiple_of(looks) && self.node.control_plane().is_ok() {
                    log::warn!("the cluster has no Node object of this node: the kubelet is restarted to register it");
                    kubelet::try_restart(self.node.runner())?;
                }
                Err(StepError::Waiting("the node is not registered yet".to_owned()))
            }
        }
    }

    pub(super) fn end_upgrade(&mut self, version: &str) -> Result<StepOutcome, StepError> {
        let manager = self.node.endpoint.swaps();
        kubernetes_upgrade::finish(manager, &self.node.api()?, version, self.node.runner())?
            .map_err(StepError::Waiting)?;
        Ok(StepOutcome::Changed)
    }

    pub(super) fn register(&mut self) -> Result<StepOutcome, StepError> {
        let kubeadm = Kubeadm::new(self.node.root(), self.node.runner());
        kubeadm.upload()?;
        kubeadm.mark()?;
        self.pin_publisher()?;
        self.take_workers()?;
        Ok(StepOutcome::Changed)
    }

    /// Applies the objects that workers need to join this cluster.
    fn take_workers(&self) -> anyhow::Result<()> {
        let config = self.node.control_plane()?;
        let authority = fs::read_to_string(self.node.path(CA_CERTIFICATE)).context("reading the cluster's CA")?;
        let objects = addons::workers(config, &authority);
        if !objects.is_empty() {
            api::apply(self.node.runner(), self.node.address()?, &objects).context("laying what workers join with")?;
        }
        Ok(())
    }

    pub(super) fn cluster_dns(&mut self) -> Result<StepOutcome, StepError> {
        let Some(dns) = addons::cluster_dns(self.node.control_plane()?, &self.node.image) else {
            return Ok(StepOutcome::Unchanged);
        };
        Ok(api::apply(self.node.runner(), self.node.address()?, &dns.objects)?.into())
    }
}

/// The last cause of an error, for the line that says what the node waits for.
pub(super) fn brief(error: &anyhow::Error) -> String {
    let root = error.root_cause().to_string();
    let line = root.lines().next().unwrap_or_default();
    line.chars().take(160).collect()
}
