//! A hypervisor in memory, which can fail at a call or be away. It panics at calls that must never happen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::bail;
use async_trait::async_trait;
use contract::bios_uuid::BiosUuid;
use contract::configure::{ConfigureRefusal, Configured, Properties};
use contract::deployer::{Fingerprint, Fingerprints, PrivateKey};
use contract::finding::Findings;
use contract::kubeconfig::Kubeconfig;
use contract::properties as keys;
use contract::replacement::ReplacementGrant;
use contract::secret::Secret;
use contract::statement::{Phase, Statement};
use fleet::control_plane::Guests;
use fleet::hypervisor::{
    Adapter, CloneRequest, CloneSettings, Disk, DiskKind, DiskRef, Error, ErrorKind, Fence, Host, Hypervisor,
    ImageTemplate, Placement, PowerState, Result, ShutDown, Stamp, Vm, VmRef, VmSize,
};
use fleet::lease::Snapshots;
use fleet::nodes::{AddOnSeen, ConfigureAnswer, Credentials};
use fleet::workers::{Cluster, ClusterChange, Evicted, NodeSeen, PodSeen};
use tokio::time::Instant;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::super::secrets::ends;
use super::contents::{Content, Ill};
use crate::decisions::fixture;
use crate::objects::{Provider, TenantCluster};
use crate::reach::Infrastructure;
use crate::reach::providers::{ClusterPlacement, Unavailable, UnavailableReason};

/// How long a cluster takes to form.
const FORMS: Duration = Duration::from_secs(90);
/// How long a worker takes to join.
const JOINS: Duration = Duration::from_secs(30);
/// The validity of a deployer's certificate.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A fault of a call that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not done.
    Fails,
    /// It is done, and the answer is lost.
    Lost,
}

/// A VM, its place, and since when it is on.
pub type Made = (Vm, Placement, Option<Instant>);

#[derive(Default)]
pub struct State {
    pub vms: Vec<Made>,
    /// The digests of the images of VMs, by BIOS UUID.
    pub images: BTreeMap<Uuid, String>,
    /// The data disks of control-plane nodes, by node.
    pub contents: BTreeMap<String, Content>,
    pub ill: Ill,
    pub has_once_formed: bool,
    pub snapshots: BTreeSet<String>,
    /// The existing data disks, and whether each may be removed.
    pub disks: BTreeMap<Uuid, bool>,
    /// The OVF properties of VMs, by name.
    pub forms: BTreeMap<String, BTreeMap<String, String>>,
    pub changes: Vec<&'static str>,
    pub fault: Option<(usize, Fault)>,
    /// Whether calls get no answer.
    pub is_away: bool,
    /// Whether there is no template.
    pub lacks_template: bool,
    /// VMs whose host does not respond, by their identifiers.
    pub cut_off: BTreeSet<String>,
    /// A property that the image does not have.
    pub unknown_property: Option<&'static str>,
    /// Whether the nodes never form.
    pub is_ill: bool,
    /// How often credentials were issued.
    pub given: usize,
    /// Cordoned nodes and removed nodes, by name.
    pub cordoned: BTreeSet<String>,
    pub removed: BTreeSet<String>,
    /// Workers whose nodes are not Ready, by name.
    pub unready: BTreeSet<String>,
    /// Workers that never join, by name.
    pub absent: BTreeSet<String>,
    /// Add-ons that do not run, by name.
    pub stopped: BTreeSet<String>,
    /// Whether the Kubernetes API does not answer.
    pub is_silent: bool,
    /// Addresses that the tenant has written into Nodes, by name.
    pub written: BTreeMap<String, Ipv4Addr>,
    /// The number of further lists of nodes that get no answer.
    pub silences: usize,
    /// The number of further reads of guestinfo that show no cluster.
    pub hidden: usize,
    /// The number of lists of VMs until one fails.
    pub unlisted_after: Option<usize>,
    /// Whether no VM can be powered on.
    pub is_full: bool,
    /// Pods that cannot be evicted, by node.
    pub stuck: BTreeMap<String, PodSeen>,
    /// When the clock of tests began.
    began: Option<Instant>,
    /// The CA of clusters, in PEM, and its fingerprint.
    authority: Option<(String, Fingerprint)>,
    /// The CA's key, in PEM.
    signer: String,
    /// Whether guests take longer to shut down than the limit.
    pub is_slow: bool,
    /// Whether no kubeconfig can be used.
    pub is_unusable: bool,
    /// Foreign nodes that the cluster's API lists in addition.
    pub strangers: Vec<(String, Ipv4Addr)>,
    /// The control-plane nodes that were called, and whether none ever answers.
    pub asked: BTreeSet<Ipv4Addr>,
    pub are_mute: bool,
    /// The address of the API in kubeconfigs of control-plane nodes, if it is not their own.
    pub elsewhere: Option<&'static str>,
    /// How often a hypervisor was opened.
    pub opened: usize,
    /// The lost control-plane nodes for which others admitted a new VM.
    pub admitted: Vec<String>,
    /// The kubeconfigs with which clusters were called.
    pub asked_by: BTreeSet<String>,
    /// The users that were made administrators of the cluster.
    pub administrators: BTreeSet<String>,
    /// The deployer's keys of nodes that were given other ones than their forms have.
    pub deployer_keys: BTreeMap<Ipv4Addr, String>,
    /// The settings of nodes that were given other ones than their forms have, and the order in which nodes were changed.
    pub settings: BTreeMap<Ipv4Addr, BTreeMap<String, String>>,
    pub configured: Vec<Ipv4Addr>,
    /// A node that refuses any other value of a property.
    pub refuses: Option<(Ipv4Addr, String)>,
    /// Whether the nodes' images take one deployer's key only.
    pub takes_one_key: bool,
    /// The number of further changes of keys that nodes answer, if there is a limit.
    pub configures: Option<usize>,
    /// Whether the cluster signs no certificates.
    pub signs_nothing: bool,
}

