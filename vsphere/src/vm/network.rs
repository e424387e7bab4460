//! The network of an adapter, for another adapter.

use crate::error::{Error, Result};
use crate::soap::Element;

use super::device::{Adapter, AdapterNetwork};

impl Adapter {
    /// The backing of another adapter on this adapter's network ([`crate::ConfigSpec::network`]). A port of a
    /// distributed switch is not shared: vCenter gives the other adapter a separate port. The port group is not read,
    /// because adapters refer to it by its key. The key differs from the managed object's identifier if the switch was
    /// imported with its identifiers. Fails if the network is unknown.
    pub fn backing_like(&self) -> Result<Element> {
        match &self.network {
            AdapterNetwork::Distributed(_) => {
                let port = self.element.at(&["backing", "port"]).ok_or_else(|| self.names_none())?;
                let named = ["switchUuid", "portgroupKey"].into_iter();
                let port = named.filter_map(|name| port.text_of(name).map(|value| Element::text(name, value)));
                Ok(Element::new("backing")
                    .of("VirtualEthernetCardDistributedVirtualPortBackingInfo")
                    .with([Element::new("port").with(port)]))
            }
            AdapterNetwork::Standard(name) => Ok(Element::new("backing")
                .of("VirtualEthernetCardNetworkBackingInfo")
                .with([Element::text("deviceName", name)])),
            AdapterNetwork::Opaque(_) => {
                let said = self.element.child("backing").ok_or_else(|| self.names_none())?;
                Ok(said.clone())
            }
            AdapterNetwork::Unknown => {
                Err(Error::refused(format!("naming the network of {}", self.label), "it is on none that is known"))
            }
        }
    }

    fn names_none(&self) -> Error {
        Error::unanswered(&self.label, "it names no network")
    }
}
