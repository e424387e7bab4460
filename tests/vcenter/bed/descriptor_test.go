package bed

import (
	"os"
	"strings"
	"testing"

	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/vim25/types"
)

// The bed reads the descriptor that crate ova writes, from a snapshot of its tests, in each of its deployment options.
func TestADescriptorOfThisProjectIsRead(t *testing.T) {
	kept, err := os.ReadFile("../../../ova/src/ovf/snapshots/ova__ovf__tests__the_descriptor_as_xml.snap")
	if err != nil {
		t.Fatal(err)
	}
	text := string(kept)
	s := opened(t)
	for option, capacity := range map[string]int64{"": 20 << 30, "small": 20 << 30, "large": 100 << 30} {
		spec, err := ovf.NewManager(s.client.Client).CreateImportSpec(background, text[strings.Index(text, "<?xml"):], s.pool, s.datastore,
			&types.OvfCreateImportSpecParams{EntityName: "node-1", OvfManagerCommonParams: types.OvfManagerCommonParams{DeploymentOption: option}})
		s.must(err)
		if len(spec.Error) > 0 {
			t.Fatalf("%q: %s", option, spec.Error[0].LocalizedMessage)
		}
		made := spec.ImportSpec.(*types.VirtualMachineImportSpec).ConfigSpec
		var disks []int64
		adapters := 0
		for _, change := range made.DeviceChange {
			switch device := change.GetVirtualDeviceConfigSpec().Device.(type) {
			case *types.VirtualDisk:
				disks = append(disks, device.CapacityInBytes)
			case types.BaseVirtualEthernetCard:
				adapters++
				if device.GetVirtualEthernetCard().Backing == nil {
					t.Errorf("%q: an adapter is connected to nothing", option)
				}
			}
		}
		if len(disks) != 2 || disks[0] != 8<<30 || disks[1] != capacity || adapters == 0 {
			t.Errorf("%q: disks of %v, %d adapters", option, disks, adapters)
		}
		if len(spec.FileItem) != 1 || spec.FileItem[0].DeviceId != "/node-1/ParaVirtualSCSIController0:0" || spec.FileItem[0].Path != "system.vmdk" {
			t.Errorf("%q: %+v", option, spec.FileItem)
		}
		if vapp := made.VAppConfig.GetVmConfigSpec(); len(vapp.Property) != 7 || strings.Join(vapp.OvfEnvironmentTransport, " ") != "iso com.vmware.guestInfo" || len(vapp.Eula) != 1 {
			t.Errorf("%q: %+v", option, vapp)
		}
	}
}
