//! Sessions on the vCenters of Providers: one for all clusters of a Provider. A new one is opened if the object or its Secret
//! changes. After repeated failures it is not called for a while. For a cluster: the hypervisor that `fleet` works with.
//!
//! A rejected login is not sent again until user or password change: vCenter locks accounts. A former session stays open for
//! tasks that still use it, within the same limits. vCenter ends it half an hour after its last call.

#[cfg(test)]
pub(crate) mod bed;
mod breaker;
mod credentials;
mod limits;
mod look;
mod resolve;
mod site;
mod unavailable;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet::hypervisor::{self, Hypervisor};
use fleet::lease::Promised;
use fleet::nodes::Bodies;
use fleet::vcenter::{Library, VcenterHypervisor};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;
use sha2::{Digest, Sha256};
use vsphere::{Client, Connect, Limits, Outcome, Trust};

use self::breaker::Breaker;
use self::credentials::{Credentials, credentials};
use super::Objects;
use crate::decisions::VCenterInventory;
use crate::objects::{Provider, VSphere};
use crate::term::{Clock, Term, TermEnded};

pub use self::resolve::resolved;
pub use self::site::{ClusterPlacement, placement};
pub use self::unavailable::{Unavailable, UnavailableReason};

/// The sessions of all Providers. Clones share them.
#[derive(Clone)]
pub struct Providers(Arc<Inner>);

struct Inner {
    objects: Arc<dyn Objects>,
    term: Term,
    clock: Clock,
    /// The directory for files that stay on this node.
    directory: PathBuf,
    node: String,
    /// The space in that directory that is reserved for snapshots under way.
    promised: Promised,
    /// The memory for answers of tenant clusters.
    bodies: Bodies,
    /// By the UID of the Provider. A login holds the lock of one Provider, and other tasks wait for its result.
    known: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<ProviderState>>>>,
}

/// The default directory for files that stay on this node: snapshots that are taken before upgrades.
pub const DIRECTORY: &str = "/var/lib/kaas-controller";

/// The number of large answers of tenant clusters in memory at once. An answer has up to 16 MiB, and needs twice as much while it
/// grows. A parsed answer needs some 400 MiB at most, and only one is parsed at a time: the limit of the pod is 1 GiB.
const LARGE: usize = 8;

#[derive(Default)]
struct ProviderState {
    open: Option<(Key, Client)>,
    /// The limits of the Provider, shared by all its sessions: tasks under way may use an earlier one. They have the settings of
    /// the session that was returned last. A session that is rejected right after its login does not change them.
    limits: Limits,
    refused: Option<(Key, String)>,
    breaker: Breaker,
    /// The end of the back-off, as a time of day for messages.
    until: Option<Time>,
    /// The result of the last look: session, generation of the spec, time and state.
    looked: Option<(Key, Option<i64>, Duration, Arc<VCenterInventory>)>,
}

/// A digest of everything with which a session is opened.
type Key = [u8; 32];

/// How long a look is reused, if the vCenter still answers and nothing was missing. If something was missing, the operator may be
/// about to add it.
const BELIEVED: Duration = Duration::from_secs(10 * 60);
/// How long the vCenter is assumed to answer after a look.
const ANSWERS: Duration = Duration::from_secs(30);

/// The fence of changes that belong to no cluster: it checks the term only.
struct InTerm<'a>(&'a Term);

#[async_trait]
impl vsphere::Fence for InTerm<'_> {
    async fn still(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.ensure_active().map_err(|ended: TermEnded| ended.into())
    }
}

/// The vSphere part of a Provider.
pub fn vsphere(provider: &Provider) -> Result<&VSphere, Unavailable> {
    provider.spec.vsphere.as_ref().ok_or_else(|| UnavailableReason::Unknown.of(&provider.name_any()))
}

impl Providers {
    /// The sessions for a leader, with files in [`DIRECTORY`].
    pub fn new(objects: Arc<dyn Objects>, term: Term, clock: Clock) -> Self {
        Self::keeping(objects, term, clock, PathBuf::from(DIRECTORY), "this node")
    }

