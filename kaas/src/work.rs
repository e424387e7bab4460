//! What every command is told that works on machines until something is so: how to say it, how long to wait, and from whom
//! it may take over; and what it tells meanwhile. Does nothing.

use std::fmt::Display;

use clap::Args;
use fleet::Notice;
use fleet::lease::TakeOver;

use crate::output::Output;

/// How a command works until something is so.
#[derive(Args)]
pub struct Work {
    /// How to say it. With JSON, progress goes to standard error.
    #[arg(long, default_value = "text")]
    pub output: Output,
    #[command(flatten)]
    pub waiting: PauseLimitArgs,
    #[command(flatten)]
    pub over: TakeOverArgs,
}

/// How long a run waits.
#[derive(Args)]
pub struct PauseLimitArgs {
    /// How long to wait for what cannot be done now, such as a drain that a PodDisruptionBudget blocks or a cluster that does
    /// not form, in seconds. Then the command ends with status 3, and can be continued.
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    pub pause_limit: u64,
}

/// From whom the deployment may be taken.
#[derive(Args)]
pub struct TakeOverArgs {
    /// Take over from a command that has not given the deployment back, on another machine or hanging. It does nothing
    /// more then; this one begins after it can have begun nothing more, and what it began has ended.
    #[arg(long)]
    pub take_over: bool,
}

impl TakeOverArgs {
    /// What the holder of the deployment is taken for.
    pub fn take(&self) -> TakeOver {
        if self.take_over { TakeOver::FromAnyone } else { TakeOver::FromTheDead }
    }
}

/// What an engine tells, in words; `begun` has those of what is begun.
pub fn told<Action, Wait: Display>(notice: &Notice<'_, Action, Wait>, begun: impl Fn(&Action) -> String) -> String {
    match notice {
        Notice::TakingOver(words) => (*words).to_owned(),
        Notice::Staging => "laying the image ready".to_owned(),
        Notice::Begun(action) => begun(action),
        Notice::Waits(wait) => format!("waiting: {wait}"),
    }
}
