//! The condition of a cluster's add-ons.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cluster_names_stopped_add_ons() {
    let world = World::new();
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("AddonsReady").1, "", "nobody has asked it");
    world.until("ready", World::is_ready).await;
    world.until("told", |it| it.condition("AddonsReady").1 == "AllReady").await;
    world.place.lock().stopped.insert("cluster-metrics".to_owned());
    world.until("missed", |it| it.condition("AddonsReady").1 == "SomeMissing").await;
    assert!(world.condition("AddonsReady").2.contains("cluster-metrics"), "{:?}", world.condition("AddonsReady"));
    assert!(world.is_ready(), "it serves");
    world.place.lock().is_silent = true;
    world.until("silent", |it| it.condition("AddonsReady").1 == "NotReached").await;
    world.place.lock().is_silent = false;
    world.place.lock().stopped.clear();
    world.until("told again", |it| it.condition("AddonsReady").1 == "AllReady").await;
}
