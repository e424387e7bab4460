//! Something that is in the way of a cluster, in words for people: why its `Preflight` is as it is.

use crate::objects::TenantClusterReason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// As the condition has it.
    pub reason: TenantClusterReason,
    /// What it is about, and what to do.
    pub message: String,
}

impl Obstacle {
    /// An obstacle in these words.
    pub fn new(reason: TenantClusterReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// One for several: the first says why, and the words of all that are so for the same reason are told. None for none.
    pub fn of_all(all: Vec<Self>) -> Option<Self> {
        let reason = all.first()?.reason;
        let words: Vec<String> =
            all.into_iter().filter(|other| other.reason == reason).map(|obstacle| obstacle.message).collect();
        Some(Self::new(reason, words.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_told_as_the_first_one_with_all_that_are_like_it() {
        use TenantClusterReason::{ProviderNotReady, ReferenceMissing};
        let all = [(ReferenceMissing, "a"), (ProviderNotReady, "b"), (ReferenceMissing, "c")];
        let all = all.map(|(reason, words)| Obstacle::new(reason, words));
        assert_eq!(Obstacle::of_all(all.to_vec()), Some(Obstacle::new(ReferenceMissing, "a; c")));
        assert_eq!(Obstacle::of_all(Vec::new()), None);
    }
}
