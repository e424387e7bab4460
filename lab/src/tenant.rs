//! Tenants: labs of their own on the network of another one. What a lab does for a control cluster it does for a tenant's
//! control nodes as well; its workers are beside them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use contract::kubeconfig::Kubeconfig;
use contract::properties as keys;
use fleet::workers::{Addresses, Site, ca_hash};

use super::environment::has_property;
use super::plan::TENANTS;
use super::{Beside, Lab, Source};

/// What a form may ask a tenant's control nodes for: addresses that services get.
const SERVICE_VIPS: &str = "service-vips";

/// What workers are told as the control nodes are, where that was given.
const SHARED: [&str; 12] = [
    keys::CLUSTER_NAME,
    keys::API_VIP,
    keys::GATEWAY,
    keys::DNS_SERVERS,
    keys::SEARCH_DOMAINS,
    keys::NTP_SERVERS,
    keys::SSH_AUTHORIZED_KEYS,
    keys::HTTP_PROXY,
    keys::HTTPS_PROXY,
    keys::NO_PROXY,
    keys::EXTRA_CA_CERTIFICATES,
    keys::REGISTRY_MIRROR,
];

impl Lab {
    /// The tenants on this lab's network.
    ///
    /// # Errors
    /// When the labs cannot be read: what stands on this one is not known then.
    pub fn tenants(&self) -> anyhow::Result<Vec<Self>> {
        let state = self.directory.path().parent().context("a lab without a directory above it")?.to_owned();
        let mut tenants = Vec::new();
        for entry in fs::read_dir(&state).with_context(|| format!("reading {}", state.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name == self.name || !Self::exists(&state, &name).unwrap_or_default() {
                continue;
            }
            let lab = Self::open(&state, &name)?;
            if lab.record.beside.as_ref().is_some_and(|host| host.network == self.on_host()) {
                tenants.push(lab);
            }
        }
        Ok(tenants)
    }

    /// Opens a tenant.
    ///
    /// # Errors
    /// When there is no lab of this name, or it is a control cluster.
    pub fn open_tenant(state: &Path, name: &str) -> anyhow::Result<Self> {
        let lab = Self::open(state, name)?;
        if lab.record.beside.is_none() {
            bail!("the lab {name} is no tenant; `kaas lab tenant up` makes one");
        }
        Ok(lab)
    }

    fn on_host(&self) -> &str {
        self.record.name_on_host.as_deref().unwrap_or(&self.name)
    }

    /// This lab, as tenants remember it.
    pub(super) fn as_host(&self) -> anyhow::Result<Beside> {
        if let Some(host) = &self.record.beside {
            bail!("the lab {} is a tenant beside {}; name a control cluster", self.name, host.lab);
        }
        Ok(Beside { lab: self.name.clone(), network: self.on_host().to_owned() })
    }

    /// A tenant's place on this lab's network that no other one has.
    pub(super) fn free_place(&self) -> anyhow::Result<u8> {
        let tenants = self.tenants()?;
        let used: Vec<u8> = tenants.iter().filter_map(|lab| Some(lab.plan().tenant.as_ref()?.place)).collect();
        let free = (0..TENANTS).find(|place| !used.contains(place));
        free.with_context(|| format!("the lab {} has {TENANTS} tenants, and room for no more", self.name))
    }

    /// What the workers of a tenant are told.
    ///
    /// # Errors
    /// When its kubeconfig cannot be had.
    pub fn site(&self) -> anyhow::Result<Site> {
        let kubeconfig = self.kubeconfig()?;
        let text = fs::read_to_string(&kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        let authority = Kubeconfig::parse(&text).context("reading the kubeconfig")?.authority;
        let of_nodes = &self.plan().nodes.first().context("a tenant without control nodes")?.properties;
        let mut site: BTreeMap<String, String> = SHARED
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), of_nodes.get(key).filter(|value| !value.is_empty())?.clone())))
            .collect();
        site.insert(keys::API_VIP.to_owned(), self.plan().api.to_string());
        site.insert(keys::CLUSTER_CA_HASH.to_owned(), ca_hash(&authority)?);
        site.insert(keys::TIMEOUT_FACTOR.to_owned(), self.replacements().timeout_factor().to_string());
        Ok(Site(site))
    }

    /// The addresses that the workers of a tenant get.
    pub fn worker_addresses(&self) -> Option<Addresses> {
        let tenant = self.plan().tenant.as_ref()?;
        Some(Addresses { first: tenant.first_worker, last: tenant.last_worker, prefix: tenant.prefix })
    }
}

impl Source {
    /// What a tenant's control nodes are told of their place, where the form of this image asks for it.
    ///
    /// # Errors
    /// When its form cannot be read.
    pub(super) fn tenant_properties(&self, services: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let asked = has_property(self, SERVICE_VIPS)?;
        Ok(asked.then(|| (SERVICE_VIPS.to_owned(), services.to_owned())).into_iter().collect())
    }
}
