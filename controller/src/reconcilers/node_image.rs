//! `NodeImage`: reports the phase of its life, and its templates. An image that a cluster uses is not deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet::hypervisor::Placement;
use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::{IN_USE, NOW_AND_THEN, all, keeps, tenants, tolerant};
use crate::context::{Attempt, Context, ReconcileError};
use crate::decisions::{TemplateInventory, image_conditions, next_phase, phase};
use crate::objects::{NodeImage, NodeImageStatus, Provider, Template, TenantCluster, set};
use crate::reach::kinds::{self, Tolerant, full_name};
use crate::reach::providers::Providers;

/// Adds the finalizer, looks for templates on each Provider, and writes the status. Returns when the next phase begins.
///
/// # Errors
/// A call to the API server failed. A Provider that does not answer is no error: the status names it.
pub async fn reconcile(image: Arc<NodeImage>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let objects = &*context.objects;
    if image.metadata.deletion_timestamp.is_some() {
        return finalize(&image, &context).await;
    }
    if kinds::add_finalizer(objects, &*image, IN_USE).await.attempting("keeping the NodeImage")? {
        return Ok(Action::await_change());
    }
    let Tolerant { whole: providers, unread } = tolerant::<Provider>(objects).await?;
    let before = image.status.clone();
    let mut now = before.clone().unwrap_or_default();
    let digest = image.spec.digest.strip_prefix("sha256:").unwrap_or(&image.spec.digest);
    let mut found = TemplateInventory::default();
    // The known templates remain if the Provider does not answer, or its status cannot be read.
    let known = |name: &str| -> Vec<Template> {
        now.templates.iter().filter(|template| template.provider == name).cloned().collect()
    };
    for (provider, failure) in unread {
        found.templates.extend(known(&provider.name_any()));
        found.unasked.push(failure.to_string());
    }
    for provider in providers.iter().filter(|provider| provider.metadata.deletion_timestamp.is_none()) {
        context.term.ensure_active()?;
        match templates(&context.providers, provider, digest, &mut found).await {
            Ok(()) => found.asked = true,
            Err(why) => {
                found.templates.extend(known(&provider.name_any()));
                found.unasked.push(why);
            }
        }
    }
    let time = context.clock.time();
    let generation = image.metadata.generation.unwrap_or_default();
    let phase = phase(&image.spec.lifecycle, time.0);
    let judged = image_conditions(phase, &found, &now);
    (now.phase, now.templates, now.observed_generation) = (Some(phase), found.templates, generation);
    for (reason, message) in [judged.ready, judged.compatible] {
        set(&mut now.conditions, reason, &message, generation, &time);
    }
    let noted = kinds::note::<NodeImage, NodeImageStatus>(objects, &image, before.as_ref(), &now).await;
    noted.attempting("noting what was found of the NodeImage")?;
    let until = next_phase(&image.spec.lifecycle, time.0).and_then(|wait| Duration::try_from(wait).ok());
    Ok(Action::requeue(until.map_or(NOW_AND_THEN, |until| until.clamp(Duration::from_secs(1), NOW_AND_THEN))))
}

/// Adds the templates of an image on a Provider. The error is for the operator.
async fn templates(
    providers: &Providers,
    provider: &Provider,
    digest: &str,
    found: &mut TemplateInventory,
) -> Result<(), String> {
    let name = provider.name_any();
    let zones = provider.spec.vsphere.iter().flat_map(|vsphere| &vsphere.zones);
    let datastores: BTreeSet<&String> = zones.filter_map(|zone| zone.datastore.as_ref()).collect();
    let images = providers.images(provider).await.map_err(|error| error.to_string())?;
    let (mut here, mut altered, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for datastore in datastores {
        let at = Placement { datastore: Some(datastore.clone()), ..Placement::default() };
        let laid = images.templates(digest, &at).await.map_err(|error| format!("the Provider {name}: {error}"))?;
        // One unchanged template is enough, even if others of this image were altered.
        let best = laid.iter().find(|template| template.altered.is_none()).or(laid.first());
        let Some(best) = best else {
            missing.push(format!("{name} has none on {datastore}"));
            continue;
        };
        if let Some(what) = &best.altered {
            altered.push(format!("the template {} of {name} is not as it was laid: {what}", best.name));
        }
        let stamped = best.altered.is_none();
        let uuid = best.uuid.to_string();
        here.push(Template { provider: name.clone(), datastore: datastore.clone(), uuid, stamped });
    }
    found.templates.extend(here);
    found.altered.extend(altered);
    found.missing.extend(missing);
    Ok(())
}

/// Removes the finalizer once no cluster uses the image. Its templates stay: disks of VMs may be linked to them.
async fn finalize(image: &NodeImage, context: &Context) -> Result<Action, ReconcileError> {
    let (objects, name) = (&*context.objects, image.name_any());
    let clusters = all::<TenantCluster>(objects).await?;
    let providers = tolerant::<Provider>(objects).await?.all();
    let tenants = tenants(objects).await?;
    let has = |cluster: &&TenantCluster| {
        let resolved = cluster.resolved().and_then(|one| one.image.as_ref());
        (cluster.spec.image.as_ref() == Some(&name) || resolved == Some(&name)) && keeps(cluster, &providers, &tenants)
    };
    if let Some(user) = clusters.iter().find(has) {
        log::info!("the NodeImage {name} is to go, and stays for now: the TenantCluster {} has it", full_name(user));
        return Ok(Action::requeue(NOW_AND_THEN));
    }
    kinds::remove_finalizer(objects, image, IN_USE).await.attempting("letting the NodeImage go")?;
    Ok(Action::await_change())
}
