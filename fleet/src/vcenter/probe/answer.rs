//! Answers of rows, and the meaning of a failed call for a row.

use std::fmt;

use serde::Serialize;

use crate::hypervisor::{Error, Kind, Result};

/// The verdict of a row whose assumption is true.
pub const AS_ASSUMED: &str = "as assumed";
/// The verdict of a row whose assumption is false.
pub const DIFFERS: &str = "differs";
/// The verdict of a row that was not tried. Its observation has the reason.
pub const NOT_TRIED: &str = "not tried";

/// A row with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answered {
    pub(crate) row: &'static str,
    pub(crate) assumption: &'static str,
    pub(crate) observation: String,
    pub(crate) verdict: &'static str,
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, assumption, observation, verdict } = self;
        write!(f, "{row}: {verdict}\n    assumed: {assumption}\n    seen: {observation}")
    }
}

/// Whether a row is as assumed, and what it saw.
pub(super) type Tried = Result<(bool, String)>;

/// The answer of a row.
pub(super) fn saw(is_assumed: bool, words: impl Into<String>) -> Tried {
    Ok((is_assumed, words.into()))
}

/// The answer of a row whose assumption is this fault.
pub(super) fn fault<T>(result: Result<T>, assumed: &str) -> Tried {
    match result {
        Ok(_) => saw(false, "no fault"),
        Err(error) if fault_of(&error).is_some_and(|fault| fault.is(assumed)) => {
            saw(true, format!("the fault {assumed}"))
        }
        Err(error) => Err(error),
    }
}

pub(super) fn fault_of(error: &Error) -> Option<&vsphere::Fault> {
    error.source.chain().find_map(|cause| cause.downcast_ref::<vsphere::Error>()?.fault())
}

/// Why a row cannot be tried.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Untried(String);

pub(super) fn untried(why: impl Into<String>) -> Error {
    Error::new(Kind::Refused, Untried(why.into()))
}

/// What an earlier row has made.
pub(super) fn made<T>(of: &Option<T>) -> Result<&T> {
    of.as_ref().ok_or_else(|| untried("an earlier row did not make what it uses"))
}

/// A type name or a privilege as a server writes it. Nothing else of a server's text gets into a report.
pub(super) fn word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').take(64).collect()
}

/// The verdict and the observation of a row.
pub(super) fn judged(tried: Tried) -> (&'static str, String) {
    let error = match tried {
        Ok((is_assumed, saw)) => return (if is_assumed { AS_ASSUMED } else { DIFFERS }, saw),
        Err(error) => error,
    };
    log::debug!("a row of the probe: {error}");
    match (error.source.downcast_ref::<Untried>(), fault_of(&error)) {
        (Some(Untried(why)), _) => (NOT_TRIED, why.clone()),
        (_, Some(fault)) if fault.is("NoPermission") => {
            (NOT_TRIED, format!("needs {}", word(fault.detail("privilegeId").unwrap_or("a privilege"))))
        }
        (_, Some(fault)) => (DIFFERS, format!("the fault {}", word(&fault.kind))),
        _ if matches!(error.kind, Kind::Transient | Kind::InDoubt) => {
            (NOT_TRIED, "vCenter gave no usable answer".to_owned())
        }
        _ => (DIFFERS, "the command refuses what it sees: see its log with --verbose".to_owned()),
    }
}
