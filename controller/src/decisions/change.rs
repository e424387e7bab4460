//! What comes next for a cluster whose control nodes serve and whose spec names another image or minor than they are on. Pure: it is
//! decided by what was looked at, and looked at again once it is done, so that whoever takes over decides the same.
//!
//! | What is so | What follows |
//! |---|---|
//! | a swap is open | it goes on; a person's word turns it, and so does the former image, named again before the commit |
//! | nothing of it has moved, and its image or size is not wanted any more | it ends there, and what is wanted by now is planned |
//! | it has come to the new image | it is committed once all is good for ten minutes (`commit: Auto`), or by a person's word |
//! | the spec does not want that image any more | it is committed or goes back by a person's word alone |
//! | it is committed | the new image and size are pinned: pools see the image from then on |
//! | it went back, or was abandoned | nothing, before a person asks for it again or the spec is another one |
//! | one was abandoned and none committed since, or nothing is noted of a node's VM, and the pinned image is wanted | nodes are asked |
//! | all of them run it, in VMs of the pinned size | that is noted with what was abandoned, and nobody is asked any more |
//! | another image is named | what is in the way is said; else a swap begins, with its plan as an Operation |
//! | the size of control nodes is another one | with the next image, or by itself, if there is room: `resize.rs` |
//! | the minor is behind | the same for Kubernetes, once the image is as it is named |
//!
//! What is paused is planned and not begun; a swap comes to a step at which no node is away, and says that it rests. What a person asks of
//! it there is refused: it would be done at the unpausing, which may be somebody else's. While the control cluster is being changed it is
//! the same, and nothing is planned: another version of the controller may lead afterwards. But the way back is taken then, for that lasts
//! as long as somebody else takes; and `abandon`, which moves no VM, is heard always.

use contract::minor::Minor;
use contract::version::{allows, is_older};
use fleet::upgrade::{Direction, Verb};
use k8s_openapi::jiff::Timestamp;
use semver::VersionReq;

use super::health::Doing;
use super::obstacle::Obstacle;
use super::resolved::suits;
use super::rest::{Rest, is_at_rest, is_still, swap_reasons};
use super::sizes::pinned_size;
use super::swapping::{Ending, Stage, Swapping, goal, is_of_size};
use super::window;
use crate::objects::{
    Commit, ControlPlaneSize, DO, NodeImage, Operation, OperationReason, Reason, Resolved, TenantCluster,
    TenantClusterReason,
};

/// How long all control nodes are good on the new image before it is committed by itself, in seconds.
const GOOD: i64 = 600;

/// What was looked at.
#[derive(Debug)]
pub struct SeenCluster<'a> {
    /// The cluster.
    pub cluster: &'a TenantCluster,
    /// The last swap whose journal was begun, and how far it is.
    pub swap: Option<(&'a Operation, Swapping)>,
    /// The last one that was abandoned, if nothing has said since that all control nodes are alike.
    pub abandoned: Option<(&'a Operation, Swapping)>,
    /// The Operation that raises Kubernetes and has not ended; else the one to the minor that the spec names, if it was made.
    pub raise: Option<&'a Operation>,
    /// All NodeImages.
    pub images: &'a [NodeImage],
    /// The lowest minor of Kubernetes that a control node is at.
    pub minor: Option<Minor>,
    /// How large control nodes are to be, or why nobody knows it.
    pub size: Result<ControlPlaneSize, Obstacle>,
    /// Why the Provider has no room for that; none if it has.
    pub room: Option<Obstacle>,
    /// Why it has none for the size of a swap that is only planned yet; none if it has, or there is none.
    pub plan_room: Option<Obstacle>,
    /// Why nothing is begun now; none if it may be.
    pub rests: Option<Rest>,
    /// Whether nothing is noted of the VM that a control node runs in: another image may be in it than is pinned, and it may have another
    /// size.
    pub has_drifted: bool,
    /// What time it is.
    pub now: Timestamp,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing: all is as the spec has it.
    Nothing,
    /// Nothing, before something that is in the way is gone.
    Blocked(Obstacle),
    /// Nothing now, for this reason of the condition `UpToDate`.
    Waits(TenantClusterReason, String),
    /// The Operation says where it stands: whoever has brought it there did not come to that.
    Show(String),
    /// What a person has asked of an Operation is taken away; with words it is not to be had.
    Answer(String, Option<String>),
    /// What control nodes have come to is pinned: image and size. With the Operation that notes it: the swap that has brought them there,
    /// or the one that was abandoned before they were found to be alike. None where nodes are so by themselves.
    Pin(Box<Resolved>, Option<String>),
    /// A swap to this image begins, with new VMs of this size; if the cluster is paused it is only planned. With the Operation of an
    /// earlier one that a person wants tried again.
    Swap(Box<NodeImage>, Option<String>, ControlPlaneSize),
    /// The swap of this Operation goes on.
    Go(String, Verb),
    /// Nodes are asked whether all of them run this image, which is the pinned one, in VMs of this size, if it is said: then comes this.
    /// No object says what they run: the last swap was abandoned, or objects are older than VMs.
    Judge(Box<NodeImage>, Option<ControlPlaneSize>, Box<Change>),
    /// Control nodes are taken to this minor of Kubernetes. With the Operation, if a person wants it tried again.
    Raise(Minor, Option<String>),
    /// The Operation that raises Kubernetes ends where it stands.
    Abandon(String),
}

/// What a person may ask of an Operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Resume,
    Rollback,
    Commit,
    Abandon,
}

fn name(operation: &Operation) -> String {
    operation.metadata.name.clone().unwrap_or_default()
}

/// What a person asks of an Operation: none if nothing.
///
/// # Errors
/// Why it is nothing that can be asked.
fn word(operation: &Operation) -> Option<Result<Word, String>> {
    let text = operation.metadata.annotations.as_ref()?.get(DO)?;
    Some(match text.as_str() {
        "resume" => Ok(Word::Resume),
        "rollback" => Ok(Word::Rollback),
        "commit" => Ok(Word::Commit),
        "abandon" => Ok(Word::Abandon),
        _ => Err(format!("{DO} is {text:?}: it may be resume, rollback, commit or abandon")),
    })
}

/// The image that is wanted in place of the one that a cluster is on.
enum Wanted<'i> {
    /// None: it stays.
    Same,
    /// This one, and whether a person has named it.
    Other(&'i NodeImage, bool),
    /// One that is not there.
    Missing(String),
}