/// Clones share one place.
#[derive(Clone, Default)]
pub struct InMemoryPlace(Arc<Mutex<State>>);

/// The hypervisor of a cluster there.
struct Of {
    place: InMemoryPlace,
    deployment: Uuid,
}

struct Api(InMemoryPlace);

struct Nodes {
    place: InMemoryPlace,
    key: Option<PrivateKey>,
}

impl InMemoryPlace {
    pub fn new() -> Self {
        let place = Self::default();
        let signer = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = authority.self_signed(&signer).unwrap();
        let fingerprint = Fingerprint::of_key_of(authority.der()).unwrap();
        let mut state = place.lock();
        (state.began, state.authority) = (Some(Instant::now()), Some((authority.pem(), fingerprint)));
        state.signer = signer.serialize_pem();
        drop(state);
        place
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The CA with which the cluster here forms.
    pub fn authority(&self) -> Fingerprint {
        self.lock().authority.as_ref().unwrap().1
    }

    /// The names and UUIDs of all VMs.
    pub fn vms(&self) -> BTreeMap<String, Uuid> {
        self.lock().vms.iter().map(|(vm, ..)| (vm.name.clone(), vm.uuid())).collect()
    }

    /// The places of VMs, by name.
    pub fn placements(&self) -> BTreeMap<String, Placement> {
        self.lock().vms.iter().map(|(vm, placement, _)| (vm.name.clone(), placement.clone())).collect()
    }

    /// Removes a VM, as another user of the vCenter would.
    pub fn lose(&self, name: &str) {
        self.lock().vms.retain(|(vm, ..)| vm.name != name);
    }

    /// The number of schedulable workers.
    pub fn serving(&self) -> usize {
        let state = self.lock();
        let serves = |it: &&(Vm, Placement, Option<Instant>)| {
            has_joined(&state, it)
                && [&state.removed, &state.cordoned, &state.unready].iter().all(|no| !no.contains(&it.0.name))
        };
        state.vms.iter().filter(serves).count()
    }

    /// Changes a VM, as another user of the vCenter would.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vm)) {
        change(&mut self.lock().vms.iter_mut().find(|(vm, ..)| vm.name == name).unwrap().0);
    }

    fn look<T>(&self, act: impl FnOnce(&State) -> T) -> Result<T> {
        let state = self.lock();
        if state.is_away {
            return Err(Error::transient(anyhow::anyhow!("the vCenter does not answer")));
        }
        Ok(act(&state))
    }

