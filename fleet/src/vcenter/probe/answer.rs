//! Answers of rows, and the meaning of a failed call for a row.

use schemars::JsonSchema;
use serde::Serialize;

use crate::hypervisor::{Error, ErrorKind, Result};

/// The verdict of a row whose assumption is true.
pub const AS_ASSUMED: &str = "as assumed";
/// The verdict of a row whose assumption is false.
pub const DIFFERS: &str = "differs";
/// The verdict of a row that was not tried. Its observation has the reason.
pub const NOT_TRIED: &str = "not tried";

/// A row with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Answered {
    pub(crate) row: &'static str,
    pub(crate) assumption: &'static str,
    pub(crate) observation: String,
    pub(crate) verdict: &'static str,
}

/// Whether a row is as assumed, and what it saw.
pub(super) type Tried = Result<(bool, String)>;

pub(super) fn saw(is_assumed: bool, words: impl Into<String>) -> Tried {
    Ok((is_assumed, words.into()))
}

/// The answer of a row whose assumption is this fault.
pub(super) fn fault<T>(result: Result<T>, assumed: &str) -> Tried {
    match result {
        Ok(_) => saw(false, "no fault"),
        Err(error) if is_fault(&error, assumed) => saw(true, format!("the fault {assumed}")),
        Err(error) => Err(error),
    }
}

fn fault_of(error: &Error) -> Option<&vsphere::Fault> {
    error.source.chain().find_map(|cause| cause.downcast_ref::<vsphere::Error>()?.fault())
}

pub(super) fn is_fault(error: &Error, kind: &str) -> bool {
    fault_of(error).is_some_and(|fault| fault.is(kind))
}

/// Why a row cannot be tried.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Untried(&'static str);

pub(super) fn untried(why: &'static str) -> Error {
    Error::new(ErrorKind::Refused, Untried(why))
}

/// The result of an earlier row.
pub(super) fn made<T>(of: &Option<T>) -> Result<&T> {
    of.as_ref().ok_or_else(|| untried("an earlier row did not make what it uses"))
}

/// A type name or a privilege as a server writes it. Nothing else of a server's text gets into a report.
pub(super) fn word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || ['.', '_'].contains(c)).take(64).collect()
}

/// The verdict and the observation of a row.
pub(super) fn judged(tried: Tried) -> (&'static str, String) {
    let error = match tried {
        Ok((is_assumed, saw)) => return (if is_assumed { AS_ASSUMED } else { DIFFERS }, saw),
        Err(error) => error,
    };
    log::debug!("a row of the probe: {error}");
    match (error.source.downcast_ref::<Untried>(), fault_of(&error)) {
        (Some(Untried(why)), _) => (NOT_TRIED, (*why).to_owned()),
        (_, Some(fault)) if fault.is("NoPermission") => {
            (NOT_TRIED, format!("needs {}", word(fault.detail("privilegeId").unwrap_or_default())))
        }
        (_, Some(fault)) => (DIFFERS, format!("the fault {}", word(&fault.kind))),
        _ if matches!(error.kind, ErrorKind::Transient | ErrorKind::InDoubt) => {
            (NOT_TRIED, "no usable answer".to_owned())
        }
        _ => (DIFFERS, "the command refuses it: its debug log has the reason".to_owned()),
    }
}
