//! Reads the file that describes a cluster. Reports all mistakes at once. Other rooms judge what must agree with the rest of
//! the file or with the OVA.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use contract::properties::{
    self, ADDRESS, CLUSTER_NAME, CONTROL_NODES, DEPLOYER_PUBLIC_KEY, DEPLOYMENT_SECRET, NODE_NAME, ROLE,
};
use contract::role::Role;
use document::{Document, Located, Mistake, Mistakes, Table, any, beside};
use fleet::hypervisor::Size;
use fleet::lease::number_of;

use super::described::{FileContext, NodeTable, Text};
use super::provider::DescribedProvider;
use super::source::{NO_PLACE, Source};

/// The properties that come from other parts of the file, each with that part.
const FILLED_IN: &[(&str, &str)] = &[
    (ROLE, "its nodes are control-plane nodes"),
    (NODE_NAME, "give it as `name` of a [[node]]"),
    (ADDRESS, "give it as `address` of a [[node]]"),
    (CLUSTER_NAME, "give it as `name` of [cluster]"),
    (CONTROL_NODES, "it is the list of all [[node]]"),
    (DEPLOYMENT_SECRET, "say with `deployment-secret` of [cluster] where it comes from"),
    (DEPLOYER_PUBLIC_KEY, "it belongs to the key that `deployer-key` of [cluster] names"),
];

/// Whether a property comes from another part of the file.
pub fn is_filled_in(property: &str) -> bool {
    FILLED_IN.iter().any(|(filled_in, _)| *filled_in == property)
}

pub struct ClusterFile {
    text: Text,
    pub name: Located<String>,
    /// The OVA, or a directory with one.
    pub ova: PathBuf,
    /// The publisher's certificate or public key, if the OVA must be signed with it.
    pub publisher: Option<Located<PathBuf>>,
    /// The file of the deployer's private key. It may not exist yet.
    pub deployer_key: PathBuf,
    pub kubeconfig: PathBuf,
    /// The directory of etcd's snapshots, if the provider has no place for them.
    pub snapshots: PathBuf,
    /// The source of the deployment secret. A missing file is created.
    pub deployment_secret: Source,
    pub size: Size,
    pub nodes: Vec<NodeTable>,
    /// The properties of all nodes, by their keys.
    pub properties: BTreeMap<String, Located<Source>>,
    pub provider: DescribedProvider,
}

impl ClusterFile {
    /// Reads a file. All its mistakes are one error, [`Mistakes`].
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self::parse(path, text)?)
    }

    /// Parses the text of a file. `path` is for messages and relative paths.
    pub fn parse(path: &Path, text: String) -> Result<Self, Mistakes> {
        let read = text.clone();
        Document::new(path, &read).read(|top| described(path, top, Text::of(path, text)))
    }

    pub fn written(&self) -> FileContext<'_> {
        FileContext { text: &self.text, nodes: &self.nodes }
    }

    pub fn mistake<T>(&self, at: &Located<T>, message: impl Into<String>) -> Mistake {
        self.text.mistake(at, message)
    }

    /// The names and addresses of the control-plane nodes that have a valid address.
    pub fn addresses(&self) -> Vec<(String, Ipv4Addr)> {
        self.nodes.iter().filter_map(|node| Some((node.name.value.clone(), node.address()?))).collect()
    }

    /// Whether the operator must type a value that VMs are created from.
    pub fn needs_prompt(&self) -> bool {
        let all = self.nodes.iter().map(|node| &node.properties).chain([&self.properties]);
        all.flat_map(BTreeMap::values).any(|source| source.value.is_prompt())
    }

    pub fn mistakes_of_provider(&self) -> Vec<Mistake> {
        self.provider.mistakes(&self.text, &self.nodes)
    }
}