    async fn does<T>(
        &self,
        name: &'static str,
        permit: &dyn Fence,
        act: impl FnOnce(&mut State) -> anyhow::Result<T>,
    ) -> Result<T> {
        permit.still().await?;
        let mut state = self.lock();
        if state.is_away {
            return Err(Error::transient(anyhow::anyhow!("the vCenter does not answer")));
        }
        let fault = state.fault.filter(|(at, _)| *at == state.changes.len()).map(|(_, fault)| fault);
        state.changes.push(name);
        if fault == Some(Fault::Fails) {
            return Err(Error::transient(anyhow::anyhow!("it fails ({name})")));
        }
        let told =
            |error: anyhow::Error| error.downcast().unwrap_or_else(|error| Error::new(ErrorKind::Changed, error));
        let done = act(&mut state).map_err(told)?;
        match fault {
            Some(_) => Err(Error::new(ErrorKind::InDoubt, anyhow::anyhow!("the answer is lost"))),
            None => Ok(done),
        }
    }
}

impl State {
    /// The present values of the requested properties of a node.
    fn settings_of(&self, node: Ipv4Addr, asked: &Properties) -> BTreeMap<String, String> {
        let own = format!("{node}/");
        let is_its = |form: &&BTreeMap<String, String>| form.get(keys::ADDRESS).is_some_and(|it| it.starts_with(&own));
        let (form, set) = (self.forms.values().find(is_its), self.settings.get(&node));
        let value = |key: &String| set.and_then(|set| set.get(key)).or_else(|| form?.get(key)).cloned();
        asked.properties.keys().map(|key| (key.clone(), value(key).unwrap_or_default())).collect()
    }

    /// A kubeconfig of this user with a new key.
    fn signed(&self, server: String, user: &str, life: Duration) -> anyhow::Result<Kubeconfig> {
        let elapsed = self.began.unwrap().elapsed();
        let pair = rcgen::KeyPair::generate()?;
        let mut certificate = rcgen::CertificateParams::new(Vec::new())?;
        certificate.distinguished_name.push(rcgen::DnType::CommonName, user);
        // By the clock of tests.
        certificate.not_after = rcgen::date_time_ymd(2027, 1, 1) + elapsed + life;
        let authority = self.authority.clone().unwrap().0;
        let issuer = rcgen::Issuer::from_ca_cert_pem(&authority, rcgen::KeyPair::from_pem(&self.signer)?)?;
        let certificate = certificate.signed_by(&pair, &issuer)?.pem();
        Ok(Kubeconfig { server, server_name: None, authority, certificate, key: Secret::new(pair.serialize_pem()) })
    }

    /// Whether the certificate of a kubeconfig has expired by the clock of tests.
    fn has_expired(&self, kubeconfig: &str) -> bool {
        let now = rcgen::date_time_ymd(2027, 1, 1) + self.began.unwrap().elapsed();
        let ends = Credentials::parse(kubeconfig).ok().and_then(|credentials| ends(&credentials));
        ends.is_some_and(|ends| ends.0.as_second() <= now.unix_timestamp())
    }

    /// The current state of a VM that was seen.
    fn own(&mut self, seen: &Vm) -> anyhow::Result<&mut Made> {
        match self.vms.iter_mut().find(|(vm, ..)| vm.reference == seen.reference) {
            Some(found) if found.0 == *seen => Ok(found),
            Some(_) => bail!("it has changed"),
            None => bail!("there is no such VM"),
        }
    }

    /// Whether a control-plane node of the cluster has booted.
    fn has_formed(&self) -> bool {
        let is_up = |made: &Made| self.is_control(&made.0) && self.is_up(made, FORMS);
        !self.is_ill && self.vms.iter().any(is_up)
    }

    fn is_control(&self, vm: &Vm) -> bool {
        self.forms.get(&vm.name).is_some_and(|form| form[keys::ROLE] != "worker")
    }

    /// The name of a VM's node: a control-plane node keeps it in each of its VMs.
    fn name_of(&self, vm: &Vm) -> String {
        let of_control = Self::node_of(vm).filter(|_| self.is_control(vm));
        of_control.unwrap_or(&vm.name).to_owned()
    }

