//! Credentials that expire, and nodes that are all off.

use std::sync::Mutex as Shared;

use anyhow::bail;

use super::*;
use crate::hypervisor::PowerState;
use crate::lease::{Lease, Lost, TakeOver};
use crate::upgrade::guarded_nodes::GuardedNodes;
use crate::upgrade::tests::command::deployment;
use crate::upgrade::tests::failing::{stop_before, world};
use crate::upgrade::tests::fake::{Ill, NODES, World, address, new, old};
use crate::upgrade::{Action, Deployment, Mode, OfflineNodes, Outcome, Request, RunOutcome, Step};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Nodes that show whose credentials they are asked with.
fn given(whence: &str, ends: SystemTime) -> Given {
    Given { nodes: Arc::new(OfflineNodes::because(whence)), ends, whence: whence.to_owned() }
}

async fn asked_with(nodes: &Renewed<'_>) -> String {
    nodes.cluster().await.unwrap_err().to_string().replace("it is not asked: ", "")
}

/// Credentials that are given, the next of these each time. Also how often they were asked for.
#[derive(Default)]
struct Issuer {
    gives: Shared<Vec<Option<Given>>>,
    asked: Shared<usize>,
}

impl Issuer {
    fn of(gives: Vec<Option<Given>>) -> Self {
        Self { gives: Shared::new(gives), asked: Shared::default() }
    }

