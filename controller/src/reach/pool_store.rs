//! The store in which `fleet` keeps leases and journals of a NodePool's workers, as objects. Its leases are Lease objects, as for
//! control-plane nodes. A worker is a Machine, which is created with its address before any other step. Its journal is in the
//! Machine's status. The Machine and its address are deleted once nothing is left of the worker. The NodePool has the desired
//! state, so only the highest number of a worker and the number of failed joins are stored in addition. The reconciler reads
//! Machines itself, so no journal is read here.
//!
//! A Machine has no number of a lease. A controller's term ends before the next one begins, and the lease is confirmed before
//! each write. A superseded lease therefore writes nothing.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use fleet::journals::File;
use fleet::lease::{AllocatedIds, Holder, Store};
use fleet::workers::{self, Record};
use kube::ResourceExt;
use serde_json::json;

use super::claim::claim;
use super::failure::Failure;
use super::in_use::AddressesInUse;
use super::kinds;
use super::objects::{Collection, Objects};
use super::store::ClusterStore;
use crate::decisions::{
    Access, Allocation, CLAIMANT, MACHINE_FINALIZER, NODE_POOL, NodePlace, ResourceUsage, allocation, claimant,
    claimed, is_bounded, limits, passing, tenant_of, zone_of_next,
};
use crate::objects::{AUTO, Claimant, IPPool, Machine, NodePool, PoolAddress, PoolAddressSpec, Provider, Tenant};
use crate::records::noted;
use crate::term::Term;

/// The number of attempts of a write that conflicts with another one.
const TRIES: usize = 10;
/// After this number of lost races for an address, the addresses in use are listed again.
const STALE: usize = 3;

pub struct PoolStore<'a> {
    objects: &'a dyn Objects,
    holds: ClusterStore<'a>,
    pool: &'a NodePool,
    /// The Machine of a further worker, without a name.
    like: &'a Machine,
    /// The pool of their addresses. `None` with DHCP.
    addresses: Option<&'a IPPool>,
    /// Why that pool gives out no address, if so.
    overlap: Option<&'a str>,
    /// The zones over which workers are spread.
    zones: &'a [String],
    /// The zones of the workers that this value created, by name.
    made: Mutex<BTreeMap<String, String>>,
    /// The Provider and the Tenants as they were when the pool was checked against them. `None` if no worker is created.
    judged: Option<(&'a Provider, &'a [Tenant])>,
    /// The addresses in use: listed once, not for each worker.
    seen: Mutex<ObservedAddresses>,
    /// How often another claimant got an address first.
    races: AtomicU32,
}

/// The claims since the last list. The list itself is not stored here: there may be as many pools as clusters.
#[derive(Default)]
struct ObservedAddresses {
    /// The number of the last list. `None` before the first one.
    looked: Option<u64>,
    /// Claims that were seen since, each with its number.
    since: Vec<(u64, PoolAddressSpec)>,
    /// How many claims were seen.
    count: u64,
    /// Why the last list cannot be read.
    unreadable: Option<Failure>,
}

impl<'a> PoolStore<'a> {
    /// The store of a NodePool, for a leader.
    pub fn new(
        objects: &'a dyn Objects,
        pool: &'a NodePool,
        term: &Term,
        like: &'a Machine,
        addresses: Option<&'a IPPool>,
    ) -> Self {
        Self {
            objects,
            holds: Self::holds(objects, pool, term),
            pool,
            like,
            addresses,
            overlap: None,
            zones: &[],
            made: Mutex::default(),
            judged: None,
            seen: Mutex::default(),
            races: AtomicU32::default(),
        }
    }

    /// Spreads further workers over these zones.
    pub fn over(self, zones: &'a [String]) -> Self {
        Self { zones, ..self }
    }

    /// Claims no address of the pool for this reason.
    pub fn unless(self, overlap: Option<&'a str>) -> Self {
        Self { overlap, ..self }
    }

