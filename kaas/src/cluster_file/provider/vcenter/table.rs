//! Reads `[provider.vsphere]`, and reports its mistakes at their lines. Contacts no vCenter.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::vsphere::{DatastorePath, RestartPriority, Settings, Thumbprint, Trust};
use document::{Located, Table, any, beside};
use fleet::lease::number_of;
use fleet::vcenter::Clones;

use super::VcenterProvider;
use crate::cluster_file::source::{NO_PLACE, Source};

const PRIORITIES: [(&str, RestartPriority); 4] = [
    ("low", RestartPriority::Low),
    ("medium", RestartPriority::Medium),
    ("high", RestartPriority::High),
    ("highest", RestartPriority::Highest),
];

impl VcenterProvider {
    /// Reads the table in the document `path`.
    pub(in crate::cluster_file::provider) fn read(path: &Path, table: &Table<'_, '_>) -> Option<Self> {
        let server = table.located("server", "the vCenter's host name or address", server);
        let authorities = table.optional("ca-file", |file| certificates(beside(path, file)));
        let thumbprint = table
            .optional("thumbprint", |text| text.parse::<Thumbprint>().map_err(|error| format!("is {text:?}: {error}")));
        if table.at("ca-file").is_some() && table.at("thumbprint").is_some() {
            table.mistake_at("thumbprint", "is given together with ca-file: the vCenter proves itself by one of them");
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
        let storage_policy = table.optional("storage-policy", policy).zip(table.at("storage-policy"));
        let storage_policy = storage_policy.map(|(name, at)| at.with(name));
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
            storage_policy,
            managed_by,
            journal,
            deployment,
            settings,
        })
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

/// The name of a storage policy. It is not a path, so any character is allowed.
fn policy(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(format!("is {text:?}: give the name of a storage policy, as vSphere Client shows it"));
    }
    Ok(text.to_owned())
}

/// A directory on a datastore, not its root.
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
