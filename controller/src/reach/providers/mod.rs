//! What runs VMs, by its Provider: one session for all clusters on it, opened anew when the object or its Secret is another one,
//! and not asked for a while once it fails again and again. Of a cluster: the hypervisor that `fleet` works with.
//!
//! A login that was refused is not sent again before user or password are others: vCenter locks accounts. A session that is no
//! longer the newest is left to those who still work with it, within the same limits; vCenter ends it half an hour after their last call.

#[cfg(test)]
pub(crate) mod bed;
mod breaker;
mod credentials;
mod limits;
mod look;
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

pub use self::site::{ClusterPlacement, placement};
pub use self::unavailable::{Unavailable, UnavailableReason};

/// What runs VMs, by the names of Providers. Clones share sessions.
#[derive(Clone)]
pub struct Providers(Arc<Inner>);

struct Inner {
    objects: Arc<dyn Objects>,
    term: Term,
    clock: Clock,
    /// Where this process keeps what is of its node alone.
    directory: PathBuf,
    /// That node, as people know it.
    node: String,
    /// What is promised to snapshots that come to that directory.
    promised: Promised,
    /// The room for what tenants' clusters answer.
    bodies: Bodies,
    /// By the UID of the Provider. Each is locked for as long as a login takes: whoever needs it meanwhile waits for that one.
    known: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<ProviderState>>>>,
}

/// Where this process keeps what is of its node alone, if nothing else is said: snapshots of clusters' stores, which come before their
/// upgrades.
pub const DIRECTORY: &str = "/var/lib/kaas-controller";

/// So many large answers of tenants' clusters are in memory at once. One has up to 16 MiB, of which it takes twice as much while it grows, and
/// what is made of one, some 400 MiB at most, is made of one at a time: the pod may have 1 GiB.
const LARGE: usize = 8;

/// What is known of a Provider.
#[derive(Default)]
struct ProviderState {
    open: Option<(Key, Client)>,
    /// They are the Provider's, whatever a session was opened with: engines that are under way work by an earlier one. Always those of
    /// the session that was handed out last: one that is refused right after its login has changed nothing.
    limits: Limits,
    refused: Option<(Key, String)>,
    breaker: Breaker,
    /// Until when it is left alone, for people.
    until: Option<Time>,
    /// What was seen by this session of this generation of the spec, and when.
    looked: Option<(Key, Option<i64>, Duration, Arc<VCenterInventory>)>,
}

/// What a session is opened with comes to this.
type Key = [u8; 32];

/// For so long what was seen is believed, if the vCenter still answers and all was there: what was missing somebody may be about to
/// give.
const BELIEVED: Duration = Duration::from_secs(10 * 60);
/// For so long it is believed to answer.
const ANSWERS: Duration = Duration::from_secs(30);

/// For whoever changes something on a vCenter that is no cluster's: the term alone is asked.
struct InTerm<'a>(&'a Term);

#[async_trait]
impl vsphere::Fence for InTerm<'_> {
    async fn still(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.ensure_active().map_err(|ended: TermEnded| ended.into())
    }
}

/// What a Provider's vCenter is.
///
/// # Errors
/// When it is of a type that this version does not know.
pub fn vsphere(provider: &Provider) -> Result<&VSphere, Unavailable> {
    provider.spec.vsphere.as_ref().ok_or_else(|| UnavailableReason::Unknown.of(&provider.name_any()))
}

impl Providers {
    /// Those that an API server has, for a leader.
    pub fn new(objects: Arc<dyn Objects>, term: Term, clock: Clock) -> Self {
        Self::keeping(objects, term, clock, PathBuf::from(DIRECTORY), "this node")
    }

    /// The same, which keeps what is of a node of this name alone in a directory.
    pub fn keeping(objects: Arc<dyn Objects>, term: Term, clock: Clock, directory: PathBuf, node: &str) -> Self {
        let (node, promised, bodies, known) =
            (node.to_owned(), Promised::default(), Bodies::new(LARGE), Mutex::default());
        Self(Arc::new(Inner { objects, term, clock, directory, node, promised, bodies, known }))
    }

    /// The room that what tenants' clusters answer shares.
    pub(super) fn bodies(&self) -> &Bodies {
        &self.0.bodies
    }

    /// Where it keeps what is of its node alone, and that node.
    pub(super) fn keeps(&self) -> (&Path, &str) {
        (&self.0.directory, &self.0.node)
    }

    /// The API server that has the Providers.
    pub(super) fn objects(&self) -> &dyn Objects {
        &*self.0.objects
    }

    /// What is promised to snapshots that come there.
    pub(super) fn promised(&self) -> &Promised {
        &self.0.promised
    }

    /// The session on a Provider's vCenter, with the credentials that its Secret has now. Opened if there is none.
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

    /// What there is on a Provider's vCenter of what it names. What was seen with the same credentials of the same spec a while ago
    /// stands for as long as the vCenter answers. Whoever fails again and again is left alone for a while, by all.
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
            // It was asked with what it does not accept any more.
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

    /// Ends what there is of a Provider that is gone.
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

    /// Where the images lie that the clusters of a Provider share: a hypervisor that lays them, and tells which are there. It has no VM.
    ///
    /// # Errors
    /// Why it cannot be asked, or what of the Provider is not there.
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

    /// The hypervisor of one cluster. Its VMs are in a folder of its own, below the Provider's: made if it is not there and it is to
    /// be; else what is looked at is the Provider's.
    ///
    /// # Errors
    /// Why it cannot be asked, or what of the place is not there.
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

    /// The path of a cluster's folder below the data center.
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
            // Its own earlier call, whose answer was lost.
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

    /// Notes that it has failed. The time of the day until which it rests is told once: it is the same for whoever asks meanwhile.
    fn failed(&mut self, clock: &Clock, why: &str) {
        self.breaker.failed(clock.now(), why);
        let left = self.breaker.rests(clock.now()).and_then(|(left, _)| i64::try_from(left.as_secs()).ok());
        let until = left.and_then(|left| clock.time().0.checked_add(SignedDuration::from_secs(left)).ok());
        self.until = until.map(Time);
    }
}

/// What a session is opened with: another one is needed if any of it is otherwise.
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

/// Whether a vCenter answers whoever is logged in.
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
            // As the TLS library says it; nothing else of a connection has one.
            vsphere::Error::Unreached { reason, .. } if reason.contains("certificate") => {
                UnavailableReason::Untrusted(words)
            }
            vsphere::Error::Refused { .. } => UnavailableReason::OtherServer(words),
            _ if error.outcome() == Outcome::Denied => UnavailableReason::LoginRefused(words),
            _ => UnavailableReason::NoAnswer(words),
        }
    })
}

/// Refuses another vCenter than was seen there before.
async fn meant(provider: &Provider, client: Client) -> Result<Client, UnavailableReason> {
    let before = provider.status.as_ref().and_then(|status| status.instance_uuid.as_deref());
    let now = client.service().about.instance_uuid.clone();
    match before {
        Some(before) if !before.eq_ignore_ascii_case(&now) => {
            if let Err(error) = client.log_out().await {
                log::debug!("{error}");
            }
            Err(UnavailableReason::OtherServer(format!(
                "it is the vCenter {now}, and {before} was there before: VMs of clusters would not be found"
            )))
        }
        _ => Ok(client),
    }
}
