use std::sync::Mutex;

use tokio::sync::watch;

use super::*;
use crate::lease::{LeaseState, standing};
use crate::upgrade::Notice;
use crate::upgrade::tests::command::deployment;
use crate::upgrade::tests::fake::{Ill, World};
use crate::upgrade::{Mode, Nodes, Refusals};

fn world() -> World {
    World::of(3, Mode::Rolling, Ill::Well)
}

fn options(to: Option<&str>) -> KubernetesOptions {
    KubernetesOptions { to: to.map(str::to_owned), drain_seconds: 1, limit: Duration::from_secs(30) }
}

fn silent(_: &Notice<'_>) {}

async fn upgraded(world: &World) -> anyhow::Result<KubernetesPlan> {
    deployment(world, &silent).upgrade_kubernetes(&options(None), TakeOver::FromTheDead).await
}

async fn planned_to(world: &World, to: Option<&str>) -> anyhow::Result<KubernetesPlan> {
    deployment(world, &silent).plan_kubernetes(&options(to)).await
}

async fn runs(world: &World) -> Vec<String> {
    let mut versions = Vec::new();
    for (_, address) in world.control_nodes().await.unwrap() {
        versions.push(world.facts(address).await.unwrap().kubernetes.version);
    }
    versions
}

fn codes_of(refused: &anyhow::Error) -> Vec<&'static str> {
    let refusals: &Refusals = refused.downcast_ref().unwrap();
    refusals.0.iter().map(|refusal| refusal.code).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_upgrade_in_order_role_holder_last() {
    let world = world();
    let plan = planned_to(&world, None).await.unwrap();
    assert_eq!(plan.to, "1.36");
    let asked = ["preflight", "vms", "with_bios_uuid"].map(|call| world.called(call));
    assert_eq!(asked, [0; 3], "the plan needs no hypervisor");
    let order: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(order, ["cp2", "cp3", "cp1"]);
    assert_eq!(runs(&world).await, ["1.35.4"; 3], "a plan changes nothing");
    assert_eq!(upgraded(&world).await.unwrap().nodes, plan.nodes);
    assert_eq!(runs(&world).await, ["1.36.3"; 3]);
    assert_eq!(standing(&world).await.unwrap(), LeaseState::Free, "the deployment is given back");
    let again = planned_to(&world, Some("1.36")).await.unwrap_err();
    assert_eq!(codes_of(&again), ["upgrade.nothing-to-do"]);
}

#[tokio::test(start_paused = true)]
async fn drain_losses_are_named_before_each_node() {
    let world = world();
    let plan = planned_to(&world, None).await.unwrap();
    assert!(!plan.grounds.iter().any(|ground| ground.evidence.contains("drain")), "{plan:?}");
    world.lock().losses = contract::swap::Losses { bare_pods: vec!["web/debug".to_owned()], empty_dirs: Vec::new() };
    let words = "when it is drained, these pods have no controller and are deleted: web/debug";
    let plan = planned_to(&world, None).await.unwrap();
    for node in ["cp1", "cp2", "cp3"] {
        assert!(plan.grounds.iter().any(|ground| ground.subject == node && ground.evidence == words), "{plan:?}");
    }
    // The last node's losses have come since the plan.
    let said = Mutex::new(Vec::new());
    let watch = |notice: &Notice<'_>| match notice {
        Notice::Losses { node, words } => {
            let asked = world.called("upgrade_kubernetes");
            said.lock().unwrap().push((asked, (*node).to_owned(), (*words).to_owned()));
        }
        Notice::KubernetesRuns { .. } if said.lock().unwrap().len() == 2 => {
            world.lock().losses.bare_pods.push("web/later".to_owned());
        }
        _ => {}
    };
    let checks = world.called("upgrade_kubernetes");
    deployment(&world, &watch).upgrade_kubernetes(&options(None), TakeOver::FromTheDead).await.unwrap();
    // It asks the first node twice more whether it would.
    let line = |asked: usize, node: &str, more: &str| (checks + 2 + asked, node.to_owned(), format!("{words}{more}"));
    let expected = [line(0, "cp2", ""), line(1, "cp3", ""), line(2, "cp1", ", web/later")];
    assert_eq!(*said.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn interrupted_upgrade_is_continued() {
    let world = world();
    world.lock().stuck = Some("cp3");
    let error = format!("{:#}", upgraded(&world).await.unwrap_err());
    assert!(error.contains("cp3 does not run Kubernetes 1.36 yet") && error.contains("drain"), "{error}");
    assert_eq!(runs(&world).await, ["1.35.4", "1.36.3", "1.35.4"]);
    world.lock().stuck = None;
    let plan = upgraded(&world).await.unwrap();
    assert_eq!(plan.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["cp3", "cp1"]);
    assert_eq!(runs(&world).await, ["1.36.3"; 3]);
}

#[tokio::test(start_paused = true)]
async fn snapshot_before_the_first_node_is_kept() {
    const NAME: &str = "before-kubernetes-1.36.db";
    let world = world();
    // One of an upgrade that never began is of no use.
    world.lock().store.files.insert(NAME.to_owned(), b"weeks ago".to_vec());
    world.lock().stuck = Some("cp3");
    let error = upgraded(&world).await.unwrap_err();
    assert!(error.is::<GaveUp>(), "{error:#}");
    assert_eq!(world.store().files, [(NAME.to_owned(), b"a store".to_vec())].into());
    world.lock().store.files.insert(NAME.to_owned(), b"as it was before".to_vec());
    upgraded(&world).await.unwrap_err();
    world.lock().stuck = None;
    upgraded(&world).await.unwrap();
    assert_eq!(world.store().files, [(NAME.to_owned(), b"as it was before".to_vec())].into());
    assert_eq!(world.called("snapshot"), 1);
}

/// Of two with one name, the later one would be of a store in which the new API server has written.
#[tokio::test(start_paused = true)]
async fn snapshot_kept_elsewhere_is_not_taken_again() {
    let world = world();
    world.lock().stuck = Some("cp3");
    upgraded(&world).await.unwrap_err();
    world.lock().store.files.clear();
    world.lock().stuck = None;
    let said = Mutex::new(Vec::new());
    let heard = |notice: &Notice<'_>| {
        if let Notice::NoSnapshot { name } = notice {
            said.lock().unwrap().push((*name).to_owned());
        }
    };
    deployment(&world, &heard).upgrade_kubernetes(&options(None), TakeOver::FromTheDead).await.unwrap();
    assert_eq!(*said.lock().unwrap(), ["before-kubernetes-1.36.db"]);
    assert!(world.store().files.is_empty() && world.called("snapshot") == 1, "{:?}", world.store().files);
    assert_eq!(runs(&world).await, ["1.36.3"; 3]);
}

#[tokio::test(start_paused = true)]
async fn overtaken_command_upgrades_no_further_node() {
    let world = world();
    let overtaking = |notice: &Notice<'_>| {
        if matches!(notice, Notice::Kubernetes { index: 1, total: 3, .. }) {
            world.lock().store.holds.entry(2).or_default();
        }
    };
    let error = deployment(&world, &overtaking).upgrade_kubernetes(&options(None), TakeOver::FromTheDead).await;
    assert!(format!("{:#}", error.unwrap_err()).contains("nothing more is done here"));
    assert_eq!(runs(&world).await, ["1.35.4", "1.36.3", "1.35.4"]);
}

