//! A node's swap, asked for as the operator's command does, a step at a time.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::bail;
use contract::node;
use contract::swap;
use fleet::nodes::Client;
use fleet::upgrade::{Asked, NodeRequest, Nodes};
use uuid::Uuid;

use crate::endpoint;
use crate::scenario::Scenario;

/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(180);
/// How long pods may take to move away, in seconds.
const DRAIN: u64 = 60;

/// A node, asked from outside.
pub struct Node<'a> {
    scenario: &'a Scenario,
    pub name: &'a str,
    address: Ipv4Addr,
    client: Client,
}

impl<'a> Node<'a> {
    /// A node of a scenario's cluster.
    pub fn of(scenario: &'a Scenario, name: &'a str) -> anyhow::Result<Self> {
        let lab = scenario.lab();
        let client = Client::from_inside(&lab.kubeconfig()?, lab.network_namespace())?;
        Ok(Self { scenario, name, address: endpoint::address(scenario, name), client })
    }

    /// Its facts, as it reports them.
    pub fn facts(&self) -> anyhow::Result<node::Node> {
        self.client.wait(self.client.facts(self.address))
    }

    /// Whether it holds the virtual IP.
    pub fn holds_address(&self) -> bool {
        self.facts().is_ok_and(|facts| facts.virtual_address.is_some_and(|address| address.held))
    }

    /// Waits until its boot counts as healthy and no swap is under way.
    pub fn wait_until_healthy(&self) {
        let good = || self.facts().map(|facts| facts.healthy.is_some() && facts.ready);
        self.scenario.wait(&format!("{} to be found good", self.name), LIMIT, good);
    }

    /// Prepares a swap to its own image and returns the swap's identifier.
    pub fn prepare(&self) -> anyhow::Result<Uuid> {
        let to = self.facts()?.image.build();
        let request = swap::Request { id: Uuid::new_v4(), to, drain_seconds: DRAIN, downgrade: false, publisher: None };
        self.until_done("be prepared", NodeRequest::BeginSwap(&request))?;
        Ok(request.id)
    }

    /// Withdraws it.
    pub fn cancel(&self, swap: Uuid) -> anyhow::Result<()> {
        self.until_done("withdraw its swap", NodeRequest::CancelSwap(swap))
    }

    /// Makes it final, if one is open.
    pub fn commit(&self) -> anyhow::Result<()> {
        let Some(swap) = self.facts()?.swap.map(|swap| swap.id) else { return Ok(()) };
        self.until_done("commit", NodeRequest::Commit(swap))
    }

    fn until_done(&self, what: &str, request: NodeRequest<'_>) -> anyhow::Result<()> {
        let ask = || self.client.wait(self.client.request(self.address, request));
        lab::until(&format!("{} to {what}", self.name), LIMIT, || match ask()? {
            Asked::Done => Ok(true),
            Asked::Begun => Ok(false),
            Asked::Refused(why) => bail!("it refuses: {why}"),
            Asked::Unknown => bail!("its image does not know how"),
        })
    }
}
