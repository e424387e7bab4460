//! The record of a cluster, and what the next command reads.

use uuid::Uuid;

use super::fake::{DEPLOYMENT, Fault, World, wanted};
use crate::control_plane::{DeploymentRecord, Goal, Lifecycle, Records, records};
use crate::lease::{Lease, TakeOver};

fn kept() -> DeploymentRecord {
    Goal::Deploy(&wanted(1)).applied(DEPLOYMENT, None, &[]).unwrap()
}

async fn hold(world: &World) -> Lease<'_> {
    Lease::acquire(world, "a test", TakeOver::FromAnyone, &|_| {}).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_no_longer_counts_after_settling() {
    let world = World::new();
    let hold = hold(&world).await;
    let mut records = Records::begin(&hold, kept()).await.unwrap();
    let mut noted = kept();
    noted.nodes[0].bios_uuid = Some(Uuid::from_u128(1));
    for call in 1.. {
        world.set_fault(Some((call, Fault::Lost)));
        records.save(noted.clone()).await.unwrap_err();
        if world.lock().calls.last().is_some_and(|(name, _)| *name == "store.write") {
            break;
        }
    }
    world.set_fault(None);
    // It has landed anyway.
    assert_eq!(records::read(&world).await.unwrap(), Some(noted));
    assert_eq!(records.kept(), &kept());
    records.settle().await.unwrap();
    assert_eq!(records::read(&world).await.unwrap(), Some(kept()));
}

#[tokio::test(start_paused = true)]
async fn the_highest_lease_with_a_complete_record_counts() {
    let world = World::new();
    for goal in [Lifecycle::Active, Lifecycle::Deleting] {
        let hold = hold(&world).await;
        Records::begin(&hold, DeploymentRecord { lifecycle: goal, ..kept() }).await.unwrap();
        hold.release().await;
    }
    let empty = hold(&world).await;
    assert_eq!(records::read(&world).await.unwrap().map(|kept| kept.lifecycle), Some(Lifecycle::Deleting));
    world.put(empty.number(), "deploy-000001.json", "{\"cluster\": \"con");
    assert_eq!(records::read(&world).await.unwrap().map(|kept| kept.lifecycle), Some(Lifecycle::Deleting));
    world.put(empty.number(), "deploy-000002.json", "{\"cluster\": 7}");
    let error = format!("{:#}", records::read(&world).await.unwrap_err());
    assert!(error.contains("understanding deploy-000002.json (if a newer version of this program"), "{error}");
}
