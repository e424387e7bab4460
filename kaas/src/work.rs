//! The options of each command that waits for a state of machines: output, timeout and takeover. Also the text of an engine's
//! notices and refusals. Pure.

use std::fmt::Display;
use std::time::Duration;

use clap::Args;
use fleet::Notice;
use fleet::lease::{Held, TakeOver};
use fleet::upgrade::{CODES, Damaged, OtherCluster, Refusals};

use crate::output::{Output, shell_word};

/// The options of a command that waits for a state.
#[derive(Args)]
pub struct Work {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub waiting: TimeoutArgs,
    #[command(flatten)]
    pub over: TakeOverArgs,
}

/// The limit of a wait.
#[derive(Args)]
pub struct TimeoutArgs {
    /// How long to wait while nothing changes, for example for a drain that a PodDisruptionBudget blocks. After that, the command
    /// ends with status 3. Run it again to continue
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration, help_heading = "Waiting")]
    pub timeout: Duration,
}

/// Reads a duration such as `30m` or `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text)
}

/// Whose lease may be taken over.
#[derive(Args)]
pub struct TakeOverArgs {
    /// Take over from a command that has not released its lease, because it runs on another machine or hangs. That command
    /// starts nothing more. This one begins after the requests of that command have ended
    #[arg(long, help_heading = "Waiting")]
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

/// The commands on upgrades of the cluster that the operator has named.
#[derive(Clone, Debug)]
pub struct UpgradeCommands {
    program: &'static str,
    options: String,
}

impl UpgradeCommands {
    /// `options` are the names and values of the options that name the cluster.
    pub fn new(program: &'static str, options: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let options = options.into_iter().map(|(name, value)| format!(" --{name} {}", shell_word(&value)));
        Self { program, options: options.collect() }
    }

    /// The command with this verb, as the operator types it. Further options follow the verb.
    pub fn with(&self, verb: &str) -> String {
        format!("{} control upgrade {verb}{}", self.program, self.options)
    }
}

/// Adds the remedy of a refusal, such as a command or an option.
pub fn advised(error: anyhow::Error) -> anyhow::Error {
    advised_with(error, &UpgradeCommands::new("kaas", [("file", "FILE".to_owned())]))
}

/// As [`advised`], with commands on upgrades of this cluster.
pub fn advised_with(error: anyhow::Error, commands: &UpgradeCommands) -> anyhow::Error {
    if let Some(OtherCluster { here, .. }) = error.downcast_ref() {
        return anyhow::anyhow!(
            "{error:#}. If this is the deployment's cluster, add --other-cluster {here}. The stamps of the VMs show which deployment \
             owns them"
        );
    }
    if let Some(Damaged { plan, hold, .. }) = error.downcast_ref() {
        let confirm = plan.as_ref().map_or_else(|| hold.to_string(), |plan| plan.id.to_string());
        return anyhow::anyhow!(
            "{error:#}. If no version of this program can continue that upgrade, `{}` ends it where it is",
            commands.with(&format!("abandon --confirm {confirm}"))
        );
    }
    if error.is::<Held>() {
        return anyhow::anyhow!(
            "{error:#}. Wait until it ends. If its machine has restarted since, it has ended. If it runs on another machine, hangs \
             or has no name, make sure that it is stopped. Then take over with --take-over"
        );
    }
    let Some(refusals) = error.downcast_ref::<Refusals>() else { return error };
    let action = |code: &str| CODES.iter().find(|known| known.code == code).map(|known| known.action);
    let mut actions: Vec<&str> = refusals.0.iter().filter_map(|refusal| action(refusal.code)).collect();
    actions.dedup();
    anyhow::anyhow!("{error}\nhelp: {}", actions.join("\nhelp: "))
}

#[cfg(test)]
mod tests {
    use fleet::upgrade::Refusal;

    use super::*;

    #[test]
    fn refusal_names_the_option_that_resolves_it() {
        let refused = |code| {
            let refusal = Refusal { code, subject: "the OVA".to_owned(), reason: "a reason".to_owned() };
            advised(Refusals(vec![refusal]).into()).to_string()
        };
        assert!(refused("upgrade.downgrade").ends_with("give `--downgrade`, and swap the nodes one by one."));
        assert!(refused("upgrade.publisher").contains("--publisher"));
        assert!(refused("upgrade.node-not-ready").contains("`kaas-agent status`"));
        assert!(refused("upgrade.other-cluster").contains("--other-cluster"));
        let (of, here) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
        assert!(advised(OtherCluster { of, here }.into()).to_string().contains(&format!("--other-cluster {here}")));
        assert!(refused("upgrade.etcd").contains("a reason\nhelp: Give an image"));
    }
}
