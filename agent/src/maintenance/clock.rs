//! The clock. Keeps the time on the data disk and makes sure that only one source corrects the clock. Reports a clock that is
//! wrong or follows no time server.

use contract::finding::Findings;

use crate::intake::preflight::Clock;
use crate::node::context::NodeContext;
use crate::system::{clock, host_clock, time};

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let (platform, servers) = (&node.platform, &node.config.node().time_servers());
    let now = Clock::of(platform.root());
    let (followed, finding) = time::look(platform, node.runner(), servers);
    clock::keep(platform.root(), now, followed)?;
    let mut findings = Findings::from(finding);
    findings.extend(clock::judge(now, false).into());
    let earliest = clock::earliest(platform.root(), now.image);
    findings.extend(host_clock::ensure(platform, node.runner(), servers, earliest).err().into());
    Ok(findings)
}
