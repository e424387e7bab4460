use super::*;
use crate::upgrade::tests::fake::{Ill, World};
use crate::upgrade::{Mode, Nodes};

fn world() -> World {
    World::of(3, Mode::Rolling, Ill::Well)
}

fn options(to: Option<&str>) -> KubernetesOptions {
    KubernetesOptions { to: to.map(str::to_owned), drain_seconds: 1, limit: Duration::from_secs(30) }
}

fn command<'s>(world: &'s World, directory: &'s std::path::Path) -> Command<'s> {
    Command { hypervisor: world, nodes: world, directory, say: &|_| {}, pace: Duration::ZERO }
}

fn runs(world: &World) -> Vec<String> {
    let nodes = world.control_nodes().unwrap();
    nodes.iter().map(|(_, address)| world.facts(*address).unwrap().kubernetes.version).collect()
}

fn codes_of(refused: &anyhow::Error) -> Vec<&'static str> {
    let refusals: &Refusals = refused.downcast_ref().unwrap();
    refusals.0.iter().map(|refusal| refusal.code).collect()
}

#[test]
fn all_nodes_are_taken_to_the_next_minor_and_the_one_with_the_roles_comes_last() {
    let (world, directory) = (world(), tempfile::tempdir().unwrap());
    let command = command(&world, directory.path());
    let plan = command.plan_kubernetes(&options(None)).unwrap();
    assert_eq!(plan.to, "1.36");
    let order: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(order, ["cp2", "cp3", "cp1"]);
    assert_eq!(runs(&world), ["1.35.4"; 3], "a plan changes nothing");
    assert_eq!(command.upgrade_kubernetes(&options(None)).unwrap().nodes, plan.nodes);
    assert_eq!(runs(&world), ["1.36.3"; 3]);
    assert!(directory.path().join("before-kubernetes-1.36.snapshot").exists());
    assert_eq!(world.lease().unwrap().unwrap().holder, None, "the lock is given back");
    let again = command.plan_kubernetes(&options(Some("1.36"))).unwrap_err();
    assert_eq!(codes_of(&again), ["upgrade.nothing-to-do"]);
}

#[test]
fn what_was_broken_off_is_gone_on_with() {
    let (world, directory) = (world(), tempfile::tempdir().unwrap());
    let command = command(&world, directory.path());
    world.refuse_kubernetes(Some("cp3"));
    let error = format!("{:#}", command.upgrade_kubernetes(&options(None)).unwrap_err());
    assert!(error.contains("cp3 does not run Kubernetes 1.36 yet") && error.contains("drain"), "{error}");
    assert_eq!(runs(&world), ["1.35.4", "1.36.3", "1.35.4"]);
    world.refuse_kubernetes(None);
    let plan = command.upgrade_kubernetes(&options(None)).unwrap();
    assert_eq!(plan.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["cp3", "cp1"]);
    assert_eq!(runs(&world), ["1.36.3"; 3]);
}

#[test]
fn another_minor_than_the_next_one_is_refused() {
    let (world, directory) = (world(), tempfile::tempdir().unwrap());
    let command = command(&world, directory.path());
    for (to, code) in
        [("1.37", "upgrade.kubernetes-skew"), ("1.34", "upgrade.kubernetes-skew"), ("new", "upgrade.kubernetes-skew")]
    {
        assert_eq!(codes_of(&command.plan_kubernetes(&options(Some(to))).unwrap_err()), [code], "{to}");
    }
    command.upgrade_kubernetes(&options(None)).unwrap();
    // The image has no later one.
    assert_eq!(codes_of(&command.plan_kubernetes(&options(None)).unwrap_err()), ["upgrade.kubernetes"; 3]);
}

#[test]
fn a_swap_that_is_not_committed_comes_first() {
    let (world, directory) = (world(), tempfile::tempdir().unwrap());
    let swap = contract::swap::Request {
        id: uuid::Uuid::from_u128(7),
        to: crate::upgrade::tests::fake::new(),
        drain_seconds: 1,
        downgrade: false,
        publisher: None,
    };
    world.begin_swap(world.control_nodes().unwrap()[1].1, &swap).unwrap();
    let refused = command(&world, directory.path()).plan_kubernetes(&options(None)).unwrap_err();
    assert_eq!(codes_of(&refused), ["upgrade.swap-open"]);
}
