//! The lease of an import: for as long as it is kept, vCenter waits for files.

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

/// A lease that is aborted when it goes, unless it is released.
pub(super) struct Lease {
    client: Client,
    reference: Option<MoRef>,
}

/// A lease that is ready.
pub(super) struct Ready {
    pub(super) vm: MoRef,
    /// Where each file of the plan goes to.
    pub(super) targets: Vec<Target>,
}

/// Where a file goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) url: String,
    /// The sum of the certificate of whoever takes it; empty if vCenter says none.
    pub(super) thumbprint: String,
}

impl Lease {
    pub(super) fn hold(client: &Client, reference: MoRef) -> Self {
        Self { client: client.clone(), reference: Some(reference) }
    }

    pub(super) fn reference(&self) -> Result<&MoRef> {
        self.reference.as_ref().ok_or_else(|| Error::refused("using a lease", "it was released"))
    }

    /// Leaves it to itself.
    pub(super) fn release(mut self) -> MoRef {
        self.reference.take().expect("it is released once")
    }

    /// Ends it: vCenter removes what was made.
    pub(super) async fn abort(mut self) {
        if let Some(lease) = self.reference.take() {
            abort(self.client.clone(), lease).await;
        }
    }

    /// Waits until vCenter takes files.
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

/// Whether a lease is seen to have ended well, of which nobody knows whether it has.
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
    // It takes back what was begun under the guard, and is a part of that.
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
