//! Another image or size, while no swap is open: the wanted image, and whether it can replace the current one. A swap begins, or the
//! reason against it is reported, or nodes are asked whether they match the resolved values.

use contract::version::{allows, is_older};
use semver::VersionReq;

use super::operator_action::{OperatorAction, ended, word};
use super::{Change, ObservedCluster, name};
use crate::decisions::obstacle::Obstacle;
use crate::decisions::pause_reason::PauseReason;
use crate::decisions::resolved::suits;
use crate::decisions::sizes::pinned_size;
use crate::decisions::swap_progress::{Ending, SwapProgress, goal, is_of_size};
use crate::decisions::window;
use crate::objects::{DO, NodeImage, Operation, OperationReason, Reason, Resolved, TenantClusterReason};

/// The image that is wanted in place of the current one.
pub(super) enum WantedImage<'i> {
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
    fn follows(&self, image: &NodeImage, named: bool, current: &str) -> Result<(), Obstacle> {
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

impl ObservedCluster<'_> {
    /// Begins a swap, or says why not: to another image, or with the same image to another size. `named` is whether the spec
    /// names the image or size.
    pub(in crate::decisions) fn begins(&self, image: &NodeImage, named: bool, current: &str) -> Change {
        // The current image already runs, so its state does not matter.
        let resizes = image.metadata.name.as_deref() == Some(current);
        if let Err(obstacle) = if resizes { Ok(()) } else { self.follows(image, named, current) } {
            return Change::Blocked(obstacle);
        }
        let size = if resizes { self.size.clone() } else { self.size_with_image() };
        let size = match size {
            Ok(size) => size,
            Err(obstacle) => return Change::Blocked(obstacle),
        };
        let mut again = None;
        if let Some((operation, swapping)) = &self.swap {
            let is_it = operation.spec.to_image == image.metadata.name && (!resizes || swapping.size == Some(size));
            let is_back = is_it && matches!(swapping.ending(), Some(Ending::RolledBack | Ending::Abandoned));
            let failed = is_back && !swapping.is_withdrawn;
            match word(operation) {
                Some(Ok(OperatorAction::Resume)) if is_back => again = Some(name(operation)),
                Some(word) => return Change::Answer(name(operation), ended(word, swapping.ending())),
                None if failed && !self.is_newer_than(operation) => return self.failed(operation, swapping),
                None => {}
            }
        }
        if let Some(rest @ PauseReason::ControlCluster(_)) = &self.rests {
            return match again {
                Some(name) => Change::Answer(name, Some(rest.refuses(None))),
                None => Change::Waits(TenantClusterReason::Changing, rest.words()),
            };
        }
        let window = self.cluster.spec.maintenance.window.as_deref().filter(|_| !named && again.is_none());
        if let Some(window) = window.filter(|window| !window::is_open(window, self.now)) {
            let image = image.metadata.name.as_deref().unwrap_or_default();
            let what = if resizes { format!("{image} with {size}") } else { image.to_owned() };
            return Change::Waits(TenantClusterReason::AwaitingWindow, format!("{what} waits for {window} UTC"));
        }
        match &self.room {
            Some(obstacle) if resizes => Change::Blocked(obstacle.clone()),
            _ => Change::Swap(Box::new(image.clone()), again, size),
        }
    }

    fn failed(&self, operation: &Operation, swapping: &SwapProgress) -> Change {
        let (name, to) = (name(operation), goal(operation, swapping));
        let ended = swapping.ending().map_or("", Ending::words);
        let why = swapping.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let former = operation.spec.from_image.as_deref().unwrap_or_default();
        let other = match swapping.ending() {
            _ if is_of_size(operation) => "another vmClass".to_owned(),
            // Some nodes may have committed the new image.
            Some(Ending::Abandoned) => "the image that all control-plane nodes are to run".to_owned(),
            _ => format!("{former} or another image"),
        };
        Change::Waits(
            TenantClusterReason::ChangeFailed,
            format!(
                "the upgrade to {to} was {ended}{why}. Ask for it again with {DO}: resume on the Operation {name}, or name {other}"
            ),
        )
    }

    /// Whether the spec is newer than the reported end of an Operation.
    pub(super) fn is_newer_than(&self, operation: &Operation) -> bool {
        let conditions = operation.status.iter().flat_map(|status| &status.conditions);
        let about = OperationReason::Done.condition();
        // Earlier versions noted the cluster's generation in the condition.
        let told =
            conditions.filter(|condition| condition.about == about).map(|condition| condition.observed_generation);
        let noted = operation.status.as_ref().and_then(|status| status.observed_cluster_generation);
        self.cluster.metadata.generation > noted.or(told.max())
    }

    /// The answer to a request on an ended swap, if no other image is wanted.
    pub(super) fn answered(&self) -> Option<Change> {
        let (operation, swapping) = self.swap.as_ref()?;
        let is_back = matches!(swapping.ending(), Some(Ending::RolledBack | Ending::Abandoned));
        let refused = match (word(operation)?, &self.room) {
            (Ok(OperatorAction::Resume), Some(obstacle)) if is_back && is_of_size(operation) => {
                Some(obstacle.message.clone())
            }
            (word, _) => ended(word, swapping.ending()),
        };
        Some(Change::Answer(name(operation), refused))
    }

    /// The next step if the current image is wanted, and no other size now.
    pub(super) fn stays(&self, pinned: &Resolved, current: &str) -> Change {
        let then = match self.raises(current) {
            Change::Nothing => self.resizes(pinned, current).unwrap_or(Change::Nothing),
            raises => raises,
        };
        let abandoned = self.abandoned.as_ref();
        if abandoned.is_none() && !self.has_drifted {
            return then;
        }
        let may_differ = self.has_drifted || abandoned.is_some_and(|(_, swapping)| swapping.size.is_some());
        // If something else comes next or waits, it has its own message, and does not wait for a size.
        let would_be_current = then == Change::Nothing;
        let size = pinned_size(pinned).filter(|_| may_differ && would_be_current);
        let then = match (abandoned, size, then) {
            // Once the nodes are seen to be alike, this is recorded, and they are not asked again.
            (Some((operation, _)), Some(_), Change::Nothing) => {
                Change::Pin(Box::new(pinned.clone()), Some(name(operation)))
            }
            (_, _, then) => then,
        };
        match self.images.iter().find(|image| image.metadata.name.as_deref() == Some(current)) {
            Some(image) => Change::Judge(Box::new(image.clone()), size, Box::new(then)),
            None => {
                let words = format!("there is no NodeImage {current} to compare the nodes with");
                Change::Blocked(Obstacle::new(TenantClusterReason::ReferenceMissing, words))
            }
        }
    }
}

fn version(image: &NodeImage) -> Option<&str> {
    image.status.as_ref()?.version.as_deref()
}
