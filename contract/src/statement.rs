//! The status of a node that its hypervisor shows: progress, refusals, and the key with which it joins. It is not secret, and
//! programs in the VM may have written it. It can only give the operator a reason, or make a deployer give up a VM that has
//! refused to work. It also reveals an impostor outside of the VM that joins in its place.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bios_uuid::BiosUuid;
use crate::codes::{self, Code};
use crate::console;

/// Longer texts are no statements of a node, in bytes.
const LONGEST: usize = 4096;

/// The most digits that distinguish a key.
const DIGITS: usize = 64;

/// The longest text, in characters.
const WORDS: usize = 600;

/// The progress of a boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Looking at the platform, the disks and the OVF environment.
    #[default]
    Looking,
    /// A problem that the operator must fix. Nothing was changed.
    Refused,
    /// The plan runs.
    Working,
    /// The plan runs and waits for something outside of this node.
    Waiting,
    /// All of the plan is done.
    Done,
}

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The BIOS UUID of the node's VM, if it is known.
    pub machine: Option<BiosUuid>,
    /// The progress.
    pub phase: Phase,
    /// The code of the first current error, of [`codes::CODES`]. `None` without an error.
    pub code: Option<String>,
    /// The error in words, or the progress.
    pub words: String,
    /// Whether waiting does not fix that error: the VM needs another input or environment.
    pub lasting: bool,
    /// How many times in a row the current step was refused.
    pub times: u32,
    /// The public half of the VM's join token, once it has tried to join with it.
    pub token: Option<String>,
    /// Distinguishes the key of this worker's certificate, once it asks for one: half of the SHA-256 of the public key, in
    /// hexadecimal. Control-plane nodes record the same of workers that they admit ([`crate::worker_records::AdmittedWorker`]).
    /// `None` from earlier images.
    pub key: Option<String>,
    /// The time of the status, in seconds of Unix time by the node's clock.
    pub at: u64,
}

/// Errors that stay until the VM gets other input. Any other may pass. For example a lease changes, a former node of the name
/// is deleted, the cluster is upgraded, or an impostor of the cluster goes away.
const LASTING: &[Code] = &[
    codes::JOIN_TOKEN_REFUSED,
    codes::JOIN_TOKEN_MISSING,
    codes::JOIN_OTHER_CLUSTER,
    codes::JOIN_VERSION_SKEW,
    codes::JOIN_CERTIFICATE_EXPIRED,
    codes::ENVIRONMENT_NO_PROPERTIES,
    codes::PROPERTY_MISSING,
    codes::PROPERTY_MALFORMED,
    codes::PROPERTY_IPV6,
    codes::PROPERTY_OUT_OF_RANGE,
    codes::ADDRESS_UNUSABLE,
    codes::ADDRESS_RESERVED,
    codes::ADDRESS_PREFIX,
    codes::ADDRESS_DUPLICATE,
    codes::GATEWAY_OFF_SUBNET,
    codes::NODE_LABELS_RESERVED,
    codes::ROLE_OTHER,
    codes::ROLE_NOT_IN_IMAGE,
    codes::KUBERNETES_MINOR,
    codes::MEMORY_TOO_SMALL,
    codes::DISK_BESIDE_WORKER,
    codes::DISK_OF_WORKER,
];

/// Those of them that a lease can cause as well, from any DHCP server.
const OF_A_LEASE: &[Code] = &[codes::ADDRESS_PREFIX, codes::ADDRESS_DUPLICATE, codes::GATEWAY_OFF_SUBNET];

/// Whether waiting does not fix an error of this code. The VM's input is judged before there is a plan. Later input comes from
/// the network, and only the cluster has proved its identity.
pub fn lasts(code: &str, has_plan: bool) -> bool {
    let is_of = |codes: &[Code]| codes.iter().any(|one| one.code == code);
    is_of(LASTING) && !(has_plan && is_of(OF_A_LEASE))
}

/// Whether a worker with this error joins again once it gets a new token.
pub fn asks_for_token(code: &str) -> bool {
    [codes::JOIN_CERTIFICATE_EXPIRED, codes::JOIN_TOKEN_MISSING].iter().any(|one| one.code == code)
}

impl Statement {
    /// The variable of a VMware VM with the status.
    pub const GUESTINFO: &str = "guestinfo.kaas.statement";

    /// The beginning of the line on the console.
    const SAID: &str = "kaas: statement ";

