//! Why an engine waits, pauses or turns: a stable code for programs, and words for users.

use std::fmt;

use contract::swap::Rejection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hypervisor::{Error, ErrorKind};
use crate::nodes::told;
use crate::schema;

/// As JSON it has the members `code` and `reason`, as a node's refusal has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    // Of a table of an engine, or the node's own, such as `drain.blocked`.
    /// Code of the reason.
    #[schemars(schema_with = "schema::word", example = &"workers.not-joined")]
    pub code: String,
    /// The same reason in words.
    #[serde(rename = "reason")]
    #[schemars(schema_with = "schema::sentence")]
    pub words: String,
}

impl Reason {
    /// A reason in these words, which may come from a node or the hypervisor: they are cut, and lose their control
    /// characters.
    pub fn new(code: &str, words: impl fmt::Display) -> Self {
        Self { code: code.to_owned(), words: told(&words.to_string()) }
    }

    /// The same, with what it is about in front.
    #[must_use]
    pub(crate) fn of(self, what: impl fmt::Display) -> Self {
        Self::new(&self.code, format!("{what}: {}", self.words))
    }
}

/// The error of a call. The kinds have the same codes in all engines.
impl From<Error> for Reason {
    fn from(Error { kind, source }: Error) -> Self {
        let code = match kind {
            ErrorKind::Transient => HYPERVISOR_TRANSIENT,
            ErrorKind::Changed => HYPERVISOR_CHANGED,
            ErrorKind::InDoubt => HYPERVISOR_IN_DOUBT,
            ErrorKind::Refused => HYPERVISOR_REFUSED,
            ErrorKind::Denied => HYPERVISOR_DENIED,
            ErrorKind::NotFound => HYPERVISOR_NOT_FOUND,
            // The lease is in the store.
            ErrorKind::Fenced => STORE,
        };
        Self::new(code, format!("{source:#}"))
    }
}

/// For people: the words, and the code to look up.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.words, self.code)
    }
}

/// A node's refusal keeps its own code.
impl From<Rejection> for Reason {
    fn from(Rejection { code, reason }: Rejection) -> Self {
        Self::new(&code, reason)
    }
}

/// A code of a refusal or of a reason, for the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    pub code: &'static str,
    pub meaning: &'static str,
    /// The usual remedy, for an operator with the project's commands.
    pub action: &'static str,
}

macro_rules! codes {
    ($table:ident; $($name:ident, $code:literal, $meaning:literal, $action:literal;)*) => {
        $(#[doc = $meaning] pub const $name: &str = $code;)*
        /// All codes, in the order of the documentation.
        pub const $table: &[$crate::engine::Code] =
            &[$($crate::engine::Code { code: $code, meaning: $meaning, action: $action }),*];
    };
}

pub(crate) use codes;

codes! {
    REASONS;
    HYPERVISOR_TRANSIENT, "hypervisor.transient", "The hypervisor cannot carry out the request now. The command tries again.", "Wait. If it continues, see the tasks and events of the vCenter.";
    HYPERVISOR_CHANGED, "hypervisor.changed", "A VM was changed after the upgrade read it, but not by the upgrade. The upgrade reads it again.", "Wait. The command reads the VM again.";
    HYPERVISOR_IN_DOUBT, "hypervisor.in-doubt", "The hypervisor's answer is lost. The command reads whether the request was carried out.", "Wait. The command reads the result.";
    HYPERVISOR_REFUSED, "hypervisor.refused", "The hypervisor refuses, and will refuse again. A node that is being swapped is rolled back; otherwise the upgrade waits for the operator.", "Correct the cause that the message names, then resume.";
    HYPERVISOR_DENIED, "hypervisor.denied", "A privilege on the hypervisor is missing. No node is rolled back for it: the rollback needs the privilege as well.", "Give the account the privileges of `kaas provider role`, then resume.";
    HYPERVISOR_NOT_FOUND, "hypervisor.not-found", "A VM or a disk no longer exists.", "Restore the VM or the disk that the message names, or abandon the operation.";
    STORE, "store.unavailable", "The store of the lease and the journal cannot be read or written.", "Make the datastore or the API server reachable, then resume.";
}
