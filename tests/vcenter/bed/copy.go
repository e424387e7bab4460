package bed

import (
	"bytes"

	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// clonedDevice is a copy of a device with all that it points to.
func clonedDevice(device types.BaseVirtualDevice) types.BaseVirtualDevice {
	text, err := xml.Marshal(types.ArrayOfVirtualDevice{VirtualDevice: []types.BaseVirtualDevice{device}})
	if err != nil {
		panic(err)
	}
	decoder := xml.NewDecoder(bytes.NewReader(text))
	decoder.TypeFunc = types.TypeFunc()
	var made types.ArrayOfVirtualDevice
	if err := decoder.Decode(&made); err != nil {
		panic(err)
	}
	return made.VirtualDevice[0]
}