    fn nodes(&self, first: Option<Given>, last: Option<Given>) -> Renewed<'_> {
        Renewed::new(first, last, || {
            Box::pin(async {
                *self.asked.lock().unwrap() += 1;
                let mut gives = self.gives.lock().unwrap();
                let next = if gives.is_empty() { None } else { gives.remove(0) };
                next.ok_or_else(|| anyhow::anyhow!("no VM is on"))
            })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn expired_credentials_are_renewed_once_nodes_answer() {
    let now = SystemTime::now();
    let issuer = Issuer::of(vec![None, Some(given("a node", now + DAY))]);
    let nodes = issuer.nodes(None, Some(given("the file", now - DAY)));
    let told = nodes.ready().await.unwrap_err().to_string();
    assert!(told.contains("the credentials of the file have ended") && told.contains("no VM is on"), "{told}");
    // Credentials are not asked for again and again meanwhile.
    nodes.ready().await.unwrap_err();
    assert_eq!(*issuer.asked.lock().unwrap(), 1);
    tokio::time::advance(PAUSE).await;
    assert_eq!(asked_with(&nodes).await, "a node");
    assert_eq!(asked_with(&nodes).await, "a node");
    assert_eq!(*issuer.asked.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn expiring_credentials_are_used_only_without_others() {
    let now = SystemTime::now();
    let soon = now + ENDING / 2;
    let issuer = Issuer::of(Vec::new());
    assert_eq!(asked_with(&issuer.nodes(Some(given("the option", now + DAY)), None)).await, "the option");
    assert_eq!(*issuer.asked.lock().unwrap(), 0);
    assert_eq!(asked_with(&issuer.nodes(Some(given("the option", soon)), None)).await, "the option");
    assert_eq!(asked_with(&issuer.nodes(None, Some(given("the file", soon)))).await, "the file");
    assert_eq!(*issuer.asked.lock().unwrap(), 2);
    let issuer = Issuer::of(vec![Some(given("a node", now + DAY))]);
    assert_eq!(asked_with(&issuer.nodes(Some(given("the option", soon)), None)).await, "a node");
}

/// The nodes of a world.
struct InWorld(Arc<World>);

#[async_trait]
impl Nodes for InWorld {
    async fn cluster(&self) -> anyhow::Result<Uuid> {
        self.0.cluster().await
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        self.0.control_nodes().await
    }

    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        self.0.facts(node).await
    }

    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked> {
        self.0.request(node, request).await
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path, room: &SpaceQuota) -> anyhow::Result<u64> {
        self.0.snapshot(node, to, room).await
    }

    async fn publish(&self, status: &str) -> anyhow::Result<()> {
        self.0.publish(status).await
    }
}

#[tokio::test(start_paused = true)]
async fn upgrade_continues_with_all_nodes_off() {
    for (count, mode) in [(1, Mode::Rolling), (3, Mode::AllAtOnce)] {
        for (verb, outcome, image) in
            [(Request::Resume, Outcome::Upgraded, new()), (Request::Rollback, Outcome::RolledBack, old())]
        {
            let told = format!("{count} nodes, {verb:?}");
            let world = Arc::new(world(count, mode, Ill::Well).await);
            stop_before(&world, Request::Resume, Step::of(Action::Detach, count - 1)).await;
            let is_off = |world: &World| {
                let state = world.lock();
                state.machines.iter().filter(|machine| machine.ours).all(|machine| machine.vm.power == PowerState::Off)
            };
            assert!(is_off(&world), "{told}");
            let renew = || -> Asking<'_> {
                Box::pin(async {
                    for node in &NODES[..count] {
                        if world.facts(address(node)).await.is_ok() {
                            let ends = SystemTime::now() + DAY;
                            return Ok(Given {
                                nodes: Arc::new(InWorld(Arc::clone(&world))),
                                ends,
                                whence: "a node".to_owned(),
                            });
                        }
                    }
                    bail!("no VM is on")
                })
            };
            let ended = given("the file", SystemTime::now() - DAY);
            let nodes = Renewed::new(None, Some(ended), renew);
            nodes.ready().await.unwrap_err();
            world.fault(None);
            let deployment = Deployment { nodes: &nodes, ..deployment(&world, &|_| {}) };
            let (arrived, _) = deployment.go_on(verb, None, TakeOver::FromAnyone).await.unwrap();
            assert_eq!(arrived, RunOutcome::Ended(outcome), "{told}");
            world.all_run(&image, false).await;
        }
    }
}

/// Longer than a permission to change something is valid, with the time that a request may take to arrive.
const SLOW: Duration = Duration::from_secs(40);

#[tokio::test(start_paused = true)]
async fn command_overtaken_during_renewal_changes_no_node() {
    let world = Arc::new(world(1, Mode::Rolling, Ill::Well).await);
    world.fault(None);
    let hold = Lease::acquire(&*world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let renew = || -> Asking<'_> {
        Box::pin(async {
            tokio::time::sleep(SLOW).await;
            world.overtake();
            let ends = SystemTime::now() + DAY;
            Ok(Given { nodes: Arc::new(InWorld(Arc::clone(&world))), ends, whence: "a node".to_owned() })
        })
    };
    let nodes = Renewed::new(None, None, renew);
    let guarded = GuardedNodes::new(&nodes, &hold);
    let refused = guarded.request(address(NODES[0]), NodeRequest::CancelSwap(Uuid::from_u128(1))).await.unwrap_err();
    assert!(refused.is::<Lost>(), "{refused:#}");
    assert_eq!(world.called("cancel_swap"), 0);
}

#[tokio::test(start_paused = true)]
async fn changes_use_the_credentials_at_hand() {
    let now = SystemTime::now();
    let renew = || -> Asking<'_> { Box::pin(std::future::pending()) };
    let nodes = Renewed::new(Some(given("the option", now + ENDING / 2)), None, renew);
    // Also while another one waits for credentials.
    let words = tokio::select! {
        biased;
        _ = nodes.cluster() => unreachable!("nobody gives any"),
        changed = nodes.request(Ipv4Addr::LOCALHOST, NodeRequest::CancelSwap(Uuid::from_u128(1))) => changed.unwrap_err().to_string(),
        () = tokio::time::sleep(SLOW) => panic!("it waits"),
    };
    assert!(words.contains("the option"), "{words}");
    let nodes = Renewed::new(None, Some(given("the file", now - DAY)), renew);
    let asked = nodes.request(Ipv4Addr::LOCALHOST, NodeRequest::Commit(Uuid::from_u128(1)));
    let words = tokio::time::timeout(SLOW, asked).await.expect("it does not wait").unwrap_err().to_string();
    assert!(words.contains("the credentials of the file have ended") && words.contains("at hand"), "{words}");
}
