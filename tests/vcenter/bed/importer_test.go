package bed

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/ovf/importer"

	"vcenter/ovatest"
)

// govc import.ova is this importer.
func TestGovmomisOwnImporterImportsAnOVA(t *testing.T) {
	s := opened(t)
	ova := filepath.Join(t.TempDir(), "appliance.ova")
	s.must(os.WriteFile(ova, ovatest.Archive(), 0o600))
	imports := importer.Importer{
		Log: func(string) (int, error) { return 0, nil }, VerifyManifest: true, Client: s.client.Client, Finder: s.finder,
		Datacenter: s.datacenter, Datastore: s.datastore, ResourcePool: s.pool, Folder: s.folder,
		Archive: &importer.TapeArchive{Path: ova},
	}
	name := "node-1"
	at, err := imports.Import(background, "*.ovf", importer.Options{
		Name: &name, DiskProvisioning: "thin",
		NetworkMapping:  []importer.Network{{Name: "nodes", Network: "VM Network"}},
		PropertyMapping: []importer.Property{{KeyValue: importer.KeyValue{Key: "node.address", Value: "192.0.2.1"}}},
	})
	s.must(err)
	s.done(object.NewVirtualMachine(s.client.Client, *at).PowerOn(background))
	s.holds(s.machine("node-1").Disks["[LocalDS_0] node-1/node-1.vmdk"][0], ovatest.SystemDisk())
}
