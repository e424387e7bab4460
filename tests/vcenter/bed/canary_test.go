package bed

import (
	"testing"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// These tests check the internals of vcsim that the bed relies on. If one fails, the bed needs a change for this version of vcsim.

// A reference with a server's GUID is in no session, so vcsim asks the handler that it was given, and the registry has vcsim's
// own object all the same.
func TestCanaryAHandlerAnswersInPlaceOfTheSession(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	world := s.bed.now()
	strict, failed := world.handle(world.own(), &vcsim.Method{Name: "PowerOnVM_Task", This: vm.Reference(), Body: &types.PowerOnVM_Task{This: vm.Reference()}})
	if _, is := strict.(*machine); !is || failed != nil {
		t.Fatalf("%T %T", strict, failed)
	}
	if _, is := world.registry.Get(vm.Reference()).(*vcsim.VirtualMachine); !is {
		t.Errorf("the registry has %T", world.registry.Get(vm.Reference()))
	}
	marked := vm.Reference()
	marked.ServerGUID = "strict"
	if found := world.own().Session.Get(marked); found != nil {
		t.Errorf("a session has %T for it", found)
	}
	// Only the bed's own answer is NotSupported.
	task, err := vm.Suspend(background)
	refused[*types.NotSupported](s, "suspending", task, err)
}

// vcsim makes no file for a disk that is added without a file operation, and keeps its capacity and UUID.
func TestCanaryDisksThatAreThereAreLeftAlone(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	for _, disk := range s.disks(vm) {
		found, failed := s.bed.now().disks.Read(pathOf(disk))
		if failed != nil || found.UUID != disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).Uuid || found.Capacity != disk.CapacityInBytes {
			t.Errorf("%+v %+v %T", disk, found, failed)
		}
	}
}

// A lock of vcsim's is shared by all that is done on behalf of one context, its own tasks too.
func TestCanaryALockIsItsContexts(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	world := s.bed.now()
	found, _ := world.machine(vm.Reference())
	ctx := world.own()
	reached := false
	world.registry.WithLock(ctx, found, func() { world.registry.WithLock(ctx, found, func() { reached = true }) })
	if !reached {
		t.Error("not reached")
	}
}

// The property collector takes a managed object whose first field is one of package mo, so that a lease of ours can be read.
func TestCanaryLeasesOfOursCanBeRead(t *testing.T) {
	s := opened(t)
	held, info, _ := s.prepare("node-1")
	var found mo.HttpNfcLease
	s.must(s.client.RetrieveOne(background, held.Reference(), []string{"state", "info"}, &found))
	if found.State != types.HttpNfcLeaseStateReady || found.Info == nil || found.Info.Entity != info.Entity || found.Info.DeviceUrl[0].SslThumbprint != s.bed.Thumbprint {
		t.Errorf("%+v", found)
	}
}

// vcsim's defaults, which the bed changes: when they have changed themselves, the change can go.
func TestCanaryVcsimIsStillLax(t *testing.T) {
	model := vcsim.VPX()
	if version := model.ServiceContent.About.ApiVersion; version != "6.5" {
		t.Errorf("vcsim says %s by itself", version)
	}
}