impl<'a> SeenCluster<'a> {
    /// What comes next.
    pub fn next(&self) -> Change {
        let pinned = self.cluster.status.as_ref().and_then(|status| status.resolved.as_ref());
        let Some((pinned, current)) = pinned.and_then(|pinned| Some((pinned, pinned.image.as_deref()?))) else {
            return Change::Nothing;
        };
        if let Some((operation, swapping)) = &self.swap {
            if swapping.is_open() {
                return self.with_room(self.open(operation, swapping, current), swapping);
            }
            if !is_shown(operation, swapping) {
                return Change::Show(name(operation));
            }
            // Of an earlier version's it is noted nowhere whether it is.
            let is_pinned =
                swapping.is_pinned || (operation.spec.to_image.as_deref() == Some(current) && swapping.size.is_none());
            if swapping.ending() == Some(Ending::Committed) && !is_pinned {
                return Change::Pin(Box::new(as_after(pinned, operation, swapping)), Some(name(operation)));
            }
        }
        if let Some(operation) = self.raise.filter(|operation| outcome(operation).is_none()) {
            return self.raising(operation);
        }
        match self.wanted(pinned, current) {
            Wanted::Missing(name) => {
                let words = format!("there is no NodeImage {name}");
                Change::Blocked(Obstacle::new(TenantClusterReason::ReferenceMissing, words))
            }
            Wanted::Other(image, named) => self.begins(image, named, current),
            Wanted::Same => {
                let resize = self.resizes(pinned, current);
                match (resize.filter(Change::is_to_do), self.answered()) {
                    (Some(resize), _) => resize,
                    (None, Some(answer)) => answer,
                    (None, None) => self.stays(pinned, current),
                }
            }
        }
    }

    /// What comes next of a swap that has not ended.
    fn open(&self, operation: &Operation, swapping: &Swapping, current: &str) -> Change {
        let (name, spec) = (name(operation), &self.cluster.spec);
        let rest = self.rests.as_ref().filter(|_| is_at_rest(swapping));
        if let Some(asked) = word(operation) {
            return match (asked, rest) {
                (Ok(word), None) => has_asked(name, word, swapping),
                (Ok(word), Some(rest)) if is_heard(word, rest) => has_asked(name, word, swapping),
                (asked, Some(rest)) => {
                    let back = way_back(operation).filter(|_| asked == Ok(Word::Rollback));
                    Change::Answer(name, Some(rest.refuses(back.as_deref())))
                }
                (Err(words), None) => Change::Answer(name, Some(words)),
            };
        }
        let is_former = spec.image.as_deref() == Some(current)
            && operation.spec.from_image.as_deref() == Some(current)
            && operation.spec.to_image.as_deref() != Some(current);
        let goes_back = if is_of_size(operation) { self.is_former_size(operation, swapping) } else { is_former };
        if let Some(rest) = rest.filter(|rest| !(goes_back && is_heard(Word::Rollback, rest))) {
            let (reason, words) = match &swapping.stage {
                Stage::NodeIsBack(_) => (TenantClusterReason::ChangeFailed, swapping.reasons()[0].1.clone()),
                _ => (TenantClusterReason::Changing, rest.words()),
            };
            return self.shown(operation, swapping, reason, &words);
        }
        match &swapping.stage {
            // All nodes, whatever was on the way.
            _ if goes_back && swapping.direction == Direction::Forward => Change::Go(name, Verb::Rollback),
            Stage::NodeIsBack(_) if goes_back => Change::Go(name, Verb::Rollback),
            // What is wanted by now is planned anew.
            Stage::Goes
                if swapping.is_untouched
                    && swapping.direction == Direction::Forward
                    && !self.is_wanted(operation, swapping) =>
            {
                Change::Go(name, Verb::Rollback)
            }
            Stage::Goes => Change::Go(name, Verb::Resume),
            Stage::NodeIsBack(_) => {
                let words = swapping.reasons()[0].1.clone();
                self.shown(operation, swapping, TenantClusterReason::ChangeFailed, &words)
            }
            Stage::Upgraded => self.awaits_commit(operation, swapping),
            Stage::Ended(_) => Change::Nothing,
        }
    }

    /// Whether a swap is still what the spec asks for. An image that a person had named and has taken out is not.
    fn is_wanted(&self, operation: &Operation, swapping: &Swapping) -> bool {
        if is_of_size(operation) {
            return self.is_size_wanted(operation, swapping);
        }
        let is_image = match &self.cluster.spec.image {
            Some(image) => operation.spec.to_image.as_ref() == Some(image),
            None => self.cluster.spec.maintenance.auto_update,
        };
        is_image && !self.is_outdated(operation, swapping)
    }

    fn awaits_commit(&self, operation: &Operation, swapping: &Swapping) -> Change {
        let name = name(operation);
        let to = goal(operation, swapping);
        if !self.is_wanted(operation, swapping) {
            let wanted = match &self.cluster.spec.image {
                Some(image) if operation.spec.to_image.as_ref() != Some(image) => {
                    format!("the spec names {image} by now")
                }
                _ if is_of_size(operation) => match &self.size {
                    Ok(size) => format!("the spec wants another size by now, {size}"),
                    Err(obstacle) => format!("what size the spec wants is not known: {}", obstacle.message),
                },
                _ => "the spec does not name it any more".to_owned(),
            };
            let words = format!(
                "all control nodes run {to}, and {wanted}: {DO} on the Operation {name}, with commit or rollback"
            );
            return self.shown(operation, swapping, TenantClusterReason::AwaitsCommit, &words);
        }
        if self.cluster.spec.upgrade.commit == Commit::Manual {
            let words = format!("all control nodes run {to}: {DO} on the Operation {name}, with commit or rollback");
            return self.shown(operation, swapping, TenantClusterReason::AwaitsCommit, &words);
        }
        let since = operation.status.as_ref().and_then(|status| status.good_since.as_ref());
        match since {
            Some(since) if self.now.as_second() - since.0.as_second() >= GOOD => Change::Go(name, Verb::Commit),
            Some(since) => {
                let words =
                    format!("all control nodes run {to}, and are good since {}: ten minutes are waited", since.0);
                self.shown(operation, swapping, TenantClusterReason::AwaitsCommit, &words)
            }
            None => {
                let words = format!("all control nodes run {to}; not all of them are Ready");
                self.shown(operation, swapping, TenantClusterReason::AwaitsCommit, &words)
            }
        }
    }

    /// Waits, once the Operation says where it stands.
    fn shown(&self, operation: &Operation, swapping: &Swapping, reason: TenantClusterReason, words: &str) -> Change {
        let rest = self.rests.as_ref().filter(|_| is_at_rest(swapping));
        let stands = swap_reasons(rest, swapping)[0].0;
        let mut resting = [OperationReason::Paused, OperationReason::ControlClusterChanges].into_iter();
        let says_so = match says(operation, OperationReason::NotToBeHad) {
            Some(refused) => is_still(&refused, rest),
            None => resting.all(|reason| says(operation, reason).is_some() == (stands == reason)),
        };
        if is_shown(operation, swapping) && says_so {
            Change::Waits(reason, words.to_owned())
        } else {
            Change::Show(name(operation))
        }
    }

