//! Whether a VM with a blank disk belongs to a cluster that has formed already. Then its node's data is on another
//! disk. This is checked before the blank disk is changed.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use contract::codes;
use contract::finding::Finding;
use contract::ports;
use contract::properties::ControlNode;

use crate::host::at_once;
use crate::intake::config::Config;

/// How long a peer may take to accept a connection, times the timeout factor.
const PROBE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    /// It forms a cluster with others, or admits a node in place of a lost one.
    rendezvous: bool,
    api: bool,
}

/// Asks the other control-plane nodes. This is only a hint that keeps a disk blank. The rendezvous proves that no
/// second cluster is formed.
pub fn existing_cluster(config: &Config) -> Option<Finding> {
    let listens = |node: &ControlNode, port| {
        TcpStream::connect_timeout(&SocketAddr::from((node.address, port)), config.timeout(PROBE)).is_ok()
    };
    let seen = at_once::ask(config.peers().cloned(), |node| Open {
        rendezvous: listens(node, ports::RENDEZVOUS),
        api: listens(node, ports::API),
    });
    judge(&config.node().name, &seen)
}

fn judge(own: &str, seen: &[(ControlNode, Open)]) -> Option<Finding> {
    if seen.iter().any(|(_, open)| open.rendezvous) {
        return None;
    }
    let (peer, _) = seen.iter().find(|(_, open)| open.api)?;
    Some(codes::CLUSTER_EXISTS.finding(
        "data disk",
        format!(
            "it is blank, and {} ({}) serves the API of a cluster that has formed: what {own} was is on another disk. \
             Nothing was written",
            peer.name, peer.address
        ),
        format!(
            "Power off and attach the data disk of the node's former VM in its stead; if that one is lost: `kaas-agent \
             replace-member {own}` on {}. A blank disk joins only then",
            peer.name
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::{one_node, three_nodes};

    #[test]
    fn blank_disk_waits_if_cluster_admits_no_node() {
        let config = three_nodes();
        let look = |two: (bool, bool), three: (bool, bool)| {
            let seen: Vec<_> = config.peers().cloned().zip([two, three]).collect();
            let open = |(node, (rendezvous, api))| (node, Open { rendezvous, api });
            judge("node1", &seen.into_iter().map(open).collect::<Vec<_>>())
        };
        let (nothing, meets, serves, both) = ((false, false), (true, false), (false, true), (true, true));
        let table = [
            ("all are off", nothing, nothing, None),
            ("all begin", meets, meets, None),
            ("one has gone ahead and waits for this node", both, nothing, None),
            ("one waits for this node, the other has joined", both, serves, None),
            ("one admits this node", both, serves, None),
            ("it has formed", serves, serves, Some("node2")),
            ("it has formed, one is off", nothing, serves, Some("node3")),
        ];
        for (what, two, three, expected) in table {
            let found = look(two, three);
            assert_eq!(found.is_some(), expected.is_some(), "{what}");
            if let (Some(finding), Some(peer)) = (found, expected) {
                assert_eq!(finding.code, "cluster.exists", "{what}");
                assert!(finding.seen.contains(peer) && finding.action.contains("former VM"), "{what}: {finding}");
            }
        }
        assert_eq!(existing_cluster(&Config::ControlPlane(one_node())), None);
    }
}
