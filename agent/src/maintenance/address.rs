//! The address of a worker by DHCP. The cluster knows the node by the address that it joined with. The Node object, the
//! other nodes' tunnels of the pod network and the serving certificate contain it. With another address the node would
//! look healthy, but its pod network would be cut off. Therefore the kubelet is stopped until the node has its address
//! again.

use contract::finding::Findings;

use crate::cluster::kubernetes::kubelet;
use crate::node::context::NodeContext;
use crate::system::lease::{self, LeaseState, ObservedLease};

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let worker = node.config.worker()?;
    let Some(joined_with) = worker.node.lease() else { return Ok(Findings::default()) };
    let seen = match lease::look(&node.platform, node.bus(), &worker.node) {
        Ok(seen) => seen,
        Err(findings) => return Ok(findings),
    };
    if matches!(seen, ObservedLease::Nothing { .. })
        && let Err(findings) = lease::retry_failed(&node.platform, node.bus(), &worker.node)
    {
        return Ok(findings);
    }
    let standing = lease::compare_lease(worker, joined_with, &seen);
    if matches!(standing, LeaseState::Changed(_) | LeaseState::Unfit(_))
        && let Err(findings) = lease::request_again(&node.platform, node.bus(), &worker.node)
    {
        log::warn!("{}", findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    }
    judge(node, standing)
}

fn judge(node: &NodeContext, standing: LeaseState) -> anyhow::Result<Findings> {
    Ok(match standing {
        LeaseState::Kept => {
            if kubelet::resume(node.root(), &node.services())? {
                log::info!("the node has its address again: the kubelet is started");
            }
            Findings::default()
        }
        // The node and the cluster cannot reach each other. The cluster notices that without help.
        LeaseState::Lost(finding) => finding.into(),
        // The node keeps its address. It may have lost routes to others, but stopping the kubelet would not help.
        LeaseState::Unfit(findings) => findings,
        LeaseState::Changed(finding) => {
            if kubelet::suspend(node.root(), &node.services())? {
                log::error!("{finding}: the kubelet is stopped");
            }
            finding.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::{Address, Config, Lease, fixture};

    #[test]
    fn kubelet_stops_while_the_address_differs() {
        let root = tempfile::tempdir().unwrap();
        let mut worker = fixture::joined();
        let lease = |address: &str| Lease { address: address.parse().unwrap(), ntp_servers: Vec::new() };
        let own = lease("10.0.0.21/24");
        worker.node.interfaces[0].address = Address::Dhcp { lease: Some(own.clone()) };
        let node = crate::node::fixture::node(root.path(), Config::Worker(worker.clone()));
        let is_active = || node.services().state(kubelet::UNIT).unwrap() == "active";
        let look = |seen: ObservedLease| {
            let findings = judge(&node, lease::compare_lease(&worker, &own, &seen)).unwrap();
            findings.iter().map(|finding| finding.code.clone()).collect::<Vec<_>>()
        };
        let nothing = || ObservedLease::Nothing { device: "ens192".to_owned() };
        node.services().start(kubelet::UNIT).unwrap();
        assert!(look(ObservedLease::Leased(own.clone())).is_empty() && is_active());
        // A server that is away for a while.
        assert_eq!(look(nothing()), ["address.lost"]);
        assert!(is_active());
        assert_eq!(look(ObservedLease::Leased(lease("10.0.0.77/24"))), ["address.changed"]);
        assert!(!is_active());
        assert_eq!(look(nothing()), ["address.lost"]);
        assert!(!is_active(), "it may come back with another address still");
        assert!(look(ObservedLease::Leased(own.clone())).is_empty() && is_active());
        assert_eq!(
            look(ObservedLease::Leased(lease("10.0.0.21/7"))),
            ["address.prefix", "range.overlap", "range.overlap"]
        );
        assert!(is_active(), "it has its address");
        // A kubelet that the operator has stopped stays stopped.
        node.services().stop(kubelet::UNIT, std::time::Duration::from_secs(600)).unwrap();
        assert!(look(ObservedLease::Leased(own.clone())).is_empty() && !is_active());
    }
}
