//! Shares the revoked certificates with the other control-plane nodes. See [`crate::cluster::certificates::revoked`].

use contract::finding::Findings;

use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::certificates::revocation_list;
use crate::cluster::etcd::client::EtcdClient;
use crate::node::context::NodeContext;

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let config = node.control_plane()?;
    let etcd = EtcdClient::new(config.control_node()?, &node.pki(), config.timeout(REQUEST))?;
    let root = node.root().to_owned();
    Ok(Some(Box::new(move |_| revocation_list::share(&root, &etcd).map(|()| Findings::default()))))
}
