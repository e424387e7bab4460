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
    /// Whether a cluster has DRS turned off. No host is chosen for a VM that is made there without one: "for a stand-alone host or a cluster
    /// with DRS, host can be omitted, and the system selects a default" (vSphere Web Services API, `ResourcePool.ImportVApp`).
    ///
    /// # Errors
    /// When it is no cluster, or cannot be read; [`crate::Error::Unreadable`] where the account may not see how it is set, which takes
    /// `System.Read` on it.
    pub async fn lacks_drs(&self, cluster: &MoRef) -> Result<bool> {
        let look = self.look(cluster, &["configurationEx"]).await?;
        let configuration = look.need_readable("configurationEx", &format!("the cluster {cluster}"))?;
        let drs = configuration.child("drsConfig");
        Ok(drs.is_some_and(|drs| drs.child("enabled").is_some() && !drs.flag("enabled")))
    }

    /// Whether DRS of a cluster only recommends where VMs are put (`ClusterDrsConfigInfo.defaultVmBehavior`): a VM that is made there without a
    /// host may be refused ("DRS-enabled cluster in manual mode, an InvalidArgument exception is thrown", `VAppCloneSpec.host`).
    ///
    /// # Errors
    /// As [`Client::lacks_drs`].
    pub async fn only_recommends(&self, cluster: &MoRef) -> Result<bool> {
        let look = self.look(cluster, &["configurationEx"]).await?;
        let configuration = look.need_readable("configurationEx", &format!("the cluster {cluster}"))?;
        let drs = configuration.child("drsConfig");
        Ok(drs.is_some_and(|drs| drs.flag("enabled") && drs.text_of("defaultVmBehavior") == Some("manual")))
    }

    /// Whether a clone that names no host is put onto any one of a cluster without DRS: "if a resource pool is specified, the target pool
    /// represents a cluster, and this is a clone [..], a random compatible host is chosen" (`VirtualMachineRelocateSpec.host` of 9.0). An
    /// import is not.
    #[must_use]
    pub fn clones_to_any_host(&self) -> bool {
        let version = &self.service().about.api_version;
        version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 9)
    }

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
