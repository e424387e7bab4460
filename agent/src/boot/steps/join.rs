//! The steps that make a worker part of its cluster.

use std::time::SystemTime;

use contract::finding::Findings;

use super::{StepContext, StepError, StepOutcome};
use crate::cluster::REQUEST;
use crate::cluster::certificates;
use crate::cluster::join::{self, CERTIFICATE, JoinContext, WorkerMembership, credentials};
use crate::intake::config::{Config, Worker};

impl StepContext {
    /// A worker that belongs to its cluster needs no token and no answer. The cluster's settings are saved before the
    /// credentials, because the credentials show that the worker has joined.
    pub(super) fn join(&mut self) -> Result<StepOutcome, StepError> {
        let mut worker = self.node.config.worker().map_err(anyhow::Error::from)?.clone();
        let standing = join::worker_membership(self.node.root(), &worker, SystemTime::now());
        if standing == WorkerMembership::Member {
            return self.belongs();
        }
        // While the worker belongs to no cluster, another form is used. A former member uses only the token in it.
        self.save_progress(|progress| progress.formed = false)?;
        let Some(token) = self.secret.clone() else { return Err(join::no_token(&standing).into()) };
        let public = token.expose().split('.').next().map(str::to_owned);
        self.node.reporter.update(|status| status.token = public);
        // The cluster may refuse a leased address, and the DHCP server may replace it.
        if self.take_lease()? {
            self.host_name()?;
            worker = self.node.config.worker().map_err(anyhow::Error::from)?.clone();
        }
        let admission = self.joining(&worker).discover(&token).map_err(|error| refused(error, &standing))?;
        worker.cluster.learned = Some(admission.learned.clone());
        let config = Config::Worker(worker.clone());
        self.node.records.update_config(&config, None)?;
        let joining = self.joining(&worker);
        // The key is shown before the request: by it the program that created this VM recognizes the VM that the
        // cluster admitted.
        let key = joining.key()?;
        self.node.reporter.update(|status| status.key = Some(key));
        let certificate = joining.certificate(&admission).map_err(|error| refused(error, &standing))?;
        credentials::lay(&joining, &admission.ca, &certificate)?;
        self.node.config = config;
        log::info!("joined cluster {} with Kubernetes {}", worker.cluster.name, admission.learned.kubernetes_minor);
        self.belongs()?;
        Ok(StepOutcome::Changed)
    }

    fn joining<'a>(&'a self, worker: &'a Worker) -> JoinContext<'a> {
        JoinContext {
            worker,
            image: &self.node.image,
            machine: self.node.platform.bios_uuid(),
            root: self.node.root(),
            timeout: self.node.config.timeout(REQUEST),
        }
    }

    /// The token is useless to this node from now on.
    fn belongs(&mut self) -> Result<StepOutcome, StepError> {
        let formed = self.save_progress(|progress| {
            progress.formed = true;
            progress.credentials = true;
        })?;
        self.secret = None;
        let erased = self.node.records.erase_token()?;
        let certificates = certificates::inventory(self.node.root());
        let key = credentials::key(self.node.root());
        self.node.reporter.update(|status| (status.certificates, status.key) = (certificates, key));
        Ok((formed || erased).into())
    }

    pub(super) fn programs_of_cluster(&mut self) -> Result<StepOutcome, StepError> {
        let minor = self.node.config.kubernetes_minor().map(str::to_owned);
        // The image has this version: it was chosen from the image's versions.
        self.node.kubernetes_version()?;
        self.programs(&minor.unwrap_or_default())
    }
}

/// For a former member, also reports why it is no longer a member.
fn refused(error: join::Error, standing: &WorkerMembership) -> StepError {
    match error {
        join::Error::Waiting(what) => StepError::Waiting(what),
        join::Error::Failed(error) => StepError::Failed(error),
        join::Error::Refused(finding) => {
            let mut findings = Findings::from(*finding);
            if let WorkerMembership::Expired(ended) = standing {
                findings.push(join::expired(CERTIFICATE, *ended, "It joins again when its token is accepted"));
            }
            StepError::Refused(findings)
        }
    }
}
