//! Single values as objects write them.

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