    /// The image that is wanted.
    fn wanted(&self, pinned: &Resolved, current: &str) -> Wanted<'a> {
        let by_name = |name: &str| self.images.iter().find(|image| image.metadata.name.as_deref() == Some(name));
        match &self.cluster.spec.image {
            Some(name) if name == current => Wanted::Same,
            Some(name) => match by_name(name) {
                Some(image) => Wanted::Other(image, true),
                None => Wanted::Missing(name.clone()),
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
                newest.map_or(Wanted::Same, |image| Wanted::Other(image, false))
            }
            None => Wanted::Same,
        }
    }

    /// Whether an image may take the place of the one that the cluster is on, as far as objects say it. Nodes and their VMs are judged
    /// by `fleet` afterwards, before anything moves as well.
    ///
    /// # Errors
    /// Why it may not.
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
            let words = format!("nobody has said yet which build the NodeImage {name} is");
            return Err(Obstacle::new(PreflightNotKnown, words));
        }
        let runs = self.images.iter().find(|image| image.metadata.name.as_deref() == Some(current));
        let (Some(runs), Some(to)) = (runs.and_then(version), &status.version) else { return Ok(()) };
        if is_older(to, runs) {
            return unsuitable(format!(
                "the image {name} is of version {to}, and the cluster runs {runs}: after the commit of an upgrade there is no way back"
            ));
        }
        let Some(from) = &status.upgrades_from else { return Ok(()) };
        match VersionReq::parse(from) {
            Ok(from) if allows(&from, runs) || runs == to => Ok(()),
            Ok(_) => unsuitable(format!(
                "the image {name} may take the place of {from} only, and the cluster runs {runs}: go by an image between the two"
            )),
            Err(_) => unsuitable(format!("the image {name} may take the place of {from:?}, which is not understood")),
        }
    }

    /// A swap begins, or why it does not: to another image, or where that stays to another size. `named` is whether a person has said so.
    pub(super) fn begins(&self, image: &NodeImage, named: bool, current: &str) -> Change {
        // That one runs already: whatever has become of it, nothing else takes its place.
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
            // A plan that was given up for its size has failed at nothing.
            let is_it = is_it && (resizes || !self.has_other_size(operation, swapping, size));
            let failed = is_it && matches!(swapping.ending(), Some(Ending::RolledBack | Ending::Abandoned));
            match word(operation) {
                Some(Ok(Word::Resume)) if failed => again = Some(name(operation)),
                Some(word) => return Change::Answer(name(operation), ended(word, swapping.ending())),
                None if failed && !self.is_newer_than(operation) => return self.failed(operation, swapping),
                None => {}
            }
        }
        if let Some(rest @ Rest::ControlCluster(_)) = &self.rests {
            return match again {
                Some(name) => Change::Answer(name, Some(rest.refuses(None))),
                None => Change::Waits(TenantClusterReason::Changing, rest.words()),
            };
        }
        let window = self.cluster.spec.maintenance.window.as_deref().filter(|_| !named && again.is_none());
        if let Some(window) = window.filter(|window| !window::is_open(window, self.now)) {
            let image = image.metadata.name.as_deref().unwrap_or_default();
            let what = if resizes { format!("{image} with {size}") } else { image.to_owned() };
            return Change::Waits(TenantClusterReason::AwaitsWindow, format!("{what} waits for {window} UTC"));
        }
        match &self.room {
            Some(obstacle) if resizes => Change::Blocked(obstacle.clone()),
            _ => Change::Swap(Box::new(image.clone()), again, size),
        }
    }

    fn failed(&self, operation: &Operation, swapping: &Swapping) -> Change {
        let (name, to) = (name(operation), goal(operation, swapping));
        let ended = swapping.ending().map_or("", Ending::words);
        let why = swapping.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let former = operation.spec.from_image.as_deref().unwrap_or_default();
        let other = match swapping.ending() {
            _ if is_of_size(operation) => "another vmClass".to_owned(),
            // Some nodes may run the new one, and there is no way back for these.
            Some(Ending::Abandoned) => "the image that all control nodes are to run".to_owned(),
            _ => format!("{former} or another image"),
        };
        Change::Waits(
            TenantClusterReason::ChangeFailed,
            format!(
                "the upgrade to {to} was {ended}{why}. Ask for it again with {DO}: resume on the Operation {name}, or name {other}"
            ),
        )
    }

    /// Whether the spec is another one than when the end of an Operation was told.
    fn is_newer_than(&self, operation: &Operation) -> bool {
        let conditions = operation.status.iter().flat_map(|status| &status.conditions);
        let about = OperationReason::Done.condition();
        let told =
            conditions.filter(|condition| condition.about == about).map(|condition| condition.observed_generation);
        self.cluster.metadata.generation > told.max()
    }

    /// The word of a person to a swap that has ended, where no other image is wanted.
    fn answered(&self) -> Option<Change> {
        let (operation, swapping) = self.swap.as_ref()?;
        let is_back = matches!(swapping.ending(), Some(Ending::RolledBack | Ending::Abandoned));
        let refused = match (word(operation)?, &self.room) {
            (Ok(Word::Resume), Some(obstacle)) if is_back && is_of_size(operation) => Some(obstacle.message.clone()),
            (word, _) => ended(word, swapping.ending()),
        };
        Some(Change::Answer(name(operation), refused))
    }

    /// What comes next where the pinned image is wanted, and no other size can be had now.
    fn stays(&self, pinned: &Resolved, current: &str) -> Change {
        let then = match self.raises(current) {
            Change::Nothing => self.resizes(pinned, current).unwrap_or(Change::Nothing),
            raises => raises,
        };
        let abandoned = self.abandoned.as_ref();
        if abandoned.is_none() && !self.has_drifted {
            return then;
        }
        let may_differ = self.has_drifted || abandoned.is_some_and(|(_, swapping)| swapping.size.is_some());
        // One whose size is still wanted says so itself.
        let is_wanted = self.room.is_none() && !matches!(then, Change::Waits(..));
        let size = pinned_size(pinned).filter(|_| may_differ && is_wanted);
        let then = match (abandoned, size, then) {
            // Once they are found to be alike it is noted, and nobody is asked any more.
            (Some((operation, _)), Some(_), Change::Nothing) => {
                Change::Pin(Box::new(pinned.clone()), Some(name(operation)))
            }
            (_, _, then) => then,
        };
        match self.images.iter().find(|image| image.metadata.name.as_deref() == Some(current)) {
            Some(image) => Change::Judge(Box::new(image.clone()), size, Box::new(then)),
            None => {
                let words = format!("there is no NodeImage {current}, by which nodes are judged");
                Change::Blocked(Obstacle::new(TenantClusterReason::ReferenceMissing, words))
            }
        }
    }

    /// Kubernetes is raised, or why it is not.
    fn raises(&self, current: &str) -> Change {
        let spec = &self.cluster.spec;
        let (Some(minor), Ok(to)) = (self.minor, spec.version.parse::<Minor>()) else { return Change::Nothing };
        if minor == to {
            return self.raise.and_then(answered_raise).unwrap_or(Change::Nothing);
        }
        if to < minor {
            let words = format!("control nodes run Kubernetes {minor}, and there is no way back to {to}");
            return Change::Blocked(Obstacle::new(TenantClusterReason::NotSupported, words));
        }
        let image = self.images.iter().find(|image| image.metadata.name.as_deref() == Some(current));
        let carried = image.and_then(|image| image.status.as_ref()).map(|status| status.kubernetes.as_slice());
        if !carried.is_some_and(|carried| carried.contains(&spec.version)) {
            let words = format!("the image {current} does not carry Kubernetes {to}: name one that does");
            return Change::Blocked(Obstacle::new(TenantClusterReason::ImageUnsuitable, words));
        }
        let mut again = None;
        if let Some(operation) = self.raise {
            match word(operation) {
                Some(Ok(Word::Resume)) => again = Some(name(operation)),
                Some(word) => return Change::Answer(name(operation), ended(word, Some(Ending::Abandoned))),
                None if !self.is_newer_than(operation) => {
                    let words = format!(
                        "going to Kubernetes {to} was abandoned. Ask for it again with {DO}: resume on the Operation {}",
                        name(operation)
                    );
                    return Change::Waits(TenantClusterReason::ChangeFailed, words);
                }
                None => {}
            }
        }
        if let Some(rest) = &self.rests {
            return match again {
                Some(name) => Change::Answer(name, Some(rest.refuses(None))),
                None => Change::Waits(TenantClusterReason::Changing, rest.words()),
            };
        }
        Change::Raise(to, again)
    }

    /// What comes next of an Operation that raises Kubernetes and has not ended.
    fn raising(&self, operation: &Operation) -> Change {
        let to = operation.spec.to_version.as_deref().and_then(|to| to.parse::<Minor>().ok());
        let Some(to) = to else { return Change::Abandon(name(operation)) };
        if let Some(rest) = &self.rests {
            let says_so = [rest.reason(), OperationReason::NotToBeHad].map(|it| says(operation, it).is_some());
            return match (word(operation), blocked(operation)) {
                // Nothing moves by that.
                (Some(Ok(Word::Abandon)), _) => Change::Abandon(name(operation)),
                (Some(_), _) => Change::Answer(name(operation), Some(rest.refuses(None))),
                (None, Some(words)) => Change::Waits(TenantClusterReason::ChangeFailed, words),
                (None, None) if !says_so.contains(&true) => Change::Show(name(operation)),
                (None, None) => Change::Waits(TenantClusterReason::Changing, rest.words()),
            };
        }
        match word(operation) {
            Some(Ok(Word::Resume)) => return Change::Raise(to, Some(name(operation))),
            Some(Ok(Word::Abandon)) => return Change::Abandon(name(operation)),
            Some(Ok(Word::Rollback | Word::Commit)) => {
                let words = format!("there is no way back from Kubernetes {to}, nor a commit: resume or abandon it");
                return Change::Answer(name(operation), Some(words));
            }
            Some(Err(words)) => return Change::Answer(name(operation), Some(words)),
            None => {}
        }
        if operation.spec.to_version.as_ref() != Some(&self.cluster.spec.version) {
            let words = format!(
                "control nodes may be at Kubernetes {to} already, and there is no way back: name it again, or abandon the Operation {}",
                name(operation)
            );
            return Change::Blocked(Obstacle::new(TenantClusterReason::NotSupported, words));
        }
        match blocked(operation) {
            Some(words) => Change::Waits(TenantClusterReason::ChangeFailed, words),
            None => Change::Raise(to, None),
        }
    }
}

