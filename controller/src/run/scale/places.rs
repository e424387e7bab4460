//! Hypervisors and nodes of many clusters in memory, separate for each cluster. As on a vCenter and a network they are identified
//! by the cluster's name, and by the cluster's CA.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use async_trait::async_trait;
use contract::configure::Properties;
use contract::deployer::{Fingerprint, Fingerprints, PrivateKey};
use fleet::control_plane::Guests;
use fleet::hypervisor::Hypervisor;
use fleet::lease::Snapshots;
use fleet::nodes::{AddOnSeen, ConfigureAnswer, Credentials};
use fleet::upgrade::Nodes;
use fleet::workers::Cluster;
use kube::ResourceExt;
use zeroize::Zeroizing;

use crate::objects::{Provider, TenantCluster};
use crate::reach::Infrastructure;
use crate::reach::providers::{ClusterPlacement, Unavailable};
use crate::reconcilers::tenant_cluster::tests::InMemoryPlace;

#[derive(Default)]
struct All {
    by_name: BTreeMap<String, InMemoryPlace>,
    by_authority: BTreeMap<Fingerprint, InMemoryPlace>,
}

/// By the names of clusters. Clones share them.
#[derive(Clone, Default)]
pub struct Places(Arc<Mutex<All>>);

impl Places {
    /// The place of a cluster. It is created at the first call.
    pub fn of(&self, cluster: &str) -> InMemoryPlace {
        let mut all = self.0.lock().unwrap();
        if let Some(there) = all.by_name.get(cluster) {
            return there.clone();
        }
        let place = InMemoryPlace::new();
        all.by_name.insert(cluster.to_owned(), place.clone());
        all.by_authority.insert(place.authority(), place.clone());
        place
    }

    pub fn vms(&self) -> usize {
        self.0.lock().unwrap().by_name.values().map(|place| place.lock().vms.len()).sum()
    }

    fn formed_with(&self, authority: Fingerprint) -> anyhow::Result<InMemoryPlace> {
        self.0.lock().unwrap().by_authority.get(&authority).cloned().context("no cluster has this CA")
    }

    fn led_to(&self, kubeconfig: &str) -> anyhow::Result<InMemoryPlace> {
        let authorities = Credentials::parse(kubeconfig)?.authorities()?;
        self.formed_with(*authorities.first().context("a kubeconfig without a CA")?)
    }
}

#[async_trait]
impl Infrastructure for Places {
    async fn hypervisor(
        &self,
        provider: &Provider,
        place: &ClusterPlacement<'_>,
        make: bool,
    ) -> Result<Box<dyn Hypervisor>, Unavailable> {
        self.of(place.cluster).hypervisor(provider, place, make).await
    }

    fn cluster(&self, kubeconfig: &str) -> anyhow::Result<Box<dyn Cluster>> {
        Infrastructure::cluster(&self.led_to(kubeconfig)?, kubeconfig)
    }

    async fn add_ons(&self, kubeconfig: &str) -> anyhow::Result<Vec<AddOnSeen>> {
        self.led_to(kubeconfig)?.add_ons(kubeconfig).await
    }

    fn guests(&self, key: Option<PrivateKey>) -> Box<dyn Guests> {
        Box::new(GuestsOfAll { places: self.clone(), key })
    }

    async fn issue(&self, kubeconfig: &str, user: &str, makes: bool) -> anyhow::Result<Zeroizing<String>> {
        self.led_to(kubeconfig)?.issue(kubeconfig, user, makes).await
    }

    async fn configure(
        &self,
        kubeconfig: &str,
        node: Ipv4Addr,
        asked: &Properties,
        dry_run: bool,
    ) -> anyhow::Result<ConfigureAnswer> {
        self.led_to(kubeconfig)?.configure(kubeconfig, node, asked, dry_run).await
    }

    fn nodes(&self, kubeconfig: &str) -> anyhow::Result<Arc<dyn Nodes>> {
        self.led_to(kubeconfig)?.nodes(kubeconfig)
    }

    fn snapshots(&self, cluster: &TenantCluster) -> Box<dyn Snapshots> {
        self.of(&cluster.name_any()).snapshots(cluster)
    }

    async fn clears(&self, cluster: &TenantCluster) -> anyhow::Result<()> {
        self.of(&cluster.name_any()).clears(cluster).await
    }
}

/// The control-plane nodes of all clusters.
struct GuestsOfAll {
    places: Places,
    key: Option<PrivateKey>,
}

impl GuestsOfAll {
    /// The control-plane nodes of one cluster.
    fn of(&self, place: &InMemoryPlace) -> anyhow::Result<Box<dyn Guests>> {
        let key = match &self.key {
            Some(key) => Some(PrivateKey::of_pem(key.pem().expose())?),
            None => None,
        };
        Ok(place.guests(key))
    }
}

#[async_trait]
impl Guests for GuestsOfAll {
    fn deployer_fingerprint(&self) -> Option<Fingerprint> {
        self.key.as_ref()?.fingerprint().ok()
    }

    async fn kubeconfig(&self, node: Ipv4Addr, shown: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        self.of(&self.places.formed_with(shown.ca)?)?.kubeconfig(node, shown).await
    }

    async fn renew(&self, node: Ipv4Addr, former: &str) -> anyhow::Result<Zeroizing<String>> {
        self.of(&self.places.led_to(former)?)?.renew(node, former).await
    }

    async fn accepts(&self, node: Ipv4Addr, kubeconfig: &str) -> anyhow::Result<bool> {
        self.of(&self.places.led_to(kubeconfig)?)?.accepts(node, kubeconfig).await
    }

    async fn ready(&self, kubeconfig: &str) -> anyhow::Result<BTreeSet<String>> {
        self.places.led_to(kubeconfig)?.guests(None).ready(kubeconfig).await
    }
}
