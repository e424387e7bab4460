package ovatest

import (
	"fmt"
	"math/rand"
)

// Capacity is the bytes of the system disk; the data disk has as many.
const Capacity = 4 << 20

// SystemDisk is a raw disk with data at both ends.
func SystemDisk() []byte {
	disk := make([]byte, Capacity)
	random := rand.New(rand.NewSource(7))
	random.Read(disk[:150_000])
	random.Read(disk[Capacity-70_000:])
	return disk
}

// Descriptor is the OVF descriptor of an appliance with EFI, a CD-ROM on SATA, a system disk of so many bytes as a stream, a blank
// data disk, an adapter, and three properties: one that must have a value, a secret, one that is not for users to set.
func Descriptor(streamBytes int) string {
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
  xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData" xmlns:vmw="http://www.vmware.com/schema/ovf">
  <References><File ovf:id="system" ovf:href="system.vmdk" ovf:size="%d"/></References>
  <DiskSection><Info>Disks</Info>
    <Disk ovf:diskId="system" ovf:fileRef="system" ovf:capacity="%d" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
    <Disk ovf:diskId="data" ovf:capacity="%d" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
  </DiskSection>
  <NetworkSection><Info>Networks</Info><Network ovf:name="nodes"><Description>nodes</Description></Network></NetworkSection>
  <VirtualSystem ovf:id="appliance"><Info>An appliance</Info><Name>appliance</Name>
    <OperatingSystemSection ovf:id="100" vmw:osType="otherLinux64Guest"><Info>Linux</Info></OperatingSystemSection>
    <VirtualHardwareSection ovf:transport="com.vmware.guestInfo iso"><Info>Hardware</Info>
      <System><vssd:ElementName>Hardware</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID><vssd:VirtualSystemType>vmx-19</vssd:VirtualSystemType></System>
      <Item><rasd:ElementName>2 CPUs</rasd:ElementName><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
      <Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits><rasd:ElementName>memory</rasd:ElementName><rasd:InstanceID>2</rasd:InstanceID><rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>2048</rasd:VirtualQuantity></Item>
      <Item><rasd:Address>0</rasd:Address><rasd:ElementName>SCSI</rasd:ElementName><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
      <Item><rasd:Address>0</rasd:Address><rasd:ElementName>SATA</rasd:ElementName><rasd:InstanceID>4</rasd:InstanceID><rasd:ResourceSubType>vmware.sata.ahci</rasd:ResourceSubType><rasd:ResourceType>20</rasd:ResourceType></Item>
      <Item ovf:required="false"><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:AutomaticAllocation>false</rasd:AutomaticAllocation><rasd:ElementName>CD-ROM</rasd:ElementName><rasd:InstanceID>5</rasd:InstanceID><rasd:Parent>4</rasd:Parent><rasd:ResourceSubType>vmware.cdrom.remotepassthrough</rasd:ResourceSubType><rasd:ResourceType>15</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:ElementName>system</rasd:ElementName><rasd:HostResource>ovf:/disk/system</rasd:HostResource><rasd:InstanceID>6</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>1</rasd:AddressOnParent><rasd:ElementName>data</rasd:ElementName><rasd:HostResource>ovf:/disk/data</rasd:HostResource><rasd:InstanceID>7</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>7</rasd:AddressOnParent><rasd:AutomaticAllocation>true</rasd:AutomaticAllocation><rasd:Connection>nodes</rasd:Connection><rasd:ElementName>adapter</rasd:ElementName><rasd:InstanceID>8</rasd:InstanceID><rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType><rasd:ResourceType>10</rasd:ResourceType></Item>
      <vmw:Config ovf:required="false" vmw:key="firmware" vmw:value="efi"/>
    </VirtualHardwareSection>
    <ProductSection ovf:class="node"><Info>Product</Info><Product>Appliance</Product><Vendor>us</Vendor><Version>1.0</Version>
      <Property ovf:key="address" ovf:type="string" ovf:qualifiers="MinLen(1),MaxLen(60)" ovf:userConfigurable="true"><Label>Address</Label></Property>
      <Property ovf:key="secret" ovf:type="string" ovf:password="true" ovf:userConfigurable="true"><Label>Secret</Label></Property>
      <Property ovf:key="build" ovf:type="string" ovf:value="b1" ovf:userConfigurable="false"><Label>Build</Label></Property>
    </ProductSection>
  </VirtualSystem>
</Envelope>
`, streamBytes, Capacity, Capacity)
}