fn version(image: &NodeImage) -> Option<&str> {
    image.status.as_ref()?.version.as_deref()
}

fn outcome(operation: &Operation) -> Option<&str> {
    operation.status.as_ref()?.outcome.as_deref()
}

/// Why an Operation waits for a person; none if it does not.
pub fn blocked(operation: &Operation) -> Option<String> {
    says(operation, OperationReason::Blocked)
}

/// What an Operation says with a reason; none if it is another one.
fn says(operation: &Operation, reason: OperationReason) -> Option<String> {
    let mut conditions = operation.status.iter().flat_map(|status| &status.conditions);
    let is_it = |about: &str, because: &str| (about, because) == (reason.condition(), reason.word());
    let found = conditions.find(|condition| is_it(&condition.about, &condition.reason));
    found.map(|condition| condition.message.clone())
}

/// The word of a person to an Operation that has raised Kubernetes.
fn answered_raise(operation: &Operation) -> Option<Change> {
    let words = ended(word(operation)?, Some(Ending::Committed));
    Some(Change::Answer(name(operation), words))
}

/// Whether an Operation says where its swap stands.
fn is_shown(operation: &Operation, swapping: &Swapping) -> bool {
    let said = operation.status.as_ref();
    let outcome = swapping.ending().map(Ending::words);
    said.is_some_and(|said| {
        said.step == swapping.step && said.outcome.as_deref() == outcome && !said.conditions.is_empty()
    })
}

/// Whether a word is heard while a swap rests. What speaks against beginning something beside a change of the control cluster does not
/// speak against going back. What ends where it stands moves no VM.
fn is_heard(word: Word, rest: &Rest) -> bool {
    match word {
        Word::Abandon => true,
        Word::Rollback => matches!(rest, Rest::ControlCluster(_)),
        Word::Resume | Word::Commit => false,
    }
}

/// What a person names in the spec to go back, where a word is not heard.
fn way_back(operation: &Operation) -> Option<String> {
    if is_of_size(operation) {
        let auto = if operation.spec.to_class.is_some() { ", or auto where that means it," } else { "" };
        return operation.spec.from_size.map(|size| format!("a class of {size}{auto} in spec.controlPlane.vmClass"));
    }
    operation.spec.from_image.as_ref().map(|image| format!("{image} in spec.image"))
}

/// What follows from a word to a swap.
fn has_asked(name: String, word: Word, swapping: &Swapping) -> Change {
    match permits(word, swapping) {
        Ok(verb) => Change::Go(name, verb),
        Err(words) => Change::Answer(name, Some(words)),
    }
}

