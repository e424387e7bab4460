//! The result of a look. A look that has failed is not an answer: a condition is False only by what is known.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed<T> {
    Known(T),
    /// It could not be read, for this reason.
    Unknown(String),
}

impl<T> Default for Observed<T> {
    /// Without a look.
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}
