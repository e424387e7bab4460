//! Networks.

use crate::client::Client;
use crate::collector::Object;
use crate::error::{Error, Result};
use crate::reference::MoRef;
use crate::soap::Element;

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// What names it; its kind says whether it is of standard switches, of a distributed one, or of another manager.
    pub reference: MoRef,
    /// Its name.
    pub name: String,
}

impl Client {
    /// The networks in a folder.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn networks_in(&self, folder: &MoRef) -> Result<Vec<Network>> {
        let network = |seen: &Object| {
            Ok(Network { reference: seen.reference.clone(), name: seen.need("name")?.value().to_owned() })
        };
        self.list(folder, &["Network"], true, &["name"]).await?.iter().map(network).collect()
    }

    /// How an adapter names a network ([`crate::ConfigSpec::network`]).
    ///
    /// # Errors
    /// When it cannot be read, or no adapter can be on it.
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
                let switch = group.need(paths[0])?.to_reference();
                let unnamed = || Error::unanswered(format!("reading {network}"), "it names no switch");
                let uuid = self.look(&switch.ok_or_else(unnamed)?, &["uuid"]).await?.need("uuid")?.value().to_owned();
                let port =
                    [Element::text("switchUuid", uuid), Element::text("portgroupKey", group.need("key")?.value())];
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
}
