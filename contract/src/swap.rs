//! An image swap as a node takes and tells it: `POST /v1/swap`, `DELETE /v1/swap/<id>` and `POST /v1/commit`.
//! The files in `testdata` show the JSON.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::codes::Code;
use crate::version::is_older;

/// A VM with the image that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Its BIOS UUID; none if the hypervisor gives none.
    pub vm: Option<Uuid>,
    /// The image's version.
    pub version: String,
    /// The image's build identifier; empty where it is not known.
    pub build: String,
}

impl Use {
    /// Whether both are the same VM; without UUIDs the image decides.
    pub fn is(&self, other: &Self) -> bool {
        self.vm == other.vm && (self.vm.is_some() || (&self.version, &self.build) == (&other.version, &other.build))
    }
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its version.
    pub version: String,
    /// Its build identifier.
    pub build: String,
}

impl Image {
    /// The beginning of the build identifier: enough to tell builds apart, short enough for names.
    pub fn short(&self) -> &str {
        self.build.get(..7).unwrap_or(&self.build)
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.version, self.short())
    }
}

/// How far a swap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Whether it may be done is being judged.
    Judging,
    /// The virtual IP is being yielded.
    Yielding,
    /// etcd's leadership is being moved.
    MovingLeader,
    /// The node is being cordoned and drained.
    Draining,
    /// The VM may be shut down.
    Prepared,
    /// It could not be prepared; what was done was undone.
    Failed,
    /// This VM has the data disk of another one, and may still have to give it back.
    Taken,
}

impl Stage {
    /// Whether it is between its beginning and the shutdown of the VM.
    pub fn is_under_way(self) -> bool {
        !matches!(self, Stage::Failed | Stage::Taken)
    }
}

/// A swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapState {
    /// Its identifier.
    pub id: Uuid,
    /// How far it is.
    pub stage: Stage,
    /// Why it failed.
    pub error: Option<String>,
    /// Who may take the disk back.
    pub from: Use,
    /// Which image may take the disk; none for a swap by hand.
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
            Stage::Failed => write!(f, "swap{to} failed: {}", self.error.as_deref().unwrap_or("see the journal")),
            Stage::Taken => write!(f, "taken over from image {}, not committed yet", self.from.version),
        }
    }
}

/// What `POST /v1/swap` takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The caller's identifier of the swap: asking again with it changes nothing.
    pub id: Uuid,
    /// The image that may take the disk.
    pub to: Image,
    /// How long pods may take to move away, in seconds.
    pub drain_seconds: u64,
    /// Whether an older image is meant.
    #[serde(default)]
    pub downgrade: bool,
    /// Fingerprint of the key that may have signed the image in place of the pinned one, and is pinned at the
    /// commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
}

impl Request {
    /// What is asked of a node whose image has the version `own`, in words: all that is out of the ordinary, too.
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

/// Why something is not done, as a 409 says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason} [{code}]")]
pub struct Refused {
    /// The finding's stable code.
    pub code: String,
    /// In words, with what can be done about it.
    pub reason: String,
}

impl Refused {
    /// A refusal with this code.
    pub fn of(code: &Code, reason: impl Into<String>) -> Self {
        Self { code: code.code.to_owned(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_the_ordinary_is_said() {
        let to = Image { version: "0.2.0".into(), build: "b".into() };
        let request = Request { id: Uuid::nil(), to, drain_seconds: 1, downgrade: true, publisher: None };
        assert!(request.words("0.1.0").ends_with("to image 0.2.0"));
        let words = Request { publisher: Some("SHA256:other".into()), ..request }.words("0.3.0");
        assert!(words.contains("older than 0.3.0") && words.contains("the key SHA256:other"), "{words}");
    }
}
