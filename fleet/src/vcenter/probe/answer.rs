//! Answers of rows, and what a failed call means for a row.

use std::fmt;

use serde::Serialize;
use vsphere::Fault;

use crate::hypervisor::{Error, Kind};

/// Whether the vCenter is as it is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The vCenter did what this program assumes.
    AsAssumed,
    /// The vCenter did something else.
    Differs,
    /// The row was not tried. The observation has the reason.
    NotTried,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsAssumed => "as assumed",
            Self::Differs => "differs",
            Self::NotTried => "not tried",
        })
    }
}

/// A row with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answered {
    /// The row.
    pub row: &'static str,
    /// What this program assumes.
    pub assumption: &'static str,
    /// What the vCenter did.
    pub observation: String,
    /// Whether both are the same.
    pub verdict: Verdict,
}

impl Answered {
    pub(super) fn of(row: &'static str, assumption: &'static str, tried: Tried) -> Self {
        let (observation, verdict) = match tried {
            Ok(Answer { is_assumed: true, saw }) => (saw, Verdict::AsAssumed),
            Ok(Answer { saw, .. }) | Err(Failed::Differs(saw)) => (saw, Verdict::Differs),
            Err(Failed::NotTried(why)) => (why, Verdict::NotTried),
            Err(Failed::Over(_)) => ("the folder belongs to another probe now".to_owned(), Verdict::NotTried),
        };
        Self { row, assumption, observation, verdict }
    }
}

/// What a row saw.
pub(super) struct Answer {
    is_assumed: bool,
    saw: String,
}

/// Why a row has no answer of its own.
pub(super) enum Failed {
    NotTried(String),
    Differs(String),
    /// Another probe has taken over: no further row may change anything.
    Over(Error),
}

pub(super) type Tried = std::result::Result<Answer, Failed>;

/// What was seen, and whether it was assumed.
pub(super) fn judged(is_assumed: bool, saw: impl Into<String>) -> Tried {
    Ok(Answer { is_assumed, saw: saw.into() })
}

/// A row whose assumption is a fault of one of these types.
pub(super) fn fault<T>(result: vsphere::Result<T>, assumed: &[&str]) -> Tried {
    match result {
        Ok(_) => judged(false, "no fault"),
        Err(error) if error.lacks_privilege() => Err(error.into()),
        Err(error) => match error.fault() {
            Some(fault) => {
                judged(assumed.iter().any(|kind| fault.is(kind)), format!("the fault {}", word(&fault.kind)))
            }
            None => Err(error.into()),
        },
    }
}

/// A type name or a privilege as a server writes it, and nothing else that a server could write there.
pub(super) fn word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').take(64).collect()
}

fn of_fault(fault: &Fault) -> Failed {
    match fault.detail("privilegeId") {
        Some(privilege) if fault.is("NoPermission") => Failed::NotTried(format!("needs {}", word(privilege))),
        _ => Failed::Differs(format!("the fault {}", word(&fault.kind))),
    }
}

impl From<vsphere::Error> for Failed {
    fn from(error: vsphere::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        log::debug!("a row of the probe: {error}");
        if error.kind == Kind::Fenced {
            return Self::Over(error);
        }
        let fault = error.source.chain().find_map(|cause| cause.downcast_ref::<vsphere::Error>()?.fault());
        match (error.kind, fault) {
            (_, Some(fault)) => of_fault(fault),
            (Kind::Denied, None) => Self::NotTried("needs a privilege that vCenter does not name".to_owned()),
            (Kind::Refused | Kind::Changed | Kind::NotFound, None) => {
                Self::Differs("the command refuses what it sees: run it with --verbose".to_owned())
            }
            (Kind::Transient | Kind::InDoubt | Kind::Fenced, None) => {
                Self::NotTried("vCenter gave no usable answer".to_owned())
            }
        }
    }
}
