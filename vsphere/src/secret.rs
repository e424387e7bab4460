//! Texts that are never shown.

use std::fmt;

use zeroize::Zeroizing;

/// A password. No format shows it, and its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("pa$$word");
        assert_eq!(format!("{secret:?} {secret:#?}"), "Secret Secret");
        assert_eq!(secret.expose(), "pa$$word");
    }
}
