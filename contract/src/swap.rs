//! An image swap at the node's endpoint: `POST /v1/swap`, `DELETE /v1/swap/<id>` and `POST /v1/commit`. Before a rollback or
//! any other shutdown: `POST /v1/evacuate` and `DELETE /v1/evacuate/<id>`. The files in `testdata` show the JSON.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bios_uuid::BiosUuid;
use crate::codes::Code;
use crate::version::is_older;

/// A VM with the image that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmImage {
    /// Its BIOS UUID. `None` if the hypervisor gives none.
    pub vm: Option<BiosUuid>,
    /// The image's version.
    pub version: String,
    /// The image's build identifier. Empty if it is unknown.
    pub build: String,
}

impl VmImage {
    /// Whether both are the same VM. Without UUIDs the image decides.
    pub fn is(&self, other: &Self) -> bool {
        self.vm == other.vm && (self.vm.is_some() || (&self.version, &self.build) == (&other.version, &other.build))
    }
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// Its version.
    pub version: String,
    /// Its build identifier.
    pub build: String,
}

impl Image {
    /// The beginning of the build identifier: enough to distinguish builds, short enough for names.
    pub fn short(&self) -> &str {
        self.build.get(..7).unwrap_or(&self.build)
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.version, self.short())
    }
}

/// The stage of a swap, or of an evacuation, which is never [`Stage::Taken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The preconditions are being checked.
    Judging,
    /// The virtual IP is being yielded.
    Yielding,
    /// etcd's leadership is being moved.
    MovingLeader,
    /// The node is being cordoned and drained.
    Draining,
    /// The VM may be shut down.
    Prepared,
    /// It could not be prepared, and was undone.
    Failed,
    /// This VM has the data disk of another one, and may still have to return it.
    Taken,
}

impl Stage {
    /// Whether it is between its beginning and the shutdown of the VM.
    pub fn is_under_way(self) -> bool {
        !matches!(self, Stage::Failed | Stage::Taken)
    }
}

/// A swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwapState {
    /// Its identifier.
    pub id: Uuid,
    /// The stage.
    pub stage: Stage,
    /// Why it failed.
    pub error: Option<String>,
    /// The stable code of why it failed, such as `drain.blocked`. Clients decide by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The pods and data that its drain deletes for good, known once it drains.
    #[serde(default, skip_serializing_if = "Losses::is_empty")]
    pub losses: Losses,
    /// The VM that may take the disk again.
    pub from: VmImage,
    /// The image that may take the disk. `None` for a swap by hand.
    pub to: Option<Image>,
}

/// For pages and terminals.
impl fmt::Display for SwapState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.to.as_ref().map(|to| format!(" to image {}", to.version)).unwrap_or_default();
        match self.stage {
            Stage::Judging => write!(f, "swap{to}: looking whether it may be done"),
            Stage::Yielding => write!(f, "swap{to}: yielding the virtual IP"),
            Stage::MovingLeader => write!(f, "swap{to}: moving etcd's leadership"),
            Stage::Draining => write!(f, "swap{to}: moving the pods away"),
            Stage::Prepared => write!(f, "swap{to} prepared: shut this VM down"),
            Stage::Failed => write!(f, "swap{to} failed: {}", why(self.error.as_deref(), self.code.as_deref())),
            Stage::Taken => write!(f, "taken over from image {}, not committed yet", self.from.version),
        }
    }
}

fn why(error: Option<&str>, code: Option<&str>) -> String {
    let code = code.map(|code| format!(" [{code}]")).unwrap_or_default();
    format!("{}{code}", error.unwrap_or("see the journal"))
}

/// The body of `POST /v1/swap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The caller's identifier of the swap. A second request with it changes nothing.
    pub id: Uuid,
    /// The image that may take the disk.
    pub to: Image,
    /// How long a drain may take, in seconds.
    pub drain_seconds: u64,
    /// Whether an older image is meant.
    #[serde(default)]
    pub downgrade: bool,
    /// Fingerprint of the key that may have signed the image instead of the pinned one. It is pinned at the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
}

impl Request {
    /// The request in words, for a node whose image has the version `own`. Everything out of the ordinary is mentioned.
    pub fn words(&self, own: &str) -> String {
        let mut words = format!("the swap {} to image {}", self.id, self.to.version);
        if self.downgrade && is_older(&self.to.version, own) {
            words += &format!(", older than {own}, as was asked for");
        }
        if let Some(key) = &self.publisher {
            words += &format!(", of the publisher with the key {key}, as was asked for");
        }
        words
    }
}

/// The body of `POST /v1/evacuate`: the node leaves its work to the others, so that its VM may be shut down. It begins no swap.
/// A swap that is taken stays so, and the right to take the disk does not change.
///
/// 202 while it is under way, 200 once the VM may be shut down, 409 if it is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvacuationRequest {
    /// The caller's identifier of the evacuation. A second request with it changes nothing.
    pub id: Uuid,
    /// How long a drain may take, in seconds.
    pub drain_seconds: u64,
}

/// Body of `POST /v1/commit`.
///
/// 200 if it is committed or there is nothing to commit, 409 if it is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRequest {
    /// The swap that is meant, as in `/v1/node`. Another one is not committed. `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Uuid>,
}

