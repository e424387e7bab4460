//! The outputs of upgrades match the schemas that `kaas` publishes.

use std::time::Duration;

use super::command::{begin, deployment, end, give};
use super::failing::before;
use super::fake::{Ill, World};
use super::salvage::damage_plan;
use crate::lease::TakeOver;
use crate::testing::fits;
use crate::upgrade::{Action, KubernetesOptions, Mode, Outcome, Request, Step};

const OVER: TakeOver = TakeOver::FromTheDead;

/// An upgrade that is planned, with copies of data disks.
async fn begun(mode: Mode) -> World {
    let mut world = World::of(3, mode, Ill::Well);
    world.options.copy_disks = true;
    begin(&world).await;
    world
}

#[tokio::test(start_paused = true)]
async fn plans_match_their_schemas() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        fits("upgrade-plan", &World::of(3, mode, Ill::Well).plan().await);
    }
    let options = KubernetesOptions { to: None, drain_seconds: 1, limit: Duration::from_secs(30) };
    let world = World::of(3, Mode::Rolling, Ill::Well);
    fits("upgrade-kubernetes-plan", &deployment(&world, &|_| {}).plan_kubernetes(&options).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn status_and_dry_runs_match_their_schemas() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        let world = begun(mode).await;
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
        let upgrades = deployment(&world, &|_| {});
        fits("upgrade-status", &upgrades.status().await.unwrap());
        for verb in [Request::Resume, Request::Rollback, Request::RollbackAtOnce, Request::Commit] {
            fits("upgrade-preview", &upgrades.preview(verb, OVER).await.unwrap());
        }
        world.lock().members_shown = Some(2);
        give(&world, Request::Commit).await.paused();
        fits("upgrade-status", &upgrades.status().await.unwrap());
    }
    let world = before(3, Step::of(Action::ShutDown, 1)).await;
    let upgrades = deployment(&world, &|_| {});
    let status = upgrades.status().await.unwrap();
    fits("upgrade-status", &status);
    fits("upgrade-preview", &upgrades.preview(Request::Resume, OVER).await.unwrap());
    fits("upgrade-preview", &upgrades.preview_abandon(status.id, OVER).await.unwrap());
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
    fits("upgrade-status", &upgrades.status().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn unread_upgrades_match_their_schemas() {
    let world = before(3, Step::of(Action::ShutDown, 1)).await;
    let number = *world.store().holds.keys().next_back().unwrap();
    world.lock().store.holds.retain(|hold, _| *hold == number);
    damage_plan(&world);
    let upgrades = deployment(&world, &|_| {});
    fits("upgrade-preview-unread", &upgrades.preview_unread(number, OVER).await.unwrap());
    fits("upgrade-abandoned-unread", &upgrades.abandon_unread(number, OVER).await.unwrap());
}
