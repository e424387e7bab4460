//! Tenants: separate labs on the network of another lab. A lab's functions for control-plane nodes also serve a
//! tenant, which has workers in addition.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use contract::kubeconfig::Kubeconfig;
use contract::properties as keys;
use contract::role::Role;
use fleet::workers::{Addresses, Site, ca_hash};

use super::environment::asks_for;
use super::plan::TENANTS;
use super::{EngineRecord, HostLab, Lab, Source, records};

impl Lab {
    /// The tenants on this lab's network. Fails on an unreadable lab, which may be one.
    pub fn tenants(&self) -> anyhow::Result<Vec<Self>> {
        let state = self.directory.path().parent().context("a lab without a directory above it")?.to_owned();
        let mut tenants = Vec::new();
        for entry in fs::read_dir(&state).with_context(|| format!("reading {}", state.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name == self.name || !Self::exists(&state, &name).unwrap_or_default() {
                continue;
            }
            let lab = match Self::open(&state, &name) {
                // Another command has removed it.
                Err(_) if !Self::exists(&state, &name).unwrap_or_default() => continue,
                lab => lab?,
            };
            if lab.record.beside.as_ref().is_some_and(|host| host.network == self.on_host()) {
                tenants.push(lab);
            }
        }
        Ok(tenants)
    }

    /// Opens a tenant. Fails for a control cluster.
    pub fn open_tenant(state: &Path, name: &str) -> anyhow::Result<Self> {
        let lab = Self::open(state, name)?;
        if lab.record.beside.is_none() {
            bail!("the lab {name} is no tenant; `kaas-dev lab tenant up` makes one");
        }
        Ok(lab)
    }

    pub(super) fn on_host(&self) -> &str {
        &self.record.name_on_host
    }

    /// The reference of a tenant to this lab.
    pub(super) fn as_host(&self) -> anyhow::Result<HostLab> {
        if let Some(host) = &self.record.beside {
            bail!("the lab {} is a tenant on the network of {}; name a control cluster", self.name, host.lab);
        }
        Ok(HostLab { lab: self.name.clone(), network: self.on_host().to_owned() })
    }

    /// A free index for a tenant on this lab's network.
    pub(super) fn free_place(&self) -> anyhow::Result<u8> {
        let tenants = self.tenants()?;
        let used: Vec<u8> = tenants.iter().filter_map(|lab| Some(lab.plan().tenant.as_ref()?.place)).collect();
        let free = (0..TENANTS).find(|place| !used.contains(place));
        free.with_context(|| format!("the lab {} has {TENANTS} tenants, and room for no more", self.name))
    }

    /// Settings that all workers of a tenant share.
    pub fn site(&self) -> anyhow::Result<Site> {
        let kubeconfig = self.kubeconfig()?;
        let text = fs::read_to_string(&kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        let authority = Kubeconfig::parse(&text).context("reading the kubeconfig")?.authority;
        let of_nodes = &self.plan().nodes.first().context("a tenant without control-plane nodes")?.properties;
        // The DHCP server announces it.
        let is_leased = |key: &str| self.leases_addresses() && key == keys::GATEWAY;
        let shared = of_nodes.iter().filter(|(key, value)| Site::shares(key) && !is_leased(key) && !value.is_empty());
        let mut site: BTreeMap<String, String> = shared.map(|(key, value)| (key.clone(), value.clone())).collect();
        site.insert(keys::API_VIP.to_owned(), self.plan().api.to_string());
        site.insert(keys::CLUSTER_CA_HASH.to_owned(), ca_hash(&authority)?);
        site.insert(keys::TIMEOUT_FACTOR.to_owned(), self.worker_engine().timeout_factor().to_string());
        Ok(Site(site))
    }

    fn leases_addresses(&self) -> bool {
        self.plan().tenant.as_ref().is_some_and(|tenant| tenant.dhcp)
    }

    /// Engine of a tenant's next workers.
    pub fn worker_engine(&self) -> EngineRecord {
        self.record.workers.unwrap_or_else(|| self.replacements())
    }

    /// Chooses another engine for the workers that are created through this value. Later commands use it only after
    /// [`Lab::keep_worker_engine`].
    pub fn choose_worker_engine(&mut self, engine: EngineRecord) {
        self.record.workers = Some(engine);
    }

    /// Stores the chosen engine of the next workers. The caller must hold their lease.
    pub fn keep_worker_engine(&self) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        records::save(&self.directory.record(), &self.record)
    }

    /// The static addresses of a tenant's workers. `None` with DHCP.
    pub fn worker_addresses(&self) -> Option<Addresses> {
        let tenant = self.plan().tenant.as_ref().filter(|tenant| !tenant.dhcp)?;
        Some(Addresses { first: tenant.first_worker, last: tenant.last_worker, prefix: tenant.prefix })
    }
}

impl Source {
    /// Additional properties of a tenant's control-plane nodes, as far as the image's form has them.
    pub(super) fn tenant_properties(&self, services: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let role = Role::TenantControlPlane.to_string();
        let mut told = BTreeMap::new();
        for (key, value) in [(keys::ROLE, role), (keys::SERVICE_VIPS, services.to_owned())] {
            if asks_for(self, key)? {
                told.insert(key.to_owned(), value);
            }
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use contract::role::Roles;
    use fleet::lease::TakeOver;

    use super::super::environment::tests::tree_in;
    use super::super::host::ip;
    use super::super::network::{Adapter, BRIDGE};
    use super::super::plan::{LabSpec, plan};
    use super::super::records::LabDirectory;
    use super::super::{BlankVm, Hardware, LeaseRequest, NewVm, Record, fixture};
    use super::*;

    /// A lab with a directory only. Nothing of it exists on the host.
    fn lab(state: &Path, name: &str, beside: Option<(HostLab, u8)>) -> Lab {
        let (beside, tenant) = beside.unzip();
        let wishes = LabSpec { name: name.to_owned(), nodes: 1, tenant, ..LabSpec::default() };
        let record = fixture::record(state, &wishes, fixture::source(&state.join("tree")));
        let record = Record { name_on_host: format!("{name}-host"), beside, ..record };
        records::save(&LabDirectory::of(state, name).unwrap().record(), &record).unwrap();
        Lab::open(state, name).unwrap()
    }

    #[test]
    fn tenants_share_a_network_and_have_their_places() {
        let state = tempfile::tempdir().unwrap();
        let host = lab(state.path(), "one", None);
        let other = lab(state.path(), "two", None);
        assert_eq!(host.free_place().unwrap(), 0);
        let first = lab(state.path(), "blue", Some((host.as_host().unwrap(), 0)));
        let third = lab(state.path(), "red", Some((host.as_host().unwrap(), 2)));
        assert_eq!(first.network_namespace(), host.network_namespace());
        assert_eq!(third.network_namespace(), host.network_namespace());
        let mut names: Vec<String> = host.tenants().unwrap().iter().map(|lab| lab.name().to_owned()).collect();
        names.sort();
        assert_eq!((names, host.free_place().unwrap()), (vec!["blue".to_owned(), "red".to_owned()], 1));
        assert_eq!((other.tenants().unwrap().len(), other.free_place().unwrap()), (0, 0));
        // A tenant is found by its name as any lab, and has no tenants.
        assert_eq!(Lab::open_tenant(state.path(), "blue").unwrap().plan().nodes[0].name, "blue-cp1");
        let no_tenant = Lab::open_tenant(state.path(), "one").err().unwrap().to_string();
        assert!(no_tenant.contains("is no tenant"), "{no_tenant}");
        assert!(first.as_host().unwrap_err().to_string().contains("is a tenant on the network of one"));
    }

    /// Removes its network when dropped.
    struct OnHost(Lab);

    impl Drop for OnHost {
        fn drop(&mut self) {
            let _ = self.0.network.remove();
        }
    }

    #[test]
    fn power_on_creates_a_lost_network_again() {
        let state = tempfile::tempdir().unwrap();
        let name = format!("r{}", std::process::id());
        let host = OnHost(lab(state.path(), &name, None));
        let tenant = lab(state.path(), "blue", Some((host.0.as_host().unwrap(), 0)));
        let emulated = EngineRecord::Qemu { kvm: false, hardware: Hardware::Quick };
        for lab in [&host.0, &tenant] {
            let vm = NewVm { engine: emulated, ..fixture::vm("cp1", None) };
            lab.make_vm(&vm).unwrap();
            assert!(!host.0.network.exists());
            lab.make_network().unwrap();
            let record = lab.directory.load_vm("cp1").unwrap();
            let adapter = Adapter { mac: record.mac.clone(), bridge: BRIDGE.to_owned(), connected: true };
            lab.network.add_container_port(&record.port, &[adapter]).unwrap();
            let seen = ip(&format!("-n kaas.{} address show lab", host.0.on_host())).unwrap();
            assert!(seen.contains(&host.0.plan().bridge), "{seen}");
            lab.network.remove().unwrap();
            // This tree has no program to run. The steps before that are done.
            lab.power_on("cp1").unwrap_err();
            assert!(lab.network.exists(), "it was not made");
            lab.network.remove().unwrap();
        }
        records::save(
            &host.0.directory.record(),
            &Record { name_on_host: "other".to_owned(), ..host.0.record.clone() },
        )
        .unwrap();
        let why = format!("{:#}", tenant.power_on("cp1").unwrap_err());
        assert!(why.contains("is not the one that blue was made for"), "{why}");
    }

    #[test]
    fn control_plane_nodes_get_properties_of_their_form() {
        let state = tempfile::tempdir().unwrap();
        let tenant =
            plan(&LabSpec { name: "t".to_owned(), nodes: 1, tenant: Some(0), ..LabSpec::default() }, "s").unwrap();
        let services = tenant.tenant.unwrap().services;
        let told = |roles| tree_in(state.path(), roles).tenant_properties(&services).unwrap();
        assert_eq!(told(Role::ControlPlane.into()), BTreeMap::new());
        let one = told(Role::TenantControlPlane.into());
        assert_eq!(one, BTreeMap::from([(keys::SERVICE_VIPS.to_owned(), services.clone())]));
        assert!(keys::find(keys::SERVICE_VIPS).unwrap().parse(&services).is_ok(), "{services}");
        assert_eq!(told(Roles::new(Role::ALL.to_vec()).unwrap())[keys::ROLE], "tenant-control-plane");
    }

    #[test]
    fn workers_have_other_addresses_than_control_plane_nodes() {
        let state = tempfile::tempdir().unwrap();
        let host = lab(state.path(), "one", None);
        assert_eq!(host.worker_addresses(), None);
        let tenant = lab(state.path(), "blue", Some((host.as_host().unwrap(), 0)));
        let addresses: Vec<_> = tenant.worker_addresses().unwrap().iter().collect();
        assert_eq!(addresses.len(), 11);
        assert!(!addresses.contains(&tenant.plan().nodes[0].address) && !addresses.contains(&tenant.plan().api));
        let mut record = tenant.record.clone();
        record.plan.tenant.as_mut().unwrap().dhcp = true;
        records::save(&tenant.directory.record(), &record).unwrap();
        assert_eq!(Lab::open_tenant(state.path(), "blue").unwrap().worker_addresses(), None);
    }

    #[test]
    fn the_next_workers_use_the_chosen_engine() {
        let state = tempfile::tempdir().unwrap();
        let host = lab(state.path(), "one", None);
        let mut tenant = lab(state.path(), "blue", Some((host.as_host().unwrap(), 0)));
        assert_eq!(tenant.worker_engine(), tenant.replacements());
        let emulated = EngineRecord::Qemu { kvm: false, hardware: Hardware::Quick };
        tenant.choose_worker_engine(emulated);
        assert_eq!(tenant.worker_engine(), emulated);
        let refused = Lab::open_tenant(state.path(), "blue").unwrap();
        assert_eq!(refused.worker_engine(), EngineRecord::Container, "a command that is refused changes nothing");
        tenant.keep_worker_engine().unwrap();
        let again = Lab::open_tenant(state.path(), "blue").unwrap();
        assert_eq!((again.worker_engine(), again.worker_engine().timeout_factor()), (emulated, 5));
        assert_eq!(again.replacements(), EngineRecord::Container, "an upgrade's VMs are none of the workers'");
    }

    #[test]
    fn the_only_node_is_not_replaced() {
        let state = tempfile::tempdir().unwrap();
        let host = lab(state.path(), "one", None);
        let tenant = lab(state.path(), "blue", Some((host.as_host().unwrap(), 0)));
        let asking = LeaseRequest { what: "a test", over: TakeOver::FromTheDead, say: &|_| {} };
        let refused = |node: &str| tenant.replace_node(node, &BlankVm::default(), &asking).unwrap_err().to_string();
        assert!(refused("blue-cp1").contains("is the only control-plane node"));
        assert!(refused("blue-cp2").contains("no control-plane node blue-cp2; it has blue-cp1"));
    }
}