    /// The zone of a worker that this value created.
    pub fn zone_of(&self, name: &str) -> Option<String> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    async fn next_zone(&self) -> anyhow::Result<String> {
        let all = Some((NODE_POOL, self.pool.name_any()));
        let all = all.as_ref().map(|(label, name)| (*label, name.as_str()));
        let all = kinds::list::<Machine>(self.objects, self.pool.namespace().as_deref(), all).await;
        let all = all.context("looking for the pool's Machines")?;
        Ok(zone_of_next(self.zones, &self.like.spec, &all).unwrap_or(&self.like.spec.zone).clone())
    }

    /// Checks each further Machine against this Provider and these Tenants, whose permission was checked before.
    pub fn within(self, provider: &'a Provider, tenants: &'a [Tenant]) -> Self {
        Self { judged: Some((provider, tenants)), ..self }
    }

    /// The leases of a NodePool, without its workers.
    pub fn holds(objects: &'a dyn Objects, pool: &NodePool, term: &Term) -> ClusterStore<'a> {
        // A dot cannot be in the name of a cluster.
        let name = format!("{}.workers", pool.name_any());
        ClusterStore::new(objects, &pool.namespace().unwrap_or_default(), &name, term)
    }

    async fn found(&self, name: &str) -> anyhow::Result<Option<Machine>> {
        let found = kinds::find::<Machine>(self.objects, self.pool.namespace().as_deref(), name).await;
        found.with_context(|| format!("reading the Machine {name}"))
    }

    /// Writes a worker's journal to its Machine.
    async fn keep(&self, worker: &workers::WorkerRecord) -> anyhow::Result<()> {
        for _ in 0..TRIES {
            let machine = self.found(&worker.name).await?;
            let machine = machine.with_context(|| format!("there is no Machine {}", worker.name))?;
            let now = noted(&machine, worker)?;
            let status = now.status.unwrap_or_default();
            match kinds::note(self.objects, &machine, machine.status.as_ref(), &status).await {
                Err(Failure::Changed) => {}
                written => return written.map(drop).with_context(|| format!("recording the Machine {}", worker.name)),
            }
        }
        bail!("recording the Machine {}: another client changes it again and again", worker.name)
    }

    /// Writes the highest number of a worker, and how many joins have failed in a row.
    async fn count(&self, made: u64, failed_joins: u32) -> anyhow::Result<()> {
        let name = self.pool.name_any();
        let of = Collection::of::<NodePool>(self.pool.namespace().as_deref());
        for _ in 0..TRIES {
            let there = self.objects.get(&of, &name).await.context("reading the NodePool")?;
            let noted = |field: &str| there["status"][field].as_u64().unwrap_or_default();
            let last = noted("lastIndex").max(made);
            if noted("lastIndex") == last && noted("failedJoins") == u64::from(failed_joins) {
                return Ok(());
            }
            let version = &there["metadata"]["resourceVersion"];
            let status = json!({"lastIndex": last, "failedJoins": failed_joins});
            let part = json!({"metadata": {"resourceVersion": version}, "status": status});
            match self.objects.patch_status(&of, &name, &part).await {
                Err(Failure::Changed) => {}
                written => return written.map(drop).context("recording how many workers were made"),
            }
        }
        bail!("recording how many workers were made: another client changes the NodePool again and again")
    }

    /// Deletes the addresses and the Machine of a worker whose VM is gone.
    pub async fn forget(&self, name: &str) -> anyhow::Result<()> {
        let Some(machine) = self.found(name).await? else { return Ok(()) };
        let uid = machine.metadata.uid.clone().unwrap_or_default();
        for address in &self.addresses(&uid).await? {
            if address.metadata.deletion_timestamp.is_none() {
                kinds::delete(self.objects, address).await.context("giving an address back")?;
            }
        }
        let attempt = || format!("removing the Machine {name}");
        if machine.metadata.deletion_timestamp.is_none() {
            kinds::delete(self.objects, &machine).await.with_context(attempt)?;
        }
        let Some(machine) = self.found(name).await?.filter(|found| found.metadata.uid.as_ref() == Some(&uid)) else {
            return Ok(());
        };
        kinds::remove_finalizer(self.objects, &machine, MACHINE_FINALIZER).await.map(drop).with_context(attempt)
    }

    async fn addresses(&self, uid: &str) -> anyhow::Result<Vec<PoolAddress>> {
        let own = kinds::list::<PoolAddress>(self.objects, None, Some((CLAIMANT, uid))).await;
        own.context("looking for PoolAddresses")
    }

    fn seen(&self) -> MutexGuard<'_, ObservedAddresses> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a Machine for which nothing has begun, if the Provider permits the Machine. `None` with DHCP.
    ///
    /// # Errors
    /// The Provider does not permit the Machine, or the pool has no free address. The caller deletes the Machine.
    pub async fn admitted(&self, machine: &Machine) -> anyhow::Result<Option<Ipv4Addr>> {
        self.permitted(machine).await?;
        self.address(machine).await
    }

    /// Checks a new Machine against the current Provider and Tenants. Several pools may have computed the same free capacity: each
    /// sees the Machines of the others here.
    async fn permitted(&self, machine: &Machine) -> anyhow::Result<()> {
        let Some((judged, tenants)) = self.judged else { return Ok(()) };
        let (name, namespace) = (judged.name_any(), machine.namespace().unwrap_or_default());
        let provider = kinds::find::<Provider>(self.objects, None, &name).await.context("reading the Provider")?;
        let provider = provider.with_context(|| format!("there is no Provider {name}"))?;
        // If the first check refused the namespace, this one does not block replacements. The Tenants are those of the first
        // check: a later one is seen at the next look.
        let access = Access::of(tenants, &namespace);
        let place = NodePlace { zones: &[], network: &machine.spec.network, class: AUTO };
        let was_permitted = access.nodes(judged, &place).is_none();
        if let Some(why) = access.nodes(&provider, &place).filter(|_| was_permitted) {
            bail!(why.message);
        }
        if !is_bounded(&provider, tenant_of(tenants, &namespace)) {
            return Ok(());
        }
        let inventory = self.objects.inventory().await.context("looking at what clusters have")?;
        let budgets = inventory.budgets(&provider, &namespace, |other| other.metadata.uid != machine.metadata.uid);
        match limits(&budgets, ResourceUsage::of([&machine.spec])) {
            Some(why) => bail!(why.message),
            None => Ok(()),
        }
    }

    /// The address of a Machine. Claims one if it has none. `None` with DHCP.
    async fn address(&self, machine: &Machine) -> anyhow::Result<Option<Ipv4Addr>> {
        let Some(pool) = self.addresses else { return Ok(None) };
        let (name, claimant) = (pool.name_any(), claimant(machine));
        let (mut late, mut is_stale, mut has_looked) = (0, false, false);
        while late < TRIES {
            let looked = self.seen().looked.filter(|_| !is_stale);
            has_looked |= looked.is_none();
            let next = {
                let (all, since) = self.look(looked).await?;
                let passing = passing(&claimant.uid, self.races.load(Ordering::Relaxed));
                allocation(&name, &pool.spec, all.specs().chain(&since), &claimant, passing)?
            };
            match next {
                Allocation::Has(address) => return Ok(Some(address)),
                Allocation::Exhausted if has_looked => {
                    bail!("the IPPool {name} has no free address for {}", machine.name_any())
                }
                // Addresses may have been released since.
                Allocation::Exhausted => is_stale = true,
                Allocation::Make(address) => {
                    if let Some(words) = self.overlap {
                        bail!("the IPPool {name} gives out no address: {words}");
                    }
                    let object = claimed(&name, address, claimant.clone());
                    match claim(self.objects, &object).await {
                        Ok(()) => {
                            self.mark_taken(object.spec);
                            return Ok(Some(address));
                        }
                        Err(Failure::Exists) => {
                            self.was_late(&object.spec).await?;
                            late += 1;
                            is_stale = late.is_multiple_of(STALE);
                        }
                        Err(failure) => return Err(failure).context("claiming an address"),
                    }
                }
            }
        }
        bail!("claiming an address for {}: others are faster again and again", machine.name_any())
    }

    /// The addresses in use, and the claims that were seen since and are not in the list. `looked` is the lowest number of a list
    /// that is new enough. `None` makes a new list.
    async fn look(&self, looked: Option<u64>) -> anyhow::Result<(Arc<AddressesInUse>, Vec<PoolAddressSpec>)> {
        let before = self.seen().count;
        let all = self.objects.in_use(looked).await;
        let unreadable = all.as_ref().err().filter(|failure| matches!(failure, Failure::Unreadable { .. }));
        self.seen().unreadable = unreadable.map(Failure::again);
        let all = all.context("looking for PoolAddresses")?;
        let mut seen = self.seen();
        // A list that began after a claim is the newer information.
        let is_known = |at: u64, spec: &PoolAddressSpec| all.has(spec) || (looked.is_none() && at < before);
        seen.since.retain(|(at, spec)| !is_known(*at, spec));
        seen.looked = seen.looked.max(Some(all.number()));
        let since = seen.since.iter().map(|(_, spec)| spec.clone()).collect();
        drop(seen);
        Ok((all, since))
    }

    /// Checks whether the last look could read the addresses in use. A run of `fleet` takes a failed claim for one that may succeed
    /// later.
    pub fn ensure_readable(&self) -> Result<(), Failure> {
        self.seen().unreadable.as_ref().map_or(Ok(()), |failure| Err(failure.again()))
    }

    fn mark_taken(&self, spec: PoolAddressSpec) {
        let mut seen = self.seen();
        let at = seen.count;
        seen.count += 1;
        seen.since.push((at, spec));
    }

    /// Records that the address was claimed first by another claimant, or by this one in a call whose answer was lost.
    async fn was_late(&self, wanted: &PoolAddressSpec) -> anyhow::Result<()> {
        let own = self.addresses(&wanted.claimant.uid).await?;
        if own.iter().all(|own| own.spec.address != wanted.address) {
            // The claimant is unknown, and not this one.
            let claimant = Claimant { uid: String::new(), ..wanted.claimant.clone() };
            self.mark_taken(PoolAddressSpec { claimant, ..wanted.clone() });
        }
        own.into_iter().for_each(|address| self.mark_taken(address.spec));
        self.races.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fleet::delegate! {
    impl Store for PoolStore<'_> {
        numbers() -> anyhow::Result<Vec<u64>> = holds.numbers;
        exists(number: u64) -> anyhow::Result<bool> = holds.exists;
        make(number: u64) -> anyhow::Result<bool> = holds.make;
        remove(number: u64) -> anyhow::Result<()> = holds.remove;
        read(number: u64, file: &str) -> anyhow::Result<Option<String>> = holds.read;
        files(number: u64) -> anyhow::Result<Vec<String>> = holds.files;
        has_ended(holder: &Holder) -> anyhow::Result<bool> = holds.has_ended;
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        if File::of(file) != File::Workers {
            return self.holds.write(number, file, text).await;
        }
        for change in workers::noted(text)? {
            match change {
                Record::Pool { pool } => self.count(pool.last_index, pool.failed_joins.unwrap_or_default()).await?,
                Record::Machine { machine } => self.keep(&machine).await?,
                Record::Known(_) => {}
                Record::Gone { name } => self.forget(&name).await?,
            }
        }
        Ok(())
    }

    /// The Machine's UID is the ID: the API server makes a unique one.
    async fn draw(&self, _: u64, name: &str, _: Option<Ipv4Addr>) -> anyhow::Result<AllocatedIds> {
        let made = {
            let mut machine = self.like.clone();
            machine.metadata.name = Some(name.to_owned());
            machine.spec.zone = self.next_zone().await?;
            kinds::create(self.objects, &machine).await
        };
        let made = made.with_context(|| format!("making the Machine {name}"))?;
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), made.spec.zone.clone());
        let id = made.metadata.uid.as_deref().unwrap_or_default().parse().context("a Machine without a UID")?;
        let address = match self.admitted(&made).await {
            Ok(address) => address,
            Err(why) => {
                // Nothing was begun for this Machine.
                self.forget(name).await?;
                return Err(why);
            }
        };
        Ok(AllocatedIds { id, vm: Some(id), address })
    }

    fn holder(&self, what: &str, now: u64) -> Holder {
        self.holds.holder(what, now)
    }
}
