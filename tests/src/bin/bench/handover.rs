//! Measures how long clients of the virtual IP get no answer: after a handover for a swap, and after a power cut of its
//! holder. Three system containers run. The two cases alternate.

use std::time::Duration;

use anyhow::{Context, Result};
use scenarios::node_swap::Node;
use scenarios::scenario::{ALL, Scenario};
use scenarios::writer::Writer;

use super::median;

/// Turns of each.
const TURNS: usize = 3;
/// Writes before and after.
const WRITES: usize = 10;
const LIMIT: Duration = Duration::from_secs(120);

/// Measures and prints.
pub fn bench() -> Result<()> {
    let scenario = Scenario::formed("handover");
    let nodes = ALL.map(|name| Node::of(&scenario, name)).into_iter().collect::<Result<Vec<_>>>()?;
    let (mut planned, mut cut) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        nodes.iter().for_each(Node::wait_until_healthy);
        let holder = holder(&scenario, &nodes);
        let mut swap = None;
        planned.push(gap(&scenario, &nodes, holder, || {
            swap = Some(holder.prepare()?);
            Ok(())
        })?);
        holder.cancel(swap.context("no swap was prepared")?)?;

        let holder = self::holder(&scenario, &nodes);
        cut.push(gap(&scenario, &nodes, holder, || {
            scenario.cut(holder.name);
            Ok(())
        })?);
        scenario.power_on(&[holder.name]);
    }
    let (planned, cut) = (median(planned), median(cut));
    println!(
        "handover: {planned:.1} s without a write when the virtual IP is handed over, {:.2} of the {cut:.1} s when \
         its holder loses its power",
        planned / cut
    );
    Ok(())
}

fn holder<'n>(scenario: &Scenario, nodes: &'n [Node<'n>]) -> &'n Node<'n> {
    scenario.obtain("a node to hold the virtual IP", LIMIT, || Ok(nodes.iter().find(|node| node.holds_address())))
}

/// The longest time without an acknowledged write while `leave` takes the address from a node, in seconds.
fn gap(scenario: &Scenario, nodes: &[Node<'_>], from: &Node<'_>, leave: impl FnOnce() -> Result<()>) -> Result<f64> {
    let writer = Writer::start(scenario);
    let goes_on = |what: &str| {
        let least = writer.acknowledged() + WRITES;
        scenario.wait(what, LIMIT, || Ok(writer.acknowledged() >= least));
    };
    goes_on("writes through the virtual IP");
    leave()?;
    let others = || nodes.iter().filter(|node| node.name != from.name).any(Node::holds_address);
    scenario.wait("another node to hold the virtual IP", LIMIT, || Ok(others()));
    goes_on("writes through it there");
    let figures = writer.end();
    scenario.reached(&figures.to_string());
    Ok(figures.longest_gap.as_secs_f64())
}
