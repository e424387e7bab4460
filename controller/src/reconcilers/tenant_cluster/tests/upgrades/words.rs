//! The operator's requests on Operations: each is handled once, and answered.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_unhealthy_node_is_rolled_back_and_waits() {
    for word in ["resume", "rollback"] {
        let world = World::upgradable().await;
        // The leader of etcd comes last.
        world.place.lock().ill.never_good.insert("shop-cp3".to_owned());
        world.goes_to(NEW);
        world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
        let (_, _, words) = world.condition("UpToDate");
        assert!(words.contains("shop-cp3") && words.contains("kaas.local/do"), "{words}");
        assert_eq!(world.reason_of_operation("Progressing"), "Blocked");
        assert_eq!(world.condition("ControlPlaneReady").1, "AllReady", "the others stay where they are");
        let changes = world.place.lock().changes.len();
        world.rests().await;
        assert_eq!(world.place.lock().changes.len(), changes, "nobody tries again");
        // A host fails: of a node on the new image, and of the one that was rolled back.
        for vm in [new_vms("0b")[1].clone(), NODES[2].to_owned()] {
            world.place.change(&vm, |vm| vm.power = PowerState::Off);
            world.until("all are on", World::are_on).await;
            world.rests().await;
            assert_eq!(world.condition("ControlPlaneReady").1, "AllReady", "{vm}");
            assert_eq!(world.up_to_date(), "ChangeFailed", "{vm}: it waits as before");
        }
        world.place.lock().ill.never_good.clear();
        world.asks(word);
        if word == "resume" {
            world.until_all_run(NEW, "it was mended").await;
        } else {
            world.until("back", |world| world.outcome().is_some()).await;
            world.rests().await;
            world.all_run(FORMER, "it was taken back");
            assert_eq!(world.up_to_date(), "ChangeFailed", "the image is still named");
            world.goes_to(FORMER);
            world.until("as it is to be", World::is_current).await;
        }
        assert_eq!(world.operations().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_operator_retries_a_full_rollback() {
    let world = World::upgradable().await;
    world.place.lock().ill.never_good.extend(NODES.map(str::to_owned));
    world.goes_to(NEW);
    world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
    world.all_run(FORMER, "it went back");
    world.rests().await;
    assert_eq!((world.operations().len(), world.up_to_date().as_str()), (1, "ChangeFailed"));
    assert_eq!(world.reason_of_operation("Succeeded"), "RolledBack");
    world.place.lock().ill.never_good.clear();
    world.asks("resume");
    world.until_all_run(NEW, "it was tried again").await;
    let operations = world.operations();
    assert_eq!(operations.len(), 2);
    let asked = operations.iter().filter_map(|it| it.metadata.annotations.as_ref()).any(|it| !it.is_empty());
    assert!(!asked, "what was asked is noted");
}

/// A request on an Operation that is over does not end another one.
#[tokio::test(start_paused = true)]
async fn requests_on_former_operations_are_rejected() {
    let world = World::upgradable().await;
    world.place.lock().ill.never_good.extend(NODES.map(str::to_owned));
    world.goes_to(NEW);
    world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
    let first = world.operations().remove(0).metadata.name.unwrap();
    world.place.lock().ill.never_good.clear();
    world.asks("resume");
    let later = async {
        while world.operations().len() < 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // After the request was removed with which it began.
        tokio::time::sleep(Duration::from_secs(15)).await;
        let mut operation: Operation = world.api.read(Some("team-blue"), &first).unwrap();
        operation.metadata.annotations.get_or_insert_default().insert(DO.to_owned(), "rollback".to_owned());
        world.api.put(&operation);
    };
    let (done, ()) = tokio::join!(world.reconcile(), later);
    done.unwrap();
    world.until_all_run(NEW, "it was not disturbed").await;
    world.rests().await;
    let operation: Operation = world.api.read(Some("team-blue"), &first).unwrap();
    assert!(operation.metadata.annotations.is_none_or(|it| it.is_empty()), "it is answered");
}

/// A run that ends before it changed the journal leaves the request to the next one.
#[tokio::test(start_paused = true)]
async fn an_unrecorded_rollback_reaches_the_next_run() {
    let mut world = World::upgradable().await;
    world.goes_to(NEW);
    let done = world.ends_its_term_at_a_detach().await;
    assert!(done.is_err(), "{done:?}");
    // It waits for the former lease, and the operator requests something else meanwhile.
    world.term = Term::unlimited("controller two");
    world.asks("rollback");
    let edits = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        world.edit(|spec| spec.upgrade.gate_seconds += 1);
    };
    let (_, ()) = tokio::join!(world.reconcile(), edits);
    world.until("ended", |world| world.outcome().is_some()).await;
    assert_eq!(world.outcome().as_deref(), Some("rolled back"));
    world.rests().await;
    world.all_run(FORMER, "it was taken back");
    assert!(world.is_answered(), "it is noted");
}

/// A retried swap fails before it has a separate Operation.
#[tokio::test(start_paused = true)]
async fn a_retried_swap_begins_after_passing_faults() {
    // It is checked, and then planned without and with the lease.
    for call in 0..3 {
        let world = World::upgradable().await;
        world.place.lock().ill.never_good.extend(NODES.map(str::to_owned));
        world.goes_to(NEW);
        world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
        let told = world.operations()[0].status.clone().unwrap().conditions;
        {
            let mut state = world.place.lock();
            state.ill.never_good.clear();
            state.ill.silent_after = Some(call);
        }
        world.asks("resume");
        world.until_all_run(NEW, &format!("it was tried again: {call}")).await;
        assert_eq!((world.operations().len(), world.place.lock().ill.silent_after), (2, None), "{call}");
        let first = world.operations().remove(1);
        assert!(first.metadata.annotations.as_ref().is_none_or(|it| it.is_empty()), "{call}: it is noted");
        assert_eq!(first.status.unwrap().conditions, told, "{call}: what has ended says nothing else");
    }
}