/// What of a swap is asked by a word.
///
/// # Errors
/// Why it has gone too far for that.
fn permits(word: Word, swapping: &Swapping) -> Result<Verb, String> {
    let refused = |words: &str| Err(words.to_owned());
    match (word, &swapping.stage, swapping.direction) {
        (Word::Resume, ..) => Ok(Verb::Resume),
        (Word::Abandon, ..) => Ok(Verb::Abandon),
        (Word::Rollback, ..) if swapping.is_final => {
            refused("it is being committed: there is no way back but restoring a snapshot")
        }
        (Word::Rollback | Word::Commit, _, Direction::Abandon) => refused("it is being abandoned"),
        (Word::Rollback, ..) => Ok(Verb::Rollback),
        (Word::Commit, _, Direction::Commit) | (Word::Commit, Stage::Upgraded, Direction::Forward) => Ok(Verb::Commit),
        (Word::Commit, _, Direction::Back) => refused("it goes back: there is nothing to commit"),
        (Word::Commit, ..) => refused("it is not at its end: there is nothing to commit yet"),
    }
}

/// Why a word is not to be had of what has ended; none if it has ended so.
fn ended(word: Result<Word, String>, ending: Option<Ending>) -> Option<String> {
    match (word, ending) {
        (Err(words), _) => Some(words),
        (Ok(Word::Commit), Some(Ending::Committed))
        | (Ok(Word::Rollback), Some(Ending::RolledBack))
        | (Ok(Word::Abandon), Some(Ending::Abandoned)) => None,
        (Ok(Word::Rollback), Some(Ending::Committed)) => {
            Some("it is committed: there is no way back but restoring a snapshot".to_owned())
        }
        (Ok(_), ending) => Some(format!("it has ended: it was {}", ending.map_or("", Ending::words))),
    }
}

/// What is pinned after a swap.
fn as_after(pinned: &Resolved, operation: &Operation, swapping: &Swapping) -> Resolved {
    let digest = crate::records::digest(&swapping.digest);
    with_size(Resolved { image: operation.spec.to_image.clone(), digest, ..pinned.clone() }, swapping.size)
}

/// The same with control nodes of this size, if it is said.
pub fn with_size(pinned: Resolved, size: Option<ControlPlaneSize>) -> Resolved {
    match size {
        Some(size) => Resolved { processors: Some(size.processors), memory_mib: Some(size.memory_mib), ..pinned },
        None => pinned,
    }
}

impl Change {
    /// Why `UpToDate` is as it is; none if all is as the spec has it.
    pub fn said(&self) -> Option<(TenantClusterReason, String)> {
        use TenantClusterReason::{ChangeBlocked, ChangeFailed, Changing};
        let changing = |words: String| Some((Changing, words));
        match self {
            Self::Nothing => None,
            Self::Blocked(obstacle) => Some((ChangeBlocked, obstacle.message.clone())),
            Self::Waits(reason, words) => Some((*reason, words.clone())),
            Self::Show(name) | Self::Go(name, _) | Self::Abandon(name) | Self::Answer(name, _) => {
                changing(name.clone())
            }
            Self::Judge(image, ..) => {
                let image = image.metadata.name.as_deref().unwrap_or_default();
                let words = format!("no object says what control nodes run: they are asked whether that is {image}");
                Some((ChangeFailed, words))
            }
            Self::Pin(resolved, _) => changing(format!("to {}", resolved.image.as_deref().unwrap_or_default())),
            Self::Swap(image, _, size) => {
                changing(format!("to {} with {size}", image.metadata.name.as_deref().unwrap_or_default()))
            }
            Self::Raise(to, _) => changing(format!("to Kubernetes {to}")),
        }
    }

    /// What is in the way; none if nothing is.
    pub fn obstacle(&self) -> Option<&Obstacle> {
        if let Self::Blocked(obstacle) = self { Some(obstacle) } else { None }
    }

    /// What the cluster is doing for it.
    pub fn doing(&self) -> Doing {
        use TenantClusterReason::{AwaitsCommit, ChangeFailed, ImageUnsuitable, NotSupported, ReferenceMissing};
        match self {
            // A person has to say something else; all other obstacles may pass by themselves.
            Self::Blocked(Obstacle { reason: ImageUnsuitable | NotSupported | ReferenceMissing, message }) => {
                Doing::IsStuck(message.clone())
            }
            Self::Waits(ChangeFailed, words) => Doing::IsStuck(words.clone()),
            Self::Waits(AwaitsCommit, words) => Doing::Operates(words.clone()),
            Self::Nothing | Self::Blocked(_) | Self::Waits(..) => Doing::Nothing,
            _ => Doing::Operates(self.said().map(|(_, words)| words).unwrap_or_default()),
        }
    }

    /// Whether something is to be done for it now.
    pub fn is_to_do(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Blocked(_) | Self::Waits(..))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;
    use crate::decisions::fixture::{cluster, image, now};
    use crate::decisions::swapping::unsettled;
    use crate::objects::{
        JournalEntry, OperationKind, OperationSpec, OperationStatus, Reference, TenantClusterStatus, set,
    };
    use crate::records::fixture;

    pub(in crate::decisions) const FORMER: &str = "kaas-tenant-0.2.0";
    pub(in crate::decisions) const NEW: &str = "kaas-tenant-0.3.0";
    /// How large control nodes are to be.
    const SIZE: ControlPlaneSize = ControlPlaneSize { processors: 2, memory_mib: 4096 };

    /// A cluster on the former image whose spec names this one.
    pub(in crate::decisions) fn names(wanted: Option<&str>) -> TenantCluster {
        let mut cluster = cluster();
        cluster.spec.image = wanted.map(str::to_owned);
        let image = image(FORMER, "0.2.0");
        let resolved =
            Resolved { image: Some(FORMER.to_owned()), digest: Some(image.spec.digest), ..Resolved::default() };
        cluster.status = Some(TenantClusterStatus { resolved: Some(resolved), ..TenantClusterStatus::default() });
        cluster
    }

    pub(in crate::decisions) fn images() -> Vec<NodeImage> {
        let mut new = image(NEW, "0.3.0");
        new.spec.digest = format!("sha256:{}", "0b".repeat(32));
        let status = new.status.as_mut().unwrap();
        (status.appliance, status.build) = (Some("kaas-tenant".to_owned()), Some("0b".repeat(16)));
        status.kubernetes.push("1.37".to_owned());
        vec![image(FORMER, "0.2.0"), new]
    }

    /// An Operation with these entries behind its plan, which says where it stands.
    pub(in crate::decisions) fn swap(entries: &[Value]) -> Operation {
        let all = std::iter::once(json!({"event": "planned"})).chain(entries.iter().cloned());
        let entry = |(at, mut entry): (usize, Value)| -> JournalEntry {
            (entry["at"], entry["hold"]) = (at.into(), 1.into());
            serde_json::from_value(entry).unwrap()
        };
        let spec = OperationSpec {
            cluster_ref: Reference::to("shop"),
            kind: OperationKind::Swap,
            from_image: Some(FORMER.to_owned()),
            to_image: Some(NEW.to_owned()),
            from_version: None,
            from_size: None,
            to_size: None,
            to_class: None,
            to_version: None,
            cluster_generation: 1,
            steps: Vec::new(),
            plan: Some(fixture::plan()),
        };
        let mut operation = Operation::new("shop-1", spec);
        let status =
            OperationStatus { hold: 1, entries: all.enumerate().map(entry).collect(), ..OperationStatus::default() };
        operation.status = Some(status);
        shows(&mut operation);
        operation
    }

