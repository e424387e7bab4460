//! A worker is outdated by another minor version of Kubernetes, and not by texts for messages.

use super::fake::{Does, Given, World, pool, raise, replace};
use crate::workers::{Changes, Discards, Goal, RunOutcome, State};

#[tokio::test(start_paused = true)]
async fn workers_of_the_former_minor_version_stay_first() {
    let world = World::new();
    let mut old = pool(2);
    old.template.kubernetes = "1.35".to_owned();
    world.lock().kubelet = "v1.35.4".to_owned();
    world.give(Goal::Create(Box::new(old))).await.done();
    // The control-plane nodes move to the next minor version.
    world.lock().kubelet = "v1.36.2".to_owned();
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
    let status = world.give(Goal::Add(1)).await.done();
    let run: Vec<_> = status.workers.iter().filter_map(|worker| worker.kubelet.as_deref()).collect();
    assert_eq!((run, status.kubernetes.as_str()), (vec!["v1.35.4", "v1.35.4", "v1.36.2"], "1.35"));
    world.begin_counting();
    let status = world.give(raise("1.36", Some("1.36"))).await.done();
    // The worker that has joined since runs it already.
    assert_eq!((world.own(), status.kubernetes.as_str()), (vec!["t-w3".into(), "t-w4".into(), "t-w5".into()], "1.36"));
    assert_eq!((world.fewest(), world.most()), (3, 4));
    world.give(raise("1.36", None)).await.done();
    assert_eq!(world.kept().await.unwrap().pool.last_index, 5);
}

#[tokio::test(start_paused = true)]
async fn joining_workers_are_not_recreated_for_a_version() {
    let world = World::with(1).await;
    world.lock().ill.insert("one".to_owned());
    assert_eq!(world.give_for_a_minute(Goal::Add(1)).await.arrived().0, RunOutcome::Cancelled);
    world.lock().ill.clear();
    let mut joining = world.kept().await.unwrap();
    assert_eq!(joining.machines[1].state, State::Joining);
    joining.machines[1].template.kubernetes = "1.35".to_owned();
    world.keep(joining).await;
    world.lock().kubelet = "v1.36.2".to_owned();
    world.give(raise("1.36", None)).await.done();
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_newer_than_the_servers_is_refused() {
    let world = World::with(1).await;
    let before = world.kept().await;
    world.set_fault(None);
    for wish in [raise("1.35", Some("1.36")), raise("1.34", None), raise("1.36", Some("1.35"))] {
        let refused = world.give(wish).await;
        assert!(matches!(&refused, Given::Failed(why) if why.to_string().contains("[workers.skew]")), "{refused:?}");
    }
    assert!(world.lock().calls.iter().all(|(_, does)| *does == Does::Looks), "something was changed");
    assert_eq!(world.kept().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_new_version_of_the_command_replaces_nothing() {
    let world = World::with(2).await;
    let Goal::Replace { image: Some(mut image), cluster, kubernetes, changes, discards } =
        replace("one", Changes::default())
    else {
        unreachable!()
    };
    // It words the image's name differently.
    image.image.name = "KaaS tenant, image one".to_owned();
    let discards = Discards { delete_local_volumes: true, ..discards };
    let wish = Goal::Replace { image: Some(image), cluster, kubernetes, changes, discards };
    let status = world.give(wish).await.done();
    assert_eq!((world.own(), status.image.as_str()), (vec!["t-w1".into(), "t-w2".into()], "KaaS tenant, image one"));
    assert!(status.workers.iter().all(|worker| worker.up_to_date && worker.drain == Discards::default()));
    assert_eq!(world.kept().await.unwrap().pool.last_index, 2);
}
