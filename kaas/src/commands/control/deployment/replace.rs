//! `kaas control replace-node`: a lost control-plane node of a cluster from a file gets another VM.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use contract::deployer::PrivateKey;
use contract::node::Node;
use contract::swap::Image;
use fleet::control_plane::{Deploy as Deployment, DeploymentRecord, Goal, Lifecycle, begun};
use fleet::hypervisor::PowerState;
use fleet::nodes::{Deployer, Method};
use fleet::upgrade::Target;
use schemars::JsonSchema;
use serde::Serialize;

use super::Run;
use super::judge::{Resolve, ResolvedFile, judge};
use crate::cluster_file::{ClusterBackend, ClusterFile, SiteSession};
use crate::confirm::announced;
use crate::keys::existing_deployer_key;
use crate::output::warn;
use crate::signals::SignalPolicy;
use crate::work::{Work, advised};

#[derive(Args)]
pub struct ReplaceNode {
    /// Name of the lost control-plane node
    node: String,
    /// File that describes the cluster
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Name of the host of the lost VM, if vCenter cannot tell whether the VM runs. Switch the host off first. It is accepted only
    /// while vCenter shows the host as not responding
    #[arg(long, value_name = "HOST")]
    host_is_off: Option<String>,
    /// Name of the node, as the confirmation. Without it, the command asks for the name
    #[arg(long, value_name = "NODE")]
    confirm: Option<String>,
    /// Only show what would be done, without a confirmation
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    work: Work,
}

/// The output of a dry run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementPlan {
    /// Always true.
    dry_run: bool,
    cluster: String,
    node: String,
    /// Why the lost VM does not run, or what is open.
    evidence: String,
    /// The image of the new VM.
    image: String,
}

impl ReplacementPlan {
    fn text(&self) -> String {
        let Self { cluster, node, evidence, image, .. } = self;
        format!(
            "{node} of the cluster {cluster} gets another VM of {image}: {evidence}.\nThe other nodes remove it from the cluster \
             first. A former VM that returns is disconnected and powered off; its data disk stays."
        )
    }
}

/// `kaas control replace-node`. Exit statuses as of `create`.
pub fn replace_node(arguments: &ReplaceNode) -> anyhow::Result<ExitCode> {
    let ReplaceNode { node, host_is_off, work, .. } = arguments;
    let file = ClusterFile::read(&arguments.file)?;
    let judged = judge(&file, Resolve::WhatIsThere)?;
    let site = SiteSession::of(&file)?;
    let Some(place) = site.find()? else {
        bail!("{} does not exist: there is nothing of the cluster {}", site.words(), file.name.value)
    };
    let run = Run::working(&file, &site, "control replace-node", work);
    let looks = Run { ending: SignalPolicy::AtOnce, ..run };
    let target = Target::read(&judged.wanted.ova)?;
    let plan = ReplacementPlan {
        dry_run: true,
        cluster: file.name.value.clone(),
        node: node.clone(),
        evidence: looks.evidence(&place, node, host_is_off.as_deref(), &target)?,
        image: judged.wanted.image.name.clone(),
    };
    if arguments.dry_run {
        return work.output.result(&plan, || plan.text());
    }
    let (given, name, summary, output) = (arguments.confirm.clone(), node.clone(), plan.text(), work.output);
    // On a separate thread, so that Ctrl-C works while the command waits for the answer.
    site.run(SignalPolicy::AtOnce, async |_| {
        let asked = move || announced("node", &name, given.as_deref(), &summary, output);
        tokio::task::spawn_blocking(asked).await.context("asking")?
    })?;
    let ResolvedFile { wanted, key, warnings } = judge(&file, Resolve::AllButTheSecret)?;
    warnings.iter().for_each(|warning| warn(&format!("warning: {warning}")));
    let goal = Goal::Replace { wanted: &wanted, node, host_is_off: host_is_off.as_deref(), retries: true };
    run.go(&place, Some(key.context("there is no deployer's key")?), goal, work.over.take())
}

