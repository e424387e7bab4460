//! Messages between the console's state and the outside: events, effects, and their outcomes.

use contract::finding::Findings;
use contract::properties::Property;
use contract::secret::Secret;
use ratatui::crossterm::event::KeyEvent;

use super::facts::Facts;
use super::form::Scope;

pub(super) enum Event {
    Key(KeyEvent),
    Paste(String),
    Resized,
    /// A second has passed.
    Tick,
    Facts(Box<Facts>),
    Outcome(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Try this password.
    Unlock(Secret),
    Present(Scope),
    Change(Vec<(&'static str, Secret)>),
    SetPassword(Secret),
    Logs,
    Restart,
    PowerOff,
    Bundle,
    LookAtReset,
    LookAtForceAdopt,
    /// Force-adopt the data disk. The text is the typed confirmation.
    ForceAdopt(String),
    /// Erase the node. Its name was typed, and the cluster's name if the cluster ends with it.
    Reset {
        node: String,
        cluster: Option<String>,
    },
    /// Open the administrator's shell, until it ends or is idle for too long.
    Shell,
}

pub(super) enum Outcome {
    /// The password was right.
    Unlocked,
    /// It was wrong or too early. The next one is accepted in so many seconds.
    Wait(u64),
    Present(Scope, Vec<(&'static Property, Secret)>),
    Done(String),
    Refused(Findings),
    Logs(Vec<String>),
    /// The effects of a reset, in words, and the names that confirm it.
    Reset {
        words: String,
        node: String,
        /// The cluster's name, if the cluster ends with the node.
        cluster: Option<String>,
    },
    /// The effects of taking over the data disk.
    ForceAdopt {
        /// The disk's node, and the VM that may still hold it.
        words: String,
        /// The text that confirms it: the name of the disk's node, and the options for everything out of the ordinary.
        word: String,
    },
    /// The shell has ended, or could not be started: in words.
    ShellEnded(String),
    /// No key was pressed in the shell for too long. It continues behind the lock.
    ShellLocked,
    Failed(String),
}
