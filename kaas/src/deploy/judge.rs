//! What the description comes to: the properties of each VM, judged as the VM itself would. The same checks, the same
//! words; nothing outside is asked but files, the environment and, where it says so, a person.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use contract::deployer::{Digests, Fingerprint, PrivateKey};
use contract::finding::{Finding, Severity};
use contract::form::{self, SecretNeed};
use contract::properties::{ADDRESS, CLUSTER_NAME, CONTROL_NODES, DEPLOYER_PUBLIC_KEY, DEPLOYMENT_SECRET, NODE_NAME};
use contract::role::Role;
use fleet::control_plane::{DeploymentRecord, DesiredState, Lifecycle, Node, WantedNode};
use fleet::upgrade::Target;
use fleet::workers::Image;
use image::document::{Located, Mistake, Mistakes};
use ova::archive::Archive;
use ova::ovf::{Product, environment};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::cluster_file::{ClusterFile, NodeTable, Source};
use crate::publisher;

/// A description that is in order.
pub struct ResolvedFile {
    pub wanted: DesiredState,
    /// The deployer's key; none if a new one would be drawn.
    pub key: Option<PrivateKey>,
    /// What is worth knowing, but stops nothing.
    pub warnings: Vec<String>,
}

/// Whether files are made that are not there, and people asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// Everything is had: a cluster is made of it.
    All,
    /// Everything is had, and nothing is drawn: VMs were made with it before, and others are yet to be made.
    WhatWasBegunWith,
    /// The same without the deployment secret: all VMs are there, and no other one is told it.
    AllButTheSecret,
    /// What is not there is left out: it is only judged.
    WhatIsThere,
}

/// What is had of a description where something was begun by it before, which is `kept`. `has_key` says whether the deployer's key is
/// there, `vms` are the BIOS UUIDs of the VMs that are.
///
/// # Errors
/// VMs were made with a key or a secret that is not there: another one would be of no use, and lie where that one belongs.
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
         there, for another one would not be let in"
    );
    let is_there = |node: &Node| node.bios_uuid.is_some_and(|vm| vms.contains(&vm));
    if kept.formed || kept.nodes.iter().all(is_there) {
        return Ok(Resolve::AllButTheSecret);
    }
    if let Source::File(path) = &file.deployment_secret {
        ensure!(
            path.try_exists().with_context(|| format!("looking for {}", path.display()))?,
            "deployment-secret of [cluster]: there is no {}, VMs of the cluster {cluster} were told one, and others are yet to be \
             made: put that secret there, or destroy the cluster and deploy it anew",
            path.display()
        );
    }
    Ok(Resolve::WhatWasBegunWith)
}

/// What is worth knowing of the deployer's key that is there, where a cluster, of which `kept` is noted, has formed with another one. It may
/// have been given to the nodes since.
pub(super) fn another_key(key: Option<Fingerprint>, kept: &DeploymentRecord) -> Option<String> {
    let (given, noted) = (key?, kept.deployer_fingerprint?);
    let is_another = kept.lifecycle == Lifecycle::Active && kept.formed && given != noted;
    is_another.then(|| {
        format!(
            "the nodes of the cluster {} let in the deployer's key {noted} before, and the one that is there is {given}: they let that in \
             only if it was given to them since",
            kept.cluster
        )
    })
}

/// Judges all of a description, and the OVA with it.
///
/// # Errors
/// [`Mistakes`] with everything that is wrong; another error when something cannot be read.
pub fn judge(file: &ClusterFile, resolve: Resolve) -> anyhow::Result<ResolvedFile> {
    let ova = lab::find_ova(&file.ova)?;
    let target = Target::read(&ova)?;
    let form = Archive::open(&ova)?.descriptor()?.product;
    judge_with(file, resolve, target, &form)
}

/// The same with an OVA that was read: its image, and its form.
pub(super) fn judge_with(
    file: &ClusterFile,
    resolve: Resolve,
    target: Target,
    form: &Product,
) -> anyhow::Result<ResolvedFile> {
    let mut mistakes = file.mistakes_of_provider();
    mistakes.extend(file.publisher.as_ref().and_then(|publisher| {
        let refused = refuses(&target, publisher::fingerprint(&publisher.value))?;
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
        // What vCenter would refuse of the form.
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
        // Nothing is kept of what is only judged.
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

/// Why an OVA is not taken from a publisher.
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
    // What is to be typed, or drawn, is judged once it is there.
    let need = if told.contains_key(DEPLOYMENT_SECRET) { SecretNeed::Needed } else { SecretNeed::Erased };
    let (draft, mut findings) =
        form::read(&|property| Ok(told.get(property.key).map(String::as_str)), &Role::ControlPlane.into(), need);
    findings.extend(form::all(&draft, minors, SystemTime::now()));
    findings.iter().cloned().collect()
}

/// A finding where the file says what it is about.
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
        // The cluster lacks it, or all of it is at fault.
        _ => file.mistake(&file.name, format!("{key}: {said}")),
    }
}

/// The deployer's key; none if it is not there.
pub fn existing_deployer_key(path: &Path) -> anyhow::Result<Option<PrivateKey>> {
    deployer_key(path, Resolve::WhatIsThere)
}

/// The deployer's key; drawn where it is not there.
fn deployer_key(path: &Path, resolve: Resolve) -> anyhow::Result<Option<PrivateKey>> {
    if path.try_exists().with_context(|| format!("looking for {}", path.display()))? {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let key = PrivateKey::of_pem(&Zeroizing::new(text));
        return key.map(Some).with_context(|| format!("understanding the deployer's key {}", path.display()));
    }
    if resolve != Resolve::All {
        return Ok(None);
    }
    let key = PrivateKey::draw().context("drawing the deployer's key")?;
    fleet::files::write_new(path, key.pem().expose().as_bytes())?;
    Ok(Some(key))
}

/// The deployment secret; drawn into its file where that is not there.
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
