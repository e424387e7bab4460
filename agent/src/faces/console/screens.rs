//! The console's screens and the entries of its menu.

use super::events::Effect;
use super::form::{Form, Scope};
use super::input::Input;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    ForceAdopt,
    Form(Scope),
    Password,
    Certificates,
    Versions,
    Logs,
    Bundle,
    Restart,
    PowerOff,
    Shell,
    Reset,
}

impl Item {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::ForceAdopt => "Force-adopt the data disk",
            Self::Form(scope) => scope.title(),
            Self::Password => "Console password",
            Self::Certificates => "Certificates",
            Self::Versions => "Versions and upgrade state",
            Self::Logs => "Logs of the agent",
            Self::Bundle => "Support bundle",
            Self::Restart => "Restart",
            Self::PowerOff => "Power off",
            Self::Shell => "Shell",
            Self::Reset => "Reset",
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Screen {
    Status { scroll: usize },
    Unlock(Input),
    Menu { selected: usize },
    Form(Form),
    Password { first: Input, second: Input, at_second: bool },
    Confirm(Confirm),
    Certificates { scroll: usize },
    Versions { scroll: usize },
    Logs { lines: Vec<String>, scroll: usize },
}

/// An action that needs a typed confirmation.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Confirm {
    pub(super) title: &'static str,
    pub(super) what: String,
    pub(super) word: String,
    pub(super) typed: Input,
    pub(super) wrong: bool,
    pub(super) effect: Effect,
}
