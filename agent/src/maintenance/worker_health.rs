//! Follows whether the cluster reports a worker ready. It asks only for its own node, because there may be very many.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cluster::REQUEST;
use crate::cluster::kubernetes::api::{self, Api};
use crate::host::files;
use crate::intake::config::Worker;
use crate::status::{Health, Reporter};

/// The pause between two looks while the node is healthy …
const CALM: Duration = Duration::from_secs(30);

/// … and while it is not.
const EAGER: Duration = Duration::from_secs(3);

pub struct WorkerWatch {
    worker: Worker,
    root: PathBuf,
    reporter: Reporter,
    due: Mutex<Option<Instant>>,
}

impl WorkerWatch {
    /// The first look is the next call of `look_if_due`.
    pub fn new(worker: &Worker, root: &std::path::Path, reporter: Reporter) -> Self {
        Self { worker: worker.clone(), root: root.to_owned(), reporter, due: Mutex::new(None) }
    }

    pub fn look_if_due(&self) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.is_none_or(|due| Instant::now() >= due) {
            let well = self.look();
            *due = Some(Instant::now() + if well { CALM } else { EAGER });
        }
    }

    fn look(&self) -> bool {
        let timeout = REQUEST * self.worker.timeout_factor;
        // Read again each time: the credentials may have been renewed.
        let kubeconfig = files::below(&self.root, api::KUBECONFIG);
        let asked = Api::new(self.worker.cluster.api_address, &kubeconfig, timeout)
            .and_then(|api| api.node(&self.worker.node.name));
        let (api, nodes) = match asked {
            Ok(node) => (true, Some(node.into_iter().collect::<Vec<_>>())),
            Err(error) => {
                log::debug!("asking for this node: {error:#}");
                (false, None)
            }
        };
        let well = nodes.iter().flatten().any(|node| node.ready);
        self.reporter.update(|status| {
            status.health = Some(Health { api, nodes, etcd: Vec::new(), virtual_address: None });
        });
        well
    }
}