    /// Whether a VM is on and has what its node needs.
    fn is_node(&self, vm: &Vm) -> bool {
        vm.power == PowerState::On && (!self.is_control(vm) || vm.data_disks().next().is_some())
    }
}

#[async_trait]
impl Infrastructure for InMemoryPlace {
    async fn hypervisor(
        &self,
        provider: &Provider,
        place: &ClusterPlacement<'_>,
        _make: bool,
    ) -> std::result::Result<Box<dyn Hypervisor>, Unavailable> {
        self.lock().opened += 1;
        if self.lock().is_away {
            let provider = provider.metadata.name.clone().unwrap();
            return Err(Unavailable {
                provider,
                why: UnavailableReason::NoAnswer("the vCenter does not answer".to_owned()),
            });
        }
        Ok(Box::new(Of { place: self.clone(), deployment: place.deployment }))
    }

    fn cluster(&self, kubeconfig: &str) -> anyhow::Result<Box<dyn Cluster>> {
        let mut state = self.lock();
        anyhow::ensure!(!state.is_unusable, "its certificate is none");
        state.asked_by.insert(kubeconfig.to_owned());
        anyhow::ensure!(!state.has_expired(kubeconfig), "its certificate has expired");
        Ok(Box::new(Api(self.clone())))
    }

    async fn add_ons(&self, _: &str) -> anyhow::Result<Vec<AddOnSeen>> {
        let state = self.lock();
        if state.is_silent || !state.has_formed() {
            bail!("the API does not answer");
        }
        let all = [keys::CLUSTER_DNS, keys::CLUSTER_METRICS, keys::LOCAL_VOLUMES, keys::SERVICE_VIPS];
        let seen = |name: &str| AddOnSeen {
            add_on: name.to_owned(),
            workload: format!("kube-system/{name}"),
            wanted: 1,
            running: u64::from(!state.stopped.contains(name)),
        };
        Ok(all.into_iter().map(seen).collect())
    }

    fn guests(&self, key: Option<PrivateKey>) -> Box<dyn Guests> {
        Box::new(Nodes { place: self.clone(), key })
    }

    async fn issue(&self, kubeconfig: &str, user: &str, makes: bool) -> anyhow::Result<Zeroizing<String>> {
        let server = Kubeconfig::parse(kubeconfig)?.server;
        let mut state = self.lock();
        anyhow::ensure!(!state.signs_nothing, "the cluster has not signed a certificate in time");
        if makes {
            state.administrators.insert(user.to_owned());
        }
        Ok(state.signed(server, user, 7 * DAY)?.render("admin"))
    }

    async fn configure(
        &self,
        kubeconfig: &str,
        node: Ipv4Addr,
        asked: &Properties,
        dry_run: bool,
    ) -> anyhow::Result<ConfigureAnswer> {
        let by = Kubeconfig::parse(kubeconfig)?.user().unwrap_or_default();
        let mut state = self.lock();
        if state.takes_one_key {
            return Ok(ConfigureAnswer::UnknownRoute);
        }
        if state.configures == Some(0) {
            bail!("{node} does not answer");
        }
        state.configures = state.configures.map(|left| left - 1);
        let first = || state.forms.values().find_map(|form| form.get(keys::DEPLOYER_PUBLIC_KEY).cloned());
        let has = state.deployer_keys.get(&node).cloned().or_else(first).unwrap_or_default();
        let users = contract::deployer::public_keys(&has)?;
        let is_known = users.iter().any(|key| contract::deployer::user(key) == by);
        anyhow::ensure!(is_known, "{node} answered 403");
        let properties = state.settings_of(node, asked);
        let differs = |(key, text): &(&String, &String)| properties[*key] != **text;
        let changed: Vec<String> = asked.properties.iter().filter(differs).map(|(key, _)| key.clone()).collect();
        if state.refuses.as_ref().is_some_and(|(who, key)| *who == node && changed.contains(key)) {
            let (code, reason) = ("property.malformed".to_owned(), "the node refuses it".to_owned());
            let findings = Findings::default();
            return Ok(ConfigureAnswer::Refused(ConfigureRefusal { code, reason, properties, findings }));
        }
        let findings = Findings::default();
        if dry_run {
            return Ok(ConfigureAnswer::Configured(Configured { properties, changed, applied: true, findings }));
        }
        for (key, text) in &asked.properties {
            if key == keys::DEPLOYER_PUBLIC_KEY {
                state.deployer_keys.insert(node, text.clone());
            } else {
                state.settings.entry(node).or_default().insert(key.clone(), text.clone());
            }
        }
        if !asked.properties.contains_key(keys::DEPLOYER_PUBLIC_KEY) {
            state.configured.push(node);
        }
        let properties = asked.properties.clone();
        Ok(ConfigureAnswer::Configured(Configured { properties, changed, applied: true, findings }))
    }

