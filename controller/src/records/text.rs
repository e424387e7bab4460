//! Single values as objects write them: UUIDs, addresses, digests, times.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// An object and a record of `fleet` do not match. Neither may be used then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {text:?}, {why}")]
pub struct Mismatch {
    field: &'static str,
    text: String,
    why: String,
}

impl Mismatch {
    /// An unexpected text in a field.
    pub(super) fn new(field: &'static str, text: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field, text: text.into(), why: why.into() }
    }
}

/// Parses a value. `what` names the expected form.
pub(super) fn read<T: std::str::FromStr>(field: &'static str, text: &str, what: &str) -> Result<T, Mismatch> {
    text.parse().map_err(|_| Mismatch::new(field, text, format!("which is no {what}")))
}

/// As [`read`], for an optional value.
pub(super) fn read_given<T: std::str::FromStr>(
    field: &'static str,
    text: Option<&str>,
    what: &str,
) -> Result<Option<T>, Mismatch> {
    text.map(|text| read(field, text, what)).transpose()
}

/// The prefix of digests in objects. `fleet` stores digests of images without it.
const SCHEME: &str = "sha256:";

/// A digest for an object. `None` if it is empty.
pub fn digest(digits: &str) -> Option<String> {
    (!digits.is_empty()).then(|| format!("{SCHEME}{digits}"))
}

/// The hexadecimal digits of an object's digest. `None` if it has another form.
pub fn digits_of(digest: &str) -> Option<String> {
    digest.strip_prefix(SCHEME).map(str::to_owned)
}

/// As [`digits_of`], for a required field.
pub(super) fn digits(field: &'static str, digest: &str) -> Result<String, Mismatch> {
    digits_of(digest).ok_or_else(|| Mismatch::new(field, digest, "which is no SHA-256"))
}

/// Seconds of Unix time as an object writes them.
pub(super) fn time(field: &'static str, seconds: u64) -> Result<Time, Mismatch> {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map(Time).ok_or_else(|| Mismatch::new(field, seconds.to_string(), "which is no time"))
}

/// As [`time`], with `None` for zero.
pub(super) fn time_if_any(field: &'static str, seconds: u64) -> Result<Option<Time>, Mismatch> {
    if seconds == 0 { Ok(None) } else { time(field, seconds).map(Some) }
}

/// A time of an object in seconds of Unix time.
pub(super) fn seconds(field: &'static str, time: &Time) -> Result<u64, Mismatch> {
    let seconds = time.0.as_second();
    u64::try_from(seconds).map_err(|_| Mismatch::new(field, time.0.to_string(), "which is before 1970"))
}
