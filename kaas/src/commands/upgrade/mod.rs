//! `kaas control upgrade …` and `kaas control adopt`: runs each command on a deployment, and chooses its exit status.

mod adopt;
mod arguments;
pub mod certificate;
mod connection;
mod describe;
mod words;

use std::process::ExitCode;
use std::time::Duration;

use fleet::upgrade::{Adoption, Direction, KubernetesOptions, Outcome, Request, RunOutcome, UpgradeStatus};
use schemars::JsonSchema;
use serde::Serialize;

pub use self::adopt::AdoptedVms;
use self::arguments::{AbandonTarget, ChangeArgs, ResumeArgs};
pub use self::arguments::{Adopt, Upgrade};
pub use self::certificate::{Certificate, RenewedNodes};
use self::connection::MissingCredentials;
use crate::output::{Output, PAUSED, STOPPED, ended};
use crate::signals::SignalPolicy;
use crate::work::UpgradeCommands;

/// Runs one of the commands. Exit statuses: 0 if it is done, 3 if it waits for something or for the operator, 4 if nodes were
/// rolled back.
pub fn run(command: Upgrade) -> anyhow::Result<ExitCode> {
    let what = command.what();
    match command {
        Upgrade::Plan { wanted, at, whose } => at.looking(what, Some(&whose), async |deployment, site| {
            let plan = deployment.plan(&site.ova(&wanted.ova)?, &wanted.options(at.cluster.file.as_deref())?).await?;
            at.output.result(&plan, || describe::text(&plan))
        }),
        Upgrade::Apply { wanted, on } if on.dry_run => {
            let ChangeArgs { at, over } = &on.change;
            at.looking(what, Some(&on.whose), async |deployment, site| {
                let options = wanted.options(at.cluster.file.as_deref())?;
                let plan = deployment.plan_over(&site.ova(&wanted.ova)?, &options, over.take()).await?;
                at.output.result(&plan, || describe::text(&plan))
            })
        }
        Upgrade::Apply { wanted, on } => on.with(what, async |deployment, site| {
            let options = wanted.options(on.change.at.cluster.file.as_deref())?;
            let went = deployment.apply(&site.ova(&wanted.ova)?, &options, on.change.over.take()).await?;
            arrived(on.output(), &on.change.at.commands(), &went, Some(Outcome::Upgraded))
        }),
        Upgrade::Resume { on, .. } if on.dry_run => preview(&on, what, MissingCredentials::Continue, Request::Resume),
        Upgrade::Resume { ova, on } => on.with_or_without_nodes(what, async |deployment, _| {
            // A resumed rollback, commit or abandonment ends as such.
            let wanted = match deployment.status().await?.direction {
                Direction::Back | Direction::Abandon => None,
                Direction::Forward => Some(Outcome::Upgraded),
                Direction::Commit => Some(Outcome::Committed),
            };
            let went = deployment.go_on(Request::Resume, ova, on.change.over.take()).await?;
            arrived(on.output(), &on.change.at.commands(), &went, wanted)
        }),
        Upgrade::Rollback { all_at_once, on } => {
            let verb = if all_at_once { Request::RollbackAtOnce } else { Request::Rollback };
            if on.dry_run {
                return preview(&on, what, MissingCredentials::Continue, verb);
            }
            on.with_or_without_nodes(what, async |deployment, _| {
                let went = deployment.go_on(verb, None, on.change.over.take()).await?;
                arrived(on.output(), &on.change.at.commands(), &went, Some(Outcome::RolledBack))
            })
        }
        Upgrade::Commit(on) if on.dry_run => preview(&on, what, MissingCredentials::Fail, Request::Commit),
        Upgrade::Commit(on) => on.with(what, async |deployment, _| {
            let went = deployment.go_on(Request::Commit, None, on.change.over.take()).await?;
            arrived(on.output(), &on.change.at.commands(), &went, Some(Outcome::Committed))
        }),
        Upgrade::Abandon { confirm, dry_run, change: ChangeArgs { at, over }, whose } => {
            let ending = if dry_run { SignalPolicy::AtOnce } else { SignalPolicy::WhereItCanBeContinued };
            at.with(what, Some(&whose), Duration::ZERO, MissingCredentials::Continue, ending, async |deployment, _| {
                match (confirm, dry_run) {
                    (AbandonTarget::Upgrade(id), true) => {
                        let preview = deployment.preview_abandon(id, over.take()).await?;
                        at.output.result(&preview, || words::preview(&preview))
                    }
                    (AbandonTarget::Hold(number), true) => {
                        let preview = deployment.preview_unread(number, over.take()).await?;
                        at.output.result(&preview, || words::unread(&preview))
                    }
                    (AbandonTarget::Upgrade(id), false) => {
                        let went = deployment.abandon(id, over.take()).await?;
                        arrived(at.output, &at.commands(), &went, Some(Outcome::Abandoned))
                    }
                    (AbandonTarget::Hold(number), false) => {
                        let end = deployment.abandon_unread(number, over.take()).await?;
                        at.output.result(&end, || words::abandoned_unread(&end))
                    }
                }
            })
        }
        Upgrade::Kubernetes { to, dry_run, drain_timeout, timeout, change, whose } => {
            let ChangeArgs { at, over } = change;
            let options = KubernetesOptions { to, drain_seconds: drain_timeout.as_secs(), limit: timeout };
            if dry_run {
                return at.looking(what, Some(&whose), async |deployment, _| {
                    let plan = deployment.plan_kubernetes_over(&options, over.take()).await?;
                    at.output.result(&plan, || words::kubernetes(&plan))
                });
            }
            at.changing(what, Some(&whose), Duration::ZERO, async |deployment, site| {
                let done = deployment.upgrade_kubernetes(&options, over.take()).await?;
                let hint = site.workers_hint(&done.to)?;
                let upgraded = UpgradedKubernetes { to: done.to };
                at.output.result(&upgraded, || all_run(&upgraded.to, hint.as_deref()))
            })
        }
        Upgrade::Status { at } => at.with(
            what,
            None,
            Duration::ZERO,
            MissingCredentials::Continue,
            SignalPolicy::AtOnce,
            async |deployment, _| {
                let status = deployment.status().await?;
                at.output.result(&status, || words::status(&status, &at.commands()))
            },
        ),
    }
}

