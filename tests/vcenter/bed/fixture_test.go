package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	faultsof "github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/nfc"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/bodies"
	"vcenter/ovatest"
)

var background = context.Background()

// site is a bed, and a client that has found its way around.
type site struct {
	*testing.T
	bed        *Bed
	control    *httptest.Server
	client     *govmomi.Client
	finder     *find.Finder
	datacenter *object.Datacenter
	folder     *object.Folder
	pool       *object.ResourcePool
	datastore  *object.Datastore
	network    object.NetworkReference
}

func opened(t *testing.T, change ...func(*Config)) *site {
	t.Helper()
	config := Config{
		Listen: "127.0.0.1:0", Directory: t.TempDir(), Datastores: 1, Hosts: 2, LeaseTimeout: time.Minute,
		Users:   []User{{Name: "administrator@vsphere.local", Password: "secret"}},
		Carrier: bodies.None(time.Millisecond),
	}
	for _, change := range change {
		change(&config)
	}
	started, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	control := httptest.NewServer(started.Control())
	t.Cleanup(func() { control.Close(); started.Close() })
	s := &site{T: t, bed: started, control: control}
	s.client = s.login("administrator@vsphere.local", "secret")
	s.find()
	return s
}

func (s *site) login(user, password string) *govmomi.Client {
	s.Helper()
	at := s.bed.URL()
	at.User = url.UserPassword(user, password)
	client, err := govmomi.NewClient(background, at, true)
	s.must(err)
	return client
}

func (s *site) find() {
	s.Helper()
	s.finder = find.NewFinder(s.client.Client)
	datacenter, err := s.finder.DefaultDatacenter(background)
	s.must(err)
	s.datacenter = datacenter
	s.finder.SetDatacenter(datacenter)
	folders, err := datacenter.Folders(background)
	s.must(err)
	s.folder = folders.VmFolder
	s.pool, err = s.finder.ResourcePool(background, "*/Resources")
	s.must(err)
	s.datastore, err = s.finder.Datastore(background, "LocalDS_0")
	s.must(err)
	s.network, err = s.finder.Network(background, "VM Network")
	s.must(err)
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// done waits for a task that must succeed.
func (s *site) done(task *object.Task, err error) *types.TaskInfo {
	s.Helper()
	s.must(err)
	info, err := task.WaitForResult(background, nil)
	s.must(err)
	return info
}

// refused waits for a call or a task that must fail with this fault.
func refused[F types.BaseMethodFault](s *site, what string, task *object.Task, err error) {
	s.Helper()
	if err == nil && task != nil {
		_, err = task.WaitForResult(background, nil)
	}
	wanted(s, what, err, new(F))
}

func wanted[F types.BaseMethodFault](s *site, what string, err error, as *F) {
	s.Helper()
	if _, is := faultsof.As(err, as); !is {
		s.Errorf("%s: not %T, but %v", what, *as, err)
	}
}

// prepare makes an import specification, and a lease that is ready.
func (s *site) prepare(name string, properties ...types.KeyValue) (*nfc.Lease, *nfc.LeaseInfo, []byte) {
	s.Helper()
	stream := ovatest.Stream(ovatest.SystemDisk())
	spec, err := ovf.NewManager(s.client.Client).CreateImportSpec(background, ovatest.Descriptor(len(stream)), s.pool, s.datastore,
		&types.OvfCreateImportSpecParams{
			EntityName: name, PropertyMapping: properties, DiskProvisioning: "thin",
			NetworkMapping: []types.OvfNetworkMapping{{Name: "nodes", Network: s.network.Reference()}},
		})
	s.must(err)
	if len(spec.Error) > 0 {
		s.Fatalf("%+v", spec.Error)
	}
	lease, err := s.pool.ImportVApp(background, spec.ImportSpec, s.folder, nil)
	s.must(err)
	info, err := lease.Wait(background, spec.FileItem)
	s.must(err)
	return lease, info, stream
}

func (s *site) upload(info *nfc.LeaseInfo, stream []byte) {
	s.Helper()
	s.must(s.send(info, stream))
}

// send uploads to the one disk that wants it. It says nothing of progress.
func (s *site) send(info *nfc.LeaseInfo, stream []byte) error {
	s.Helper()
	if len(info.Items) != 1 {
		s.Fatalf("%d uploads are wanted", len(info.Items))
	}
	options := soap.DefaultUpload
	options.Method, options.ContentLength = "POST", int64(len(stream))
	return s.client.Upload(background, bytes.NewReader(stream), info.Items[0].URL, &options)
}

// imported is a machine of the appliance, powered off.
func (s *site) imported(name string) *object.VirtualMachine {
	s.Helper()
	lease, info, stream := s.prepare(name, types.KeyValue{Key: "node.address", Value: "192.0.2.1"}, types.KeyValue{Key: "node.secret", Value: `a&b<"c`})
	s.upload(info, stream)
	s.must(lease.Complete(background))
	return object.NewVirtualMachine(s.client.Client, info.Entity)
}

func (s *site) read(vm *object.VirtualMachine) mo.VirtualMachine {
	s.Helper()
	var found mo.VirtualMachine
	s.must(vm.Properties(background, vm.Reference(), []string{"name", "config", "runtime", "guest", "snapshot"}, &found))
	return found
}

func (s *site) power(vm *object.VirtualMachine) types.VirtualMachinePowerState {
	s.Helper()
	return s.read(vm).Runtime.PowerState
}

// is checks whether a machine is on.
func (s *site) is(vm *object.VirtualMachine, wanted types.VirtualMachinePowerState) {
	s.Helper()
	if now := s.power(vm); now != wanted {
		s.Errorf("it is %s", now)
	}
}

// holds checks the content of a file.
func (s *site) holds(file string, disk []byte) {
	s.Helper()
	raw, err := os.ReadFile(file)
	s.must(err)
	if !bytes.Equal(raw, disk) {
		s.Errorf("%s differs", file)
	}
}

// isGone checks that a file does not exist.
func (s *site) isGone(file string) {
	s.Helper()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		s.Errorf("%s: %v", file, err)
	}
}

