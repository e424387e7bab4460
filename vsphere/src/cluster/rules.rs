//! Rules that keep VMs on different hosts.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::Result;
use crate::reference::MoRef;
use crate::soap::Element;

/// A rule that keeps VMs on different hosts. Its name identifies it: some servers change the keys with each change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AntiAffinity {
    /// Its identifier in its cluster.
    pub key: i32,
    /// Its name.
    pub name: String,
    /// The VMs, at least two.
    pub vms: Vec<MoRef>,
    /// Whether the rule applies.
    pub enabled: bool,
    /// Whether a VM stays off rather than start on the host of another one.
    pub mandatory: bool,
}

impl Client {
    /// The rules of a cluster that keep VMs apart.
    pub async fn anti_affinity_rules(&self, cluster: &MoRef) -> Result<Vec<AntiAffinity>> {
        let configuration = self.cluster_configuration(cluster).await?;
        let rules = configuration.all("rule").filter(|rule| rule.kind() == Some("ClusterAntiAffinityRuleSpec"));
        let read = |rule: &Element| {
            Ok(AntiAffinity {
                key: rule.need_parsed("key")?,
                name: rule.text_of("name").unwrap_or_default().to_owned(),
                vms: rule.all("vm").filter_map(Element::to_reference).collect(),
                enabled: rule.flag("enabled"),
                mandatory: rule.flag("mandatory"),
            })
        };
        rules.map(read).collect()
    }
}

impl Changes<'_> {
    /// Creates or changes the rule `name` so that it keeps these VMs apart if the hosts allow it. Returns whether the
    /// rule changed.
    pub async fn keep_apart(&self, cluster: &MoRef, name: &str, vms: &[MoRef]) -> Result<bool> {
        let present = self.client.anti_affinity_rules(cluster).await?.into_iter().find(|rule| rule.name == name);
        let sorted = |vms: &[MoRef]| {
            let mut vms = vms.to_vec();
            vms.sort();
            vms
        };
        let is_so = |rule: &AntiAffinity| rule.enabled && !rule.mandatory && sorted(&rule.vms) == sorted(vms);
        if present.as_ref().is_some_and(is_so) {
            return Ok(false);
        }
        let info = Element::new("info")
            .of("ClusterAntiAffinityRuleSpec")
            .with(present.as_ref().map(|rule| Element::text("key", rule.key)))
            .with([Element::text("enabled", true), Element::text("name", name), Element::text("mandatory", false)])
            // Without it, vSphere Client may show the rule as the system's. govc and Terraform set it too.
            .with([Element::text("userCreated", true)])
            .with(vms.iter().map(|vm| Element::reference("vm", vm)));
        let operation = Element::text("operation", if present.is_some() { "edit" } else { "add" });
        self.change_cluster(cluster, Element::new("rulesSpec").with([operation, info])).await?;
        Ok(true)
    }

    /// Removes the rule `name`. Returns whether it existed.
    pub async fn remove_rule(&self, cluster: &MoRef, name: &str) -> Result<bool> {
        let rules = self.client.anti_affinity_rules(cluster).await?;
        let Some(rule) = rules.into_iter().find(|rule| rule.name == name) else { return Ok(false) };
        let parts = [Element::text("operation", "remove"), Element::text("removeKey", rule.key).xsd("int")];
        self.change_cluster(cluster, Element::new("rulesSpec").with(parts)).await?;
        Ok(true)
    }
}
