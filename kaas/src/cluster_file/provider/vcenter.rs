//! A vCenter as a place for a cluster: `[provider.vsphere]`.
//!
//! What stands in the table is read and judged here by itself; whether it is so on the vCenter, `look` asks and `judge`
//! decides, purely. Nothing is made but by `fleet`.

mod asked;
mod judge;
mod look;
mod seen;
mod site;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ::vsphere::{DatastorePath, RestartPriority, Settings, Thumbprint, Trust};
use fleet::authority::number_of;
use fleet::vcenter::{Clones, Site as Names};
use image::document::{Located, Mistake, Table, any, beside};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::super::described::{NodeTable, Text};
use super::super::source::{NO_PLACE, Source};
use super::{Provider, Site};

use self::site::VcenterSite;

/// `[provider.vsphere]`. All names but the data center's are paths below it, as vSphere Client shows them; in names `/`, `\` and
/// `%` are written `%2f`, `%5c` and `%25`.
#[derive(Clone, Debug)]
pub struct VcenterProvider {
    /// Host name or address of the vCenter, with a port if it is another one than 443.
    server: Located<String>,
    trust: Trust,
    user: Located<String>,
    password: Located<Source>,
    datacenter: Located<String>,
    /// The cluster, or a host without one.
    cluster: Located<String>,
    /// A resource pool of it, if not its topmost one.
    pool: Option<Located<String>>,
    /// The folder that VMs are put into.
    folder: Located<String>,
    /// Folders that VMs of the deployment may be in as well, because they were adopted there.
    other_folders: Vec<Located<String>>,
    /// The folder of image templates, if not that of the VMs.
    templates: Option<Located<String>>,
    datastore: Located<String>,
    /// In the order of the image's.
    networks: Vec<Located<String>>,
    clones: Clones,
    /// Whether control nodes are kept on different hosts.
    anti_affinity: Located<bool>,
    restart: Option<Located<RestartPriority>>,
    /// The key of the extension that vSphere Client names as the one whose the VMs are.
    managed_by: Option<String>,
    /// Where holds and journals are kept.
    journal: Option<Located<DatastorePath>>,
    /// The deployment whose the VMs are, if not the one that vCenter and journal come to.
    deployment: Option<Uuid>,
    settings: Settings,
}

const PRIORITIES: [(&str, RestartPriority); 4] = [
    ("low", RestartPriority::Low),
    ("medium", RestartPriority::Medium),
    ("high", RestartPriority::High),
    ("highest", RestartPriority::Highest),
];

impl VcenterProvider {
    /// Reads the table in the document `path`.
    pub(super) fn read(path: &Path, table: &Table<'_, '_>) -> Option<Self> {
        let server = table.located("server", "the vCenter's host name or address", server);
        let authorities = table.optional("ca-file", |file| certificates(beside(path, file)));
        let thumbprint = table
            .optional("thumbprint", |text| text.parse::<Thumbprint>().map_err(|error| format!("is {text:?}: {error}")));
        if table.at("ca-file").is_some() && table.at("thumbprint").is_some() {
            table.mistake_at("thumbprint", "is given beside ca-file: the vCenter proves itself by one of them");
        }
        let user = table.located("user", "the user, such as kaas@vsphere.local", any);
        let password = password(path, table);
        let datacenter = table.located("datacenter", "the data center's inventory path", object);
        let cluster = table.located("cluster", "the cluster that VMs run on", object);
        let pool = optional(table, "resource-pool");
        let folder = table.located("folder", "the folder that VMs are put into", object);
        let other_folders = table.texts("other-folders", object);
        let templates = optional(table, "templates-folder");
        let datastore = table.located("datastore", "the datastore that VMs are put onto", object);
        let networks =
            table.required_texts("networks", "the networks that VMs are on, in the order of the image's", object);
        let clones = table.optional("clones", |text| match text {
            "linked" => Ok(Clones::Linked),
            "full" => Ok(Clones::Full),
            other => Err(format!("is {other:?}: give linked or full")),
        });
        let anti_affinity = table.flag("anti-affinity").unwrap_or(true);
        let at = table.at("anti-affinity").or_else(|| table.at("cluster"));
        let restart = table.optional("restart-priority", |text| {
            let known = PRIORITIES.iter().find(|(name, _)| *name == text);
            known.map(|(_, priority)| *priority).ok_or_else(|| {
                let names: Vec<&str> = PRIORITIES.iter().map(|(name, _)| *name).collect();
                format!("is {text:?}: give one of {}", names.join(", "))
            })
        });
        let restart = restart.zip(table.at("restart-priority")).map(|(priority, at)| at.with(priority));
        let managed_by = table.optional("managed-by", any);
        let journal = table.optional("journal", directory);
        let journal = journal.zip(table.at("journal")).map(|(journal, at)| at.with(journal));
        let deployment =
            table.optional("deployment", |text| text.parse().map_err(|_| format!("is {text:?}: give a UUID")));
        let settings = table.optional_table("limits", settings).unwrap_or_default();
        Some(Self {
            server: server?,
            trust: match (authorities, thumbprint) {
                (Some(file), _) => Trust::Authorities(file),
                (None, Some(thumbprint)) => Trust::Thumbprint(thumbprint),
                (None, None) => Trust::System,
            },
            user: user?,
            password: password?,
            datacenter: datacenter?,
            cluster: cluster?,
            pool,
            folder: folder?,
            other_folders,
            templates,
            datastore: datastore?,
            networks,
            clones: clones.unwrap_or_default(),
            anti_affinity: at?.with(anti_affinity),
            restart,
            managed_by,
            journal,
            deployment,
            settings,
        })
    }