    /// As `new`, with this directory and this name of the node.
    pub fn keeping(objects: Arc<dyn Objects>, term: Term, clock: Clock, directory: PathBuf, node: &str) -> Self {
        let (node, promised, bodies, known) =
            (node.to_owned(), Promised::default(), Bodies::new(LARGE), Mutex::default());
        Self(Arc::new(Inner { objects, term, clock, directory, node, promised, bodies, known }))
    }

    pub(super) fn bodies(&self) -> &Bodies {
        &self.0.bodies
    }

    /// The directory for files that stay on this node, and the node's name.
    pub(super) fn keeps(&self) -> (&Path, &str) {
        (&self.0.directory, &self.0.node)
    }

    pub(super) fn objects(&self) -> &dyn Objects {
        &*self.0.objects
    }

    pub(super) fn promised(&self) -> &Promised {
        &self.0.promised
    }

    /// The session on a Provider's vCenter with the current credentials of its Secret. Opens one if none is open.
    pub async fn session(&self, provider: &Provider) -> Result<Client, Unavailable> {
        self.opened(provider).await.map(|(_, client)| client)
    }

    async fn opened(&self, provider: &Provider) -> Result<(Key, Client), Unavailable> {
        let name = provider.name_any();
        let described = vsphere(provider)?;
        let given = credentials(&*self.0.objects, &provider.spec).await.map_err(|why| why.of(&name))?;
        let key = key(described, &given);
        let known = self.known(provider);
        let mut known = known.lock().await;
        if let Some((_, words)) = known.refused.as_ref().filter(|(refused, _)| *refused == key) {
            return Err(UnavailableReason::LoginRefused(words.clone()).of(&name));
        }
        known.may_be_asked(self.0.clock.now()).map_err(|why| why.of(&name))?;
        if let Some((_, client)) = known.open.as_ref().filter(|(open, _)| *open == key) {
            client.set_limits();
            return Ok((key, client.clone()));
        }
        let connected = match connect(described, given, &known.limits).await {
            Ok(client) => meant(provider, client).await,
            Err(why) => Err(why),
        };
        match connected {
            Ok(client) => {
                client.set_limits();
                known.breaker.answered();
                known.refused = None;
                known.open = Some((key, client.clone()));
                Ok((key, client))
            }
            Err(why) => {
                match &why {
                    UnavailableReason::LoginRefused(words) => known.refused = Some((key, words.clone())),
                    why => known.failed(&self.0.clock, &why.to_string()),
                }
                Err(why.of(&name))
            }
        }
    }

    /// The state of everything that a Provider names. An earlier look with the same credentials and spec is reused while the
    /// vCenter answers. All callers share the back-off after repeated failures.
    pub async fn look(&self, provider: &Provider) -> Result<Arc<VCenterInventory>, Unavailable> {
        let (name, generation) = (provider.name_any(), provider.metadata.generation);
        let (key, client) = self.opened(provider).await?;
        let known = self.known(provider);
        let before = known.lock().await.looked.clone();
        let before = before.filter(|(of, spec, ..)| (of, *spec) == (&key, generation));
        let now = self.0.clock.now();
        let age = before.as_ref().map_or(Duration::MAX, |(_, _, at, _)| now.saturating_sub(*at));
        let (looked, is_new) = match before {
            Some((_, _, _, seen)) if age < ANSWERS => return Ok(seen),
            Some((_, _, _, seen)) if age < BELIEVED && seen.is_whole() => {
                (answers(&client).await.map(|()| seen), false)
            }
            _ => (look::look(&client, vsphere(provider)?).await.map(Arc::new), true),
        };
        let mut known = known.lock().await;
        match looked {
            Ok(seen) => {
                known.breaker.answered();
                if is_new {
                    known.looked = Some((key, generation, now, Arc::clone(&seen)));
                }
                Ok(seen)
            }
            // The session's credentials are no longer accepted.
            Err(error) if error.outcome() == Outcome::Denied && error.is_fault("InvalidLogin") => {
                known.open = None;
                known.refused = Some((key, error.to_string()));
                Err(UnavailableReason::LoginRefused(error.to_string()).of(&name))
            }
            Err(error) => {
                known.failed(&self.0.clock, &error.to_string());
                Err(UnavailableReason::NoAnswer(error.to_string()).of(&name))
            }
        }
    }

