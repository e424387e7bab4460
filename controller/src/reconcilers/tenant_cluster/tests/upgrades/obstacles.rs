//! Obstacles to an upgrade, and nodes and APIs that cannot be trusted.

use super::*;

/// An upgrade waits for pods that cannot be evicted. The operator may roll back instead.
#[tokio::test(start_paused = true)]
async fn a_blocked_step_continues_or_rolls_back() {
    let world = World::upgradable().await;
    world.place.lock().ill.undrained.insert("shop-cp3".to_owned());
    world.goes_to(NEW);
    world
        .until("waiting", |world| {
            !world.operations().is_empty() && world.reason_of_operation("Progressing") == "Waiting"
        })
        .await;
    let status = world.operations().remove(0).status.unwrap();
    assert_eq!(status.step.as_deref(), Some("prepare shop-cp3"));
    assert!(status.conditions.iter().any(|it| it.message.contains("drain.blocked")), "{:?}", status.conditions);
    assert!(world.is_ready(), "the cluster serves");
    world.asks("rollback");
    world.until("back", |world| world.outcome().is_some()).await;
    world.all_run(FORMER, "it went back");
}

#[tokio::test(start_paused = true)]
async fn obstacles_are_reported_before_the_begin() {
    type Change<'a> = &'a dyn Fn(&World);
    let put = |world: &World, change: &dyn Fn(&mut NodeImage)| {
        let mut image = image(NEW, "0.3.0", "0b", &["1.36"]);
        change(&mut image);
        world.api.put(&image);
    };
    let status = |world: &World, change: &dyn Fn(&mut crate::objects::NodeImageStatus)| {
        put(world, &|image| change(image.status.as_mut().unwrap()));
    };
    let cases: [(&str, &str, Change<'_>); 7] = [
        ("ReferenceMissing", "there is no NodeImage", &|world| world.api.remove::<NodeImage>(None, NEW)),
        ("ImageUnsuitable", "has expired", &|world| status(world, &|it| it.phase = Some(LifecyclePhase::Expired))),
        ("ImageUnsuitable", "may take the place of", &|world| {
            status(world, &|it| it.upgrades_from = Some(">=0.2.5".to_owned()));
        }),
        ("ImageUnsuitable", "carries Kubernetes 1.37", &|world| {
            status(world, &|it| it.kubernetes = vec!["1.37".to_owned()]);
        }),
        ("NotKnown", "which build", &|world| status(world, &|it| it.build = None)),
        // Only nodes and VMs show these.
        ("ImageUnsuitable", "etcd", &|world| status(world, &|it| it.etcd = Some("3.7".to_owned()))),
        ("ControlPlaneUnfit", "snapshot", &|world| {
            world.place.change("shop-cp2", |vm| vm.snapshots.push("by a backup".to_owned()));
        }),
    ];
    for (reason, part, change) in cases {
        let world = World::upgradable().await;
        change(&world);
        let changes = world.place.lock().changes.len();
        world.goes_to(NEW);
        world.rests().await;
        world.says("Preflight", reason, part);
        assert_eq!((world.up_to_date().as_str(), world.is_ready()), ("ChangeBlocked", true), "{reason}");
        assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 0), "{reason}");
    }
}

/// The tenant controls the API and its lists.
#[tokio::test(start_paused = true)]
async fn a_foreign_node_is_not_called() {
    let (stranger, moved) = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(192, 168, 10, 1));
    for listed in [("shop-cp4", stranger), ("shop-cp1", moved)] {
        let world = World::upgradable().await;
        world.place.lock().strangers.push((listed.0.to_owned(), listed.1));
        world.goes_to(NEW);
        world.rests().await;
        world.says("Preflight", "NotKnown", "not made for it");
        let (.., words) = world.condition("Preflight");
        assert!(!words.contains(&listed.1.to_string()), "{words}");
        assert!(!world.place.lock().asked.contains(&listed.1) && world.operations().is_empty());
        world.place.lock().strangers.clear();
        world.until("committed", World::is_current).await;
    }
}

/// A node may answer slowly.
#[tokio::test(start_paused = true)]
async fn an_endless_check_is_superseded_or_times_out() {
    let mut world = World::upgradable().await;
    world.place.lock().are_mute = true;
    world.goes_to(NEW);
    let look = tokio::time::timeout(Duration::from_secs(400), world.reconcile()).await;
    look.expect("it has an end").unwrap();
    world.says("Preflight", "NotKnown", "within 300 s");
    let begun = tokio::time::Instant::now();
    let took = world.reconciles_with(30, || world.term.close()).await;
    assert!(took < Duration::from_secs(40), "{took:?}");
    world.term = Term::unlimited("controller two");
    let deleted = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.delete();
    };
    let (_, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(200), world.reconcile()), deleted);
    world.goes("it was deleted while it was looked at").await;
    assert!(begun.elapsed() < Duration::from_secs(400), "{:?}", begun.elapsed());
}

/// The tenant controls the nodes: addresses from them are not called.
#[tokio::test(start_paused = true)]
async fn a_foreign_kubeconfig_of_a_node_is_rejected() {
    for server in ["https://127.0.0.1:10259", "https://10.0.0.5:6443", "https://192.168.10.20:2379"] {
        let world = World::upgradable().await;
        world.swaps_to(NEW).await;
        {
            let mut state = world.place.lock();
            state.elsewhere = Some(server);
            state.asked_by.clear();
        }
        world.put_own_kubeconfig(None);
        world.asks("rollback");
        for _ in 0..10 {
            let _ = world.reconcile().await;
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        assert!(world.place.lock().asked_by.is_empty(), "{:?}", world.place.lock().asked_by);
        let said = format!("{:#} {:?}", world.api.object("tenantclusters"), world.operations());
        assert!(!said.contains(&server["https://".len()..]), "{said}");
        world.place.lock().elsewhere = None;
        world.until("gone on with", |world| world.outcome().is_some()).await;
    }
}