    fn nodes(&self, kubeconfig: &str) -> anyhow::Result<Arc<dyn fleet::upgrade::Nodes>> {
        self.lock().asked_by.insert(kubeconfig.to_owned());
        Ok(Arc::new(self.clone()))
    }

    fn snapshots(&self, _: &TenantCluster) -> Box<dyn Snapshots> {
        Box::new(self.clone())
    }

    async fn clears(&self, _: &TenantCluster) -> anyhow::Result<()> {
        self.lock().snapshots.clear();
        Ok(())
    }
}

/// Whether a VM is that of a worker that has joined.
fn has_joined(state: &State, (vm, _, since): &Made) -> bool {
    let is_worker = state.forms.get(&vm.name).is_some_and(|form| form[keys::ROLE] == "worker");
    let is_on = vm.power == PowerState::On && since.is_some_and(|since| since.elapsed() >= JOINS);
    is_worker && is_on && !state.is_ill && !state.absent.contains(&vm.name)
}

#[async_trait]
impl Cluster for Api {
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>> {
        let mut state = self.0.lock();
        if state.is_silent || state.silences > 0 {
            state.silences = state.silences.saturating_sub(1);
            bail!("the API does not answer");
        }
        let is_there = |it: &&Made| {
            (state.is_control(&it.0) && state.is_node(&it.0) && state.has_formed())
                || (has_joined(&state, it) && !state.removed.contains(&it.0.name))
        };
        let there = state.vms.iter().filter(is_there);
        let name = |vm: &Vm| state.name_of(vm);
        let node = |(vm, ..): &Made| NodeSeen {
            name: name(vm),
            uid: vm.uuid().to_string(),
            // As a released image reports it.
            provider: BiosUuid::from(vm.uuid()).swapped().provider_id(),
            ready: !state.unready.contains(&vm.name),
            cordoned: state.cordoned.contains(&vm.name),
            address: state.written.get(&vm.name).copied().or_else(|| state.address(vm)),
            excluded: state.cordoned.contains(&vm.name),
            control: state.is_control(vm),
            kubelet: state.contents.get(&name(vm)).map_or("v1.36.2".to_owned(), |it| format!("v{}", it.kubernetes)),
            heard: "2027-01-01T00:00:00Z".to_owned(),
        };
        Ok(there.map(node).collect())
    }

    async fn pods(&self, node: &str) -> anyhow::Result<Vec<PodSeen>> {
        Ok(self.0.lock().stuck.get(node).cloned().into_iter().collect())
    }

    async fn local_claims(&self, _: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        Ok(BTreeMap::new())
    }

    async fn announced(&self, _: &str) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn let_in(&self, _: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    async fn change(&self, change: ClusterChange<'_>) -> anyhow::Result<()> {
        let mut state = self.0.lock();
        match change {
            ClusterChange::Cordon(node) => _ = state.cordoned.insert(node.name.clone()),
            ClusterChange::DeleteNode(node) => _ = state.removed.insert(node.name.clone()),
            ClusterChange::AddToken(_) | ClusterChange::RemoveToken(_) | ClusterChange::ReleaseName(_) => {}
        }
        Ok(())
    }

    async fn evict(&self, _: &PodSeen) -> anyhow::Result<Evicted> {
        Ok(Evicted::Blocked("a budget".to_owned()))
    }
}

impl Nodes {
    /// The place, if its nodes have formed and know the deployer's key.
    fn knows(&self, node: Ipv4Addr) -> anyhow::Result<MutexGuard<'_, State>> {
        let Some(key) = &self.key else { bail!("the deployer's key is not at hand") };
        let public = key.public()?.to_string();
        let state = self.place.lock();
        let knows = match state.deployer_keys.get(&node) {
            Some(given) => given.split(',').any(|given| given == public),
            None => state.forms.values().any(|form| form.get(keys::DEPLOYER_PUBLIC_KEY) == Some(&public)),
        };
        if !knows || !state.has_formed() {
            bail!("{node} accepts no such key, or has not formed");
        }
        Ok(state)
    }
}

