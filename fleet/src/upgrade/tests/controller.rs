//! Upgrades driven by a program that runs many of them as tasks of one runtime.

use std::path::Path;

use super::command::{begun, deployment};
use super::fake::Ill;
use crate::lease::{Lease, TakeOver};
use crate::upgrade::{Journal, Mode, Outcome, Request, RunOutcome, StepDeadline};

fn assert_send<T: Send>(_: &T) {}

#[tokio::test(start_paused = true)]
async fn verbs_and_steps_are_send() {
    let world = begun(1, Mode::Rolling, Ill::Well).await;
    let (deployment, over, ova) = (deployment(&world, &|_| {}), TakeOver::FromTheDead, Path::new("new.ova"));
    assert_send(&deployment.plan(ova, &world.options));
    assert_send(&deployment.apply(ova, &world.options, over));
    assert_send(&deployment.go_on(Request::Resume, None, over));
    assert_send(&deployment.abandon(uuid::Uuid::nil(), over));
    assert_send(&deployment.status());
    assert_send(&deployment.adoptable());
    assert_send(&deployment.adopt(&[], over));
    let hold = Lease::acquire(&world, "a test", over, &|_| {}).await.unwrap();
    let mut journal = Journal::continued(&hold).await.unwrap();
    let run = deployment.run(&hold, None);
    assert_send(&run.ask(&mut journal, Request::Rollback));
    assert_send(&run.step(&mut journal, &mut StepDeadline::default()));
    assert_send(&run.go(&mut journal));
    let minor = crate::upgrade::KubernetesOptions { to: None, drain_seconds: 1, limit: std::time::Duration::ZERO };
    assert_send(&deployment.plan_kubernetes(&minor));
    assert_send(&deployment.upgrade_kubernetes(&minor, over));
}

#[tokio::test(start_paused = true)]
async fn several_deployments_upgrade_in_one_runtime() {
    let upgrade = |ill| async move {
        let world = begun(3, Mode::Rolling, ill).await;
        let gone = deployment(&world, &|_| {}).go_on(Request::Resume, None, TakeOver::FromTheDead).await;
        gone.unwrap().0
    };
    let ills = [Ill::Well, Ill::NeverGood, Ill::Well, Ill::Hangs];
    let tasks = ills.map(|ill| tokio::spawn(upgrade(ill)));
    for (ill, task) in ills.into_iter().zip(tasks) {
        let outcome = if ill == Ill::Well { Outcome::Upgraded } else { Outcome::RolledBack };
        assert_eq!(task.await.unwrap(), RunOutcome::Ended(outcome), "{ill:?}");
    }
}
