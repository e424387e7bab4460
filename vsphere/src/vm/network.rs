//! The network of an adapter, for another adapter.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::soap::Element;

use super::device::{Adapter, AdapterNetwork};

impl Client {
    /// How another adapter names the network that this one is on ([`crate::ConfigSpec::network`]). A port of a distributed
    /// switch is not shared: vCenter gives the other adapter its own.
    ///
    /// # Errors
    /// When the network cannot be read, or is not known.
    pub async fn backing_like(&self, adapter: &Adapter) -> Result<Element> {
        match &adapter.network {
            AdapterNetwork::Distributed(group) => self.network_backing(group).await,
            AdapterNetwork::Standard(name) => Ok(Element::new("backing")
                .of("VirtualEthernetCardNetworkBackingInfo")
                .with([Element::text("deviceName", name)])),
            AdapterNetwork::Opaque(_) => {
                let said = adapter.element.child("backing");
                let said = said.ok_or_else(|| Error::unanswered(&adapter.label, "it names no network"))?;
                Ok(said.clone())
            }
            AdapterNetwork::Unknown => {
                Err(Error::refused(format!("naming the network of {}", adapter.label), "it is on none that is known"))
            }
        }
    }
}
