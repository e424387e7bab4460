//! Renews all of a node's certificates when an operator has asked for it, and follows until the control plane runs with the new
//! ones. See [`crate::cluster::certificates::renew`].

use std::time::SystemTime;

use contract::finding::Findings;

use super::{certificates, endpoint};
use crate::cluster::certificates::renew::{Renewal, Stage};
use crate::cluster::certificates::renewal;
use crate::cluster::kubernetes::kubeadm;
use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let Some(renewal) = node.records.entry::<Renewal>()? else { return Ok(Findings::default()) };
    let reached = match renewal.stage {
        Stage::Done => return Ok(Findings::default()),
        // The node is about to leave, or its control plane starts again anyway.
        _ if node.endpoint.swaps().under_way().is_some() => return Ok(Findings::default()),
        Stage::Asked => {
            log::info!("this node's certificates are renewed, as an operator has asked");
            renewal::all_now(node.root(), node.control_plane()?, node.runner(), SystemTime::now())?;
            endpoint::look(node)?;
            certificates::look(node)?;
            Stage::Renewed
        }
        Stage::Renewed => match restarting(node) {
            Ok(None) => Stage::Done,
            Ok(Some(waiting)) => {
                log::debug!("{waiting}");
                return Ok(Findings::default());
            }
            // The API server here starts again.
            Err(error) => {
                log::debug!("looking whether the control plane runs with the new certificates: {error:#}");
                return Ok(Findings::default());
            }
        },
    };
    node.records.update_entry(&Renewal { stage: reached, ..renewal })?;
    Ok(Findings::default())
}

/// What does not run with the new certificates yet, if anything.
fn restarting(node: &NodeContext) -> anyhow::Result<Option<String>> {
    node.api()?.restarting(&node.config.node().name, &kubeadm::marks(node.root()))
}