    pub(in crate::decisions) fn shows(operation: &mut Operation) {
        let swapping = Swapping::of(operation).unwrap().unwrap();
        let status = operation.status.as_mut().unwrap();
        (status.step, status.outcome) = (swapping.step.clone(), swapping.ending().map(|it| it.words().to_owned()));
        for (reason, words) in swapping.reasons() {
            set(&mut status.conditions, reason, &words, 1, &now());
        }
    }

    pub(in crate::decisions) fn ended(outcome: &str) -> Vec<Value> {
        let done = |action: &str| json!({"event": "done", "action": action, "note": ""});
        vec![done("verify"), done("snapshot"), json!({"event": "ended", "outcome": outcome})]
    }

    pub(in crate::decisions) fn turned(direction: &str) -> Value {
        json!({"event": "direction-changed", "direction": direction, "code": "upgrade.asked", "reason": "asked"})
    }

    fn next(cluster: &TenantCluster, operation: Option<&Operation>) -> Change {
        next_beside(cluster, operation, None)
    }

    /// The same where this says that the control cluster is being changed.
    fn next_beside(cluster: &TenantCluster, operation: Option<&Operation>, change: Option<&str>) -> Change {
        let images = images();
        let swap = operation.map(|operation| (operation, Swapping::of(operation).unwrap().unwrap()));
        let minor = "1.36".parse().ok();
        let rests = Rest::of(cluster, change.map(str::to_owned));
        let (size, has_drifted, now) = (Ok(SIZE), false, now().0);
        let abandoned = operation.and_then(|operation| unsettled(std::slice::from_ref(operation)));
        let (images, raise, room, plan_room) = (images.as_slice(), None, None, None);
        SeenCluster { cluster, swap, abandoned, raise, images, minor, size, room, plan_room, rests, has_drifted, now }
            .next()
    }

    #[test]
    fn while_the_control_cluster_is_being_changed_nothing_is_planned_and_what_is_under_way_rests() {
        let beside = |operation: Option<&Operation>| next_beside(&names(Some(NEW)), operation, Some("cp2"));
        let waits = |change: &Change| matches!(change, Change::Waits(TenantClusterReason::Changing, words) if words.contains("cp2"));
        assert!(waits(&beside(None)), "{:?}", beside(None));
        let mut open = swap(&[]);
        assert_eq!(beside(Some(&open)), Change::Show("shop-1".to_owned()));
        let rest = Rest::ControlCluster("cp2".to_owned());
        for (reason, words) in swap_reasons(Some(&rest), &Swapping::of(&open).unwrap().unwrap()) {
            set(&mut open.status.as_mut().unwrap().conditions, reason, &words, 1, &now());
        }
        assert!(says(&open, OperationReason::ControlClusterChanges).is_some() && waits(&beside(Some(&open))));
        let mut upgraded = swap(&ended("upgraded"));
        let long_ago = k8s_openapi::jiff::Timestamp::from_second(now().0.as_second() - 6000).unwrap();
        upgraded.status.as_mut().unwrap().good_since = Some(Time(long_ago));
        assert!(!matches!(beside(Some(&upgraded)), Change::Go(..)), "it is not committed meanwhile");
        assert_eq!(next(&names(Some(NEW)), Some(&open)), Change::Go("shop-1".to_owned(), Verb::Resume), "afterwards");
    }

    /// A control node of the control cluster may be lost, or its commit be days away.
    #[test]
    fn beside_a_change_of_the_control_cluster_a_swap_can_be_taken_back_or_abandoned_and_nothing_else() {
        let mut is_back = turned("back");
        is_back["only"] = json!(0);
        let node_is_back = swap(&[is_back]);
        assert!(matches!(Swapping::of(&node_is_back).unwrap().unwrap().stage, Stage::NodeIsBack(_)));
        let begun = swap(&[json!({"event": "begun", "action": "import", "node": 0})]);
        for mut operation in [node_is_back, begun, swap(&ended("upgraded"))] {
            let go = |verb| Change::Go("shop-1".to_owned(), verb);
            let words = [
                ("resume", None),
                ("commit", None),
                ("hurry", None),
                ("rollback", Some(Verb::Rollback)),
                ("abandon", Some(Verb::Abandon)),
            ];
            for (word, verb) in words {
                operation.metadata.annotations = Some([(DO.to_owned(), word.to_owned())].into());
                match (next_beside(&names(Some(NEW)), Some(&operation), Some("cp2")), verb) {
                    (change, Some(verb)) => assert_eq!(change, go(verb), "{word}"),
                    (Change::Answer(_, Some(words)), None) => assert!(words.contains("cp2"), "{word}: {words}"),
                    (change, None) => panic!("{word}: {change:?}"),
                }
            }
            operation.metadata.annotations = None;
            assert_eq!(next_beside(&names(Some(FORMER)), Some(&operation), Some("cp2")), go(Verb::Rollback));
            let stays = next_beside(&names(Some(NEW)), Some(&operation), Some("cp2"));
            assert!(!matches!(stays, Change::Go(..)), "{stays:?}");
        }
    }

    #[test]
    fn another_image_is_a_swap_and_what_is_left_open_or_the_same_is_none() {
        assert!(
            matches!(next(&names(Some(NEW)), None), Change::Swap(image, None, SIZE) if image.metadata.name.as_deref() == Some(NEW))
        );
        assert_eq!(next(&names(Some(FORMER)), None), Change::Nothing);
        assert_eq!(next(&names(None), None), Change::Nothing, "a newer one is nobody's wish");
        let mut automatic = names(None);
        automatic.spec.maintenance.auto_update = true;
        assert!(matches!(next(&automatic, None), Change::Swap(..)));
        automatic.spec.maintenance.window = Some("Sat 02:00-03:00".to_owned());
        assert!(matches!(next(&automatic, None), Change::Waits(TenantClusterReason::AwaitsWindow, _)));
        // What a person has named waits for nothing.
        let mut named = names(Some(NEW));
        named.spec.maintenance.window = automatic.spec.maintenance.window;
        assert!(matches!(next(&named, None), Change::Swap(..)));
        let mut raised = names(Some(NEW));
        raised.spec.version = "1.38".to_owned();
        assert!(matches!(next(&raised, None), Change::Blocked(_)), "the image has to carry what is wanted");
    }