// isEmpty checks that the datastore has no file.
func (s *site) isEmpty() {
	s.Helper()
	left, err := os.ReadDir(filepath.Join(s.bed.config.Directory, "LocalDS_0"))
	if err != nil || len(left) > 0 {
		s.Errorf("left: %v %v", left, err)
	}
}

func (s *site) disks(vm *object.VirtualMachine) []*types.VirtualDisk {
	s.Helper()
	var found []*types.VirtualDisk
	for _, device := range object.VirtualDeviceList(s.read(vm).Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		found = append(found, device.(*types.VirtualDisk))
	}
	return found
}

func pathOf(disk *types.VirtualDisk) string {
	return disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName
}

// until waits for what becomes so by itself.
func (s *site) until(what string, so func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("never: %s", what)
		}
	}
}

// untilOff waits until a guest has shut its machine down and the bed has finished with it. Before
// that, each task on the machine fails with TaskInProgress.
func (s *site) untilOff(vm *object.VirtualMachine) {
	s.Helper()
	s.until("it is off", func() bool { return s.power(vm) == off })
	s.bed.now().alone(vm.Reference(), func() {})
}

// ask is a control call.
func (s *site) ask(method, path, body string) string {
	s.Helper()
	request, err := http.NewRequest(method, s.control.URL+path, strings.NewReader(body))
	s.must(err)
	response, err := http.DefaultClient.Do(request)
	s.must(err)
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	s.must(err)
	if response.StatusCode != http.StatusOK {
		s.Fatalf("%s %s: %s", method, path, said)
	}
	return string(said)
}

func (s *site) machine(name string) Machine {
	s.Helper()
	var list []Machine
	s.must(json.Unmarshal([]byte(s.ask("GET", "/machines", "")), &list))
	for _, one := range list {
		if one.Name == name {
			return one
		}
	}
	s.Fatalf("no machine %s in %+v", name, list)
	return Machine{}
}

func (s *site) reconfigure(vm *object.VirtualMachine, spec types.VirtualMachineConfigSpec) (*object.Task, error) {
	s.Helper()
	return vm.Reconfigure(background, spec)
}

func change(operation types.VirtualDeviceConfigSpecOperation, device types.BaseVirtualDevice) types.VirtualMachineConfigSpec {
	return types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: operation, Device: device},
	}}
}

const (
	add    = types.VirtualDeviceConfigSpecOperationAdd
	edit   = types.VirtualDeviceConfigSpecOperationEdit
	remove = types.VirtualDeviceConfigSpecOperationRemove
)

// importOf asks for the import of a descriptor, and waits until its lease is ready.
func (s *site) importOf(descriptor string, properties ...types.KeyValue) (*types.OvfCreateImportSpecResult, error) {
	s.Helper()
	spec, err := ovf.NewManager(s.client.Client).CreateImportSpec(background, descriptor, s.pool, s.datastore,
		&types.OvfCreateImportSpecParams{EntityName: "node-1", PropertyMapping: properties})
	if err != nil || len(spec.Error) > 0 {
		return spec, err
	}
	lease, err := s.pool.ImportVApp(background, spec.ImportSpec, s.folder, nil)
	if err == nil {
		_, err = lease.Wait(background, spec.FileItem)
	}
	return spec, err
}
