//! Finding 5 of controller.md: a lost control-plane node is replaced, by itself or at the operator's request.

use std::time::Duration;

use fleet::hypervisor::{PowerState, Vm};
use serde_json::Value;

use super::World;
use crate::objects::{HOST_IS_OFF, REPLACE_NODE, TenantCluster};

/// A ready cluster that has recorded the places of its VMs.
async fn placed() -> World {
    let world = World::ready().await;
    notes_places(&world).await;
    world
}

/// A ready cluster that has lost its second node with its data disk.
async fn lost() -> World {
    let world = World::ready().await;
    loses_a_node(&world).await;
    world
}

async fn notes_places(world: &World) {
    for name in ["shop-cp1", "shop-cp2", "shop-cp3"] {
        world.place.change(name, |vm| vm.settings = Some(format!("[vsan-1] {name}/{name}.vmx")));
    }
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Off);
    world.until("its places are noted", |world| world.status()["deployment"]["places"].is_object()).await;
    world.until("it is on", |world| world.condition("ControlPlaneReady").1 == "AllReady").await;
}

/// A ready cluster loses its second node with its data disk.
pub(super) async fn loses_a_node(world: &World) {
    notes_places(world).await;
    loses(world, "shop-cp2");
}

fn loses(world: &World, vm: &str) {
    let mut disk = None;
    world.place.change(vm, |vm| disk = vm.disks.first().map(|disk| disk.reference.uuid));
    world.place.lose(vm);
    world.place.lock().disks.remove(&disk.expect("its data disk"));
}

fn change(world: &World, change: impl FnOnce(&mut TenantCluster)) {
    let mut cluster: TenantCluster = serde_json::from_value(world.api.object("tenantclusters")).unwrap();
    change(&mut cluster);
    world.api.put(&cluster);
}

pub(super) fn annotate(world: &World, name: &str, value: &str) {
    change(world, |cluster| {
        cluster.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
    });
}

fn operation(world: &World) -> Value {
    match world.api.names("operations").is_empty() {
        true => Value::Null,
        false => world.api.object("operations"),
    }
}

pub(super) fn is_replaced(world: &World) -> bool {
    operation(world)["status"]["outcome"] == "done" && world.condition("ControlPlaneReady").1 == "AllReady"
}

#[tokio::test(start_paused = true)]
async fn lost_node_is_replaced_after_its_time() {
    let world = lost().await;
    world.reconcile().await.unwrap();
    world.says("Progressing", "NodeLost", "It is replaced at 2027-01-01T");
    world.says("Progressing", "NodeLost", "`kaas cluster replace-node shop shop-cp2` does it now");
    assert!(world.is_ready(), "the others serve");
    world.reconciles(20, 30).await;
    assert!(world.place.lock().admitted.is_empty(), "after ten minutes");
    world.until("replaced", is_replaced).await;
    assert_eq!(world.place.lock().admitted, ["shop-cp2"]);
    let vms: Vec<String> = world.place.vms().into_keys().collect();
    assert!(vms.len() == 3 && vms[1].starts_with("shop-cp2-"), "{vms:?}");
    assert_eq!(world.place.lock().forms[&vms[1]]["deployment-secret"], "code-1");
    let operation = operation(&world);
    assert_eq!((&operation["spec"]["type"], &operation["status"]["stepsDone"]), (&"ReplaceNode".into(), &4.into()));
    assert_eq!(operation["status"]["entries"].as_array().unwrap().last().unwrap()["event"], "joined");
    world.until("idle", |world| world.condition("Progressing").1 == "Idle").await;
    let repair = world.status()["nodeRepair"].clone();
    assert!(repair["lastAutomatic"].is_string() && repair["node"].is_null() && repair["started"].is_null(), "{repair}");
}

#[tokio::test(start_paused = true)]
async fn operator_asks_for_a_replacement() {
    let world = lost().await;
    change(&world, |cluster| cluster.spec.control_plane.repair.automatic = false);
    world.reconciles(60, 30).await;
    world.says("Progressing", "NodeLostAwaitingOperator", "`kaas cluster replace-node shop shop-cp2` replaces it");
    assert!(world.place.lock().admitted.is_empty());
    annotate(&world, REPLACE_NODE, "shop-cp2");
    world.until("replaced", is_replaced).await;
    assert!(world.api.object("tenantclusters")["metadata"]["annotations"][REPLACE_NODE].is_null(), "it was heard");
}