#[async_trait]
impl Guests for Nodes {
    fn deployer_fingerprint(&self) -> Option<Fingerprint> {
        self.key.as_ref()?.fingerprint().ok()
    }

    async fn kubeconfig(&self, node: Ipv4Addr, _: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        let mut state = self.knows(node)?;
        let user = contract::deployer::user(&self.key.as_ref().expect("a known key").public()?);
        state.has_once_formed = true;
        state.given += 1;
        let server = state.elsewhere.map_or_else(|| format!("https://{node}:6443"), str::to_owned);
        Ok(state.signed(server, &user, DAY)?.render("deployer"))
    }

    async fn renew(&self, node: Ipv4Addr, former: &str) -> anyhow::Result<Zeroizing<String>> {
        let ca = Kubeconfig::parse(former)?.authority;
        anyhow::ensure!(self.place.lock().authority.as_ref().is_some_and(|own| own.0 == ca), "it has another CA");
        let shown = Fingerprints { ca: self.place.authority(), endpoint: self.place.authority() };
        self.kubeconfig(node, &shown).await
    }

    async fn accepts(&self, node: Ipv4Addr, _: &str) -> anyhow::Result<bool> {
        self.knows(node).map(|_| true)
    }

    async fn admit(&self, _: Ipv4Addr, _: &Fingerprints, lost: &str) -> anyhow::Result<ReplacementGrant> {
        let mut state = self.place.lock();
        state.admitted.push(lost.to_owned());
        Ok(ReplacementGrant {
            node: lost.to_owned(),
            code: format!("code-{}", state.admitted.len()),
            expires: String::new(),
            properties: BTreeMap::new(),
        })
    }

    async fn ready(&self, kubeconfig: &str) -> anyhow::Result<BTreeSet<String>> {
        let mut state = self.place.lock();
        state.asked_by.insert(kubeconfig.to_owned());
        let on = state.vms.iter().filter(|(vm, ..)| state.is_node(vm));
        Ok(on.map(|(vm, ..)| state.name_of(vm)).collect())
    }
}

#[async_trait]
impl Hypervisor for Of {
    fn deployment(&self) -> Uuid {
        self.deployment
    }

    async fn preflight(&self, placement: &Placement) -> Result<()> {
        let has_both = placement.datastore.is_some() && placement.resource_pool.is_some();
        assert!(placement.is_default() || has_both, "a zone has both");
        self.place.look(|_| ())
    }

