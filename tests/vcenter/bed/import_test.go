package bed

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/ovatest"
)

func TestAnImportKeepsWhatIsUploaded(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	disks := s.disks(vm)
	if len(disks) != 2 || disks[0].CapacityInBytes != ovatest.Capacity || disks[1].CapacityInBytes != ovatest.Capacity {
		t.Fatalf("%+v", disks)
	}
	files := s.machine("node-1").Disks
	s.holds(files[pathOf(disks[0])][0], ovatest.SystemDisk())
	blank, err := os.Stat(files[pathOf(disks[1])][0])
	s.must(err)
	if blank.Size() != ovatest.Capacity {
		t.Errorf("the data disk is a file of %d bytes", blank.Size())
	}
	found := s.read(vm)
	if found.Config.Firmware != "efi" || found.Config.Hardware.NumCPU != 2 || found.Config.Hardware.MemoryMB != 2048 {
		t.Errorf("%+v", found.Config.Hardware)
	}
	if transports := found.Config.VAppConfig.GetVmConfigInfo().OvfEnvironmentTransport; strings.Join(transports, " ") != "com.vmware.guestInfo iso" {
		t.Errorf("%v", transports)
	}
	for _, option := range found.Config.ExtraConfig {
		if option := option.GetOptionValue(); strings.Contains(option.Key, "secret") || strings.Contains(option.Key, "govcsim") {
			t.Errorf("in extraConfig: %+v", option)
		}
	}
	if object.VirtualDeviceList(found.Config.Hardware.Device).PickController((*types.VirtualAHCIController)(nil)) == nil {
		t.Error("no SATA controller")
	}
}

func TestUploadsGoToTheHost(t *testing.T) {
	s := opened(t)
	lease, info, stream := s.prepare("node-1")
	if at := info.Items[0].URL.Hostname(); !strings.HasPrefix(at, "127.0.1.") || s.bed.URL().Hostname() != "127.0.0.1" {
		t.Errorf("the upload goes to %s", at)
	}
	s.ask("PUT", "/switches", `{"hosts_away": true}`)
	if err := s.send(info, stream); err == nil {
		t.Error("a host that is away takes an upload")
	}
	s.ask("PUT", "/switches", `{"hosts_away": false}`)
	s.upload(info, stream)
	s.must(lease.Complete(background))
}

func TestIdentifiersAreRandomAndAssigned(t *testing.T) {
	s := opened(t)
	seen := map[string]bool{}
	for range 2 {
		vm := s.imported("same-name")
		found := s.read(vm)
		card := object.VirtualDeviceList(found.Config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil))[0].(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
		if card.AddressType != "assigned" || !strings.HasPrefix(card.MacAddress, "00:50:56:") {
			t.Errorf("%s %s", card.AddressType, card.MacAddress)
		}
		for _, id := range []string{found.Config.Uuid, found.Config.InstanceUuid, card.MacAddress, s.disks(vm)[0].Backing.(*types.VirtualDiskFlatVer2BackingInfo).Uuid} {
			if id == "" || seen[id] {
				t.Errorf("%q comes again", id)
			}
			seen[id] = true
		}
		s.done(vm.Destroy(background))
	}
}

// clock is a time that a test moves, however busy the machine is.
type clock struct {
	mutex  sync.Mutex
	now    time.Duration
	timers []*moved
}

// moved is a timer of a clock.
type moved struct {
	clock *clock
	at    time.Duration
	runs  bool
	run   func()
}

func (c *clock) afterFunc(after time.Duration, run func()) Timer {
	made := &moved{clock: c, run: run}
	made.Reset(after)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.timers = append(c.timers, made)
	return made
}

// advance moves the time, and runs what is due then.
func (c *clock) advance(by time.Duration) {
	c.mutex.Lock()
	c.now += by
	var due []*moved
	for _, timer := range c.timers {
		if timer.runs && timer.at <= c.now {
			timer.runs = false
			due = append(due, timer)
		}
	}
	c.mutex.Unlock()
	for _, timer := range due {
		timer.run()
	}
}

func (m *moved) Reset(after time.Duration) bool {
	m.clock.mutex.Lock()
	defer m.clock.mutex.Unlock()
	ran := m.runs
	m.at, m.runs = m.clock.now+after, true
	return ran
}

func (m *moved) Stop() bool {
	m.clock.mutex.Lock()
	defer m.clock.mutex.Unlock()
	ran := m.runs
	m.runs = false
	return ran
}

func TestALeaseThatNobodySpeaksOfEnds(t *testing.T) {
	var ours clock
	s := opened(t, func(c *Config) { c.AfterFunc = ours.afterFunc })
	lease, info, stream := s.prepare("node-1")
	timeout := s.bed.config.LeaseTimeout
	// Longer than its time-out, but never without a word.
	for range 3 {
		ours.advance(timeout - 1)
		s.must(lease.Progress(background, 10))
	}
	ours.advance(timeout - 1)
	if list, err := s.finder.VirtualMachineList(background, "*"); err != nil || len(list) != 1 {
		t.Errorf("it has ended before its time: %v %v", list, err)
	}
	ours.advance(1)
	s.until("the machine is gone", func() bool {
		list, err := s.finder.VirtualMachineList(background, "*")
		return err != nil && len(list) == 0
	})
	if err := s.send(info, stream); err == nil {
		t.Error("it takes uploads still")
	}
	wanted(s, "completing it", lease.Complete(background), new(*types.InvalidState))
	s.isEmpty()
}

func TestAnAbortedLeaseLeavesNothing(t *testing.T) {
	s := opened(t)
	lease, info, stream := s.prepare("node-1")
	vm := object.NewVirtualMachine(s.client.Client, info.Entity)
	task, err := vm.PowerOn(background)
	refused[*types.TaskInProgress](s, "powering on while it is imported", task, err)
	s.upload(info, stream)
	s.must(lease.Abort(background, nil))
	s.isEmpty()
	wanted(s, "its machine", vm.Unregister(background), new(*types.ManagedObjectNotFound))
}

func TestABrokenUploadCanBeRepeated(t *testing.T) {
	s := opened(t)
	lease, info, stream := s.prepare("node-1", types.KeyValue{Key: "node.address", Value: "x"})
	cut := stream[:len(stream)/2]
	if err := s.send(info, cut); err == nil {
		t.Error("half of a stream was taken")
	}
	s.upload(info, stream)
	manifest, err := lease.GetManifest(background)
	s.must(err)
	if len(manifest) != 1 || manifest[0].Size != int64(len(stream)) || manifest[0].ChecksumType != "sha256" {
		t.Errorf("%+v", manifest)
	}
	s.must(lease.Complete(background))
	s.holds(s.machine("node-1").Disks["[LocalDS_0] node-1/node-1.vmdk"][0], ovatest.SystemDisk())
}

func TestPropertiesThatAreNotForUsersAreRefused(t *testing.T) {
	s := opened(t)
	_, failure := s.importOf(ovatest.Descriptor(1), types.KeyValue{Key: "node.build", Value: "mine"})
	wanted(s, "a property that is not configurable", failure, new(*types.NotUserConfigurableProperty))
	if result, _ := s.importOf("<Envelope/>"); result == nil || len(result.Error) != 1 {
		t.Errorf("no descriptor: %+v", result)
	}
}
