//! Decides the fields that a spec leaves open, once: the image, and the size of control-plane nodes. The result is in the
//! cluster's `status.resolved`. After the first VM only an Operation changes it.

use super::obstacle::Obstacle;
use super::sizes::automatic;
use crate::objects::{
    AUTO, Condition, ConditionStatus, LifecyclePhase, NodeImage, NodeImageReason, NodeImageStatus, Reason, Resolved,
    TenantClusterReason, TenantClusterSpec, VMClassSpec,
};
use contract::version::is_older;

/// Data disk of a control-plane node in GiB if its class names none.
const DATA_DISK: u32 = 32;

/// The objects that the spec names.
#[derive(Clone, Copy, Debug)]
pub struct ResolveInputs<'a> {
    pub images: &'a [NodeImage],
    /// The class of the control-plane nodes. `None` if it is missing, or `auto`.
    pub class: Option<&'a VMClassSpec>,
    pub workers: u32,
}

/// The values for a cluster without a VM. `before` has the former ones.
///
/// # Errors
/// Why they cannot be decided: the former ones stay then.
pub fn resolved(
    spec: &TenantClusterSpec,
    before: Option<&Resolved>,
    named: &ResolveInputs<'_>,
) -> Result<Resolved, Obstacle> {
    let image = image(spec, before, named.images)?;
    let (processors, memory_mib, data_disk_gib) = if spec.control_plane.vm_class == AUTO {
        let size = automatic(named.workers);
        (size.processors, size.memory_mib, DATA_DISK)
    } else {
        let missing = || {
            let words = format!("there is no VMClass {}", spec.control_plane.vm_class);
            Obstacle::new(TenantClusterReason::ReferenceMissing, words)
        };
        let class = named.class.ok_or_else(missing)?;
        (class.processors, class.memory_mib, class.data_disk_gib.unwrap_or(DATA_DISK))
    };
    Ok(Resolved {
        image: image.metadata.name.clone(),
        digest: Some(image.spec.digest.clone()),
        processors: Some(processors),
        memory_mib: Some(memory_mib),
        data_disk_gib: Some(data_disk_gib),
        requires_input_type: true,
        ..before.cloned().unwrap_or_default()
    })
}

/// The image: the named one, or the former one, or the newest supported one.
fn image<'i>(
    spec: &TenantClusterSpec,
    before: Option<&Resolved>,
    images: &'i [NodeImage],
) -> Result<&'i NodeImage, Obstacle> {
    let pinned = before.and_then(|before| before.image.as_ref().zip(before.digest.as_ref()));
    if let Some(name) = spec.image.as_ref().or(pinned.map(|(name, _)| name)) {
        let found = images.iter().find(|image| image.metadata.name.as_ref() == Some(name));
        let missing = || Obstacle::new(TenantClusterReason::ReferenceMissing, format!("there is no NodeImage {name}"));
        let found = found.ok_or_else(missing)?;
        if spec.image.is_none() && pinned.is_some_and(|(_, digest)| *digest != found.spec.digest) {
            let words = format!("the NodeImage {name} is another one than was chosen: name one in the cluster's image");
            return Err(Obstacle::new(TenantClusterReason::ImageUnsuitable, words));
        }
        suits(found, &spec.version, spec.image.is_some())?;
        return Ok(found);
    }
    let suitable = images.iter().filter(|image| suits(image, &spec.version, false).is_ok());
    let newest = suitable.reduce(|best, other| if is_newer(other, best) { other } else { best });
    newest.ok_or_else(|| {
        let unsuitable = images.iter().filter_map(|image| suits(image, &spec.version, false).err());
        let unknown = unsuitable.filter(|why| why.reason == TenantClusterReason::PreflightNotKnown);
        let unknown: String = unknown.map(|why| format!("; {}", why.message)).collect();
        let words = format!(
            "no NodeImage is supported, understood, ready and carries Kubernetes {}: push one, or name one{unknown}",
            spec.version
        );
        Obstacle::new(TenantClusterReason::ReferenceMissing, words)
    })
}

/// Whether the first image is newer. If the versions are equal or missing, the name decides, so that the order of the list does
/// not matter.
fn is_newer(one: &NodeImage, other: &NodeImage) -> bool {
    let version =
        |image: &NodeImage| image.status.as_ref().and_then(|status| status.version.clone()).unwrap_or_default();
    let (of_one, of_other) = (version(one), version(other));
    is_older(&of_other, &of_one) || (!is_older(&of_one, &of_other) && one.metadata.name > other.metadata.name)
}

/// Whether a new cluster of this minor version may use an image. `named` is whether the spec names it.
pub fn suits(image: &NodeImage, version: &str, named: bool) -> Result<(), Obstacle> {
    use TenantClusterReason::{ImageUnsuitable, PreflightNotKnown};
    let name = image.metadata.name.as_deref().unwrap_or_default();
    let unsuitable = |words: String| Err(Obstacle::new(ImageUnsuitable, words));
    let unknown =
        |words: &str| Err(Obstacle::new(PreflightNotKnown, format!("not known yet: {words} of the NodeImage {name}")));
    let nothing = NodeImageStatus::default();
    let status = image.status.as_ref().unwrap_or(&nothing);
    match status.phase {
        None => return unknown("the phase"),
        Some(LifecyclePhase::Supported) => {}
        Some(LifecyclePhase::Preview) if named => {}
        Some(LifecyclePhase::Preview) => {
            return unsuitable(format!("the image {name} is a preview: name it to take it"));
        }
        Some(LifecyclePhase::Deprecated) => {
            return unsuitable(format!("the image {name} is deprecated: no new cluster takes it"));
        }
        Some(LifecyclePhase::Expired) => return unsuitable(format!("the image {name} has expired")),
    }
    for about in [NodeImageReason::Understood, NodeImageReason::TemplatesReady].map(NodeImageReason::condition) {
        match standing(&status.conditions, about) {
            Some((ConditionStatus::True, _)) => {}
            Some((ConditionStatus::False, why)) => {
                return unsuitable(format!("the image {name} is not {about}: {why}"));
            }
            Some((ConditionStatus::Unknown, _)) | None => return unknown(&format!("the condition {about}")),
        }
    }
    if status.version.is_none() {
        return unknown("the version");
    }
    if !status.kubernetes.iter().any(|minor| minor == version) {
        let carried = status.kubernetes.join(" and ");
        return unsuitable(format!("the image {name} carries Kubernetes {carried}, and not {version}"));
    }
    Ok(())
}

