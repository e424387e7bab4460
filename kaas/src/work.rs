//! The options of each command that waits for a state of machines: output, limit and takeover. Also the text of an engine's
//! notices. Pure.

use std::fmt::Display;

use clap::Args;
use fleet::Notice;
use fleet::lease::TakeOver;

use crate::output::Output;

/// The options of a command that waits for a state.
#[derive(Args)]
pub struct Work {
    /// Output format. With JSON, progress goes to standard error
    #[arg(long, default_value = "text")]
    pub output: Output,
    #[command(flatten)]
    pub waiting: PauseLimitArgs,
    #[command(flatten)]
    pub over: TakeOverArgs,
}

/// The limit of a wait.
#[derive(Args)]
pub struct PauseLimitArgs {
    /// Seconds to wait while nothing can be done, such as for a drain that a PodDisruptionBudget blocks or a cluster that does
    /// not form. Then the command ends with status 3, and can be continued
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    pub pause_limit: u64,
}

/// Whose lease may be taken over.
#[derive(Args)]
pub struct TakeOverArgs {
    /// Take over from a command that has not released its lease, because it runs on another machine or hangs. That command
    /// starts nothing more. This one begins after the requests of that command have ended
    #[arg(long)]
    pub take_over: bool,
}

impl TakeOverArgs {
    /// From whom the lease may be acquired.
    pub fn take(&self) -> TakeOver {
        if self.take_over { TakeOver::FromAnyone } else { TakeOver::FromTheDead }
    }
}

/// The text of an engine's notice. `begun` gives the text of a started action.
pub fn told<Action, Wait: Display>(notice: &Notice<'_, Action, Wait>, begun: impl Fn(&Action) -> String) -> String {
    match notice {
        Notice::TakingOver(words) => (*words).to_owned(),
        Notice::Staging => "importing the image".to_owned(),
        Notice::Begun(action) => begun(action),
        Notice::Waits(wait) => format!("waiting: {wait}"),
    }
}