    #[test]
    fn an_open_swap_goes_on_and_the_former_image_turns_it_until_it_may_be_final() {
        let go = |verb| Change::Go("shop-1".to_owned(), verb);
        let open = swap(&[]);
        assert_eq!(next(&names(Some(NEW)), Some(&open)), go(Verb::Resume));
        let moves = swap(&[json!({"event": "begun", "action": "import", "node": 0})]);
        assert_eq!(next(&names(Some("another")), Some(&moves)), go(Verb::Resume), "one after the other");
        assert_eq!(next(&names(Some("another")), Some(&open)), go(Verb::Rollback), "nothing of it has moved");
        assert_eq!(next(&names(None), Some(&open)), go(Verb::Rollback), "it is named no more");
        assert_eq!(next(&names(Some("another")), Some(&swap(&[turned("back")]))), go(Verb::Resume), "it is turned");
        let mut automatic = names(None);
        automatic.spec.maintenance.auto_update = true;
        assert_eq!(next(&automatic, Some(&open)), go(Verb::Resume), "nobody had named it");
        assert_eq!(next(&names(Some(FORMER)), Some(&open)), go(Verb::Rollback));
        assert_eq!(
            next(&names(Some(FORMER)), Some(&swap(&[turned("back")]))),
            go(Verb::Resume),
            "it goes back already"
        );
        let committing = swap(&[ended("upgraded"), vec![turned("commit")]].concat());
        assert_eq!(next(&names(Some(FORMER)), Some(&committing)), go(Verb::Resume));
        let mut paused = names(Some(NEW));
        paused.spec.paused = true;
        assert_eq!(next(&paused, Some(&open)), Change::Show("shop-1".to_owned()), "it says that it rests");
        let mut rests = open.clone();
        let swapping = Swapping::of(&rests).unwrap().unwrap();
        for (reason, words) in swap_reasons(Some(&Rest::Paused), &swapping) {
            set(&mut rests.status.as_mut().unwrap().conditions, reason, &words, 1, &now());
        }
        assert!(says(&rests, OperationReason::Paused).is_some());
        assert!(matches!(next(&paused, Some(&rests)), Change::Waits(TenantClusterReason::Changing, _)));
        assert_eq!(next(&names(Some(NEW)), Some(&rests)), go(Verb::Resume), "it is not paused any more");
        for word in ["resume", "rollback", "hurry"] {
            rests.metadata.annotations = Some([(DO.to_owned(), word.to_owned())].into());
            let answer = next(&paused, Some(&rests));
            let Change::Answer(_, Some(words)) = &answer else { panic!("{word}: {answer:?}") };
            assert!(words.contains("paused"), "{word}: {words}");
            assert_eq!(words.contains(FORMER), word == "rollback", "{word}: {words}");
        }
        // What was said before does not stand there for days.
        let mut upgraded = swap(&ended("upgraded"));
        let conditions = &mut upgraded.status.as_mut().unwrap().conditions;
        set(conditions, OperationReason::NotToBeHad, &Rest::Paused.refuses(None), 1, &now());
        let mut manual = names(Some(NEW));
        manual.spec.upgrade.commit = Commit::Manual;
        assert_eq!(next(&manual, Some(&upgraded)), Change::Show("shop-1".to_owned()), "it is not paused any more");
        manual.spec.paused = true;
        assert!(matches!(next(&manual, Some(&upgraded)), Change::Waits(..)), "it is");
        rests.metadata.annotations = Some([(DO.to_owned(), "abandon".to_owned())].into());
        assert_eq!(next(&paused, Some(&rests)), go(Verb::Abandon), "it moves no VM");
        rests.metadata.annotations = None;
        paused.spec.image = Some(FORMER.to_owned());
        assert!(matches!(next(&paused, Some(&rests)), Change::Waits(..)), "it goes back afterwards");
        assert_eq!(next(&names(Some(FORMER)), Some(&rests)), go(Verb::Rollback), "before anything else");
        let mut unsaid = swap(&[]);
        unsaid.status.as_mut().unwrap().step = None;
        assert_eq!(next(&paused, Some(&unsaid)), Change::Show("shop-1".to_owned()));
    }

    /// What a guest was asked for it does, whether or not anybody is there to note it.
    #[test]
    fn a_swap_does_not_rest_from_when_a_node_is_being_shut_down_until_it_is_found_good() {
        let event = |event: &str, action: &str| json!({"event": event, "action": action, "node": 0, "note": ""});
        let way = [
            (event("done", "import"), false),
            (event("begun", "prepare"), false),
            (event("done", "prepare"), false),
            (event("begun", "shut-down"), true),
            (event("done", "shut-down"), true),
            (event("begun", "gate"), true),
            (event("done", "gate"), false),
        ];
        let mut paused = names(Some(NEW));
        paused.spec.paused = true;
        for (last, (_, is_away)) in way.iter().enumerate() {
            let entries: Vec<Value> = way[..=last].iter().map(|(entry, _)| entry.clone()).collect();
            let mut operation = swap(&entries);
            operation.spec.plan.as_mut().unwrap()["nodes"] = json!([fixture::node("shop-cp1")]);
            let change = next(&paused, Some(&operation));
            let goes_on = change == Change::Go("shop-1".to_owned(), Verb::Resume);
            assert_eq!(goes_on, *is_away, "{:?}: {change:?}", entries.last());
        }
    }

    #[test]
    fn it_is_committed_by_itself_once_all_was_good_for_ten_minutes_and_never_where_that_is_a_persons() {
        let since = |seconds: i64| {
            let mut operation = swap(&ended("upgraded"));
            let at = k8s_openapi::jiff::Timestamp::from_second(now().0.as_second() - seconds).unwrap();
            operation.status.as_mut().unwrap().good_since = Some(Time(at));
            operation
        };
        let cluster = names(Some(NEW));
        let waits = |change: &Change| matches!(change, Change::Waits(TenantClusterReason::AwaitsCommit, _));
        assert!(waits(&next(&cluster, Some(&swap(&ended("upgraded"))))), "not all of them are good");
        assert!(waits(&next(&cluster, Some(&since(599)))));
        assert_eq!(next(&cluster, Some(&since(600))), Change::Go("shop-1".to_owned(), Verb::Commit));
        let mut manual = names(Some(NEW));
        manual.spec.upgrade.commit = Commit::Manual;
        assert!(waits(&next(&manual, Some(&since(6000)))));
        for wanted in [Some("another"), None] {
            let change = next(&names(wanted), Some(&since(6000)));
            assert!(waits(&change) && change.said().unwrap().1.contains("commit or rollback"), "{change:?}");
        }
        let mut automatic = names(None);
        automatic.spec.maintenance.auto_update = true;
        assert_eq!(next(&automatic, Some(&since(600))), Change::Go("shop-1".to_owned(), Verb::Commit));
        assert_eq!(next(&names(Some(FORMER)), Some(&since(6000))), Change::Go("shop-1".to_owned(), Verb::Rollback));
    }