/// An evacuation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvacuationState {
    /// Its identifier.
    pub id: Uuid,
    /// The stage. [`Stage::Prepared`] once the VM may be shut down.
    pub stage: Stage,
    /// Why it failed.
    pub error: Option<String>,
    /// The stable code of why it failed, such as `drain.blocked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The pods and data that its drain deletes for good, known once it drains.
    #[serde(default, skip_serializing_if = "Losses::is_empty")]
    pub losses: Losses,
}

/// For pages and terminals.
impl fmt::Display for EvacuationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            Stage::Judging => f.write_str("evacuation: looking whether it may be done"),
            Stage::Yielding => f.write_str("evacuation: yielding the virtual IP"),
            Stage::MovingLeader => f.write_str("evacuation: moving etcd's leadership"),
            Stage::Draining => f.write_str("evacuation: moving the pods away"),
            Stage::Prepared | Stage::Taken => f.write_str("evacuated: shut this VM down"),
            Stage::Failed => {
                write!(f, "evacuation failed: {}", why(self.error.as_deref(), self.code.as_deref()))
            }
        }
    }
}

/// The pods and data that a drain of a node deletes for good. Pods are named `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Losses {
    /// Pods without a controller: nothing recreates them.
    #[serde(default)]
    pub bare_pods: Vec<String>,
    /// Pods with `emptyDir` volumes: the content is deleted, even if a controller recreates the pod.
    #[serde(default)]
    pub empty_dirs: Vec<String>,
}

impl Losses {
    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.bare_pods.is_empty() && self.empty_dirs.is_empty()
    }
}

/// For pages and terminals, in one line.
impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bare_pods, empty_dirs } = self;
        if !bare_pods.is_empty() {
            write!(f, "these pods have no controller and are deleted: {}", first(bare_pods))?;
        }
        if !empty_dirs.is_empty() {
            let more = if bare_pods.is_empty() { "" } else { "; " };
            write!(f, "{more}what these pods keep in emptyDir volumes is deleted: {}", first(empty_dirs))?;
        }
        if self.is_empty() { f.write_str("nothing is deleted for good") } else { Ok(()) }
    }
}

/// The names of a list. Of a long list, the first names and the number of the others. The text is kept in plans, and users who
/// may create pods choose their number and the length of their names.
fn first(names: &[String]) -> String {
    const SHOWN: usize = 50;
    const BYTES: usize = 900;
    let (mut words, mut shown) = (String::new(), 0);
    for name in names.iter().take(SHOWN) {
        if shown > 0 && words.len() + name.len() > BYTES {
            break;
        }
        words += if shown > 0 { ", " } else { "" };
        words += name;
        shown += 1;
    }
    match names.len() - shown {
        0 => words,
        more => format!("{words} and {more} more"),
    }
}

/// Why a request is refused, in the body of a 409.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{reason} [{code}]")]
pub struct Rejection {
    /// The finding's stable code.
    pub code: String,
    /// The reason in words, with the remedy.
    pub reason: String,
}

impl Rejection {
    /// A refusal with this code.
    pub fn of(code: &Code, reason: impl Into<String>) -> Self {
        Self { code: code.code.to_owned(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_requests_say_so() {
        let to = Image { version: "0.2.0".into(), build: "b".into() };
        let request = Request { id: Uuid::nil(), to, drain_seconds: 1, downgrade: true, publisher: None };
        assert!(request.words("0.1.0").ends_with("to image 0.2.0"));
        let words = Request { publisher: Some("SHA256:other".into()), ..request }.words("0.3.0");
        assert!(words.contains("older than 0.3.0") && words.contains("the key SHA256:other"), "{words}");
    }

    #[test]
    fn losses_of_a_drain_are_one_line() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let both = Losses { bare_pods: names(&["a/debug", "b/job"]), empty_dirs: names(&["b/cache"]) };
        assert_eq!(
            both.to_string(),
            "these pods have no controller and are deleted: a/debug, b/job; what these pods keep in emptyDir volumes \
             is deleted: b/cache"
        );
        assert!(Losses { bare_pods: vec![], ..both }.to_string().starts_with("what these pods keep"));
        assert_eq!(Losses::default().to_string(), "nothing is deleted for good");
        let many = Losses { bare_pods: (0..503).map(|number| format!("a/{number}")).collect(), empty_dirs: vec![] };
        assert!(many.to_string().ends_with("a/48, a/49 and 453 more"), "{many}");
        // The longest names that Kubernetes allows for a namespace and a pod.
        let long: Vec<String> = (0..500).map(|number| format!("{number:03}{}", "a".repeat(314))).collect();
        let words = Losses { bare_pods: long.clone(), empty_dirs: long }.to_string();
        assert!(words.len() < 2048 && words.matches("and 498 more").count() == 2, "{words}");
    }

    #[test]
    fn a_failure_is_said_with_its_code() {
        let state = |code: Option<&str>| EvacuationState {
            id: Uuid::nil(),
            stage: Stage::Failed,
            error: Some("web/a stays".into()),
            code: code.map(str::to_owned),
            losses: Losses::default(),
        };
        assert_eq!(state(Some("drain.blocked")).to_string(), "evacuation failed: web/a stays [drain.blocked]");
        assert_eq!(state(None).to_string(), "evacuation failed: web/a stays");
    }
}
