//! The lease of an import. While it is kept, vCenter waits for files.

use std::time::Instant;

use super::plan::Plan;
use crate::client::Client;
use crate::collector::{Object, Watch, becomes};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::guard::Unguarded;
use crate::method::LEASE_ABORT;
use crate::reference::MoRef;
use crate::soap::Element;

/// A lease that is aborted when it is dropped, unless it was released.
pub(super) struct Lease {
    client: Client,
    reference: Option<MoRef>,
}

/// A lease that is ready for files.
pub(super) struct Ready {
    pub(super) vm: MoRef,
    /// The target of each file of the plan.
    pub(super) targets: Vec<Target>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) url: String,
    /// The thumbprint of the target's certificate. Empty if vCenter names none.
    pub(super) thumbprint: String,
}

impl Lease {
    pub(super) fn hold(client: &Client, reference: MoRef) -> Self {
        Self { client: client.clone(), reference: Some(reference) }
    }

    pub(super) fn reference(&self) -> Result<&MoRef> {
        self.reference.as_ref().ok_or_else(|| Error::refused("using a lease", "it was released"))
    }

    /// Releases the lease without ending it.
    pub(super) fn release(mut self) -> MoRef {
        self.reference.take().expect("it is released once")
    }

    /// Ends the lease. vCenter removes the objects that it created.
    pub(super) async fn abort(mut self) {
        if let Some(lease) = self.reference.take() {
            abort(self.client.clone(), lease).await;
        }
    }

    /// Waits until vCenter accepts files.
    pub(super) async fn ready(&self, plan: &Plan) -> Result<Ready> {
        let lease = self.reference()?;
        let attempt = || format!("waiting for {lease}");
        let mut watch = Watch::new(&self.client, lease.clone(), &["state", "info", "error"]);
        let (begin, limit) = (Instant::now(), self.client.settings().task_limit);
        let ready = loop {
            let seen = match watch.next(limit.saturating_sub(begin.elapsed())).await {
                Ok(seen) => seen,
                Err(error) => break Err(error),
            };
            match seen.text("state") {
                "ready" => break targets(seen, plan),
                "initializing" if begin.elapsed() < limit => {}
                "initializing" => break Err(Error::Late { attempt: attempt(), limit }),
                state => {
                    let fault = seen.get("error").map(Fault::localized);
                    break Err(match fault {
                        Some(fault) => Error::of_fault(attempt(), fault),
                        None => Error::unanswered(attempt(), format!("it is in the state {state:?}")),
                    });
                }
            }
        };
        watch.close().await;
        ready
    }
}

/// Whether a lease ended successfully, if its last call got no answer.
pub(super) async fn is_done(client: &Client, lease: &MoRef) -> bool {
    let is_done = becomes(client, lease, &["state"], |seen| match seen.text("state") {
        "done" => Some(true),
        "ready" => None,
        _ => Some(false),
    });
    is_done.await
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(lease) = self.reference.take() {
            self.client.give_back(abort(self.client.clone(), lease));
        }
    }
}

async fn abort(client: Client, lease: MoRef) {
    // The abort removes objects that were created under the guard, so it needs no other permission.
    if let Err(error) = client.perform(LEASE_ABORT, &lease, Vec::new(), &Unguarded).await {
        log::warn!("an import was not aborted, vCenter ends it five minutes after its last progress: {error}");
    }
}

fn targets(lease: &Object, plan: &Plan) -> Result<Ready> {
    let info = lease.need("info")?;
    let target = |device: &str| -> Result<Target> {
        let mut urls = info.all("deviceUrl");
        let url = urls.find(|url| url.text_of("importKey") == Some(device)).ok_or_else(|| {
            Error::unanswered(
                format!("uploading to {}", lease.reference),
                format!("vCenter names no place for {device}"),
            )
        })?;
        let text = |name: &str| url.child(name).map(Element::value).unwrap_or_default().to_owned();
        Ok(Target { url: text("url"), thumbprint: text("sslThumbprint") })
    };
    let targets = plan.files.iter().map(|file| target(&file.device)).collect::<Result<_>>()?;
    Ok(Ready { vm: info.need_reference("entity")?, targets })
}
