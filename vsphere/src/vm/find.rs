//! VMs by their UUIDs, and by what their guests say of themselves.

use crate::client::Client;
use crate::datastore::DatastorePath;
use crate::error::Result;
use crate::method::{FIND_ALL_BY_IP, FIND_ALL_BY_UUID, FIND_BY_DATASTORE_PATH};
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

    /// The VM whose settings are in this file, such as `[datastore] vm/vm.vmx`; none where no VM of the data center is registered with
    /// them, or the account cannot see it.
    ///
    /// # Errors
    /// When the inventory cannot be searched.
    pub async fn vm_of_settings(&self, settings: &DatastorePath, datacenter: &MoRef) -> Result<Option<MoRef>> {
        let index = self.service().manager("searchIndex")?;
        let arguments = vec![Element::reference("datacenter", datacenter), Element::text("path", settings)];
        let response = self.call(FIND_BY_DATASTORE_PATH, &index, arguments).await?;
        Ok(response.reference_of("returnval"))
    }
}