    async fn vms(&self) -> Result<Vec<Vm>> {
        let is_own = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == self.deployment);
        let left = self.place.lock().unlisted_after;
        if let Some(left) = left {
            self.place.lock().unlisted_after = left.checked_sub(1);
            if left == 0 {
                return Err(Error::transient(anyhow::anyhow!("the vCenter does not answer")));
            }
        }
        self.place.look(|state| state.vms.iter().map(|(vm, ..)| vm).filter(is_own).cloned().collect())
    }

    async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        let found = self.place.look(|state| state.vms.iter().find(|(own, ..)| own.reference == *vm).cloned());
        found?.map(|(vm, ..)| vm).ok_or_else(|| Error::not_found("no such VM"))
    }

    async fn host(&self, vm: &VmRef) -> Result<Host> {
        self.place.look(|state| Host { name: "esx1".to_owned(), responds: !state.cut_off.contains(&vm.id) })
    }

    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        self.place.look(|state| state.vms.iter().map(|(vm, ..)| vm).filter(|vm| vm.uuid() == uuid).cloned().collect())
    }

    async fn fingerprints(&self, _: &VmRef) -> Result<Option<Fingerprints>> {
        let hidden = self.place.lock().hidden;
        if hidden > 0 {
            self.place.lock().hidden = hidden - 1;
            return Err(Error::transient(anyhow::anyhow!("the vCenter does not answer")));
        }
        self.place.look(|state| {
            let authority = state.authority.as_ref().unwrap().1;
            state.has_formed().then_some(Fingerprints { ca: authority, endpoint: Fingerprint::of(b"e") })
        })
    }

    async fn statement(&self, vm: &VmRef) -> Result<Option<Statement>> {
        let said = Statement {
            machine: Some(vm.uuid.into()),
            phase: Phase::Done,
            code: None,
            words: String::new(),
            lasting: false,
            times: 0,
            token: None,
            key: None,
            at: 0,
        };
        let is_it = |it: &&Made| it.0.reference == *vm;
        self.place.look(|state| state.vms.iter().find(is_it).is_some_and(|it| has_joined(state, it)).then_some(said))
    }

    async fn property(&self, vm: &VmRef, key: &str) -> Result<Option<String>> {
        self.place.look(|state| {
            let own = state.vms.iter().find(|(own, ..)| own.reference == *vm);
            own.and_then(|(own, ..)| state.forms.get(&own.name)?.get(key).cloned())
        })
    }

    async fn settle(&self, permit: &dyn Fence) -> Result<()> {
        permit.still().await?;
        self.place.look(|_| ())
    }

    async fn stamp(&self, _: &Vm, _: &Stamp, _: &dyn Fence) -> Result<()> {
        panic!("control nodes are stamped from their first moment")
    }

    async fn find_template(&self, digest: &str, _: Option<&Vm>, _: &Placement) -> Result<Option<ImageTemplate>> {
        let staged = ImageTemplate { digest: digest.to_owned(), reference: digest.to_owned() };
        self.place.look(|state| (!state.lacks_template).then_some(staged))
    }

    async fn import_template(
        &self,
        _: &Path,
        _: &str,
        _: Option<&Vm>,
        _: &Placement,
        _: &dyn Fence,
    ) -> Result<ImageTemplate> {
        Err(Error::refused("a controller has no OVA"))
    }

    async fn clone_vm(&self, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        let (uuid, name, stamp) = (request.uuid, request.name.to_owned(), &request.stamp);
        let is_first = matches!(request.settings, CloneSettings::Given { .. });
        self.place
            .does(if is_first { "add" } else { "import" }, permit, |state| {
                let is_there = state.vms.iter().any(|(vm, ..)| vm.stamp.as_ref() == Some(stamp) || vm.uuid() == uuid);
                assert!(!is_there, "{name} is made twice");
                let (vm, form, placement) = match request.settings {
                    CloneSettings::Replaces { vm, size } => {
                        let placement = state.own(vm)?.1.clone();
                        let form = state.forms.get(&vm.name).cloned().unwrap_or_default();
                        let connected = |adapter: &Adapter| Adapter { connected: true, ..adapter.clone() };
                        let adapters = vm.adapters.iter().map(connected).collect();
                        (Vm { size: size.or(vm.size), disks: Vec::new(), adapters, ..vm.clone() }, form, placement)
                    }
                    CloneSettings::Given { size, properties, .. } => {
                        if let Some(key) = state.unknown_property.filter(|key| properties.contains_key(*key)) {
                            bail!(Error::refused(format!("the VM has no property {key}")));
                        }
                        let disk = DiskRef { uuid: Uuid::new_v4(), path: format!("[ds] {name}.vmdk") };
                        let disk =
                            Disk { reference: disk, kind: DiskKind::Data, parent: None, controller: "c".to_owned() };
                        let disks = Vec::from_iter(size.data_disk.map(|_| disk));
                        state.disks.extend(disks.iter().map(|disk| (disk.reference.uuid, true)));
                        if properties[keys::ROLE] != "worker"
                            && let Some(disk) = disks.first()
                        {
                            state.contents.insert(stamp.node.clone(), Content::on(disk.reference.uuid));
                        }
                        let adapter = Adapter {
                            key: "4000".to_owned(),
                            network: "VM Network".to_owned(),
                            mac: "00:50:56:00:00:01".to_owned(),
                            connected: true,
                        };
                        let size = Some(VmSize { processors: size.processors, memory: size.memory.into() });
                        let vm = Vm { size, disks, adapters: vec![adapter], ..fixture::vm(&name, 0, 0) };
                        (vm, properties.clone(), request.placement.clone())
                    }
                };
                state.forms.insert(name.clone(), form);
                state.images.insert(uuid, request.image.digest.clone());
                let (reference, stamp) = (VmRef { uuid, id: format!("vm-{uuid}") }, Some(stamp.clone()));
                state.vms.push((Vm { reference, name, stamp, power: PowerState::Off, ..vm }, placement, None));
                Ok(uuid)
            })
            .await
    }

    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let now = Instant::now();
        self.place
            .does("power_on", permit, |state| {
                if state.is_full {
                    bail!(Error::refused("its host is full"));
                }
                let own = state.own(vm)?;
                assert_eq!(own.0.power, PowerState::Off, "{vm} is powered on twice");
                (own.0.power, own.2) = (PowerState::On, Some(now));
                let taken = own.0.clone();
                state.takes_disk(&taken);
                Ok(())
            })
            .await
    }

    async fn shut_down(&self, vm: &Vm, limit: Duration, permit: &dyn Fence) -> Result<ShutDown> {
        if self.place.lock().is_slow {
            permit.still().await?;
            tokio::time::sleep(limit).await;
            return Ok(ShutDown::StillOn);
        }
        self.place
            .does("shut_down", permit, |state| {
                state.own(vm)?.0.power = PowerState::Off;
                Ok(ShutDown::Off)
            })
            .await
    }

    async fn cut_power(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        self.place
            .does("cut_power", permit, |state| {
                state.own(vm)?.0.power = PowerState::Off;
                Ok(())
            })
            .await
    }

    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()> {
        self.place
            .does("connect", permit, |state| {
                let own = state.own(vm)?;
                own.0.adapters.iter_mut().filter(|it| it.key == adapter).for_each(|it| it.connected = connected);
                Ok(())
            })
            .await
    }

    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        self.place
            .does("detach", permit, |state| {
                let own = state.own(vm)?;
                assert_eq!(own.0.power, PowerState::Off, "{vm} is on and its disk was to be detached");
                own.0.disks.retain(|held| held.reference != *disk);
                Ok(())
            })
            .await
    }

    async fn attach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let reference = disk.clone();
        self.place
            .does("attach", permit, |state| {
                let held = state.vms.iter().any(|(other, ..)| other.disk(reference.uuid).is_some());
                assert!(!held, "{} is held and was to be attached", reference.path);
                assert!(state.disks.contains_key(&reference.uuid), "{} is lost", reference.path);
                let own = state.own(vm)?;
                assert_eq!(own.0.power, PowerState::Off, "{vm} is on and a disk was to be attached");
                own.0.disks.push(Disk { reference, kind: DiskKind::Data, parent: None, controller: "c".to_owned() });
                Ok(())
            })
            .await
    }

    async fn has_disk(&self, disk: &DiskRef) -> Result<bool> {
        self.place.look(|state| state.disks.contains_key(&disk.uuid))
    }

    async fn delete_disk(&self, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let disk = disk.uuid;
        self.place
            .does("delete_disk", permit, |state| {
                let held = state.vms.iter().any(|(vm, ..)| vm.disk(disk).is_some());
                assert!(!held, "{disk} is held and was to be removed");
                match state.disks.remove(&disk) {
                    Some(own) => assert!(own, "{disk} is somebody's volume and is removed"),
                    None => bail!(Error::not_found("no such disk")),
                }
                Ok(())
            })
            .await
    }

    async fn destroy(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        self.place
            .does("destroy", permit, |state| {
                let own = state.own(vm)?;
                assert_eq!(own.0.power, PowerState::Off, "{vm} is on and was to be removed");
                assert!(own.0.disks.is_empty(), "a disk goes with {vm}");
                state.vms.retain(|(other, ..)| other.reference != vm.reference);
                Ok(())
            })
            .await
    }

    async fn disown(&self, vm: &Vm, name: &str, permit: &dyn Fence) -> Result<()> {
        self.place
            .does("release", permit, |state| {
                let own = state.own(vm)?;
                assert!(own.0.power == PowerState::Off && own.0.is_fenced(), "{vm} was to be given up as it is");
                (own.0.name, own.0.stamp) = (name.to_owned(), own.0.stamp.as_ref().map(Stamp::released));
                Ok(())
            })
            .await
    }
}
