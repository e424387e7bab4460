//! A lab of this machine as a place for a cluster.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, bail};
use contract::deployer::PrivateKey;
use contract::properties::{API_VIP, DEPLOYMENT_SECRET};
use document::{Located, Mistake, Table, any};
use fleet::control_plane::{DesiredState, WantedNode};
use fleet::lease::DirectoryStore;
use ipnet::Ipv4Net;
use kaas::cluster_file::{AddedProvider, CheckReport, ClusterBackend, FileContext, NodeTable, Provider, Site, Text};
use lab::{
    EmptyLab as LabPlace, Hardware, Lab, LabHypervisor, PlannedNode, Source, Tools, UnpackedOva, cache_directory,
    state_directory,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::labs::{Engine, open_port_forward, tools};

/// `[provider.lab]`, and the option `--lab` for a lab without a file.
pub const LABS: AddedProvider =
    AddedProvider { name: "lab", about: "Lab that the VMs run in", read: described, schema, site };

fn described(table: &Table<'_, '_>) -> Option<Box<dyn Provider>> {
    Some(Box::new(LabProvider::read(table)?))
}

fn site(name: &str) -> Box<dyn Site> {
    Box::new(LabSite::named(name))
}

fn schema() -> Value {
    let text = |what: &str| json!({ "type": "string", "minLength": 1, "description": what });
    json!({
        "type": "object",
        "description": "A lab of this machine.",
        "properties": {
            "name": text("The lab's name."),
            "engine": {
                "type": "string", "enum": ["container", "qemu"],
                "description": "The engine that runs its nodes. Default: container.",
            },
            "tools": text("A directory with programs of the lab, in place of the default ones."),
        },
        "required": ["name"],
        "additionalProperties": false,
    })
}

struct LabProvider {
    name: Located<String>,
    site: LabSite,
}

impl LabProvider {
    fn read(table: &Table<'_, '_>) -> Option<Self> {
        let name = table.located("name", "the lab's name", any);
        let engine = table.optional("engine", |text| match text {
            "container" => Ok(Engine::Container),
            "qemu" => Ok(Engine::Qemu),
            other => Err(format!("is {other:?}: give container or qemu")),
        });
        let tools = table.optional("tools", |path| Ok(PathBuf::from(path)));
        let name = name?;
        let site = LabSite { engine: engine.unwrap_or(Engine::Container), tools, ..LabSite::named(&name.value) };
        Some(Self { name, site })
    }
}

impl Provider for LabProvider {
    fn words(&self) -> String {
        self.site.words()
    }

    fn mistakes(&self, text: &Text, nodes: &[NodeTable]) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        mistakes.extend(LabPlace::refuses_name(&self.name.value).map(|words| text.mistake(&self.name, words)));
        for node in nodes {
            let name = LabPlace::refuses_node(&node.name.value);
            mistakes.extend(name.map(|words| text.mistake(&node.name, words)));
            let Ok(address) = node.address.value.parse::<Ipv4Net>() else { continue };
            let address = LabPlace::refuses_address(address.addr(), address.prefix_len());
            mistakes.extend(address.map(|words| text.mistake(&node.address, words)));
        }
        mistakes
    }

    fn networks(&self) -> Vec<String> {
        vec![self.name.value.clone()]
    }

    fn open(&self, _cluster: &str, _snapshots: &Path, _runtime: &Rc<Runtime>) -> anyhow::Result<Box<dyn Site>> {
        Ok(Box::new(self.site.clone()))
    }
}

/// A lab of this machine. It may not exist yet.
#[derive(Clone)]
struct LabSite {
    /// The name of the lab and of its network.
    name: String,
    engine: Engine,
    /// The tools tree. `None` for that of the image builder.
    tools: Option<PathBuf>,
}

