//! Delays and pauses of upgrades: a paused cluster, an upgrade of the control cluster, and the maintenance window.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_only_plans_upgrades() {
    let world = World::upgradable().await;
    let changes = world.place.lock().changes.len();
    world.edit(|spec| {
        spec.paused = true;
        spec.image = Some(NEW.to_owned());
    });
    world.rests().await;
    let operation = world.operations().remove(0);
    assert!(operation.spec.steps.len() > 20 && operation.spec.plan.is_some(), "it can be read");
    assert_eq!((world.place.lock().changes.len(), world.condition("Progressing").1.as_str()), (changes, "Paused"));
    assert_eq!(world.reason_of_operation("Progressing"), "Paused");
    // To unpause the cluster is to resume the upgrade.
    world.asks("rollback");
    world.until("answered", World::is_answered).await;
    assert_eq!((world.reason_of_operation("Progressing").as_str(), world.outcome()), ("Rejected", None));
    world.edit(|spec| spec.paused = false);
    let paused = async {
        world.until_change("detach").await;
        world.edit(|spec| spec.paused = true);
    };
    let (done, ()) = tokio::join!(world.reconcile(), paused);
    done.unwrap();
    world.rests().await;
    assert_eq!(world.condition("ControlPlaneReady").1, "AllReady");
    let attached = world.attached();
    assert!((1..3).contains(&attached), "{attached} nodes were swapped");
    assert_eq!(world.operations().len(), 1);
    world.edit(|spec| spec.paused = false);
    world.until_all_run(NEW, "it went on").await;
}

/// The operator corrected the plan, and no node was swapped before: the corrected image is used.
#[tokio::test(start_paused = true)]
async fn a_corrected_plan_is_replaced() {
    const OTHER: &str = "kaas-tenant-0.4.0";
    for wanted in [Some(OTHER), None] {
        let world = World::upgradable().await;
        world.api.put(&image(OTHER, "0.4.0", "0c", &["1.36"]));
        world.edit(|spec| {
            spec.paused = true;
            spec.image = Some(NEW.to_owned());
        });
        world.rests().await;
        let read = world.operations().remove(0);
        assert_eq!(read.spec.to_image.as_deref(), Some(NEW));
        let changes = world.place.lock().changes.len();
        world.edit(|spec| spec.image = wanted.map(str::to_owned));
        world.edit(|spec| spec.paused = false);
        if wanted.is_none() {
            world.until("as it was", World::is_current).await;
            world.rests().await;
            world.all_run(FORMER, "it is named no more");
            assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 1));
            assert_eq!(world.outcome().as_deref(), Some("rolled back"));
            continue;
        }
        world.until("planned anew", |world| world.operations().len() == 2).await;
        assert_eq!(world.operations().remove(0).spec.to_image.as_deref(), Some(OTHER));
        let first: Operation = world.api.read(Some("team-blue"), &read.metadata.name.clone().unwrap()).unwrap();
        assert_eq!(first.status.unwrap().outcome.as_deref(), Some("rolled back"));
        world.until("committed", |world| world.status()["resolved"]["image"] == OTHER).await;
        let of_new = world.place.lock().images.values().filter(|digest| digest.starts_with("0b")).count();
        assert_eq!(of_new, 0, "no VM was ever made of the image that was corrected");
    }
}

/// A controller of another version may lead for a while: it begins no upgrade, and none is left to it with a node away.
#[tokio::test(start_paused = true)]
async fn tenant_upgrades_pause_during_control_cluster_upgrades() {
    let mut world = World::upgradable().await;
    world.is_marked = false;
    world.goes_to(NEW);
    world.rests().await;
    assert_eq!((world.operations().len(), world.up_to_date().as_str()), (0, "Changing"));
    assert!(world.condition("UpToDate").2.contains("control cluster"), "{:?}", world.condition("UpToDate"));
    world.is_marked = true;
    // A control-plane node of the control cluster is drained for a swap, while a tenant's node is away.
    let cordoned = |unschedulable: bool| {
        let mut node = Node::default();
        node.metadata.name = Some("control-cp1".to_owned());
        let label = "node-role.kubernetes.io/control-plane".to_owned();
        node.metadata.labels = Some([(label, String::new())].into());
        node.spec = Some(NodeSpec { unschedulable: Some(unschedulable), ..NodeSpec::default() });
        world.api.put(&node);
    };
    let drained = async {
        world.until_change("detach").await;
        cordoned(true);
    };
    let (done, ()) = tokio::join!(world.reconcile(), drained);
    done.unwrap();
    world.rests().await;
    assert_eq!(world.condition("ControlPlaneReady").1, "AllReady", "no node is away");
    let attached = || world.attached();
    assert!((1..3).contains(&attached()), "{} nodes were swapped", attached());
    assert_eq!(world.reason_of_operation("Progressing"), "ControlClusterChanges");
    let entries = world.operations()[0].status.clone().unwrap().entries.len();
    world.rests().await;
    assert_eq!(world.operations()[0].status.clone().unwrap().entries.len(), entries, "nothing is noted meanwhile");
    cordoned(false);
    world.until_all_run(NEW, "it went on").await;
    assert_eq!(world.operations().len(), 1);
}