/// Status and message of a condition. `None` if the condition is missing.
pub fn standing<'c>(conditions: &'c [Condition], about: &str) -> Option<(ConditionStatus, &'c str)> {
    let found = conditions.iter().find(|condition| condition.about == about)?;
    Some((found.status, if found.message.is_empty() { &found.reason } else { &found.message }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{class, cluster, image};

    fn decided(
        spec: &TenantClusterSpec,
        before: Option<&Resolved>,
        images: &[NodeImage],
    ) -> Result<Resolved, Obstacle> {
        let class = class();
        resolved(spec, before, &ResolveInputs { images, class: Some(&class), workers: 0 })
    }

    #[test]
    fn newest_supported_image_is_chosen_once() {
        let mut spec = cluster().spec;
        spec.image = None;
        let mut images = vec![image("a", "0.9.0"), image("b", "0.10.0"), image("c", "0.11.0-rc.1")];
        images[2].status.as_mut().unwrap().phase = Some(LifecyclePhase::Preview);
        let first = decided(&spec, None, &images).unwrap();
        assert_eq!((first.image.as_deref(), first.digest.as_ref()), (Some("b"), Some(&images[1].spec.digest)));
        images.push(image("d", "1.0.0"));
        assert_eq!(decided(&spec, Some(&first), &images).unwrap(), first, "a newer one changes nothing");
        spec.image = Some("c".to_owned());
        let named = decided(&spec, Some(&first), &images).unwrap();
        assert_eq!(named.image.as_deref(), Some("c"), "a person says otherwise, and names a preview");
        // Another object of the same name.
        spec.image = None;
        images[1].spec.digest = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(decided(&spec, Some(&first), &images).unwrap_err().reason, TenantClusterReason::ImageUnsuitable);
        images.remove(1);
        assert_eq!(decided(&spec, Some(&first), &images).unwrap_err().reason, TenantClusterReason::ReferenceMissing);
    }

    #[test]
    fn unsuitable_or_unknown_image_is_not_chosen() {
        use TenantClusterReason::{ImageUnsuitable, PreflightNotKnown};
        type Change<'a> = &'a dyn Fn(&mut NodeImageStatus);
        let expired = || Some(LifecyclePhase::Expired);
        let changes: [(TenantClusterReason, Change<'_>); 9] = [
            (PreflightNotKnown, &|status| status.version = None),
            (PreflightNotKnown, &|status| status.phase = None),
            (ImageUnsuitable, &|status| status.phase = expired()),
            (ImageUnsuitable, &|status| status.phase = Some(LifecyclePhase::Deprecated)),
            (ImageUnsuitable, &|status| status.kubernetes = vec!["1.35".to_owned()]),
            (ImageUnsuitable, &|status| status.conditions[0].status = ConditionStatus::False),
            (PreflightNotKnown, &|status| status.conditions[1].status = ConditionStatus::Unknown),
            (PreflightNotKnown, &|status| drop(status.conditions.pop())),
            (PreflightNotKnown, &|status| *status = NodeImageStatus::default()),
        ];
        let spec = cluster().spec;
        let name = spec.image.clone().unwrap();
        assert!(decided(&spec, None, &[image(&name, "0.2.0")]).is_ok());
        for (place, (reason, change)) in changes.iter().enumerate() {
            let mut image = image(&name, "0.2.0");
            change(image.status.as_mut().unwrap());
            assert_eq!(decided(&spec, None, &[image.clone()]).unwrap_err().reason, *reason, "the change at {place}");
            let open = TenantClusterSpec { image: None, ..spec.clone() };
            let refused = decided(&open, None, &[image]).unwrap_err().message;
            let unknown = format!(" of the NodeImage {name}");
            assert_eq!(refused.ends_with(&unknown), *reason == PreflightNotKnown, "the change at {place}: {refused}");
        }
    }

    #[test]
    fn size_follows_from_class_or_workers() {
        let (mut spec, images) = (cluster().spec, [image("kaas-tenant-0.2.0", "0.2.0")]);
        let class = class();
        let sized = |spec: &TenantClusterSpec, class: Option<&VMClassSpec>, workers| {
            let found = resolved(spec, None, &ResolveInputs { images: &images, class, workers })?;
            Ok::<_, Obstacle>((found.processors.unwrap(), found.memory_mib.unwrap(), found.data_disk_gib.unwrap()))
        };
        spec.control_plane.vm_class = AUTO.to_owned();
        assert_eq!(sized(&spec, None, 3), Ok((2, 4096, 32)));
        assert_eq!(sized(&spec, None, 30), Ok((4, 16384, 32)));
        spec.control_plane.vm_class = "medium".to_owned();
        assert_eq!(sized(&spec, Some(&class), 30), Ok((4, 16384, 40)));
        assert_eq!(sized(&spec, None, 3).unwrap_err().reason, TenantClusterReason::ReferenceMissing);
    }
}
