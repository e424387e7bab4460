//! All that vSphere HA is told of one VM (`ClusterDasVmConfigInfo.dasSettings`), as it stands in the cluster's configuration.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::Result;
use crate::reference::MoRef;
use crate::soap::Element;

impl Client {
    /// The settings of a VM's override; none if it has none.
    ///
    /// # Errors
    /// When it is no cluster, or cannot be read.
    pub async fn override_of(&self, cluster: &MoRef, vm: &MoRef) -> Result<Option<Element>> {
        let configuration = self.cluster_configuration(cluster).await?;
        let mut overrides = configuration.all("dasVmConfig");
        let found = overrides.find(|info| info.reference_of("key").as_ref() == Some(vm));
        Ok(found.and_then(|info| info.child("dasSettings")).cloned())
    }
}

impl Changes<'_> {
    /// Adds an override to a VM that has none. Each setting is a name of `ClusterDasVmSettings`, in the order of that type, and its value.
    ///
    /// # Errors
    /// `InvalidArgument` when the VM has one.
    pub async fn add_override(&self, cluster: &MoRef, vm: &MoRef, settings: &[(&str, &str)]) -> Result<()> {
        let settings = settings.iter().map(|(name, value)| Element::text(*name, value));
        let settings = Element::new("dasSettings").with(settings);
        let info = Element::new("info").with([Element::reference("key", vm), settings]);
        let change = Element::new("dasVmConfigSpec").with([Element::text("operation", "add"), info]);
        self.change_cluster(cluster, change).await
    }

    /// Removes the override of a VM.
    ///
    /// # Errors
    /// `InvalidArgument` when it has none.
    pub async fn remove_override(&self, cluster: &MoRef, vm: &MoRef) -> Result<()> {
        let key = Element::reference("removeKey", vm).of("ManagedObjectReference");
        let change = Element::new("dasVmConfigSpec").with([Element::text("operation", "remove"), key]);
        self.change_cluster(cluster, change).await
    }
}
