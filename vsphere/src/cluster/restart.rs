//! In which order vSphere HA starts VMs after a host has failed, and whether it does.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::Result;
use crate::reference::MoRef;
use crate::soap::Element;

/// What HA does with a VM (`ClusterDasVmSettings.restartPriority`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPriority {
    /// It is not started again.
    Disabled,
    /// After others.
    Low,
    /// Between others.
    Medium,
    /// Before others.
    High,
    /// First of all.
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

    /// As the API says it.
    pub fn said(self) -> &'static str {
        Self::ALL.iter().find(|(priority, _)| *priority == self).map_or("medium", |(_, said)| said)
    }
}

/// A VM's own settings, as far as they differ from the cluster's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Override {
    vm: MoRef,
    said: String,
}

impl Client {
    async fn overrides(&self, cluster: &MoRef) -> Result<Vec<Override>> {
        let configuration = self.cluster_configuration(cluster).await?;
        let read = |info: &Element| {
            let said = info.at(&["dasSettings", "restartPriority"]).map(Element::value).unwrap_or_default().to_owned();
            Ok(Override { vm: info.need_reference("key")?, said })
        };
        configuration.all("dasVmConfig").map(read).collect()
    }

    /// What HA does with a VM otherwise than the cluster says for all; none if nothing is said of the VM, or what this
    /// client does not set.
    ///
    /// # Errors
    /// When it is no cluster, or cannot be read.
    pub async fn restart_priority(&self, cluster: &MoRef, vm: &MoRef) -> Result<Option<RestartPriority>> {
        let present = self.overrides(cluster).await?.into_iter().find(|present| present.vm == *vm);
        let known = |said: String| RestartPriority::ALL.iter().find(|(_, name)| *name == said).map(|(known, _)| *known);
        Ok(present.and_then(|present| known(present.said)))
    }
}

impl Changes<'_> {
    /// Says what HA does with a VM; with nothing, what the cluster says for all. Returns whether anything was changed.
    ///
    /// # Errors
    /// When the cluster cannot be read, or refuses.
    pub async fn set_restart_priority(
        &self,
        cluster: &MoRef,
        vm: &MoRef,
        priority: Option<RestartPriority>,
    ) -> Result<bool> {
        let present = self.client.overrides(cluster).await?.into_iter().find(|present| present.vm == *vm);
        let operation = |operation: &str| Element::text("operation", operation);
        let part = match (present, priority) {
            (None, None) => return Ok(false),
            (Some(present), Some(wanted)) if present.said == wanted.said() => return Ok(false),
            (Some(_), None) => {
                let key = Element::reference("removeKey", vm).of("ManagedObjectReference");
                Element::new("dasVmConfigSpec").with([operation("remove"), key])
            }
            (present, Some(wanted)) => {
                let settings = Element::new("dasSettings").with([Element::text("restartPriority", wanted.said())]);
                let info = Element::new("info").with([Element::reference("key", vm), settings]);
                let operation = operation(if present.is_some() { "edit" } else { "add" });
                Element::new("dasVmConfigSpec").with([operation, info])
            }
        };
        self.change_cluster(cluster, part).await?;
        Ok(true)
    }
}
