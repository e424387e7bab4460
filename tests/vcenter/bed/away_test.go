package bed

import (
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func (s *site) uuid(path string) (string, error) {
	return object.NewVirtualDiskManager(s.client.Client).QueryVirtualDiskUuid(background, path, s.datacenter)
}

func TestADatastoreThatIsAwayFailsCallsAboutItsFiles(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	path := pathOf(s.disks(vm)[0])
	s.ask("PUT", "/switches", `{"datastores_away": {"LocalDS_0": "InvalidDatastore"}}`)
	_, err := s.uuid(path)
	wanted(s, "a disk's UUID", err, new(*types.InvalidDatastore))
	task, err := vm.PowerOn(background)
	refused[*types.InvalidDatastore](s, "power-on", task, err)
	s.ask("PUT", "/switches", `{"datastores_away": {}}`)
	_, err = s.uuid(path)
	s.must(err)
}

func TestAnyObjectIsRenamed(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	for path, to := range map[string]string{"DC0/vm/node-1": "other", "DC0/network/VM Network": "net", "DC0/datastore/LocalDS_0": "ds"} {
		s.ask("POST", "/rename", `{"path": "`+path+`", "to": "`+to+`"}`)
	}
	read := s.read(vm)
	if read.Name != "other" || !strings.HasPrefix(read.Config.Files.VmPathName, "[ds] ") {
		s.Errorf("%s at %s", read.Name, read.Config.Files.VmPathName)
	}
	for _, card := range object.VirtualDeviceList(read.Config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil)) {
		if on := card.GetVirtualDevice().Backing.(*types.VirtualEthernetCardNetworkBackingInfo).DeviceName; on != "net" {
			s.Errorf("on %s", on)
		}
	}
	s.ask("POST", "/rename", `{"path": "DC0", "to": "DC9"}`)
	if _, err := s.finder.Datacenter(background, "/DC9"); err != nil {
		s.Error(err)
	}
}

func TestPatternsAreSimpleOnRequest(t *testing.T) {
	s := opened(t)
	s.imported("node-1")
	for _, simple := range []bool{false, true} {
		if simple {
			s.ask("PUT", "/switches", `{"simple_patterns": true}`)
		}
		for pattern, known := range map[string]bool{"*": true, "*.vmx": true, "node*": true, "*.vm*x": !simple, "?ode-1.vmx": !simple} {
			browser, err := s.datastore.Browser(background)
			s.must(err)
			spec := types.HostDatastoreBrowserSearchSpec{MatchPattern: []string{pattern}}
			found := s.done(browser.SearchDatastore(background, "[LocalDS_0] node-1", &spec)).Result.(types.HostDatastoreBrowserSearchResults)
			if (len(found.File) > 0) != known {
				s.Errorf("simple %v, %s: %+v", simple, pattern, found.File)
			}
		}
	}
}

func TestManualDRSMayWantAHost(t *testing.T) {
	s := opened(t)
	source := s.imported("node-1")
	cluster, err := s.finder.ClusterComputeResource(background, "DC0_C0")
	s.must(err)
	s.done(cluster.Reconfigure(background, &types.ClusterConfigSpecEx{
		DrsConfig: &types.ClusterDrsConfigInfo{Enabled: types.NewBool(true), DefaultVmBehavior: types.DrsBehaviorManual},
	}, true))
	s.done(source.Clone(background, s.folder, "node-2", s.cloneSpec()))
	s.ask("PUT", "/switches", `{"refuses_without_host": true}`)
	task, err := source.Clone(background, s.folder, "node-3", s.cloneSpec())
	refused[*types.InvalidArgument](s, "a clone without a host", task, err)
	hosts, err := cluster.Hosts(background)
	s.must(err)
	spec := s.cloneSpec()
	spec.Location.Host = types.NewReference(hosts[0].Reference())
	s.done(source.Clone(background, s.folder, "node-3", spec))
}

func TestAMachineOfAHostThatWasRemovedRunsOn(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	s.done(vm.PowerOn(background))
	path := pathOf(s.disks(vm)[0])
	var host mo.HostSystem
	s.must(object.NewHostSystem(s.client.Client, *s.read(vm).Runtime.Host).Properties(background, *s.read(vm).Runtime.Host, []string{"name"}, &host))
	s.ask("POST", "/remove-host", `{"host": "`+host.Name+`"}`)
	if found, err := s.finder.VirtualMachine(background, "node-1"); err == nil {
		s.Errorf("%v is there", found)
	}
	if _, err := s.finder.HostSystem(background, "*/"+host.Name); err == nil {
		s.Error("the host is there")
	}
	if _, err := s.uuid(path); err != nil {
		s.Errorf("its disk: %v", err)
	}
	task, err := object.NewVirtualDiskManager(s.client.Client).DeleteVirtualDisk(background, path, s.datacenter)
	refused[*types.FileLocked](s, "it runs, and its disk", task, err)
}