impl LabSite {
    /// A lab of this name. If it is created, it runs containers.
    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), engine: Engine::Container, tools: None }
    }

    fn open(&self) -> anyhow::Result<Option<Lab>> {
        let state = state_directory()?;
        let there = Lab::exists(&state, &self.name)?;
        there.then(|| Lab::open(&state, &self.name)).transpose()
    }

    /// Opens the lab. It must exist.
    fn there(&self) -> anyhow::Result<Lab> {
        Lab::open(&state_directory()?, &self.name)
    }

    /// Removes the lab if it is empty.
    fn clear(&self) -> anyhow::Result<()> {
        match self.open()? {
            Some(lab) if lab.is_empty()? => lab.remove(),
            Some(_) => {
                log::warn!("{} stays: it holds VMs or disks that are not the cluster's", self.words());
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn place(&self, lab: Lab) -> ClusterBackend {
        let (site, again) = (self.clone(), self.clone());
        let empties = Box::new(move || site.clear());
        let kubeconfig: Arc<dyn Fn() -> anyhow::Result<PathBuf> + Send + Sync> =
            Arc::new(move || again.there()?.kubeconfig());
        let (store, network) = (DirectoryStore::at(lab.upgrades()), Some(lab.network_namespace()));
        let hypervisor = Box::new(LabHypervisor::new(Arc::new(lab)));
        let (snapshots, kubeconfig) = (Box::new(store.clone()), Some(kubeconfig));
        ClusterBackend { hypervisor, store: Box::new(store), snapshots, network, kubeconfig, empties }
    }
}

/// The nodes as the lab records them for later VMs. The deployment secret is left out: those VMs do not need it.
fn planned(wanted: &DesiredState) -> Vec<PlannedNode> {
    let told = |properties: &BTreeMap<String, String>| {
        let mut told = properties.clone();
        told.remove(DEPLOYMENT_SECRET);
        told
    };
    let node = |node: &WantedNode| PlannedNode {
        name: node.name.clone(),
        address: node.address,
        properties: told(&node.properties),
    };
    wanted.nodes.iter().map(node).collect()
}

impl Site for LabSite {
    fn words(&self) -> String {
        format!("the lab {} of this machine", self.name)
    }

    /// Creating the lab checks this machine at once, so this check does not.
    fn check(&self, _wanted: &DesiredState, _written: FileContext<'_>) -> anyhow::Result<CheckReport> {
        Ok(CheckReport { exists: self.open()?.is_some(), ..CheckReport::default() })
    }

    fn find(&self) -> anyhow::Result<Option<ClusterBackend>> {
        Ok(self.open()?.map(|lab| self.place(lab)))
    }

    fn make(&self, wanted: &DesiredState, key: &PrivateKey, say: &dyn Fn(&str)) -> anyhow::Result<ClusterBackend> {
        let nodes = planned(wanted);
        if let Some(lab) = self.open()? {
            let is_noted = lab.upgrades().try_exists().context("looking for the deployment's journal")?;
            if is_noted && lab.vms()?.is_empty() && lab.plan().nodes != nodes {
                bail!(
                    "{} was made for control-plane nodes with other properties; `kaas-dev control delete --data-disks` removes what is \
                     left of them, and `kaas-dev lab down --name {}` all of it",
                    self.words(),
                    self.name
                );
            }
            if is_noted || !lab.is_empty()? {
                return Ok(self.place(lab));
            }
            // A command that was killed may have left it incomplete.
            lab.remove().context("removing a lab that no VM of was made")?;
        }
        let tools = tools(self.tools.as_deref())?;
        let unpacked = UnpackedOva::ensure(&wanted.ova, &cache_directory()?, &Tools::at(&tools), say)?;
        if unpacked.digest() != wanted.image.digest {
            bail!("{} was changed while it was read", wanted.ova.display());
        }
        let engine = self.engine.record(&Tools::at(&tools), Hardware::Quick, say)?;
        let vip = |wanted: &DesiredState| wanted.nodes.first()?.properties.get(API_VIP)?.parse::<Ipv4Addr>().ok();
        let first = wanted.nodes.first().context("a cluster without control-plane nodes")?;
        let place = LabPlace {
            name: self.name.clone(),
            api: vip(wanted).unwrap_or(first.address),
            nodes,
            engine,
            source: Source::Ova { unpacked },
            tools,
        };
        Ok(self.place(Lab::create_empty(&state_directory()?, place, key)?))
    }

    fn may_destroy(&self) -> anyhow::Result<()> {
        let Some(lab) = self.open()? else { return Ok(()) };
        let tenants: Vec<String> = lab.tenants()?.iter().map(|tenant| tenant.name().to_owned()).collect();
        if tenants.is_empty() {
            return Ok(());
        }
        bail!(
            "{} has the tenants {}: `kaas-dev lab down --name TENANT` ends one of them",
            self.words(),
            tenants.join(", ")
        )
    }

    fn journal(&self) -> String {
        format!("the directory of {}, with all that is in it", self.words())
    }

    fn access_hints(&self) -> anyhow::Result<Vec<String>> {
        let Some(lab) = self.open()? else { return Ok(Vec::new()) };
        Ok(vec![
            format!("through a door on this machine's loopback: {}", open_port_forward(&lab)?.display()),
            format!("without a kubectl of your own: `kaas-dev lab kubectl --name {} -- get nodes`", self.name),
        ])
    }

    fn complaints(&self, node: &str) -> Vec<String> {
        let Ok(Some(lab)) = self.open() else { return Vec::new() };
        let mut complaints: Vec<String> =
            lab.refusals_of(node).into_iter().map(|said| format!("{node} says: {said}")).collect();
        complaints.push(format!("{node}'s console log is {}", lab.console(node).display()));
        complaints
    }

    fn ova(&self, path: &Path) -> anyhow::Result<PathBuf> {
        self.there()?.find_ova(path)
    }

    /// A lab has no templates: images are files of this machine.
    fn templates(&self) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn workers_hint(&self, minor: &str) -> anyhow::Result<Option<String>> {
        let hint =
            || format!("`kaas-dev lab tenant replace-workers --name {} --kubernetes {minor}` upgrades them", self.name);
        Ok(self.there()?.plan().tenant.is_some().then(hint))
    }

    fn close(&self) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kaas::cluster_file::{ClusterFile, add_provider};

    use super::*;

    const ONE: &str = include_str!("commands/lab/examples/one.toml");
    const THREE: &str = include_str!("commands/lab/examples/three.toml");

    fn parsed(text: &str) -> Result<ClusterFile, String> {
        add_provider(LABS);
        ClusterFile::parse(Path::new("cluster.toml"), text.to_owned()).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn examples_describe_clusters_in_a_lab() {
        for (example, nodes) in [(ONE, 1), (THREE, 3)] {
            let file = parsed(example).unwrap_or_else(|mistakes| panic!("{mistakes}"));
            assert!(file.mistakes_of_provider().is_empty());
            assert_eq!((file.nodes.len(), file.provider.networks()), (nodes, vec!["control".to_owned()]));
        }
    }

    #[test]
    fn mistakes_of_the_lab_are_reported() {
        let told = parsed(&ONE.replace("engine = \"container\"", "engine = \"docker\"")).err().unwrap();
        assert!(told.contains("provider.lab.engine: is \"docker\": give container or qemu"), "{told}");
        let named = ONE.replace("[node]]\nname = \"cp1\"", "[node]]\nname = \"Cp1\"");
        let mistakes = parsed(&named).unwrap_or_else(|mistakes| panic!("{mistakes}")).mistakes_of_provider();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let both = format!("{ONE}[provider.vsphere]\n");
        let told = parsed(&both).err().unwrap();
        assert!(told.contains("give one of [provider.vsphere] and [provider.lab]"), "{told}");
    }

    #[test]
    fn schema_has_exactly_the_keys_of_the_parser() {
        let schema = schema();
        let known: BTreeSet<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let told = parsed("[provider.lab]\nno-such-key = 1\n").err().unwrap();
        let line = told.lines().find_map(|line| line.split_once(": known are ")).unwrap_or_else(|| panic!("{told}"));
        assert_eq!(line.1.split(", ").collect::<BTreeSet<_>>(), known);
        assert!(kaas::cluster_file::schema()["properties"]["provider"]["properties"]["lab"].is_object());
    }
}