fn described(path: &Path, top: &Table<'_, '_>, text: Text) -> Option<ClusterFile> {
    struct Cluster {
        name: Located<String>,
        ova: PathBuf,
        publisher: Option<Located<PathBuf>>,
        deployer_key: Option<PathBuf>,
        kubeconfig: Option<PathBuf>,
        snapshots: Option<PathBuf>,
        secret: Option<Source>,
    }
    let here = |name: &str| Ok(beside(path, name));
    let cluster = top.table("cluster", |table| {
        let name = table.located("name", "the cluster's name", cluster_name);
        let ova = table.required("ova", "the OVA that VMs are made from", here);
        let publisher = table.optional("publisher", here).zip(table.at("publisher")).map(|(path, at)| at.with(path));
        let deployer_key = table.optional("deployer-key", here);
        let kubeconfig = table.optional("kubeconfig", here);
        let snapshots = table.optional("snapshots", here);
        let secret = Source::read(path, table, "deployment-secret");
        if let Some(Source::Text(_)) = secret {
            table.mistake_at("deployment-secret", NO_PLACE);
        }
        Some(Cluster { name: name?, ova: ova?, publisher, deployer_key, kubeconfig, snapshots, secret })
    });
    let size = top.table("vm", |table| {
        let processors = table.number("processors", "a number of virtual processors", 1..=128);
        let memory = table.number("memory-mib", "a size in MiB", 1024..=4_194_304);
        let disk = table.number("data-disk-gib", "a size in GiB", 4..=63_488);
        Some(Size { processors: processors?, memory: memory?, data_disk: Some(u64::from(disk?) << 30) })
    });
    let nodes = top.tables("node", "there are no control-plane nodes: give one [[node]], or three", |table| {
        let name = table.located("name", "the node's name", any);
        let address = table.located("address", "the node's address with the prefix length of its subnet", any);
        let properties = table.optional_table("properties", |table| properties_of(path, table)).unwrap_or_default();
        Some(NodeTable { name: name?, address: address?, properties })
    });
    let properties = top.optional_table("properties", |table| properties_of(path, table)).unwrap_or_default();
    let provider = top.table("provider", |table| DescribedProvider::read(path, table));
    let cluster = cluster?;
    let name = cluster.name.value.clone();
    let or = |given: Option<PathBuf>, suffix: &str| given.unwrap_or_else(|| beside(path, &format!("{name}.{suffix}")));
    let (size, provider) = (size?, provider?);
    let (deployer_key, kubeconfig) = (or(cluster.deployer_key, "key"), or(cluster.kubeconfig, "kubeconfig"));
    let snapshots = or(cluster.snapshots, "snapshots");
    let deployment_secret = cluster.secret.unwrap_or_else(|| Source::File(or(None, "secret")));
    Some(ClusterFile {
        text,
        ova: cluster.ova,
        publisher: cluster.publisher,
        deployer_key,
        kubeconfig,
        snapshots,
        deployment_secret,
        name: cluster.name,
        size,
        nodes,
        properties,
        provider,
    })
}

/// A cluster's name. Files and directories are named after it before the rest of the description is judged. It must not lead to
/// other files, nor be a name that commands use themselves.
fn cluster_name(text: &str) -> Result<String, String> {
    let parsed = properties::find(CLUSTER_NAME).map(|property| property.parse(text));
    if let Some(Err(findings)) = parsed {
        return Err(format!("is {text:?}: {findings}"));
    }
    if number_of(text).is_some() {
        return Err(format!("is {text:?}: directories with such names hold the leases of clusters"));
    }
    Ok(text.to_owned())
}

/// The properties of a table, each by its key.
fn properties_of(path: &Path, table: &Table<'_, '_>) -> BTreeMap<String, Located<Source>> {
    let mut all = BTreeMap::new();
    for key in table.keys() {
        let (at, given) = (table.at(&key), Source::read(path, table, &key));
        let (Some(at), Some(given)) = (at, given) else { continue };
        let filled_in = FILLED_IN.iter().find(|(filled_in, _)| *filled_in == key);
        match (properties::find(&key), filled_in) {
            (None, _) => table.mistake_at(&key, "is no property: docs/reference/properties.md lists them"),
            (Some(_), Some((_, by))) => {
                table.mistake_at(&key, format!("is filled in from the rest of this file: {by}"))
            }
            (Some(property), None) if property.need(Role::ControlPlane).is_none() => {
                table.mistake_at(&key, "is not used by control-plane nodes of a control cluster");
            }
            (Some(property), None) if matches!(&given, Source::Text(text) if property.betrays(text)) => {
                table.mistake_at(&key, NO_PLACE);
            }
            (Some(_), None) => drop(all.insert(key, at.with(given))),
        }
    }
    all
}
