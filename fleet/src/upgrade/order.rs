//! The order in which the nodes go back, as the journal notes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The order of nodes that go back one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The one that was touched last comes first.
    #[default]
    LastFirst,
    /// These come first: no other one may leave before they are back.
    First(IllNodes),
    /// All off, all on, at the operator's request.
    AtOnce,
    /// All off, all on: etcd has no quorum. If it has one again before the first node is stopped, another order is due.
    WithoutQuorum,
}

/// The nodes that are unhealthy on the new image, by their places in the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Noted", into = "Noted")]
pub struct IllNodes {
    /// Those whose members of etcd do not do their part: all off, all on. None of them becomes healthy before the
    /// members of the others are back.
    pub together: Vec<usize>,
    /// Those whose members do their part: one by one, after the others. etcd may need each of them.
    pub one_by_one: Vec<usize>,
}

/// The form in the journal. Version 0.1 knew only of nodes that go back together, and noted them as a list.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Noted {
    Together(Vec<usize>),
    Both {
        together: Vec<usize>,
        #[serde(rename = "one-by-one")]
        one_by_one: Vec<usize>,
    },
}

impl From<Noted> for IllNodes {
    fn from(noted: Noted) -> Self {
        match noted {
            Noted::Together(together) => Self { together, one_by_one: Vec::new() },
            Noted::Both { together, one_by_one } => Self { together, one_by_one },
        }
    }
}

impl From<IllNodes> for Noted {
    fn from(IllNodes { together, one_by_one }: IllNodes) -> Self {
        if one_by_one.is_empty() { Self::Together(together) } else { Self::Both { together, one_by_one } }
    }
}

impl Order {
    /// The order in which these come first.
    pub(super) fn first(ill: IllNodes) -> Self {
        if ill.nodes().next().is_none() { Self::LastFirst } else { Self::First(ill) }
    }

    /// The nodes that come first because they are unhealthy.
    pub(super) fn ill(&self) -> Option<&IllNodes> {
        if let Self::First(ill) = self { Some(ill) } else { None }
    }

    pub(super) fn is_usual(&self) -> bool {
        *self == Self::LastFirst
    }
}

impl IllNodes {
    /// All of them, by their places in the plan.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.together.iter().chain(&self.one_by_one).copied()
    }
}
