//! Lists in messages.

/// All texts with semicolons between them.
pub fn joined<T: ToString>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}

/// At most this many texts with commas between them, and the number of the others.
pub(super) fn listed<T: ToString>(all: &[T], most: usize) -> String {
    let shown = all.iter().take(most).map(T::to_string).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