/// vCenter does not know whether a VM on a silent host runs. Only the operator can say so, and only for the host that was named.
/// Later the host returns, with a VM that has the address of its node.
#[tokio::test(start_paused = true)]
async fn node_on_a_silent_host_awaits_operator() {
    let world = placed().await;
    let former = silences_host(&world);
    let command = "`kaas cluster replace-node shop shop-cp2 --host-is-off esx1`";
    world.reconciles(60, 30).await;
    world.says("Progressing", "NodeLostAwaitingOperator", command);
    assert!(world.is_ready(), "the others serve");
    annotate(&world, REPLACE_NODE, "shop-cp2");
    world.reconciles(4, 30).await;
    world.says("Progressing", "NodeLostAwaitingOperator", command);
    annotate(&world, HOST_IS_OFF, "esx9");
    world.reconciles(4, 30).await;
    world.says("Progressing", "NodeLostAwaitingOperator", "names esx9");
    assert_eq!((world.place.vms().len(), world.place.lock().admitted.len()), (3, 0));
    annotate(&world, HOST_IS_OFF, "esx1");
    world.until("replaced", is_replaced).await;
    assert_eq!(world.place.lock().admitted, ["shop-cp2"]);
    let annotations = world.api.object("tenantclusters")["metadata"]["annotations"].clone();
    assert!(annotations[REPLACE_NODE].is_null() && annotations[HOST_IS_OFF].is_null(), "{annotations}");
    world.reconciles(10, 60).await;
    assert_eq!(world.place.vms().len(), 4, "its former VM is on the silent host, and is left alone");
    // The host returns.
    host_returns(&world);
    world.reconciles(2, 30).await;
    assert!(is_shut_out(&world, &former));
    world.until("as before", |world| world.condition("Progressing").1 == "Idle" && world.is_ready()).await;
    assert_eq!(world.place.lock().admitted.len(), 1, "it was replaced once");
}

/// Lets the host of the second node not respond. Returns its VM.
fn silences_host(world: &World) -> Vm {
    let mut former = None;
    world.place.change("shop-cp2", |vm| {
        vm.power = PowerState::Unknown;
        former = Some(vm.clone());
    });
    let former = former.expect("its VM");
    world.place.lock().cut_off.insert(former.reference.id.clone());
    former
}

/// Replaces the second node, whose host is silent, at the operator's request. Returns its former VM, which stays there.
pub(super) async fn replaces_on_a_silent_host(world: &World) -> Vm {
    notes_places(world).await;
    let former = silences_host(world);
    annotate(world, REPLACE_NODE, "shop-cp2");
    world.reconciles(60, 30).await;
    annotate(world, HOST_IS_OFF, "esx1");
    world.until("replaced", is_replaced).await;
    former
}

/// The silent host returns with the former VM.
pub(super) fn host_returns(world: &World) {
    world.place.lock().cut_off.clear();
    world.place.change("shop-cp2", |vm| vm.power = PowerState::On);
}

/// Whether a former VM is off, without a network, and given up. Its disks stay.
pub(super) fn is_shut_out(world: &World, former: &Vm) -> bool {
    let state = world.place.lock();
    let (vm, ..) = state.vms.iter().find(|(vm, ..)| vm.reference == former.reference).expect("it stays");
    let is_given_up = vm.is_fenced() && vm.power == PowerState::Off && vm.name.starts_with("shop-cp2-replaced-");
    is_given_up && vm.disks == former.disks
}

// The wait for the third node left the former VM of the second one with its address.
#[tokio::test(start_paused = true)]
async fn returned_vm_is_retired_while_another_is_lost() {
    let world = World::ready().await;
    let former = replaces_on_a_silent_host(&world).await;
    change(&world, |cluster| cluster.spec.control_plane.repair.automatic = false);
    loses(&world, "shop-cp3");
    world.reconciles(60, 30).await;
    let words = "`kaas cluster replace-node shop shop-cp3` replaces it";
    world.says("Progressing", "NodeLostAwaitingOperator", words);
    host_returns(&world);
    world.reconcile().await.unwrap();
    assert!(is_shut_out(&world, &former));
    world.reconciles(2, 30).await;
    world.says("Progressing", "NodeLostAwaitingOperator", words);
    assert_eq!(world.place.lock().admitted, ["shop-cp2"]);
}

// No condition named the VM.
#[tokio::test(start_paused = true)]
async fn paused_cluster_names_a_returned_vm() {
    let world = World::ready().await;
    let former = replaces_on_a_silent_host(&world).await;
    world.reconciles(4, 30).await;
    change(&world, |cluster| cluster.spec.paused = true);
    host_returns(&world);
    world.reconciles(4, 30).await;
    world.says("Progressing", "Paused", "are shut out after the pause: shop-cp2");
    assert!(!is_shut_out(&world, &former), "nothing is done");
    change(&world, |cluster| cluster.spec.paused = false);
    world.reconciles(2, 30).await;
    assert!(is_shut_out(&world, &former));
}

