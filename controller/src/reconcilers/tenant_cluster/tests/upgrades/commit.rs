//! The commit of an upgrade: after ten healthy minutes, or at the operator's request.

use super::*;

/// The health in between is unknown, and the operator gets ten minutes for a rollback.
#[tokio::test(start_paused = true)]
async fn failed_looks_restart_the_ten_minutes() {
    for is_there in [true, false] {
        let world = World::upgradable().await;
        world.swaps_to(NEW).await;
        world.reconciles(2, 15).await;
        // The vCenter does not answer, or no controller runs.
        world.place.lock().is_away = is_there;
        for _ in 0..60 {
            if is_there {
                let _ = world.reconcile().await;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        world.place.lock().is_away = false;
        let back = tokio::time::Instant::now();
        world.reconcile().await.unwrap();
        assert_eq!((world.outcome(), world.up_to_date().as_str()), (None, "AwaitingCommit"), "{is_there}");
        world.until("committed", World::is_current).await;
        assert!(back.elapsed() >= Duration::from_secs(9 * 60), "{is_there}: {:?}", back.elapsed());
        world.all_run(NEW, "it is committed");
    }
}

/// An image whose guests go off is not committed by itself, even if they return soon.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_off_restarts_the_minutes() {
    let world = World::upgradable().await;
    world.swaps_to(NEW).await;
    let seen = || world.operations()[0].status.clone().unwrap().last_healthy;
    for _ in 0..4 {
        // Until health was just recorded again: the node returns before that is too old.
        let before = seen();
        while seen() == before {
            world.reconcile().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    assert_eq!(world.outcome(), None);
    world.place.change(&new_vms("0b")[0], |vm| vm.power = PowerState::Off);
    let off = tokio::time::Instant::now();
    world.until("committed", World::is_current).await;
    assert!(off.elapsed() >= Duration::from_secs(9 * 60), "{:?}", off.elapsed());
    world.all_run(NEW, "it is committed");
}

/// While it is paused a rollback is rejected, so the operator gets ten minutes afterwards.
#[tokio::test(start_paused = true)]
async fn the_ten_minutes_stop_during_a_pause() {
    for is_paused in [true, false] {
        let mut world = World::upgradable().await;
        world.swaps_to(NEW).await;
        world.pauses(is_paused, true);
        world.reconciles(80, 15).await;
        assert_eq!(world.operations()[0].status.clone().unwrap().healthy_since, None, "paused: {is_paused}");
        world.pauses(is_paused, false);
        let over = tokio::time::Instant::now();
        world.reconciles(3, 5).await;
        let stands = (world.outcome(), world.up_to_date());
        assert_eq!(stands, (None, "AwaitingCommit".to_owned()), "paused: {is_paused}");
        world.until("committed", World::is_current).await;
        assert!(over.elapsed() >= Duration::from_secs(9 * 60), "paused: {is_paused}: {:?}", over.elapsed());
        world.all_run(NEW, "it is committed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_manual_commit_waits_for_the_operator() {
    let world = World::upgradable().await;
    world.edit(|spec| {
        spec.upgrade.commit = Commit::Manual;
        spec.image = Some(NEW.to_owned());
    });
    world.until("on the new image", |world| world.up_to_date() == "AwaitingCommit").await;
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.place.vms().len()), ("AwaitingCommit", 6));
    assert_eq!(world.reason_of_operation("Progressing"), "AwaitingCommit");
    // A host has failed, and the commit may be days away.
    world.place.change(&new_vms("0b")[0], |vm| vm.power = PowerState::Off);
    world.until("all are on", World::are_on).await;
    world.rests().await;
    assert_eq!(world.condition("ControlPlaneReady").1, "AllReady");
    assert_eq!(world.up_to_date(), "AwaitingCommit");
    world.asks("cimmot");
    world.until("answered", World::is_answered).await;
    assert_eq!(world.reason_of_operation("Progressing"), "Rejected");
    world.asks("commit");
    world.until_all_run(NEW, "a person has committed it").await;
    assert!(world.is_answered(), "it is noted");
}

// After an upgrade, nodes got settings that no condition had named before.
#[tokio::test(start_paused = true)]
async fn pending_settings_are_named_before_the_commit() {
    let world = World::upgradable().await;
    world.edit(|spec| {
        spec.upgrade.commit = Commit::Manual;
        spec.image = Some(NEW.to_owned());
    });
    world.until("on the new image", |world| world.up_to_date() == "AwaitingCommit").await;
    world.edit(|spec| spec.pod_security = crate::objects::PodSecurity::Restricted);
    world.rests().await;
    world.says("UpToDate", "AwaitingCommit", "podSecurity: nodes get it once no other change runs");
    assert!(world.place.lock().configured.is_empty());
    world.asks("commit");
    world.until("current", World::is_current).await;
    assert_eq!(world.place.lock().configured.len(), NODES.len());
}

/// The later image follows, and the former one is no longer requested.
#[tokio::test(start_paused = true)]
async fn only_the_operator_commits_a_former_image() {
    let world = World::upgradable().await;
    world.swaps_to(NEW).await;
    world.goes_to("kaas-tenant-0.3.1");
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.place.vms().len()), ("AwaitingCommit", 6));
    assert!(world.condition("UpToDate").2.contains("kaas-tenant-0.3.1"), "{:?}", world.condition("UpToDate"));
    world.asks("commit");
    world.until("committed", |world| world.outcome().as_deref() == Some("committed")).await;
}
