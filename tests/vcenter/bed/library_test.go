package bed

import (
	"bytes"
	"net/url"
	"testing"

	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/vcenter"
	"github.com/vmware/govmomi/vim25/soap"

	"vcenter/ovatest"
)

func TestAnItemOfALibraryIsDeployedWithItsFormAndDisks(t *testing.T) {
	s := opened(t)
	client := rest.NewClient(s.client.Client)
	if err := client.Login(background, url.UserPassword("administrator@vsphere.local", "wrong")); err == nil {
		t.Fatal("a wrong password is taken")
	}
	s.must(client.Login(background, url.UserPassword("administrator@vsphere.local", "secret")))
	libraries := library.NewManager(client)
	images, err := libraries.CreateLibrary(background, library.Library{
		Name: "images", Type: "LOCAL", Storage: []library.StorageBacking{{DatastoreID: s.datastore.Reference().Value, Type: "DATASTORE"}},
	})
	s.must(err)
	item, err := libraries.CreateLibraryItem(background, library.Item{Name: "appliance", Type: library.ItemTypeOVF, LibraryID: images})
	s.must(err)
	session, err := libraries.CreateLibraryItemUpdateSession(background, library.Session{LibraryItemID: item})
	s.must(err)
	stream := ovatest.Stream(ovatest.SystemDisk())
	for name, text := range map[string][]byte{"appliance.ovf": []byte(ovatest.Descriptor(len(stream))), "system.vmdk": stream} {
		update, err := libraries.AddLibraryItemFile(background, session, library.UpdateFile{Name: name, SourceType: "PUSH", Size: int64(len(text))})
		s.must(err)
		to, err := url.Parse(update.UploadEndpoint.URI)
		s.must(err)
		upload := soap.DefaultUpload
		upload.ContentLength = int64(len(text))
		s.must(client.Upload(background, bytes.NewReader(text), to, &upload))
	}
	s.must(libraries.CompleteLibraryItemUpdateSession(background, session))

	_, err = vcenter.NewManager(client).DeployLibraryItem(background, item, vcenter.Deploy{
		DeploymentSpec: vcenter.DeploymentSpec{
			Name: "node-1", DefaultDatastoreID: s.datastore.Reference().Value, AcceptAllEULA: true, StorageProvisioning: "thin",
			NetworkMappings: []vcenter.NetworkMapping{{Key: "nodes", Value: s.network.Reference().Value}},
			AdditionalParams: []vcenter.AdditionalParams{{
				Class: vcenter.ClassPropertyParams, Type: vcenter.TypePropertyParams,
				Properties: []vcenter.Property{{ID: "node.address", Value: "192.0.2.1"}},
			}},
		},
		Target: vcenter.Target{ResourcePoolID: s.pool.Reference().Value, FolderID: s.folder.Reference().Value},
	})
	s.must(err)
	vm, err := s.finder.VirtualMachine(background, "node-1")
	s.must(err)
	value := ""
	for _, property := range s.read(vm).Config.VAppConfig.GetVmConfigInfo().Property {
		if property.Id == "address" {
			value = property.Value
		}
	}
	if value != "192.0.2.1" {
		t.Errorf("the address is %q", value)
	}
	disks := s.disks(vm)
	if len(disks) != 2 {
		t.Fatalf("%+v", disks)
	}
	s.holds(s.machine("node-1").Disks[pathOf(disks[0])][0], ovatest.SystemDisk())
	s.done(vm.PowerOn(background))
}