#[tokio::test(start_paused = true)]
async fn node_declined_at_its_notice_is_not_asked() {
    let world = world();
    let (cancel, cancelled) = watch::channel(false);
    let ending = |notice: &Notice<'_>| {
        if matches!(notice, Notice::Kubernetes { index: 1, total: 3, .. }) {
            cancel.send_replace(true);
        }
    };
    let deployment = Deployment { cancelled, ..deployment(&world, &ending) };
    let error = deployment.upgrade_kubernetes(&options(None), TakeOver::FromTheDead).await.unwrap_err();
    assert!(error.is::<crate::Cancelled>(), "{error:#}");
    for (name, address) in world.control_nodes().await.unwrap() {
        assert_eq!(world.facts(address).await.unwrap().kubernetes.upgrade, None, "{name} was asked");
    }
    assert_eq!(runs(&world).await, ["1.35.4", "1.36.3", "1.35.4"]);
}

#[tokio::test(start_paused = true)]
async fn api_with_too_many_nodes_asks_none() {
    let world = world();
    world.lock().nodes = vec!["cp1"; 10];
    let error = format!("{:#}", planned_to(&world, None).await.unwrap_err());
    assert!(error.contains("lists 10 control-plane nodes"), "{error}");
    assert_eq!(world.called("facts"), 0);
}

#[tokio::test(start_paused = true)]
async fn other_than_next_minor_version_is_refused() {
    let world = world();
    for to in ["1.37", "1.34", "new"] {
        assert_eq!(codes_of(&planned_to(&world, Some(to)).await.unwrap_err()), ["upgrade.kubernetes-skew"], "{to}");
    }
    upgraded(&world).await.unwrap();
    // The image has no later one.
    assert_eq!(codes_of(&planned_to(&world, None).await.unwrap_err()), ["upgrade.kubernetes"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_is_not_committed_comes_first() {
    let world = world();
    let swap = contract::swap::Request {
        id: uuid::Uuid::from_u128(7),
        to: crate::upgrade::tests::fake::new(),
        drain_seconds: 1,
        downgrade: false,
        publisher: None,
    };
    world.request(world.control_nodes().await.unwrap()[1].1, NodeRequest::BeginSwap(&swap)).await.unwrap();
    let refused = planned_to(&world, None).await.unwrap_err();
    assert_eq!(codes_of(&refused), ["upgrade.swap-open"]);
}
