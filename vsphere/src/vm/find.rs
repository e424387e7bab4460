//! Finds VMs by their UUIDs, their guests' addresses, and their files.

use crate::client::Client;
use crate::datastore::DatastorePath;
use crate::error::Result;
use crate::method::{FIND_ALL_BY_IP, FIND_ALL_BY_UUID, FIND_BY_DATASTORE_PATH};
use crate::reference::MoRef;
use crate::soap::Element;

impl Client {
    /// All VMs with a BIOS UUID. Copies may have the same one.
    pub async fn vms_of_bios_uuid(&self, uuid: &str) -> Result<Vec<MoRef>> {
        let index = self.service().manager("searchIndex")?;
        let arguments =
            vec![Element::text("uuid", uuid), Element::text("vmSearch", true), Element::text("instanceUuid", false)];
        let response = self.call(FIND_ALL_BY_UUID, &index, arguments).await?;
        Ok(response.all("returnval").filter_map(Element::to_reference).collect())
    }

    /// All VMs whose VMware Tools report this address of the guest. If the Tools of a VM do not run, the last report
    /// counts.
    pub async fn vms_of_address(&self, address: std::net::IpAddr) -> Result<Vec<MoRef>> {
        let index = self.service().manager("searchIndex")?;
        let arguments = vec![Element::text("ip", address), Element::text("vmSearch", true)];
        let response = self.call(FIND_ALL_BY_IP, &index, arguments).await?;
        Ok(response.all("returnval").filter_map(Element::to_reference).collect())
    }

    /// The VM with this settings file, such as `[datastore] vm/vm.vmx`. `None` if no VM of the data center uses it, or
    /// the account cannot see the VM.
    pub async fn vm_of_settings(&self, settings: &DatastorePath, datacenter: &MoRef) -> Result<Option<MoRef>> {
        let index = self.service().manager("searchIndex")?;
        let arguments = vec![Element::reference("datacenter", datacenter), Element::text("path", settings)];
        let response = self.call(FIND_BY_DATASTORE_PATH, &index, arguments).await?;
        Ok(response.reference_of("returnval"))
    }
}