/// Shows what a request to the last upgrade would do.
fn preview(on: &ResumeArgs, what: &str, lacking: MissingCredentials, verb: Request) -> anyhow::Result<ExitCode> {
    let ChangeArgs { at, over } = &on.change;
    at.with(what, Some(&on.whose), Duration::ZERO, lacking, SignalPolicy::AtOnce, async |deployment, _| {
        let preview = deployment.preview(verb, over.take()).await?;
        at.output.result(&preview, || words::preview(&preview))
    })
}

/// `kaas control adopt`: adopts VMs that were imported by hand.
pub fn adopt(arguments: &Adopt) -> anyhow::Result<ExitCode> {
    let ChangeArgs { at, over } = &arguments.change;
    if arguments.dry_run {
        return at.looking("control adopt", None, async |deployment, _| {
            let adoptions = deployment.adoptable().await?;
            at.output.result(&AdoptedVms::of(&adoptions, true), || adopt::plan(&adoptions))
        });
    }
    at.confirming(
        "control adopt",
        async |deployment| adopt::confirm(deployment, arguments.yes, at.output).await,
        async |deployment, adoptions: Vec<Adoption>| {
            deployment.adopt(&adoptions, over.take()).await?;
            AdoptedVms::of(&adoptions, false).report(at.output)
        },
    )
}

/// The output of `kubernetes` without `--dry-run`.
#[derive(Serialize, JsonSchema)]
pub struct UpgradedKubernetes {
    /// Minor version that all control-plane nodes run.
    to: String,
}

/// The message after an upgrade of Kubernetes. `hint` is about workers, which the upgrade does not include.
fn all_run(minor: &str, hint: Option<&str>) -> String {
    let hint = hint.map(|hint| format!("; the workers stay as they are. {hint}")).unwrap_or_default();
    format!("all control-plane nodes run Kubernetes {minor}{hint}")
}

/// Writes the result of a run, and returns its exit status.
fn arrived(
    output: Output,
    commands: &UpgradeCommands,
    (arrived, status): &(RunOutcome, UpgradeStatus),
    wanted: Option<Outcome>,
) -> anyhow::Result<ExitCode> {
    let exit = match arrived {
        RunOutcome::Ended(outcome) if wanted.is_none_or(|wanted| wanted == *outcome) => 0,
        RunOutcome::Ended(_) | RunOutcome::NodeIsBack(_) => STOPPED,
        RunOutcome::Paused(_) | RunOutcome::Cancelled => PAUSED,
    };
    if output.value(status)? {
        return Ok(ExitCode::from(exit));
    }
    Ok(ended(exit, &words::status(status, commands)))
}

#[cfg(test)]
mod tests {
    use fleet::upgrade::Reason;
    use serde_json::json;

    use super::*;
    use crate::commands::schemas::tests::fits;

    #[test]
    fn kubernetes_upgrade_ends_with_hint_for_workers() {
        assert_eq!(all_run("1.36", None), "all control-plane nodes run Kubernetes 1.36");
        fits("upgrade-kubernetes", &UpgradedKubernetes { to: "1.36".to_owned() });
        let told = all_run("1.36", Some("Replace them"));
        assert_eq!(told, "all control-plane nodes run Kubernetes 1.36; the workers stay as they are. Replace them");
    }

    #[test]
    fn exit_status_is_done_paused_or_rolled_back() {
        let reason: Reason = serde_json::from_value(json!({"code": "upgrade.waiting", "reason": "a test"})).unwrap();
        let ended = RunOutcome::Ended;
        for (arrived_at, wanted, expected) in [
            (ended(Outcome::Upgraded), Some(Outcome::Upgraded), 0),
            (ended(Outcome::Committed), Some(Outcome::Committed), 0),
            (ended(Outcome::RolledBack), Some(Outcome::RolledBack), 0),
            (ended(Outcome::Abandoned), Some(Outcome::Abandoned), 0),
            // A resumed rollback may end as one.
            (ended(Outcome::RolledBack), None, 0),
            (ended(Outcome::RolledBack), Some(Outcome::Upgraded), 4),
            (ended(Outcome::Upgraded), Some(Outcome::RolledBack), 4),
            (RunOutcome::NodeIsBack(0), Some(Outcome::Upgraded), 4),
            (RunOutcome::NodeIsBack(0), None, 4),
            (RunOutcome::Paused(reason.clone()), Some(Outcome::Upgraded), 3),
            (RunOutcome::Paused(reason), None, 3),
            (RunOutcome::Cancelled, Some(Outcome::Upgraded), 3),
            (RunOutcome::Cancelled, None, 3),
        ] {
            let told = format!("{arrived_at:?} {wanted:?}");
            let status = describe::tests::status(describe::tests::plan("rolling", "node"));
            let commands = UpgradeCommands::new("kaas", []);
            assert_eq!(
                arrived(Output::Table, &commands, &(arrived_at, status), wanted).unwrap(),
                ExitCode::from(expected),
                "{told}"
            );
        }
    }
}
