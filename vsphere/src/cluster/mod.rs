//! Settings of a cluster about VMs: rules that keep them apart, and restarts after the failure of a host.

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
    /// Whether DRS of a cluster is off. Then vCenter selects no host for a new VM: "for a stand-alone host or a cluster
    /// with DRS, host can be omitted, and the system selects a default" (vSphere Web Services API,
    /// `ResourcePool.ImportVApp`).
    ///
    /// # Errors
    /// When it is not a cluster, or cannot be read. [`crate::Error::Unreadable`] if the account may not read the
    /// configuration, which requires `System.Read` on the cluster.
    pub async fn lacks_drs(&self, cluster: &MoRef) -> Result<bool> {
        let look = self.look(cluster, &["configurationEx"]).await?;
        let configuration = look.need_readable("configurationEx", &format!("the cluster {cluster}"))?;
        let drs = configuration.child("drsConfig");
        Ok(drs.is_some_and(|drs| drs.child("enabled").is_some() && !drs.flag("enabled")))
    }

    /// Whether DRS of a cluster only recommends hosts for VMs (`ClusterDrsConfigInfo.defaultVmBehavior`). vCenter may
    /// then reject a new VM without a host ("DRS-enabled cluster in manual mode, an InvalidArgument exception is
    /// thrown", `VAppCloneSpec.host`).
    pub async fn only_recommends(&self, cluster: &MoRef) -> Result<bool> {
        let look = self.look(cluster, &["configurationEx"]).await?;
        let configuration = look.need_readable("configurationEx", &format!("the cluster {cluster}"))?;
        let drs = configuration.child("drsConfig");
        Ok(drs.is_some_and(|drs| drs.flag("enabled") && drs.text_of("defaultVmBehavior") == Some("manual")))
    }

    /// Whether vCenter selects a host for a clone without one in a cluster without DRS: "if a resource pool is
    /// specified, the target pool represents a cluster, and this is a clone [..], a random compatible host is chosen"
    /// (`VirtualMachineRelocateSpec.host` of 9.0). For an import it does not.
    #[must_use]
    pub fn clones_to_any_host(&self) -> bool {
        let version = &self.service().about.api_version;
        version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 9)
    }

    /// A cluster's configuration, read as a whole: its parts are not of its declared type.
    async fn cluster_configuration(&self, cluster: &MoRef) -> Result<Element> {
        Ok(self.look(cluster, &["configurationEx"]).await?.need("configurationEx")?.clone())
    }
}

impl Changes<'_> {
    /// Changes a part of a cluster's configuration. The rest is unchanged.
    async fn change_cluster(&self, cluster: &MoRef, part: Element) -> Result<()> {
        let spec = Element::new("spec").of("ClusterConfigSpecEx").with([part]);
        self.run(RECONFIGURE_COMPUTE_RESOURCE, cluster, vec![spec, Element::text("modify", true)]).await.map(drop)
    }
}