    /// Closes the session of a Provider that was deleted.
    pub async fn forget(&self, provider: &Provider) {
        let known = self.all().remove(&provider.uid().unwrap_or_default());
        let Some(known) = known else { return };
        let open = known.lock().await.open.take();
        if let Some((_, client)) = open
            && let Err(error) = client.log_out().await
        {
            log::debug!("{error}");
        }
    }

    /// The hypervisor that imports the images which the clusters of a Provider share. It has no VMs.
    pub async fn images(&self, provider: &Provider) -> Result<VcenterHypervisor, Unavailable> {
        let name = provider.name_any();
        let described = vsphere(provider)?;
        let client = self.session(provider).await?;
        let library = library(provider, &client)?;
        let networks = described.networks.first().map(|network| network.name.as_str());
        let place = ClusterPlacement { deployment: library.id, cluster: "", networks: networks.into_iter().collect() };
        let site = site::site(described, &place, site::templates(described).to_owned());
        let site = site.map_err(|what| lacks(&name, &what))?;
        let found = VcenterHypervisor::new(client, library.id, &site, &library.journal).await;
        found.map_err(|error| UnavailableReason::Hypervisor(error).of(&name))
    }

    /// The hypervisor of one cluster. Its VMs are in a separate folder below the Provider's. With `make`, the folder is created
    /// if it is missing. Otherwise the Provider's folder is used instead.
    pub async fn hypervisor(
        &self,
        provider: &Provider,
        place: &ClusterPlacement<'_>,
        make: bool,
    ) -> Result<Box<dyn Hypervisor>, Unavailable> {
        let name = provider.name_any();
        let described = vsphere(provider)?;
        let client = self.session(provider).await?;
        let of = |error: hypervisor::Error| UnavailableReason::Hypervisor(error).of(&name);
        let folder = self.folder(&client, described, place, make).await.map_err(of)?;
        let site = site::site(described, place, folder).map_err(|what| lacks(&name, &what))?;
        let library = library(provider, &client)?;
        let found = VcenterHypervisor::with_images_of(client, place.deployment, &site, &library).await.map_err(of)?;
        Ok(Box::new(found))
    }

    /// The path of a cluster's folder, below the VM folder of the data center.
    async fn folder(
        &self,
        client: &Client,
        described: &VSphere,
        place: &ClusterPlacement<'_>,
        make: bool,
    ) -> hypervisor::Result<String> {
        let parent = described.folder.trim_matches('/');
        let path = format!("{parent}/{}", place.folder());
        let inventory = |path: &str| format!("{}/vm/{path}", described.datacenter);
        let missing = match client.find(&inventory(&path)).await {
            Ok(_) => return Ok(path),
            Err(error) if error.outcome() == Outcome::NotFound => error,
            Err(error) => return Err(error.into()),
        };
        if !make {
            log::debug!("{missing}");
            return Ok(parent.to_owned());
        }
        let above = client.find(&inventory(parent)).await.map_err(hypervisor::Error::from)?;
        let guard = InTerm(&self.0.term);
        match client.changes(&guard).create_folder(&above, &place.folder()).await {
            Ok(_) => Ok(path),
            // An earlier call of this controller, whose answer was lost.
            Err(error) if error.is_fault("DuplicateName") => Ok(path),
            Err(error) => Err(error.into()),
        }
    }