/// A control-plane node of the control cluster may be lost, or its commit be days away.
#[tokio::test(start_paused = true)]
async fn a_rollback_continues_during_control_cluster_upgrades() {
    let mut world = World::upgradable().await;
    world.place.lock().ill.never_good.insert("shop-cp3".to_owned());
    world.goes_to(NEW);
    world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
    world.is_marked = false;
    world.asks("rollback");
    world.until("back", |world| world.outcome().is_some()).await;
    world.rests().await;
    world.all_run(FORMER, "it was taken back");
    assert_eq!((world.outcome().as_deref(), world.operations().len()), (Some("rolled back"), 1));
    assert!(world.is_answered(), "it is noted");
}

/// The swap waits for all nodes to be healthy, and while it is open nothing else would power one on.
#[tokio::test(start_paused = true)]
async fn nodes_are_powered_on_before_a_plan_begins() {
    let world = World::upgradable().await;
    world.edit(|spec| {
        spec.image = Some(NEW.to_owned());
        spec.paused = true;
    });
    world.rests().await;
    assert_eq!(world.operations().len(), 1, "it is planned");
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Off);
    let before = world.place.lock().changes.len();
    world.edit(|spec| spec.paused = false);
    let says_it = |world: &World| {
        let status = world.operations().remove(0).status.unwrap();
        let mut said = status.conditions.iter().filter(|it| it.about == "Progressing" && it.reason == "Waiting");
        said.any(|it| it.message.contains("powered on") && it.message.contains("shop-cp2"))
    };
    world.until("it says what it waits for", says_it).await;
    world.until("all are on", World::are_on).await;
    assert_eq!(world.place.lock().changes[before], "power_on");
    world.until_all_run(NEW, "it was carried out").await;
    assert_eq!((world.outcome().as_deref(), world.operations().len()), (Some("committed"), 1));
}

/// A guest that was asked to shut down goes off by itself, and only the upgrade powers its node on.
#[tokio::test(start_paused = true)]
async fn an_interrupted_shutdown_leaves_no_node_off() {
    for is_paused in [true, false] {
        let mut world = World::upgradable().await;
        world.place.lock().is_slow = true;
        world.goes_to(NEW);
        let vm = world.amid("a node that shuts down", World::shuts_down).await;
        world.place.lock().is_slow = false;
        world.place.change(&vm, |vm| vm.power = PowerState::Off);
        world.pauses(is_paused, true);
        world.term = Term::unlimited("controller two");
        world.rests().await;
        assert_eq!(world.condition("ControlPlaneReady").1, "AllReady", "paused: {is_paused}");
        let attached = world.attached();
        assert_eq!(attached, 1, "no other node was begun: paused: {is_paused}");
        world.pauses(is_paused, false);
        world.until_all_run(NEW, "it went on").await;
    }
}

#[tokio::test(start_paused = true)]
async fn automatic_changes_wait_for_the_window() {
    let world = World::upgradable().await;
    // The clock of tests begins at midnight of a Friday.
    world.edit(|spec| {
        spec.image = None;
        spec.maintenance.auto_update = true;
        spec.maintenance.window = Some("Sat 00:00-03:00".to_owned());
    });
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.operations().len()), ("AwaitingWindow", 0));
    assert!(world.condition("UpToDate").2.contains(NEW), "{:?}", world.condition("UpToDate"));
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    world.until_all_run(NEW, "the window is open").await;
}
