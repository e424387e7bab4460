//! Networks.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::reference::MoRef;
use crate::soap::Element;

impl Client {
    /// The backing of an adapter on a network ([`crate::ConfigSpec::network`]).
    ///
    /// For a distributed port group, it also reads the switch, on which no permission can be set. It inherits those of
    /// the folder or data center above it, if they propagate ("Hierarchical Inheritance of Permissions" in vSphere
    /// Security). An account with the role on the port group only does not see the switch.
    ///
    /// # Errors
    /// When the network cannot be read, or adapters cannot use it. [`Error::Unreadable`] if the switch is not shown.
    pub async fn network_backing(&self, network: &MoRef) -> Result<Element> {
        let backing = |kind: &str| Element::new("backing").of(kind);
        match network.kind.as_str() {
            "Network" => {
                let name = self.look(network, &["name"]).await?.need("name")?.value().to_owned();
                Ok(backing("VirtualEthernetCardNetworkBackingInfo").with([Element::text("deviceName", name)]))
            }
            "DistributedVirtualPortgroup" => {
                let paths = ["config.distributedVirtualSwitch", "key"];
                let group = self.look(network, &paths).await?;
                let key = group.need_readable("key", &format!("the port group {network}"))?.value();
                let on = format!(
                    "the distributed switch of the port group {network}, which means on the folder or data center above the switch"
                );
                let switch = group.need_readable(paths[0], &on)?.to_reference();
                let unnamed = || Error::unanswered(format!("reading {network}"), "it names no switch");
                let uuid = self.uuid_of_switch(&switch.ok_or_else(unnamed)?, &on).await?;
                let port = [Element::text("switchUuid", uuid), Element::text("portgroupKey", key)];
                Ok(backing("VirtualEthernetCardDistributedVirtualPortBackingInfo")
                    .with([Element::new("port").with(port)]))
            }
            "OpaqueNetwork" => {
                let paths = ["summary.opaqueNetworkId", "summary.opaqueNetworkType"];
                let seen = self.look(network, &paths).await?;
                let (id, kind) = (seen.need(paths[0])?.value(), seen.need(paths[1])?.value());
                let parts = [Element::text("opaqueNetworkId", id), Element::text("opaqueNetworkType", kind)];
                Ok(backing("VirtualEthernetCardOpaqueNetworkBackingInfo").with(parts))
            }
            other => Err(Error::refused(format!("naming {network} to an adapter"), format!("it is a {other}"))),
        }
    }

    /// The UUID of a distributed switch. `on` is the users' name of the object with the permissions.
    async fn uuid_of_switch(&self, switch: &MoRef, on: &str) -> Result<String> {
        match self.look(switch, &["uuid"]).await {
            Ok(seen) => Ok(seen.need_readable("uuid", on)?.value().to_owned()),
            // The port group refers to the switch, so the switch exists and is not shown.
            Err(error) if error.lacks_privilege() || matches!(error, Error::NotFound { .. }) => {
                Err(Error::unreadable(format!("reading the UUID of {switch}"), on))
            }
            Err(error) => Err(error),
        }
    }
}
