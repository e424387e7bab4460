//! The image that is wanted in place of the current one, and whether it can replace it.

use contract::version::{allows, is_older};
use semver::VersionReq;

use super::ObservedCluster;
use crate::decisions::obstacle::Obstacle;
use crate::decisions::resolved::suits;
use crate::objects::{NodeImage, Resolved, TenantClusterReason};

/// The image that is wanted in place of the current one.
pub(super) enum WantedImage<'i> {
    /// The current image stays.
    Same,
    /// This image, and whether the spec names it.
    Other(&'i NodeImage, bool),
    Missing(String),
}

impl<'a> ObservedCluster<'a> {
    pub(super) fn wanted(&self, pinned: &Resolved, current: &str) -> WantedImage<'a> {
        let by_name = |name: &str| self.images.iter().find(|image| image.metadata.name.as_deref() == Some(name));
        match &self.cluster.spec.image {
            Some(name) if name == current => WantedImage::Same,
            Some(name) => match by_name(name) {
                Some(image) => WantedImage::Other(image, true),
                None => WantedImage::Missing(name.clone()),
            },
            None if self.cluster.spec.maintenance.auto_update => {
                let runs = by_name(current).and_then(version);
                let is_newer = |image: &&NodeImage| {
                    let version = version(image);
                    Some(&image.spec.digest) != pinned.digest.as_ref()
                        && runs.zip(version).is_some_and(|(runs, version)| is_older(runs, version))
                        && self.follows(image, false, current).is_ok()
                };
                let all = self.images.iter().filter(is_newer);
                let newest = all.reduce(|best, other| {
                    let is_newer = version(best).zip(version(other)).is_some_and(|(best, other)| is_older(best, other));
                    if is_newer { other } else { best }
                });
                newest.map_or(WantedImage::Same, |image| WantedImage::Other(image, false))
            }
            None => WantedImage::Same,
        }
    }

    /// Whether an image can replace the current one, according to objects. `fleet` checks nodes and their VMs afterwards, before
    /// any change.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn follows(&self, image: &NodeImage, named: bool, current: &str) -> Result<(), Obstacle> {
        use TenantClusterReason::{ImageUnsuitable, PreflightNotKnown};
        let spec = &self.cluster.spec;
        let minor = self.minor.map_or_else(|| spec.version.clone(), |minor| minor.to_string());
        suits(image, &minor, named)?;
        let (name, unsuitable) = (image.metadata.name.as_deref().unwrap_or_default(), |words: String| {
            Err(Obstacle::new(ImageUnsuitable, words))
        });
        let Some(status) = &image.status else { return Ok(()) };
        if !status.kubernetes.contains(&spec.version) {
            let carried = status.kubernetes.join(" and ");
            let words =
                format!("the image {name} carries Kubernetes {carried}, and not {}, which is wanted", spec.version);
            return unsuitable(words);
        }
        if status.appliance.is_none() || status.build.is_none() {
            let words = format!("it is not known yet which build the NodeImage {name} is");
            return Err(Obstacle::new(PreflightNotKnown, words));
        }
        let runs = self.images.iter().find(|image| image.metadata.name.as_deref() == Some(current));
        let (Some(runs), Some(to)) = (runs.and_then(version), &status.version) else { return Ok(()) };
        if is_older(to, runs) {
            return unsuitable(format!(
                "the image {name} is of version {to}, and the cluster runs {runs}: after the commit of an upgrade no rollback is possible"
            ));
        }
        let Some(from) = &status.upgrades_from else { return Ok(()) };
        match VersionReq::parse(from) {
            Ok(from) if allows(&from, runs) || runs == to => Ok(()),
            Ok(_) => unsuitable(format!(
                "the image {name} may take the place of {from} only, and the cluster runs {runs}: use an image between the two"
            )),
            Err(_) => unsuitable(format!("the image {name} may take the place of {from:?}, which is not understood")),
        }
    }
}

fn version(image: &NodeImage) -> Option<&str> {
    image.status.as_ref()?.version.as_deref()
}
