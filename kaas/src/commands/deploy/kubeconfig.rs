//! `kaas control kubeconfig`: a new kubeconfig of a control cluster. Changes nothing of the cluster.

use std::process::ExitCode;

use anyhow::Context;
use fleet::control_plane::USER;

use super::arguments::Kubeconfig;
use crate::cluster_file::{ClusterFile, SiteSession, credentials_by_key};
use crate::commands::cluster::WrittenKubeconfig;
use crate::keys::existing_deployer_key;
use crate::signals::SignalPolicy;

/// Writes the kubeconfig that a node issues for the deployer's key. After an error, the file keeps the old one.
pub fn kubeconfig(arguments: &Kubeconfig) -> anyhow::Result<ExitCode> {
    let file = ClusterFile::read(&arguments.file)?;
    let key = existing_deployer_key(&file.deployer_key)?;
    let key = key.with_context(|| format!("there is no deployer's key {}", file.deployer_key.display()))?;
    let site = SiteSession::of(&file)?;
    let place = site.find()?.with_context(|| format!("{} does not exist", site.words()))?;
    let (deployer, nodes) = (place.deployer(key)?, file.addresses());
    let credentials = site.run(SignalPolicy::AtOnce, async |_| {
        credentials_by_key(&deployer, &place, &nodes, &file.kubeconfig, None).await
    })?;
    let path = std::path::absolute(arguments.to_file.as_ref().unwrap_or(&file.kubeconfig))?;
    fleet::files::write(&path, &credentials.kubeconfig(USER))?;
    let hints = site.access_hints()?;
    let text = || format!("kubeconfig, valid for a day: {}\n{}", path.display(), hints.join("\n"));
    arguments.output.result(&WrittenKubeconfig::of(&path, &credentials), text)?;
    Ok(ExitCode::SUCCESS)
}
