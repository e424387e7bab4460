//! What a cluster does with VMs by itself: rules that keep them apart, and restarts after a host has failed.

mod restart;
mod rules;
#[cfg(test)]
mod tests;

pub use restart::RestartPriority;
pub use rules::AntiAffinity;

use crate::changes::Changes;
use crate::client::Client;
use crate::error::Result;
use crate::method::RECONFIGURE_COMPUTE_RESOURCE;
use crate::reference::MoRef;
use crate::soap::Element;

impl Client {
    /// A cluster's configuration. It is asked for whole: parts of it are not those of its declared type.
    async fn cluster_configuration(&self, cluster: &MoRef) -> Result<Element> {
        Ok(self.look(cluster, &["configurationEx"]).await?.need("configurationEx")?.clone())
    }
}

impl Changes<'_> {
    /// Changes a part of a cluster's configuration; all else stays.
    async fn change_cluster(&self, cluster: &MoRef, part: Element) -> Result<()> {
        let spec = Element::new("spec").of("ClusterConfigSpecEx").with([part]);
        self.run(RECONFIGURE_COMPUTE_RESOURCE, cluster, vec![spec, Element::text("modify", true)]).await.map(drop)
    }
}
