package bed

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/disks"
)

type (
	ref   = types.ManagedObjectReference
	fault = types.BaseMethodFault
)

// world is one vcsim with its inventory, and the bed's additional state. Resetting the bed makes another.
type world struct {
	bed      *Bed
	model    *vcsim.Model
	service  *vcsim.Service
	registry *vcsim.Registry
	disks    *disks.Store
	// libraries answers for content libraries.
	libraries http.Handler

	mutex sync.Mutex
	// free is signalled when an object's task has ended.
	free *sync.Cond
	// busy has the task that works on a machine.
	busy map[ref]ref
	// runs has each machine that is powered on, by its BIOS UUID.
	runs map[string]*run
	// leases are the open uploads, by the value of their reference.
	leases map[string]*lease
	// sessions has the user of each session's key.
	sessions map[string]string
	// policies are those that machines and disks were given.
	policies policies
	// making has the task of each machine that is being made.
	making map[ref]ref
	// born has the machines that come into the inventory now: their references are not known yet.
	born map[child]bool
	// objects are the First Class Disks, by their identifiers.
	objects map[string]*firstClass
	// stale are the holders of locks whose machines are off.
	stale []string
	// placing keeps two machines from being placed at once.
	placing sync.Mutex
	// tasks are those that are at work.
	tasks sync.WaitGroup
}

// newWorld makes an inventory without machines: one datacenter DC0, one cluster DC0_C0, datastores LocalDS_0 and so on in the
// bed's directory.
func newWorld(bed *Bed) (*world, error) {
	model := vcsim.VPX()
	if bed.config.ESX {
		model = vcsim.ESX()
	} else {
		model.Host, model.Cluster, model.ClusterHost = 0, 1, bed.config.Hosts
	}
	model.Machine, model.Datastore, model.Autostart = 0, bed.config.Datastores, false
	// vcsim says 6.5 by default. The form of 8.0's version strings is that of RetrieveServiceContent of vCenter 8.0 U3.
	about := &model.ServiceContent.About
	about.ApiVersion, about.Version, about.Build = bed.config.API, strings.TrimSuffix(bed.config.API, ".0"), "24022515"
	about.FullName = "VMware vCenter Server " + about.Version + " build-24022515"
	if bed.config.ESX {
		about.FullName = "VMware ESXi " + about.Version + " build-24022515"
	}
	if err := model.Create(); err != nil {
		return nil, fmt.Errorf("the inventory: %w", err)
	}
	w := &world{
		bed: bed, model: model, service: model.Service, registry: model.Map(), disks: disks.New(),
		busy: map[ref]ref{}, runs: map[string]*run{}, leases: map[string]*lease{}, sessions: map[string]string{}, making: map[ref]ref{}, born: map[child]bool{},
		objects: map[string]*firstClass{},
	}
	// vcsim's hosts have two processors and less than 4 GiB of memory.
	for number, entity := range w.registry.All("HostSystem") {
		host := entity.(*vcsim.HostSystem)
		host.Name = bed.hostName(number)
		host.Summary.Config.Name = host.Name
		host.Summary.Hardware.NumCpuThreads, host.Summary.Hardware.MemorySize = 64, 512<<30
		host.Hardware.CpuInfo.NumCpuThreads, host.Hardware.MemorySize = 64, 512<<30
	}
	// vcsim's resource pools have less than 1 GiB, whatever hosts there are.
	for _, entity := range w.registry.All("ResourcePool") {
		pool, room := entity.(*vcsim.ResourcePool), int64(max(bed.config.Hosts, 1))*(512<<30)
		pool.Runtime.Memory.MaxUsage, pool.Runtime.Memory.UnreservedForPool, pool.Runtime.Memory.UnreservedForVm = room, room, room
	}
	w.free = sync.NewCond(&w.mutex)
	if err := w.mount(); err != nil {
		return nil, err
	}
	if !bed.config.ESX {
		w.registry.Handler = w.handle
	}
	return w, nil
}

// mount moves the datastores from vcsim's temporary directory to the bed's own, empty.
func (w *world) mount() error {
	for _, entity := range w.registry.All("Datastore") {
		datastore := entity.(*vcsim.Datastore)
		directory := filepath.Join(w.bed.config.Directory, datastore.Name)
		if err := os.RemoveAll(directory); err != nil {
			return err
		}
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return err
		}
		datastore.Summary.Url, datastore.Info.GetDatastoreInfo().Url = directory, directory
		if local, is := datastore.Info.(*types.LocalDatastoreInfo); is {
			local.Path = directory
		}
		w.disks.Mount(datastore.Name, directory)
	}
	return nil
}

