//! The Secrets of Providers: not deleted while clusters use a Provider that names them. A label marks them, so that a Secret that
//! a Provider named before is released too.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::json;

use crate::context::{Attempt, ReconcileError};
use crate::objects::{Provider, SYSTEM};
use crate::reach::{Collection, Objects, kinds};
use crate::reconcilers::{tolerant, users};

/// The finalizer of a Secret in use, and the label by which such Secrets are listed.
const KEPT: &str = "kaas.local/credentials";

/// Adds the finalizer to the Secret of a Provider if clusters use it, and releases Secrets that are not needed.
pub async fn keep(objects: &dyn Objects, provider: &Provider, is_used: bool) -> Result<(), ReconcileError> {
    let name = &provider.spec.credentials_ref.name;
    if is_used {
        let secret = kinds::find::<Secret>(objects, Some(SYSTEM), name).await.attempting("reading the Secret")?;
        if let Some(secret) = secret.filter(|secret| secret.metadata.deletion_timestamp.is_none())
            && !secret.finalizers().iter().any(|finalizer| finalizer == KEPT)
        {
            let mut finalizers = secret.finalizers().to_vec();
            finalizers.push(KEPT.to_owned());
            let part = json!({"metadata": {
                "resourceVersion": secret.metadata.resource_version, "finalizers": finalizers, "labels": {KEPT: "kept"},
            }});
            let patched = objects.patch(&Collection::of::<Secret>(Some(SYSTEM)), name, &part).await;
            patched.attempting("keeping the Secret")?;
        }
    }
    release(objects, None).await
}

/// Releases the Secrets that no Provider with clusters names. `leaving` is a Provider that is being deleted.
pub async fn release(objects: &dyn Objects, leaving: Option<&str>) -> Result<(), ReconcileError> {
    let kept =
        kinds::list::<Secret>(objects, Some(SYSTEM), Some((KEPT, "kept"))).await.attempting("listing Secrets")?;
    let kept: Vec<_> = kept.into_iter().filter(|secret| secret.finalizers().iter().any(|one| one == KEPT)).collect();
    if kept.is_empty() {
        return Ok(());
    }
    let providers = tolerant::<Provider>(objects).await?.all();
    let clusters = users(objects, &providers).await?;
    for secret in kept {
        let needs = |provider: &&Provider| {
            let name = provider.name_any();
            let is_used = clusters.iter().any(|cluster| cluster.spec.provider_ref.name == name);
            is_used && provider.spec.credentials_ref.name == secret.name_any() && leaving != Some(name.as_str())
        };
        if !providers.iter().any(|provider| needs(&provider)) {
            kinds::remove_finalizer(objects, &secret, KEPT).await.attempting("letting the Secret go")?;
        }
    }
    Ok(())
}
