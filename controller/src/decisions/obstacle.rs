//! A finding that blocks a cluster, with its message for operators: the reason of its `Preflight`.

use crate::objects::TenantClusterReason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    pub reason: TenantClusterReason,
    /// The subject, and what to do.
    pub message: String,
}

impl Obstacle {
    pub fn new(reason: TenantClusterReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// One obstacle for several. The first decides the reason. The messages of all with this reason are joined. `None` if there
    /// are no obstacles.
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
    fn obstacles_of_the_first_reason_are_joined() {
        use TenantClusterReason::{ProviderNotReady, ReferenceMissing};
        let all = [(ReferenceMissing, "a"), (ProviderNotReady, "b"), (ReferenceMissing, "c")];
        let all = all.map(|(reason, words)| Obstacle::new(reason, words));
        assert_eq!(Obstacle::of_all(all.to_vec()), Some(Obstacle::new(ReferenceMissing, "a; c")));
        assert_eq!(Obstacle::of_all(Vec::new()), None);
    }
}
