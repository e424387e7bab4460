//! The image and the Kubernetes version of a cluster's workers: those that its control-plane nodes have reached for good. Workers
//! follow the commit of an upgrade and never precede it. `status.resolved` has the cluster's image, which is the former one as
//! long as a rollback is possible. `status.kubernetes` has the minor version that all control-plane nodes have reached.

use contract::minor::Minor;

use crate::objects::TenantCluster;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerImage {
    pub name: String,
    /// Digest of the image. Another object of the same name is not accepted for it.
    pub digest: String,
    /// The minor version of Kubernetes that the cluster's API servers have reached.
    pub kubernetes: Minor,
}

/// The image and Kubernetes version for a cluster's workers.
///
/// # Errors
/// Neither is known yet; the text has the reason.
pub fn worker_image(cluster: &TenantCluster) -> Result<WorkerImage, String> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let status = cluster.status.as_ref();
    let is_formed =
        status.and_then(|status| status.deployment.as_ref()).is_some_and(|deployment| deployment.record.formed);
    let resolved = status.and_then(|status| status.resolved.as_ref()).filter(|_| is_formed);
    let Some((image, digest)) = resolved.and_then(|resolved| resolved.image.clone().zip(resolved.digest.clone()))
    else {
        return Err(format!("the control-plane nodes of {name} have not formed a cluster yet"));
    };
    let reached = status.and_then(|status| status.kubernetes.as_deref());
    let kubernetes =
        reached.ok_or_else(|| format!("which Kubernetes the control-plane nodes of {name} run is not known yet"))?;
    let kubernetes =
        kubernetes.parse::<Minor>().map_err(|error| format!("Kubernetes {kubernetes:?} of {name}: {error:#}"))?;
    Ok(WorkerImage { name: image, digest, kubernetes })
}

/// The versions that the control-plane nodes have to reach before workers follow. `None` if they match the spec.
pub fn awaited(cluster: &TenantCluster) -> Option<String> {
    let status = cluster.status.as_ref()?;
    let on = status.resolved.as_ref().and_then(|resolved| resolved.image.as_ref());
    let image = cluster.spec.image.as_ref().filter(|image| on.is_some_and(|on| on != *image));
    let minor =
        Some(&cluster.spec.version).filter(|version| status.kubernetes.as_ref().is_some_and(|on| on != *version));
    let image = image.map(|image| format!("the image {image}"));
    let minor = minor.map(|minor| format!("Kubernetes {minor}"));
    let awaited: Vec<String> = image.into_iter().chain(minor).collect();
    (!awaited.is_empty()).then(|| format!("the control-plane nodes come to {} first", awaited.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::cluster;
    use super::*;
    use crate::objects::{Resolved, TenantClusterStatus};

    /// A cluster whose control-plane nodes have formed a cluster.
    fn formed() -> TenantCluster {
        let mut cluster = cluster();
        let deployment =
            serde_json::json!({"cluster": "shop", "lifecycle": "Active", "image": {"name": "a"}, "formed": true});
        let resolved = Resolved {
            image: Some("kaas-tenant-0.2.0".to_owned()),
            digest: Some(format!("sha256:{}", "0a".repeat(32))),
            ..Resolved::default()
        };
        cluster.status = Some(TenantClusterStatus {
            resolved: Some(resolved),
            kubernetes: Some("1.36".to_owned()),
            deployment: Some(serde_json::from_value(deployment).unwrap()),
            ..TenantClusterStatus::default()
        });
        cluster
    }

    #[test]
    fn workers_use_what_control_plane_nodes_have_reached() {
        let mut cluster = formed();
        let first = worker_image(&cluster).unwrap();
        assert_eq!((first.name.as_str(), first.kubernetes.to_string().as_str()), ("kaas-tenant-0.2.0", "1.36"));
        assert_eq!(awaited(&cluster), None);
        (cluster.spec.image, cluster.spec.version) = (Some("kaas-tenant-0.3.0".to_owned()), "1.37".to_owned());
        assert_eq!(worker_image(&cluster), Ok(first), "it has not come to that yet");
        let words = "the control-plane nodes come to the image kaas-tenant-0.3.0 and Kubernetes 1.37 first";
        assert_eq!(awaited(&cluster).as_deref(), Some(words));
        // The commit.
        let status = cluster.status.as_mut().unwrap();
        status.resolved.as_mut().unwrap().image.clone_from(&cluster.spec.image);
        assert_eq!(worker_image(&cluster).unwrap().name, "kaas-tenant-0.3.0");
        assert_eq!(awaited(&cluster).as_deref(), Some("the control-plane nodes come to Kubernetes 1.37 first"));
        cluster.status.as_mut().unwrap().kubernetes = Some("1.37".to_owned());
        assert_eq!(
            (worker_image(&cluster).unwrap().kubernetes.to_string(), awaited(&cluster)),
            ("1.37".to_owned(), None)
        );
        // Without `spec.image`, the current image counts.
        cluster.spec.image = None;
        assert_eq!(awaited(&cluster), None);
    }

    #[test]
    fn unformed_cluster_has_no_worker_image() {
        let changes: [&dyn Fn(&mut TenantClusterStatus); 5] = [
            &|status| status.deployment.as_mut().unwrap().record.formed = false,
            &|status| status.deployment = None,
            &|status| status.resolved.as_mut().unwrap().digest = None,
            &|status| status.kubernetes = None,
            &|status| status.kubernetes = Some("new".to_owned()),
        ];
        for (place, change) in changes.iter().enumerate() {
            let mut cluster = formed();
            change(cluster.status.as_mut().unwrap());
            assert!(worker_image(&cluster).is_err(), "the change at {place}");
        }
        assert!(worker_image(&cluster()).is_err());
    }
}
