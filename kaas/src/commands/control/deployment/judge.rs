//! Resolves the description to the properties of each VM, with the checks and messages of the VM itself. Reads only files, the
//! environment and, for prompts, the terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use contract::deployer::{Digests, Fingerprint, PrivateKey};
use contract::finding::{Finding, Severity};
use contract::form::{self, SecretNeed};
use contract::properties::{ADDRESS, CLUSTER_NAME, CONTROL_NODES, DEPLOYER_PUBLIC_KEY, DEPLOYMENT_SECRET, NODE_NAME};
use contract::role::Role;
use document::{Located, Mistake, Mistakes};
use fleet::control_plane::{DeploymentRecord, DesiredState, Lifecycle, Node, WantedNode};
use fleet::upgrade::Target;
use fleet::workers::Image;
use ova::archive::Archive;
use ova::ovf::{Product, environment};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::cluster_file::{ClusterFile, NodeTable, Source};
use crate::keys::{existing_deployer_key, publisher_fingerprint};

/// A valid description.
pub struct ResolvedFile {
    pub wanted: DesiredState,
    /// The deployer's key. `None` if a new one would be drawn.
    pub key: Option<PrivateKey>,
    /// Notes that do not block the run.
    pub warnings: Vec<String>,
}

/// Whether missing files are created and the operator is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// Resolve all values: a cluster is created from them.
    All,
    /// Resolve all values, and draw none: VMs were created with them, and others are yet to be created.
    WhatWasBegunWith,
    /// As `WhatWasBegunWith`, without the deployment secret: all VMs exist, so no new VM needs it.
    AllButTheSecret,
    /// Leave missing values out: the description is only judged.
    WhatIsThere,
}

/// Which values of a description to resolve after an earlier run. `kept` is its record. `has_key` says whether the deployer's
/// key exists. `vms` are the BIOS UUIDs of the existing VMs.
///
/// # Errors
/// VMs were created with a key or a secret that is missing. A new one would not work, and would take the file of the former
/// one.
pub(super) fn begun_with(
    file: &ClusterFile,
    has_key: bool,
    kept: &DeploymentRecord,
    vms: &BTreeSet<Uuid>,
) -> anyhow::Result<Resolve> {
    if kept.lifecycle != Lifecycle::Active || !(kept.formed || kept.nodes.iter().any(|node| node.bios_uuid.is_some())) {
        return Ok(Resolve::All);
    }
    let (cluster, key) = (&kept.cluster, file.deployer_key.display());
    ensure!(
        has_key,
        "deployer-key of [cluster]: there is no {key}, and the cluster {cluster} was begun with one: put that key \
         there, for the nodes do not admit another one"
    );
    let is_there = |node: &Node| node.bios_uuid.is_some_and(|vm| vms.contains(&vm));
    if kept.formed || kept.nodes.iter().all(is_there) {
        return Ok(Resolve::AllButTheSecret);
    }
    if let Source::File(path) = &file.deployment_secret {
        ensure!(
            path.try_exists().with_context(|| format!("looking for {}", path.display()))?,
            "deployment-secret of [cluster]: there is no {}, VMs of the cluster {cluster} have one, and others are yet to be \
             created: put that secret there, or delete the cluster and create it again",
            path.display()
        );
    }
    Ok(Resolve::WhatWasBegunWith)
}

/// A warning if the given deployer's key is not the one that the cluster formed with, according to `kept`. The nodes may have
/// been given the new key since.
pub(super) fn another_key(key: Option<Fingerprint>, kept: &DeploymentRecord) -> Option<String> {
    let (given, noted) = (key?, kept.deployer_fingerprint?);
    let is_another = kept.lifecycle == Lifecycle::Active && kept.formed && given != noted;
    is_another.then(|| {
        format!(
            "the nodes of the cluster {} admitted the deployer's key {noted} earlier, and the present one is {given}: they admit \
             it only if they have received it since",
            kept.cluster
        )
    })
}