    /// Cuts a text to the longest one of a status.
    pub fn words(text: &str) -> String {
        text.chars().take(WORDS).collect()
    }

    /// Reads a node's text. `None` if it has another form.
    pub fn read(text: &[u8]) -> Option<Self> {
        let read: Self = if text.len() > LONGEST { None } else { serde_json::from_slice(text).ok() }?;
        let is_code =
            |code: &str| code.bytes().all(|byte| byte.is_ascii_lowercase() || b"0123456789.-".contains(&byte));
        let is_key = |key: &str| {
            key.len() <= DIGITS && key.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        };
        let is_one = read.code.as_deref().is_none_or(|code| code.len() <= 64 && is_code(code))
            && read.key.as_deref().is_none_or(is_key);
        is_one.then_some(read)
    }

    /// The last status on a node's console. `None` if it has shown none since its power-on.
    pub fn last_said(text: &str) -> Option<Self> {
        let said = |line: &str| Self::read(console::said(line, Self::SAID)?.as_bytes());
        text.lines().rev().find_map(said)
    }

    /// The line for the console.
    pub fn line(&self) -> String {
        format!("{}{self}", Self::SAID)
    }
}

/// JSON in one line.
impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::CODES;
    use crate::finding::Severity;

    fn refusal() -> Statement {
        Statement {
            machine: Some(BiosUuid::from_u128(7)),
            phase: Phase::Refused,
            code: Some("join.token-refused".to_owned()),
            words: "the token \"abc\"\r\nis not taken".to_owned(),
            lasting: true,
            times: 2,
            token: Some("abcdef".to_owned()),
            key: Some("0123456789abcdef".to_owned()),
            at: 1_700_000_000,
        }
    }

    #[test]
    fn last_status_on_a_console_counts() {
        let first = refusal();
        let last = Statement { phase: Phase::Working, code: None, lasting: false, times: 0, ..refusal() };
        assert_eq!(first.line().lines().count(), 1);
        let console = format!("[1.0] {}\r\nkaas: stopped\r\n{}\r\nkaas: statement {{half", first.line(), last.line());
        assert_eq!(Statement::last_said(&console), Some(last));
        assert_eq!(Statement::last_said("kaas: ready"), None);
        assert_eq!(Statement::read(first.to_string().as_bytes()), Some(first));
    }

    #[test]
    fn status_of_an_earlier_image_is_read() {
        let mut said = serde_json::to_value(refusal()).unwrap();
        said.as_object_mut().unwrap().remove("key");
        let said = Statement::read(said.to_string().as_bytes());
        assert_eq!(said, Some(Statement { key: None, ..refusal() }));
    }

    #[test]
    fn other_texts_are_no_status() {
        let with = |code: &str| Statement { code: Some(code.to_owned()), ..refusal() }.to_string();
        assert!(Statement::read(with("join.wrong-ca").as_bytes()).is_some());
        assert_eq!(Statement::read(with("\u{1b}[31m").as_bytes()), None);
        assert_eq!(Statement::read(with(&"a".repeat(65)).as_bytes()), None);
        for key in ["\u{1b}[31m", &"a".repeat(65)] {
            let said = Statement { key: Some(key.to_owned()), ..refusal() }.to_string();
            assert_eq!(Statement::read(said.as_bytes()), None);
        }
        let long = Statement { words: "x".repeat(LONGEST), ..refusal() }.to_string();
        assert_eq!(Statement::read(long.as_bytes()), None);
        let longest = Statement { words: Statement::words(&"\u{1f600}".repeat(LONGEST)), ..refusal() }.to_string();
        assert!(Statement::read(longest.as_bytes()).is_some(), "what a node may say is read");
        assert_eq!(Statement::read(b"ready"), None);
    }

    #[test]
    fn lasting_codes_are_documented_errors() {
        for lasting in LASTING {
            assert!(CODES.contains(lasting) && lasting.severity == Severity::Error, "{}", lasting.code);
        }
        for of_a_lease in OF_A_LEASE {
            assert!(lasts(of_a_lease.code, false) && !lasts(of_a_lease.code, true), "{}", of_a_lease.code);
        }
        assert!(lasts("join.token-refused", true));
        for passes in ["join.wrong-ca", "join.name-in-use", "network.no-carrier"] {
            assert!(!lasts(passes, false), "{passes}");
        }
    }
}