// populate makes machines that no test uses.
func (w *world) populate(count int) error {
	if count == 0 {
		return nil
	}
	cluster := w.registry.Any("ClusterComputeResource").(*vcsim.ClusterComputeResource)
	folder := w.folder()
	for number := range count {
		ctx := w.own()
		spec := types.VirtualMachineConfigSpec{
			Name: fmt.Sprintf("other-%04d", number), NumCPUs: 1, MemoryMB: 1024,
			Files: &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
		}
		if _, failed := w.create(ctx, folder, spec, *cluster.ResourcePool, nil); failed != nil {
			return fmt.Errorf("other machine %d: %T", number, failed)
		}
	}
	return nil
}

// folder is the datacenter's folder of machines.
func (w *world) folder() *vcsim.Folder {
	datacenter := w.registry.Any("Datacenter").(*vcsim.Datacenter)
	return w.registry.Get(datacenter.VmFolder).(*vcsim.Folder)
}

// own is a context for what the bed does by itself.
func (w *world) own() *vcsim.Context {
	own := *w.service.Context
	own.Session = &vcsim.Session{Registry: vcsim.NewRegistry(), Map: w.registry}
	return &own
}

// machine finds a machine of the inventory.
func (w *world) machine(at ref) (*vcsim.VirtualMachine, fault) {
	if found, is := w.registry.Get(at).(*vcsim.VirtualMachine); is {
		return found, nil
	}
	return nil, &types.ManagedObjectNotFound{Obj: at}
}

// running is the machine's run, if it is powered on or about to be.
func (w *world) running(machine *vcsim.VirtualMachine) *run {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.runs[machine.Config.Uuid]
}

func (w *world) datastore(name string) *vcsim.Datastore {
	for _, entity := range w.registry.All("Datastore") {
		if datastore := entity.(*vcsim.Datastore); datastore.Name == name {
			return datastore
		}
	}
	return nil
}

// account tells the datastores' free space by what their disks take: vcsim counts a disk that is attached as one that is made.
func (w *world) account(ctx *vcsim.Context) {
	for _, entity := range w.registry.All("Datastore") {
		datastore := entity.(*vcsim.Datastore)
		left := datastore.Summary.Capacity - w.disks.Used(datastore.Name)
		if most := w.bed.Switches().MostFree; most > 0 {
			left = min(left, most)
		}
		kind := w.bed.Switches().DatastoreType
		accessible := w.bed.Switches().DatastoresAway[datastore.Name] != "FileNotFound"
		w.registry.WithLock(ctx, datastore, func() {
			if datastore.Summary.Accessible != accessible {
				w.registry.Update(ctx, datastore, []types.PropertyChange{{Name: "summary.accessible", Val: accessible}})
			}
			if kind != "" && datastore.Summary.Type != kind {
				w.registry.Update(ctx, datastore, []types.PropertyChange{{Name: "summary.type", Val: kind}})
			}
			if datastore.Summary.FreeSpace != left {
				datastore.Info.GetDatastoreInfo().FreeSpace = left
				w.registry.Update(ctx, datastore, []types.PropertyChange{{Name: "summary.freeSpace", Val: left}})
			}
		})
	}
}

// close ends what runs, and waits until no task is at work.
func (w *world) close() {
	w.mutex.Lock()
	for _, open := range w.leases {
		open.timer.Stop()
	}
	w.mutex.Unlock()
	w.tasks.Wait()
	w.mutex.Lock()
	runs := w.runs
	w.runs = map[string]*run{}
	w.mutex.Unlock()
	for uuid, left := range runs {
		// No further events follow: the reader of the inbox ends, and releases this world.
		close(left.inbox)
		_ = w.bed.config.Carrier.Cut(uuid, left.id)
	}
	w.model.Remove()
}

// devices are a machine's devices.
func devices(machine *vcsim.VirtualMachine) object.VirtualDeviceList {
	return object.VirtualDeviceList(machine.Config.Hardware.Device)
}

// name is an entity's name.
func name(entity mo.Entity) string {
	if network, is := entity.(*mo.Network); is {
		return network.Name
	}
	return entity.Entity().Name
}
