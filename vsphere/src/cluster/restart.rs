//! The order in which vSphere HA restarts VMs after the failure of a host.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::Result;
use crate::reference::MoRef;
use crate::soap::Element;

/// The restart of a VM by HA (`ClusterDasVmSettings.restartPriority`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPriority {
    /// It is not restarted.
    Disabled,
    /// After the others.
    Low,
    /// Between the others.
    Medium,
    /// Before the others.
    High,
    /// Before all others.
    Highest,
}

impl RestartPriority {
    const ALL: [(Self, &str); 5] = [
        (Self::Disabled, "disabled"),
        (Self::Low, "low"),
        (Self::Medium, "medium"),
        (Self::High, "high"),
        (Self::Highest, "highest"),
    ];

    /// The API's name of the priority.
    pub fn said(self) -> &'static str {
        Self::ALL.iter().find(|(priority, _)| *priority == self).map_or("medium", |(_, said)| said)
    }
}

/// The priority of a VM whose override has none (`ClusterDasVmSettingsRestartPriority`).
const OF_CLUSTER: &str = "clusterRestartPriority";
/// The values of settings that leave the decision to the cluster: `ClusterDasVmSettings`, `ClusterVmComponentProtectionSettings`.
const OF_CLUSTERS: [&str; 6] =
    ["", OF_CLUSTER, "clusterIsolationResponse", "-1", "clusterDefault", "useClusterDefault"];
/// The order of `ClusterDasVmSettings` and `ClusterDasVmConfigInfo` (vSphere Web Services API 8.0).
const ORDER: [&str; 5] = [
    "restartPriority",
    "restartPriorityTimeout",
    "isolationResponse",
    "vmToolsMonitoringSettings",
    "vmComponentProtectionSettings",
];

/// Whether a setting of an override leaves the decision to the cluster. vCenter may add such settings.
fn is_of_cluster(setting: &Element) -> bool {
    // Ignored in overrides (reference of `ClusterVmComponentProtectionSettings`).
    if setting.name() == "enableAPDTimeoutForHosts" {
        return true;
    }
    match setting.children() {
        [] => OF_CLUSTERS.contains(&setting.value()),
        settings => setting.flag("clusterSettings") || settings.iter().all(is_of_cluster),
    }
}

/// The override of the cluster's settings for one VM (`ClusterDasVmConfigInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Override {
    vm: MoRef,
    info: Element,
}

impl Override {
    fn said(&self) -> &str {
        self.info.at(&["dasSettings", "restartPriority"]).map(Element::value).unwrap_or_default()
    }

    /// Whether it sets more than the priority.
    fn sets_more(&self) -> bool {
        let settings = self.info.child("dasSettings").map(Element::children).unwrap_or_default();
        settings.iter().any(|setting| setting.name() != "restartPriority" && !is_of_cluster(setting))
    }

    /// All settings with another priority. `info.restartPriority` is deprecated, and has the old one.
    fn with(&self, priority: &str) -> Element {
        let settings = self.info.child("dasSettings").cloned().unwrap_or_else(|| Element::new("dasSettings"));
        let mut settings = settings.put_text("restartPriority", priority);
        settings.sort_by_schema(&ORDER);
        Element::new("info").with([Element::reference("key", &self.vm), settings])
    }
}

impl Client {
    async fn overrides(&self, cluster: &MoRef) -> Result<Vec<Override>> {
        let configuration = self.cluster_configuration(cluster).await?;
        let read = |info: &Element| Ok(Override { vm: info.need_reference("key")?, info: info.clone() });
        configuration.all("dasVmConfig").map(read).collect()
    }

    /// HA's priority of a VM, if it overrides the cluster's. `None` if the VM has no override, or one that this client
    /// does not set.
    pub async fn restart_priority(&self, cluster: &MoRef, vm: &MoRef) -> Result<Option<RestartPriority>> {
        let present = self.overrides(cluster).await?.into_iter().find(|present| present.vm == *vm);
        let known = |said: &str| RestartPriority::ALL.iter().find(|(_, name)| *name == said).map(|(known, _)| *known);
        Ok(present.and_then(|present| known(present.said())))
    }

    /// The value of a setting of `ClusterDasVmSettings` in a VM's override.
    pub async fn override_setting(&self, cluster: &MoRef, vm: &MoRef, setting: &str) -> Result<Option<String>> {
        let present = self.overrides(cluster).await?.into_iter().find(|present| present.vm == *vm);
        let value = present.and_then(|present| Some(present.info.at(&["dasSettings", setting])?.value().to_owned()));
        Ok(value)
    }
}

impl Changes<'_> {
    /// Sets HA's priority of a VM. `None` means the cluster's. Other overrides of the VM are unchanged. Returns whether
    /// a setting changed.
    pub async fn set_restart_priority(
        &self,
        cluster: &MoRef,
        vm: &MoRef,
        priority: Option<RestartPriority>,
    ) -> Result<bool> {
        let present = self.client.overrides(cluster).await?.into_iter().find(|present| present.vm == *vm);
        let operation = |operation: &str| Element::text("operation", operation);
        let said = priority.map_or(OF_CLUSTER, RestartPriority::said);
        let part = match present {
            None if priority.is_none() => return Ok(false),
            Some(present) if present.said() == said || (priority.is_none() && present.said().is_empty()) => {
                return Ok(false);
            }
            Some(present) if priority.is_none() && !present.sets_more() => {
                self.remove_override(cluster, vm).await?;
                return Ok(true);
            }
            Some(present) => Element::new("dasVmConfigSpec").with([operation("edit"), present.with(said)]),
            None => {
                let new = Override { vm: vm.clone(), info: Element::new("info").with([Element::reference("key", vm)]) };
                Element::new("dasVmConfigSpec").with([operation("add"), new.with(said)])
            }
        };
        self.change_cluster(cluster, part).await?;
        Ok(true)
    }

    /// Removes a VM's override with all its settings.
    ///
    /// # Errors
    /// `InvalidArgument` if the VM has none.
    pub async fn remove_override(&self, cluster: &MoRef, vm: &MoRef) -> Result<()> {
        let key = Element::reference("removeKey", vm).of("ManagedObjectReference");
        let change = [Element::text("operation", "remove"), key];
        self.change_cluster(cluster, Element::new("dasVmConfigSpec").with(change)).await
    }

    /// Adds (`add`) or edits (`edit`) an override with only these settings of `ClusterDasVmSettings`, in the order of
    /// that type.
    ///
    /// # Errors
    /// `InvalidArgument` if the VM has an override (`add`) or none (`edit`).
    pub async fn put_override(
        &self,
        cluster: &MoRef,
        vm: &MoRef,
        operation: &str,
        settings: &[(&str, &str)],
    ) -> Result<()> {
        let settings = settings.iter().map(|(name, value)| Element::text(*name, value));
        let settings = Element::new("dasSettings").with(settings);
        let info = Element::new("info").with([Element::reference("key", vm), settings]);
        let change = [Element::text("operation", operation), info];
        self.change_cluster(cluster, Element::new("dasVmConfigSpec").with(change)).await
    }
}