/// Judges all of a description, and its OVA. All mistakes are one error, [`Mistakes`].
pub fn judge(file: &ClusterFile, resolve: Resolve) -> anyhow::Result<ResolvedFile> {
    let ova = fleet::find_ova(&file.ova)?;
    let target = Target::read(&ova)?;
    let form = Archive::open(&ova)?.descriptor()?.product;
    judge_with(file, resolve, target, &form)
}

/// As [`judge`], with the image and the form of an OVA that was read.
pub(super) fn judge_with(
    file: &ClusterFile,
    resolve: Resolve,
    target: Target,
    form: &Product,
) -> anyhow::Result<ResolvedFile> {
    let mut mistakes = file.mistakes_of_provider();
    mistakes.extend(file.publisher.as_ref().and_then(|publisher| {
        let refused = refuses(&target, publisher_fingerprint(&publisher.value))?;
        Some(file.mistake(publisher, refused))
    }));
    let key = deployer_key(&file.deployer_key, resolve)?;
    let secret = deployment_secret(&file.deployment_secret, resolve)?;
    let shared = shared(file, &key, secret, resolve, &mut mistakes)?;
    let (mut nodes, mut warnings) = (Vec::new(), Vec::new());
    for node in &file.nodes {
        let mut told = shared.clone();
        told.insert(NODE_NAME.to_owned(), node.name.value.clone());
        told.insert(ADDRESS.to_owned(), node.address.value.clone());
        resolved(file, &node.properties, resolve, &mut told, &mut mistakes)?;
        for finding in findings(&told, &target.kubernetes) {
            let mistake = at(file, node, &finding);
            match finding.severity {
                Severity::Error => mistakes.push(mistake),
                Severity::Warning => warnings.push(mistake.to_string()),
            }
        }
        // Checks that vCenter makes on the form.
        if let Err(refused) = environment::Properties::import(form, &told) {
            mistakes.push(file.mistake(&node.name, format!("{refused}")));
        }
        if let Some(address) = node.address() {
            let name = node.name.value.clone();
            nodes.push(WantedNode { name, address, properties: told, drawn: None, placement: None });
        }
    }
    let mut once: Vec<Mistake> = Vec::new();
    for mistake in mistakes {
        if !once.contains(&mistake) {
            once.push(mistake);
        }
    }
    if !once.is_empty() {
        once.sort_by_key(|mistake| mistake.line);
        return Err(Mistakes(once).into());
    }
    warnings.dedup();
    let digests = match &key {
        Some(key) => key.digests().context("using the deployer's key")?,
        // The digests of a description that is only judged are discarded.
        None => Digests::of(Uuid::new_v4().as_bytes()),
    };
    let wanted = DesiredState {
        cluster: file.name.value.clone(),
        nodes,
        size: file.size,
        image: Image { digest: target.digest, name: format!("{} {}", target.name, target.image) },
        ova: target.ova,
        networks: file.provider.networks(),
        placement: file.provider.placement(),
        digests,
    };
    Ok(ResolvedFile { wanted, key, warnings })
}

/// Why an OVA is not accepted for this publisher.
fn refuses(target: &Target, publisher: anyhow::Result<String>) -> Option<String> {
    let publisher = match publisher {
        Ok(publisher) => publisher,
        Err(error) => return Some(format!("{error:#}")),
    };
    match &target.signer {
        Some(signer) if *signer == publisher => None,
        Some(signer) => Some(format!("has the key {publisher}, and {} is signed with {signer}", target.ova.display())),
        None => Some(format!("has the key {publisher}, and {} is not signed", target.ova.display())),
    }
}

type NodeProperties = BTreeMap<String, String>;

