//! What the console's state exchanges with the world: what happens, what has to be done, and what came of it.

use contract::finding::Findings;
use contract::properties::Property;
use contract::secret::Secret;
use ratatui::crossterm::event::KeyEvent;

use super::facts::Facts;
use super::form::Scope;

/// Something that happens.
pub(super) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The terminal has another size.
    Resized,
    /// A second has passed.
    Tick,
    /// The node was looked at.
    Facts(Box<Facts>),
    /// An effect has ended.
    Outcome(Outcome),
}

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Try this password.
    Unlock(Secret),
    /// Find out what the properties of a form are.
    Present(Scope),
    /// Amend properties.
    Change(Vec<(&'static str, Secret)>),
    /// Give the console this password.
    SetPassword(Secret),
    /// Read the agent's journal.
    Logs,
    Restart,
    PowerOff,
    /// Gather a support bundle.
    Bundle,
    /// Find out what a reset would mean.
    LookAtReset,
    /// Find out what taking the data disk over would mean.
    LookAtForceAdopt,
    /// Force-adopt the data disk: what confirms that was typed.
    ForceAdopt(String),
    /// Erase the node: its name and, where the cluster ends with it, the cluster's were typed.
    Reset {
        node: String,
        cluster: Option<String>,
    },
    /// The administrator's shell, until it ends or is left alone.
    Shell,
}

pub(super) enum Outcome {
    /// The password was right.
    Unlocked,
    /// It was wrong or too early: the next one is looked at in so many seconds.
    Wait(u64),
    Present(Scope, Vec<(&'static Property, Secret)>),
    Done(String),
    /// Overrides were refused.
    Refused(Findings),
    /// Lines of the journal.
    Logs(Vec<String>),
    /// What a reset would mean, in words; the names that confirm it.
    Reset {
        words: String,
        node: String,
        /// The cluster's name, if that ends with the node.
        cluster: Option<String>,
    },
    /// What taking the data disk over would mean, in words.
    ForceAdopt {
        /// Whose it is, and who may still have it.
        words: String,
        /// What confirms it: the name of the node that the disk belongs to, and what is out of the ordinary.
        word: String,
    },
    /// The shell has ended, or could not be had: in words.
    ShellEnded(String),
    /// No key was pressed in the shell for too long: it goes on behind the lock.
    ShellLocked,
    Failed(String),
}
