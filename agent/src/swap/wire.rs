//! What is said over the node's endpoint about the node and its swap: the JSON
//! of `GET /v1/node`, `POST /v1/swap`, `DELETE /v1/swap/<id>` and `POST /v1/commit`. The
//! files in `endpoint/testdata` show it; the operator's command has its types from here.

use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::codes::Code;
use crate::disk::ownership::{Image, Use};
use crate::image::version::is_older;
use crate::kubernetes::upgrade;

/// A node, as `GET /v1/node` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub node: String,
    /// The image that it runs.
    pub image: RunningImage,
    /// Fingerprint of the publisher's key that is pinned on its data disk; none if none is.
    #[serde(default)]
    pub pinned: Option<String>,
    /// The GPT disk GUID of its data disk.
    pub disk: Uuid,
    /// BIOS UUID of the VM that holds the data disk; none if the hypervisor gives none.
    pub holder: Option<Uuid>,
    /// How many VMs have held the data disk.
    pub generation: u64,
    /// Its Kubernetes.
    pub kubernetes: Kubernetes,
    /// Its etcd member; none while it does not answer.
    pub etcd: Option<Etcd>,
    /// The cluster's virtual address, if it has one.
    pub virtual_address: Option<VirtualAddress>,
    /// Whether its API serves and Kubernetes calls it ready.
    pub ready: bool,
    /// Since when this boot has counted as good; none until then.
    pub good: Option<Good>,
    /// The swap that is under way, or not committed yet.
    pub swap: Option<State>,
}

/// The image that a VM runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningImage {
    /// Name of the appliance.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its build identifier.
    pub build: String,
    /// Fingerprint of the publisher's key; none for a development image.
    pub publisher: Option<String>,
}

impl RunningImage {
    /// What names it.
    pub fn build(&self) -> Image {
        Image { version: self.version.clone(), build: self.build.clone() }
    }
}

/// Kubernetes on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// The version that the cluster's minor has in this image.
    pub version: String,
    /// All versions in this image.
    pub carried: Vec<String>,
    /// The upgrade that is under way or was given up, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<upgrade::wire::State>,
}

/// The etcd member of a node, and how it sees the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etcd {
    /// Version of etcd.
    pub version: String,
    /// The member's identity in hexadecimal.
    pub member: String,
    /// Whether it is the leader.
    pub leader: bool,
    /// The index that it has applied.
    pub applied: u64,
    /// All members.
    pub members: Vec<Member>,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name; empty until it has started.
    pub name: String,
    /// Its identity in hexadecimal.
    pub id: String,
    /// Whether it only follows, without a vote.
    pub learner: bool,
    /// Whether it sees a leader and answers a read that needs a quorum.
    pub healthy: bool,
}

/// The virtual address as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// Whether this node holds it now.
    pub held: bool,
}

/// Since when a boot counts as good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Good {
    /// Seconds since 1970.
    pub since: u64,
}

/// How far a swap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Whether it may be done is being judged.
    Judging,
    /// The virtual address is being yielded.
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
pub struct State {
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
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.to.as_ref().map(|to| format!(" to image {}", to.version)).unwrap_or_default();
        match self.stage {
            Stage::Judging => write!(f, "swap{to}: looking whether it may be done"),
            Stage::Yielding => write!(f, "swap{to}: yielding the virtual address"),
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
#[serde(deny_unknown_fields)]
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
    use serde::de::DeserializeOwned;
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_is_out_of_the_ordinary_is_said() {
        let to = Image { version: "0.2.0".into(), build: "b".into() };
        let request = Request { id: Uuid::nil(), to, drain_seconds: 1, downgrade: true, publisher: None };
        assert!(request.words("0.1.0").ends_with("to image 0.2.0"));
        let words = Request { publisher: Some("SHA256:other".into()), ..request }.words("0.3.0");
        assert!(words.contains("older than 0.3.0") && words.contains("the key SHA256:other"), "{words}");
    }

    fn is_as_the_file_shows<T: Serialize + DeserializeOwned>(name: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/endpoint/testdata").join(name);
        let text = fs::read_to_string(&file).unwrap();
        let value: T = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string_pretty(&value).unwrap(), text.trim(), "{name}");
    }

    #[test]
    fn what_is_said_is_as_the_files_show() {
        for name in ["node.json", "node-prepared.json", "node-taken.json"] {
            is_as_the_file_shows::<Node>(name);
        }
        is_as_the_file_shows::<Node>("node-upgrading.json");
        for name in ["swap-request.json", "swap-request-publisher.json"] {
            is_as_the_file_shows::<Request>(name);
        }
        is_as_the_file_shows::<upgrade::wire::Request>("kubernetes-request.json");
        is_as_the_file_shows::<Refused>("refused.json");
        // A node that knows nothing of pinned keys.
        let text = include_str!("../endpoint/testdata/node.json");
        let older = text.replace("\"pinned\": \"SHA256:publisher\",", "");
        assert_eq!(serde_json::from_str::<Node>(&older).unwrap().pinned, None);
    }
}