/// The operator confirms a host that no look has shown to be silent.
#[tokio::test(start_paused = true)]
async fn responding_host_is_not_taken_for_off() {
    let world = placed().await;
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Unknown);
    annotate(&world, REPLACE_NODE, "shop-cp2");
    annotate(&world, HOST_IS_OFF, "esx1");
    world.reconciles(60, 30).await;
    world.says("Progressing", "NodeLostAwaitingOperator", "not proved lost");
    assert_eq!((world.place.vms().len(), world.place.lock().admitted.len()), (3, 0));
}

/// A vCenter that does not answer once costs no day.
#[tokio::test(start_paused = true)]
async fn refused_replacement_is_tried_again_after_its_time() {
    for left in 0..8 {
        let world = lost().await;
        world.reconciles(29, 30).await;
        tokio::time::sleep(Duration::from_secs(45)).await;
        world.place.lock().unlisted_after = Some(left);
        let has_joined = |world: &World| {
            let is_admitted = !world.place.lock().admitted.is_empty();
            is_admitted && world.condition("ControlPlaneReady").1 == "AllReady"
        };
        world.until("joined", has_joined).await;
    }
}

/// Its nodes have no route for that, and the lost node blocks their upgrade: its VM is not given up.
#[tokio::test(start_paused = true)]
async fn node_of_older_image_is_not_given_up() {
    let world = lost().await;
    world.place.lock().takes_one_key = true;
    world.reconciles(60, 30).await;
    world.says("Progressing", "NodeLostAwaitingOperator", "Bring the VM of shop-cp2 back");
    let deployment = world.status()["deployment"].clone();
    assert!(deployment["replacement"].is_null() && deployment["replacedVMs"].is_null(), "{deployment}");
    assert!(operation(&world).is_null() && world.status()["nodeRepair"]["lastAutomatic"].is_null());
    world.place.lock().takes_one_key = false;
    world.place.lock().configures = Some(0);
    world.reconciles(2, 30).await;
    world.says("Progressing", "NodeLost", "no other node answers");
    world.place.lock().configures = None;
    world.until("replaced", is_replaced).await;
}

#[tokio::test(start_paused = true)]
async fn node_that_runs_is_not_replaced_on_request() {
    let world = World::ready().await;
    annotate(&world, REPLACE_NODE, "shop-cp2");
    world.reconcile().await.unwrap();
    world.says("Progressing", "NodeLostAwaitingOperator", "not proved lost");
    assert!(world.place.lock().admitted.is_empty() && world.is_ready());
}

// The status with a malformed name was refused at each write.
#[tokio::test(start_paused = true)]
async fn malformed_request_prevents_no_replacement() {
    let world = lost().await;
    world.reconciles(2, 30).await;
    change(&world, |cluster| {
        cluster.metadata.annotations.get_or_insert_default().insert(REPLACE_NODE.to_owned(), "Shop CP2!".to_owned());
    });
    world.reconciles(2, 30).await;
    world.says("Progressing", "NodeLostAwaitingOperator", "has no control-plane node Shop CP2!");
    world.says("Progressing", "NodeLostAwaitingOperator", "It is replaced at 2027-01-01T");
    assert_eq!(world.status()["nodeRepair"]["node"], "shop-cp2");
    world.until("replaced", is_replaced).await;
    world.until("idle", |world| world.status()["nodeRepair"]["node"].is_null()).await;
    world.reconcile().await.unwrap();
    let remedy = "`kubectl annotate tenantclusters shop kaas.local/replace-node-`";
    world.says("Progressing", "NodeLostAwaitingOperator", remedy);
    assert!(world.is_ready());
}

// While a cluster was paused, no condition named its lost node.
#[tokio::test(start_paused = true)]
async fn paused_cluster_names_its_lost_node() {
    let world = lost().await;
    change(&world, |cluster| cluster.spec.paused = true);
    world.reconciles(60, 30).await;
    world.says("Progressing", "NodeLost", "the VM of shop-cp2 and its data disk are gone. It is not replaced now");
    world.says("Progressing", "NodeLost", "set `spec.paused` to false to continue");
    assert!(world.place.lock().admitted.is_empty() && operation(&world).is_null());
    // A look that failed removed it.
    let mut failed = 0;
    for left in 0..8 {
        world.place.lock().unlisted_after = Some(left);
        let _ = world.reconcile().await;
        world.place.lock().unlisted_after = None;
        let (_, reason, message) = world.condition("Progressing");
        if message.contains("whether the VM of shop-cp2 runs is unknown") {
            assert!(
                reason == "NodeLost" && message.contains("It is not replaced now: the cluster is paused"),
                "{message}"
            );
            failed += 1;
        }
    }
    assert!(failed > 0, "each look succeeded");
    change(&world, |cluster| cluster.spec.paused = false);
    world.until("replaced", is_replaced).await;
}
