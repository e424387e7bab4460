//! Measures the swap of a node's VM, and a plain restart of the same VM, from the request until the node is ready. The VMs
//! are system containers. The two cases alternate.

use std::time::{Duration, Instant};

use anyhow::Result;
use scenarios::by_hand::{import, move_disk};
use scenarios::node_swap::Node;
use scenarios::scenario::{FORMING, Scenario, Setting};

use super::median;

/// Turns of each.
const TURNS: usize = 3;
const LIMIT: Duration = Duration::from_secs(240);

/// Measures and prints.
pub fn bench() -> Result<()> {
    let scenario = Scenario::prepare(&Setting::one("swapped"));
    let lab = scenario.lab();
    let mut vm = "cp1".to_owned();
    lab.power_on(&vm)?;
    scenario.all_ready(FORMING);
    scenario.says(&vm, "kaas: ready", LIMIT);
    let node = Node::of(&scenario, "cp1")?;
    let (mut restarts, mut swaps) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let begun = Instant::now();
        lab.shut_down(&vm, LIMIT)?;
        lab.power_on(&vm)?;
        scenario.says(&vm, "kaas: ready", LIMIT);
        restarts.push(begun.elapsed().as_secs_f64());
        node.wait_until_healthy();

        let new = format!("cp1-{turn}");
        import(&scenario, &new, None);
        let begun = Instant::now();
        node.prepare()?;
        lab.shut_down(&vm, LIMIT)?;
        move_disk(&scenario, &vm, &new);
        lab.power_on(&new)?;
        scenario.says(&new, "kaas: ready", LIMIT);
        swaps.push(begun.elapsed().as_secs_f64());
        node.wait_until_healthy();
        node.commit()?;
        lab.destroy(&vm)?;
        vm = new;
    }
    let (swap, restart) = (median(swaps), median(restarts));
    println!("swap: {swap:.1} s for the swap of a node's VM, {:.2} of its restart's {restart:.1} s", swap / restart);
    Ok(())
}