    fn known(&self, provider: &Provider) -> Arc<tokio::sync::Mutex<ProviderState>> {
        Arc::clone(self.all().entry(provider.uid().unwrap_or_default()).or_default())
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<tokio::sync::Mutex<ProviderState>>>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProviderState {
    fn may_be_asked(&self, now: Duration) -> Result<(), UnavailableReason> {
        match self.breaker.rests(now) {
            Some((left, why)) => {
                let until = self.until.as_ref().map(|until| until.0.to_string()).unwrap_or_default();
                Err(UnavailableReason::BackingOff { seconds: left.as_secs().max(1), until, why: why.to_owned() })
            }
            None => Ok(()),
        }
    }

    /// Records a failure. The end of the back-off is computed once, so that all callers report the same time.
    fn failed(&mut self, clock: &Clock, why: &str) {
        self.breaker.failed(clock.now(), why);
        let left = self.breaker.rests(clock.now()).and_then(|(left, _)| i64::try_from(left.as_secs()).ok());
        let until = left.and_then(|left| clock.time().0.checked_add(SignedDuration::from_secs(left)).ok());
        self.until = until.map(Time);
    }
}

/// The key of a session. A different key needs a new session.
fn key(described: &VSphere, given: &Credentials) -> Key {
    let VSphere { server, ca_bundle, thumbprint, requests, clones_at_once, task_minutes, .. } = described;
    let mut digest = Sha256::new();
    let opened_with = serde_json::json!([server, ca_bundle, thumbprint, requests, clones_at_once, task_minutes]);
    digest.update(opened_with.to_string());
    digest.update(given.digest);
    digest.finalize().into()
}

/// The images that the clusters of a Provider share.
fn library(provider: &Provider, client: &Client) -> Result<Library, Unavailable> {
    let described = vsphere(provider)?;
    let (_, datastore) =
        site::first_zone(described).ok_or_else(|| UnavailableReason::Unknown.of(&provider.name_any()))?;
    let templates = site::templates(described);
    Ok(Library::of(&client.service().about, &described.datacenter, templates, datastore))
}

fn lacks(provider: &str, what: &str) -> Unavailable {
    UnavailableReason::Hypervisor(hypervisor::Error::refused(format!("it has no longer {what}"))).of(provider)
}

/// Whether a vCenter answers in this session.
async fn answers(client: &Client) -> vsphere::Result<()> {
    let root = client.service().root_folder()?;
    client.look(&root, &["name"]).await.map(drop)
}

async fn connect(described: &VSphere, given: Credentials, limits: &Limits) -> Result<Client, UnavailableReason> {
    let trust = match (&described.ca_bundle, &described.thumbprint) {
        (Some(pem), _) => Trust::Certificates(pem.clone()),
        (None, Some(text)) => Trust::Thumbprint(
            text.parse().map_err(|error| UnavailableReason::Untrusted(format!("its thumbprint: {error}")))?,
        ),
        (None, None) => Trust::System,
    };
    let settings = limits::settings(described);
    let Credentials { user, password, .. } = given;
    let connect = Connect { address: described.server.clone(), trust, user, password, settings };
    Client::connect_within(connect, limits).await.map_err(|error| {
        let words = error.to_string();
        match &error {
            // The text is from the TLS library. No other error of a connection contains this word.
            vsphere::Error::Unreached { reason, .. } if reason.contains("certificate") => {
                UnavailableReason::Untrusted(words)
            }
            vsphere::Error::Refused { .. } => UnavailableReason::OtherServer(words),
            _ if error.outcome() == Outcome::Denied => UnavailableReason::LoginRefused(words),
            _ => UnavailableReason::NoAnswer(words),
        }
    })
}

/// Rejects a vCenter other than the one in the Provider's status.
async fn meant(provider: &Provider, client: Client) -> Result<Client, UnavailableReason> {
    let before = provider.status.as_ref().and_then(|status| status.instance_uuid.as_deref());
    let now = client.service().about.instance_uuid.clone();
    match before {
        Some(before) if !before.eq_ignore_ascii_case(&now) => {
            if let Err(error) = client.log_out().await {
                log::debug!("{error}");
            }
            Err(UnavailableReason::OtherServer(format!(
                "it is the vCenter {now}, and it was {before} before: VMs of clusters would not be found"
            )))
        }
        _ => Ok(client),
    }
}