fn shared(
    file: &ClusterFile,
    key: &Option<PrivateKey>,
    secret: Option<Zeroizing<String>>,
    resolve: Resolve,
    mistakes: &mut Vec<Mistake>,
) -> anyhow::Result<NodeProperties> {
    let address = |node: &NodeTable| node.address.value.split('/').next().unwrap_or_default().to_owned();
    let list: Vec<String> = file.nodes.iter().map(|node| format!("{}={}", node.name.value, address(node))).collect();
    let mut told = NodeProperties::new();
    told.insert(CLUSTER_NAME.to_owned(), file.name.value.clone());
    told.insert(CONTROL_NODES.to_owned(), list.join(","));
    if let Some(key) = key {
        told.insert(DEPLOYER_PUBLIC_KEY.to_owned(), key.public()?.to_string());
    }
    if let Some(secret) = secret {
        told.insert(DEPLOYMENT_SECRET.to_owned(), secret.to_string());
    }
    resolved(file, &file.properties, resolve, &mut told, mistakes)?;
    Ok(told)
}

fn resolved(
    file: &ClusterFile,
    given: &BTreeMap<String, Located<Source>>,
    resolve: Resolve,
    told: &mut NodeProperties,
    mistakes: &mut Vec<Mistake>,
) -> anyhow::Result<()> {
    for (key, source) in given.iter().filter(|(_, source)| resolve != Resolve::WhatIsThere || !source.value.is_prompt())
    {
        match source.value.value() {
            Ok(value) => drop(told.insert(key.clone(), value.to_string())),
            Err(error) => mistakes.push(file.mistake(source, format!("{error:#}"))),
        }
    }
    Ok(())
}

fn findings(told: &NodeProperties, minors: &[String]) -> Vec<Finding> {
    // Values that are yet to be typed or drawn are judged later.
    let need = if told.contains_key(DEPLOYMENT_SECRET) { SecretNeed::Needed } else { SecretNeed::Erased };
    let (draft, mut findings) =
        form::read(&|property| Ok(told.get(property.key).map(String::as_str)), &Role::ControlPlane.into(), need);
    findings.extend(form::all(&draft, minors, SystemTime::now()));
    findings.iter().cloned().collect()
}

/// A mistake at the line of the file that the finding is about.
fn at(file: &ClusterFile, node: &NodeTable, finding: &Finding) -> Mistake {
    let key = finding.subject.as_str();
    let said = format!("{}. {} [{}]", finding.seen, finding.action, finding.code);
    if let Some(source) = node.properties.get(key) {
        return file.mistake(source, said);
    }
    if let Some(source) = file.properties.get(key) {
        return file.mistake(source, said);
    }
    match key {
        ADDRESS => file.mistake(&node.address, said),
        NODE_NAME => file.mistake(&node.name, said),
        // The finding is about the whole cluster, or about a missing key.
        _ => file.mistake(&file.name, format!("{key}: {said}")),
    }
}

/// The deployer's key. A new one is drawn with [`Resolve::All`] if its file is missing.
fn deployer_key(path: &Path, resolve: Resolve) -> anyhow::Result<Option<PrivateKey>> {
    let existing = existing_deployer_key(path)?;
    if existing.is_some() || resolve != Resolve::All {
        return Ok(existing);
    }
    let key = PrivateKey::draw().context("drawing the deployer's key")?;
    fleet::files::write_new(path, key.pem().expose().as_bytes())?;
    Ok(Some(key))
}

/// The deployment secret. A new one is drawn into its file with [`Resolve::All`] if that is missing.
fn deployment_secret(source: &Source, resolve: Resolve) -> anyhow::Result<Option<Zeroizing<String>>> {
    if resolve == Resolve::AllButTheSecret || (resolve == Resolve::WhatIsThere && source.is_prompt()) {
        return Ok(None);
    }
    if let Source::File(path) = source
        && !path.try_exists().with_context(|| format!("looking for {}", path.display()))?
    {
        if resolve != Resolve::All {
            return Ok(None);
        }
        // 244 random bits, from two random UUIDs.
        let drawn = format!("{}{}\n", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        fleet::files::write_new(path, Zeroizing::new(drawn).as_bytes())?;
    }
    source.value().map(Some).context("the deployment secret")
}
