//! What a node says of itself where its hypervisor shows it: how far it is, what it refuses, and with which key it joins. Not
//! secret. Programs in the VM may have written it: it is good for telling a person why, for giving up what the VM has refused to
//! do anyway, and against somebody outside of the VM who joins in its place.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bios_uuid::BiosUuid;
use crate::codes::{self, Code};
use crate::console;

/// Longer texts are no statements of a node, in bytes.
const LONGEST: usize = 4096;

/// The most digits that tell a key from others.
const DIGITS: usize = 64;

/// The most that is said in words, in characters.
const WORDS: usize = 600;

/// How far a boot has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Looking at the platform, the disks and the OVF environment.
    #[default]
    Looking,
    /// Something is wrong that a person must mend; nothing was changed.
    Refused,
    /// The plan runs.
    Working,
    /// The plan runs and waits for something outside of this node.
    Waiting,
    /// All of the plan is done.
    Done,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The BIOS UUID of the VM that says it, if it knows one.
    pub machine: Option<BiosUuid>,
    /// How far it is.
    pub phase: Phase,
    /// The code of the first error that stands, of [`codes::CODES`]; none if none does.
    pub code: Option<String>,
    /// The same in words, or how far it is.
    pub words: String,
    /// Whether waiting does not mend that error: something that the VM was given, or its place, has to be another one.
    pub lasting: bool,
    /// How many times in succession what is under way was refused.
    pub times: u32,
    /// The public half of the join token that the VM was given, once it has tried to join with it.
    pub token: Option<String>,
    /// What tells the key from others by which the cluster is to know this worker, once it asks for its certificate: half of the
    /// SHA-256 of the public one, in hexadecimal. Control nodes note the same of whom they let in
    /// ([`crate::worker_records::LetIn`]). An earlier image says none.
    pub key: Option<String>,
    /// When it was said, in seconds of Unix time by the node's clock.
    pub at: u64,
}

/// Errors that stay until somebody gives the VM something else. Any other may pass: a lease changes, a former node of the name
/// is deleted, the cluster is upgraded, who answers in the cluster's place is gone.
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

/// Of these, those that a lease causes as well, from whoever answers as a DHCP server.
const OF_A_LEASE: &[Code] = &[codes::ADDRESS_PREFIX, codes::ADDRESS_DUPLICATE, codes::GATEWAY_OFF_SUBNET];

/// Whether waiting does not mend an error of this code. What the VM was given is judged before there is a plan; what has come
/// from the network since, nobody has proved but the cluster.
pub fn lasts(code: &str, has_plan: bool) -> bool {
    let is_of = |codes: &[Code]| codes.iter().any(|one| one.code == code);
    is_of(LASTING) && !(has_plan && is_of(OF_A_LEASE))
}

/// Whether a worker with this error joins again once it is given a new token.
pub fn asks_for_token(code: &str) -> bool {
    [codes::JOIN_CERTIFICATE_EXPIRED, codes::JOIN_TOKEN_MISSING].iter().any(|one| one.code == code)
}

impl Statement {
    /// The variable of a VMware VM that has it.
    pub const GUESTINFO: &str = "guestinfo.kaas.statement";

    /// What stands before it on the console.
    const SAID: &str = "kaas: statement ";

    /// Words that are not longer than a statement may have them.
    pub fn words(text: &str) -> String {
        text.chars().take(WORDS).collect()
    }

    /// Reads what a node has written; none if it is something else.
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

    /// The last one that a node has said on its console; none if it has said none since its power-on.
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
    fn what_was_said_last_counts_on_a_console_and_is_one_line() {
        let first = refusal();
        let last = Statement { phase: Phase::Working, code: None, lasting: false, times: 0, ..refusal() };
        assert_eq!(first.line().lines().count(), 1);
        let console = format!("[1.0] {}\r\nkaas: stopped\r\n{}\r\nkaas: statement {{half", first.line(), last.line());
        assert_eq!(Statement::last_said(&console), Some(last));
        assert_eq!(Statement::last_said("kaas: ready"), None);
        assert_eq!(Statement::read(first.to_string().as_bytes()), Some(first));
    }

    #[test]
    fn what_an_earlier_image_says_is_understood() {
        let mut said = serde_json::to_value(refusal()).unwrap();
        said.as_object_mut().unwrap().remove("key");
        let said = Statement::read(said.to_string().as_bytes());
        assert_eq!(said, Some(Statement { key: None, ..refusal() }));
    }

    #[test]
    fn what_is_no_statement_is_none() {
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
    fn what_lasts_is_an_error_that_the_documentation_has() {
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