impl Run<'_> {
    /// Why the lost VM does not run. Changes nothing.
    ///
    /// # Errors
    /// The node is not proved lost, or its cluster runs another image than the file names.
    fn evidence(
        &self,
        place: &ClusterBackend,
        node: &str,
        host_is_off: Option<&str>,
        target: &Target,
    ) -> anyhow::Result<String> {
        let key = || -> anyhow::Result<PrivateKey> {
            existing_deployer_key(&self.file.deployer_key)?
                .with_context(|| format!("there is no deployer's key {}", self.file.deployer_key.display()))
        };
        let deployer = place.deployer(key()?)?;
        let looked = self.with(place, Some(key()?), async |deploy| {
            let kept = begun(deploy.store, deploy.hypervisor.deployment()).await?;
            let kept = kept.filter(|kept| kept.formed && kept.lifecycle == Lifecycle::Active);
            let kept = kept.context("no cluster that has formed is recorded here")?;
            require_image(deploy, &deployer, &kept, node, target).await?;
            if let Some(open) = kept.replacement.as_ref().filter(|open| open.node == node) {
                return Ok(format!("its replacement is open, with VM {}", open.attempt));
            }
            deploy.proof(node).await?.evidence(node, host_is_off)
        });
        looked.map_err(advised)
    }
}

/// Checks that the other nodes run the image of the file: a VM of another one never joins.
async fn require_image(
    deploy: &Deployment<'_>,
    deployer: &Deployer,
    kept: &DeploymentRecord,
    lost: &str,
    target: &Target,
) -> anyhow::Result<()> {
    let mut last = anyhow::anyhow!("no VM of another control-plane node is on");
    for vm in deploy.hypervisor.vms().await?.iter().filter(|vm| vm.power == PowerState::On) {
        let name = vm.stamp.as_ref().map(|stamp| stamp.node.as_str()).filter(|name| *name != lost);
        let Some(node) = name.and_then(|name| kept.node(name)) else { continue };
        let asked = async {
            let shown = deploy.hypervisor.fingerprints(&vm.reference).await?.context("it shows no cluster yet")?;
            ensure!(kept.ca_fingerprint.is_none_or(|known| known == shown.ca), "it shows another cluster's CA");
            let client = deployer.client(&deployer.credentials(node.address, &shown).await?)?;
            client.ask_node(node.address, Method::GET, "/v1/node", None).await?.json::<Node>()
        };
        match asked.await {
            Ok(facts) => return require_same(&node.name, &facts.image.build(), &target.image),
            Err(error) => last = error.context(node.name.clone()),
        }
    }
    Err(last.context("asking the other control-plane nodes for their image"))
}

fn require_same(node: &str, runs: &Image, named: &Image) -> anyhow::Result<()> {
    ensure!(
        runs.build == named.build,
        "{node} runs the image {runs}, and the file names {named}: put the OVA that the nodes run into the file"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::schemas::tests::fits;

    #[test]
    fn plan_of_a_replacement_matches_its_schema() {
        let plan = ReplacementPlan {
            dry_run: true,
            cluster: "control".to_owned(),
            node: "cp2".to_owned(),
            evidence: "its VM and its data disk are gone".to_owned(),
            image: "kaas-control-plane 0.2.0".to_owned(),
        };
        fits("control-replacement", &plan);
        assert!(plan.text().starts_with("cp2 of the cluster control gets another VM"), "{}", plan.text());
    }

    // A VM of another image than that of the other nodes never joins.
    #[test]
    fn replacement_needs_the_image_of_the_other_nodes() {
        let image = |version: &str, build: &str| Image { version: version.to_owned(), build: build.to_owned() };
        let named = image("0.2.0", "4f0c1a9b7e");
        assert!(require_same("cp1", &image("0.2.0", "4f0c1a9b7e"), &named).is_ok());
        for other in [image("0.2.0", "5d1c77a90b"), image("0.1.0", "77a90b3e4f")] {
            let error = require_same("cp1", &other, &named).unwrap_err().to_string();
            let words = format!("cp1 runs the image {other}, and the file names 0.2.0 (4f0c1a9): put the OVA that");
            assert!(error.starts_with(&words), "{error}");
        }
    }
}
