//! VMs by their UUIDs, and by what their guests say of themselves.

use crate::client::Client;
use crate::error::Result;
use crate::method::{FIND_ALL_BY_IP, FIND_ALL_BY_UUID};
use crate::reference::MoRef;
use crate::soap::Element;

impl Client {
    /// All VMs with a BIOS UUID: copies may share one.
    ///
    /// # Errors
    /// When the inventory cannot be searched.
    pub async fn vms_of_bios_uuid(&self, uuid: &str) -> Result<Vec<MoRef>> {
        let index = self.service().manager("searchIndex")?;
        let arguments =
            vec![Element::text("uuid", uuid), Element::text("vmSearch", true), Element::text("instanceUuid", false)];
        let response = self.call(FIND_ALL_BY_UUID, &index, arguments).await?;
        Ok(response.all("returnval").filter_map(Element::to_reference).collect())
    }

    /// All VMs whose VMware Tools have said that their guest has this address; of a VM whose Tools do not run, what they
    /// said last, or nothing.
    ///
    /// # Errors
    /// When the inventory cannot be searched.
    pub async fn vms_of_address(&self, address: std::net::IpAddr) -> Result<Vec<MoRef>> {
        let index = self.service().manager("searchIndex")?;
        let arguments = vec![Element::text("ip", address), Element::text("vmSearch", true)];
        let response = self.call(FIND_ALL_BY_IP, &index, arguments).await?;
        Ok(response.all("returnval").filter_map(Element::to_reference).collect())
    }
}