    #[test]
    fn what_is_committed_is_pinned_and_what_went_back_is_not_tried_again_by_itself() {
        let committed = swap(&[ended("upgraded"), ended("committed")].concat());
        let Change::Pin(resolved, Some(_)) = next(&names(Some(NEW)), Some(&committed)) else {
            panic!("it is not pinned")
        };
        assert_eq!(
            (resolved.image.as_deref(), resolved.digest),
            (Some(NEW), Some(format!("sha256:{}", "0b".repeat(32))))
        );
        let mut back = swap(&[vec![turned("back")], ended("rolled-back")].concat());
        let failed = |change: &Change| matches!(change, Change::Waits(TenantClusterReason::ChangeFailed, _));
        assert!(failed(&next(&names(Some(NEW)), Some(&back))));
        assert_eq!(next(&names(Some(FORMER)), Some(&back)), Change::Nothing);
        let mut newer = names(Some(NEW));
        newer.metadata.generation = Some(2);
        assert!(matches!(next(&newer, Some(&back)), Change::Swap(_, None, _)), "the spec is another one");
        back.metadata.annotations = Some([(DO.to_owned(), "resume".to_owned())].into());
        assert!(matches!(next(&names(Some(NEW)), Some(&back)), Change::Swap(_, Some(of), _) if of == "shop-1"));
        let beside = next_beside(&names(Some(NEW)), Some(&back), Some("cp2"));
        assert!(matches!(&beside, Change::Answer(_, Some(words)) if words.contains("cp2")), "not later: {beside:?}");
        back.metadata.annotations = Some([(DO.to_owned(), "rollback".to_owned())].into());
        assert_eq!(next(&names(Some(FORMER)), Some(&back)), Change::Answer("shop-1".to_owned(), None), "so it is");
    }

    /// Some of its nodes may be on the new image for good, and no object says which.
    #[test]
    fn after_what_was_abandoned_nodes_are_asked_whether_they_run_the_pinned_image() {
        let abandoned = swap(&[vec![turned("abandon")], ended("abandoned")].concat());
        let is_asked = |change: &Change, then: &Change| {
            let Change::Judge(image, None, comes) = change else { return false };
            image.metadata.name.as_deref() == Some(FORMER) && **comes == *then
        };
        for cluster in [names(Some(FORMER)), names(None)] {
            let change = next(&cluster, Some(&abandoned));
            assert!(is_asked(&change, &Change::Nothing) && change.is_to_do(), "{change:?}");
            assert_eq!(change.said().unwrap().0, TenantClusterReason::ChangeFailed, "not current before that is known");
        }
        let Change::Waits(_, words) = next(&names(Some(NEW)), Some(&abandoned)) else { panic!("it is tried again") };
        assert!(!words.contains(FORMER), "{words}");
        let back = swap(&[vec![turned("back")], ended("rolled-back")].concat());
        assert_eq!(next(&names(Some(FORMER)), Some(&back)), Change::Nothing);
        // The same where objects are older than VMs.
        let (cluster, images, minor) = (names(Some(FORMER)), images(), "1.36".parse().ok());
        let of = |has_drifted| {
            let (cluster, swap, abandoned, raise, images) = (&cluster, None, None, None, images.as_slice());
            let (size, room, plan_room, rests, now) = (Ok(SIZE), None, None, None, now().0);
            SeenCluster {
                cluster,
                swap,
                abandoned,
                raise,
                images,
                minor,
                size,
                room,
                plan_room,
                rests,
                has_drifted,
                now,
            }
            .next()
        };
        assert!(is_asked(&of(true), &Change::Nothing) && of(false) == Change::Nothing);
    }

    #[test]
    fn a_word_is_taken_where_it_can_be_and_answered_where_it_has_gone_too_far() {
        let (open, back) = (vec![], vec![turned("back")]);
        let upgraded = ended("upgraded");
        let committing =
            [ended("upgraded"), vec![turned("commit"), json!({"event": "begun", "action": "commit"})]].concat();
        let cases: [(&[Value], &str, Option<Verb>); 9] = [
            (&open, "resume", Some(Verb::Resume)),
            (&open, "rollback", Some(Verb::Rollback)),
            (&open, "abandon", Some(Verb::Abandon)),
            (&open, "commit", None),
            (&back, "commit", None),
            (&upgraded, "commit", Some(Verb::Commit)),
            (&upgraded, "rollback", Some(Verb::Rollback)),
            (&committing, "rollback", None),
            (&open, "hurry", None),
        ];
        for (entries, word, verb) in cases {
            let mut operation = swap(entries);
            operation.metadata.annotations = Some([(DO.to_owned(), word.to_owned())].into());
            match (next(&names(Some(NEW)), Some(&operation)), verb) {
                (Change::Go(_, went), Some(verb)) => assert_eq!(went, verb, "{word} {entries:?}"),
                (Change::Answer(_, Some(_)), None) => {}
                (change, _) => panic!("{word} {entries:?}: {change:?}"),
            }
        }
    }

    #[test]
    fn the_minor_follows_the_image_and_never_goes_down() {
        let mut cluster = names(None);
        let images = images();
        let of = |cluster: &TenantCluster, minor: &str| {
            let (minor, rests) = (minor.parse().ok(), Rest::of(cluster, None));
            let (size, room, plan_room, has_drifted, now) = (Ok(SIZE), None, None, false, now().0);
            let (swap, abandoned, raise, images) = (None, None, None, images.as_slice());
            SeenCluster {
                cluster,
                swap,
                abandoned,
                raise,
                images,
                minor,
                size,
                room,
                plan_room,
                rests,
                has_drifted,
                now,
            }
            .next()
        };
        assert_eq!(of(&cluster, "1.36"), Change::Nothing);
        assert_eq!(of(&cluster, "1.35"), Change::Raise("1.36".parse().unwrap(), None));
        assert!(matches!(of(&cluster, "1.37"), Change::Blocked(_)));
        cluster.spec.version = "1.37".to_owned();
        assert!(matches!(of(&cluster, "1.36"), Change::Blocked(_)), "its image does not carry it");
        cluster.spec.version = "1.36".to_owned();
        cluster.spec.paused = true;
        assert!(matches!(of(&cluster, "1.35"), Change::Waits(TenantClusterReason::Changing, _)));
        let obstacle = Change::Blocked(Obstacle::new(TenantClusterReason::ImageUnsuitable, "x"));
        assert!(matches!(obstacle.doing(), Doing::IsStuck(_)) && !obstacle.is_to_do());
    }
}