    /// The objects by their names.
    fn names(&self) -> Names {
        let values = |all: &[Located<String>]| all.iter().map(|one| one.value.clone()).collect();
        Names {
            datacenter: self.datacenter.value.clone(),
            folder: self.folder.value.clone(),
            other_folders: values(&self.other_folders),
            templates: self.templates.as_ref().map(|folder| folder.value.clone()),
            resource_pool: self.pool_path(),
            datastore: self.datastore.value.clone(),
            networks: values(&self.networks),
            clones: self.clones,
            different_hosts: self.anti_affinity.value,
            restart: self.restart.as_ref().map(|restart| restart.value),
            managed_by: self.managed_by.clone(),
        }
    }

    /// The resource pool's path. A cluster's topmost one is called `Resources`, and stands for it where no other is named.
    fn pool_path(&self) -> String {
        let cluster = &self.cluster.value;
        self.pool.as_ref().map_or_else(|| cluster.clone(), |pool| format!("{cluster}/Resources/{}", pool.value))
    }

    /// Whether settings of the cluster are made: rules and restart priorities.
    fn changes_cluster(&self) -> bool {
        self.anti_affinity.value || self.restart.is_some()
    }

    /// Where holds and journals of a cluster are kept.
    fn journal_of(&self, cluster: &str) -> DatastorePath {
        let beside_vms = || DatastorePath::new(name_of(&self.datastore.value), format!("kaas/{cluster}"));
        self.journal.as_ref().map_or_else(beside_vms, |journal| journal.value.clone())
    }
}

impl Provider for VcenterProvider {
    fn words(&self) -> String {
        format!("the folder {} of {} on {}", self.folder.value, self.datacenter.value, self.server.value)
    }

    fn mistakes(&self, _text: &Text, _nodes: &[NodeTable]) -> Vec<Mistake> {
        // All that can be told without vCenter is told when the table is read.
        Vec::new()
    }

    fn networks(&self) -> Vec<String> {
        self.networks.iter().map(|network| network.value.clone()).collect()
    }

    fn open(&self, cluster: &str, snapshots: &Path, runtime: &Rc<Runtime>) -> anyhow::Result<Box<dyn Site>> {
        Ok(Box::new(VcenterSite::open(self, cluster, snapshots, runtime)?))
    }
}

/// A host name or address, with or without a port.
fn server(text: &str) -> Result<String, String> {
    let rest = text.rsplit_once(':').filter(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok());
    let host = rest.map_or(text, |(host, _)| host);
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._[]:".contains(c));
    let is_plain = rest.is_some() || !host.contains(':') || host.starts_with('[');
    if is_host && is_plain {
        return Ok(text.to_owned());
    }
    Err(format!(
        "is {text:?}: give a host name or address alone, with a port if it is not 443, such as vcenter.example.com"
    ))
}

fn certificates(file: PathBuf) -> Result<PathBuf, String> {
    let shown = file.display();
    match std::fs::read_to_string(&file) {
        Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => Ok(file),
        Ok(_) => Err(format!("is {shown}, which holds no certificate in PEM")),
        Err(error) => Err(format!("is {shown}, which cannot be read: {error}")),
    }
}

fn password(path: &Path, table: &Table<'_, '_>) -> Option<Located<Source>> {
    let Some(at) = table.at("password") else {
        table.mistake_at(
            "password",
            "is missing: say with { file = \"…\" }, { environment = \"…\" } or { prompt = \"…\" } where it comes from",
        );
        return None;
    };
    let source = Source::read(path, table, "password")?;
    if let Source::Text(_) = source {
        table.mistake_at("password", NO_PLACE);
        return None;
    }
    Some(at.with(source))
}

fn optional(table: &Table<'_, '_>, key: &str) -> Option<Located<String>> {
    table.optional(key, object).zip(table.at(key)).map(|(name, at)| at.with(name))
}

/// A path of the inventory.
fn object(text: &str) -> Result<String, String> {
    let is_path = !text.is_empty() && text.split('/').all(|part| !part.trim().is_empty());
    if is_path && !text.starts_with('[') {
        return Ok(text.to_owned());
    }
    Err(format!("is {text:?}: give a name, or names with / between them, as vSphere Client shows them"))
}

/// A directory on a datastore, and not its top.
fn directory(text: &str) -> Result<DatastorePath, String> {
    let parsed = text.parse::<DatastorePath>().map_err(|error| error.to_string())?;
    if let Some(part) = parsed.path.split('/').find(|part| number_of(part.trim()).is_some()) {
        return Err(format!(
            "is {text:?}: {part} is in another cluster's journal, or would be taken for a part of one"
        ));
    }
    if parsed.path.split('/').all(|part| !matches!(part.trim(), "" | "." | "..")) {
        return Ok(parsed);
    }
    Err(format!("is {text:?}: give a directory on a datastore, such as \"[datastore1] kaas/control\""))
}

fn settings(table: &Table<'_, '_>) -> Settings {
    let number = |key: &str, what: &str, most: u32| table.at(key).and_then(|_| table.number(key, what, 1..=most));
    let mut settings = Settings::default();
    if let Some(requests) = number("requests", "a number of requests at once", 64) {
        settings.calls = requests as usize;
    }
    if let Some(minutes) = number("task-minutes", "a number of minutes", 24 * 60) {
        settings.task_limit = Duration::from_secs(u64::from(minutes) * 60);
    }
    settings
}

/// The name of a path's object, as datastore paths write it: without the inventory's way to write some characters.
fn name_of(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\").replace("%5C", "\\").replace("%25", "%")
}
