package bed

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func TestItIsAVCenterOfEightAndKnowsItsUsers(t *testing.T) {
	s := opened(t)
	if about := s.client.ServiceContent.About; about.ApiVersion != "8.0.3.0" || about.ApiType != "VirtualCenter" {
		t.Errorf("%+v", about)
	}
	bare, err := vim25.NewClient(background, soap.NewClient(s.bed.URL(), true))
	s.must(err)
	_, err = methods.Login(background, bare, &types.Login{This: *bare.ServiceContent.SessionManager, UserName: "administrator@vsphere.local", Password: "wrong"})
	wanted(s, "a wrong password", err, new(*types.InvalidLogin))
	var folder mo.Folder
	err = object.NewRootFolder(bare).Properties(background, bare.ServiceContent.RootFolder, []string{"name"}, &folder)
	wanted(s, "reading without a session", err, new(*types.NotAuthenticated))
	response, err := bare.Client.Client.Get(s.bed.url("/folder/x?dcPath=DC0&dsName=LocalDS_0").String())
	s.must(err)
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a file without a session: %s", response.Status)
	}
}

func TestABareHostIsOne(t *testing.T) {
	config := Config{Listen: "127.0.0.1:0", Directory: t.TempDir(), Datastores: 1, ESX: true, Users: []User{{Name: "root", Password: "secret"}}}
	config.Carrier = &recorder{}
	started, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	defer started.Close()
	s := &site{T: t, bed: started}
	if about := s.login("root", "secret").ServiceContent.About; about.ApiType != "HostAgent" || about.ApiVersion != "8.0.3.0" {
		t.Errorf("%+v", about)
	}
}

func TestASessionThatEndsIsNoLongerGood(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	s.ask("POST", "/rules", `{"method": "PowerOnVM_Task", "do": "end-session"}`)
	_, err := vm.PowerOn(background)
	wanted(s, "an expired session", err, new(*types.NotAuthenticated))
	s.client = s.login("administrator@vsphere.local", "secret")
	vm = object.NewVirtualMachine(s.client.Client, vm.Reference())
	s.is(vm, off)
	if said := s.ask("POST", "/end", ""); !strings.Contains(said, `"sessions":1`) {
		t.Error(said)
	}
	_, err = vm.PowerOn(background)
	wanted(s, "once all have ended", err, new(*types.NotAuthenticated))
}

func TestALostAnswerOfAPowerOnLeavesTheMachineOn(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	s.ask("POST", "/rules", `{"method": "PowerOnVM_Task", "do": "lose-answer"}`)
	if _, err := vm.PowerOn(background); err == nil || soap.IsSoapFault(err) {
		t.Fatalf("answered: %v", err)
	}
	s.until("it is on", func() bool { return s.power(vm) == on })
	var calls struct {
		ByName map[string]struct{ Calls, In, Out int } `json:"by_name"`
		Order  []string                                `json:"order"`
	}
	s.must(json.Unmarshal([]byte(s.ask("GET", "/calls", "")), &calls))
	if calls.ByName["PowerOnVM_Task"].Calls != 1 || calls.ByName["NFC"].In < 100_000 || len(calls.Order) < 10 {
		t.Errorf("%+v", calls.ByName)
	}
}

func TestARestartKeepsMachinesAndNothingElse(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	s.done(vm.PowerOn(background))
	lease, _, _ := s.prepare("node-2")
	s.ask("POST", "/restart", `{"milliseconds": 1500}`)
	if err := vim25Alive(s); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("while it starts: %v", err)
	}
	s.until("it is up", func() bool { return vim25Alive(s) == nil })
	wanted(s, "the old session", lease.Progress(background, 1), new(*types.NotAuthenticated))
	s.client = s.login("administrator@vsphere.local", "secret")
	s.is(object.NewVirtualMachine(s.client.Client, vm.Reference()), on)
	if said := s.ask("GET", "/machines", ""); strings.Contains(said, "node-2") {
		t.Errorf("what was imported is there: %s", said)
	}
}

func vim25Alive(s *site) error {
	_, err := vim25.NewClient(background, soap.NewClient(s.bed.URL(), true))
	return err
}

func TestAResetForgetsEverything(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	s.done(vm.PowerOn(background))
	s.ask("POST", "/rules", `{"do": "drop", "times": -1, "method": "CloneVM_Task"}`)
	s.ask("POST", "/reset", "")
	if said := s.ask("GET", "/machines", "") + s.ask("GET", "/rules", "") + s.ask("GET", "/calls", ""); said != "[]\n[]\n{\"by_name\":null,\"order\":[],\"calls_at_once\":0,\"tasks_at_once\":0,\"busy\":0}\n" {
		t.Error(said)
	}
	left, err := os.ReadDir(filepath.Join(s.bed.config.Directory, "LocalDS_0"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	s.client = s.login("administrator@vsphere.local", "secret")
	s.find()
	s.done(s.imported("node-1").PowerOn(background))
}

func TestAResetLetsGoOfWhatRan(t *testing.T) {
	s := opened(t)
	again := func() {
		s.done(s.imported("node-1").PowerOn(background))
		s.client.CloseIdleConnections()
		s.ask("POST", "/reset", "")
		s.client = s.login("administrator@vsphere.local", "secret")
		s.find()
	}
	again()
	before := runtime.NumGoroutine()
	for range 20 {
		again()
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+5; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestARoleHasItsPrivilegesAndNoOthers(t *testing.T) {
	s := opened(t, func(c *Config) {
		c.Users = append(c.Users, User{Name: "operator@vsphere.local", Password: "other", Privileges: []string{
			"VirtualMachine.Interact.PowerOn", "VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Config.Annotation",
		}})
	})
	vm := s.imported("node-1")
	disks := s.disks(vm)
	client := s.login("operator@vsphere.local", "other")
	mine := object.NewVirtualMachine(client.Client, vm.Reference())
	s.done(mine.PowerOn(background))
	_, err := mine.PowerOff(background)
	wanted(s, "powering off", err, new(*types.NoPermission))
	_, err = mine.Reconfigure(background, types.VirtualMachineConfigSpec{Annotation: "x"})
	s.must(err)
	_, err = mine.Reconfigure(background, detach(disks[1]))
	wanted(s, "removing a disk", err, new(*types.NoPermission))
	_, err = mine.Destroy(background)
	wanted(s, "destroying", err, new(*types.NoPermission))
	manager := object.NewAuthorizationManager(client.Client)
	held, err := manager.HasUserPrivilegeOnEntities(background, []types.ManagedObjectReference{vm.Reference()}, "operator@vsphere.local",
		[]string{"System.Read", "VirtualMachine.Interact.PowerOn", "VirtualMachine.Interact.PowerOff"})
	s.must(err)
	var granted []bool
	for _, one := range held[0].PrivAvailability {
		granted = append(granted, one.IsGranted)
	}
	if len(granted) != 3 || !granted[0] || !granted[1] || granted[2] {
		t.Errorf("%v", granted)
	}
	session, err := client.SessionManager.UserSession(background)
	s.must(err)
	mineToo, err := methods.HasPrivilegeOnEntities(background, client, &types.HasPrivilegeOnEntities{
		This: manager.Reference(), Entity: []types.ManagedObjectReference{vm.Reference()}, SessionId: session.Key,
		PrivId: []string{"VirtualMachine.Interact.PowerOn", "Folder.Create"},
	})
	s.must(err)
	if one := mineToo.Returnval[0].PrivAvailability; len(one) != 2 || !one[0].IsGranted || one[1].IsGranted {
		t.Errorf("%v", one)
	}
}

func TestAFormsValuesAndItsOtherFieldsNeedDifferentPrivileges(t *testing.T) {
	property := func(operation types.ArrayUpdateOperation, info *types.VAppPropertyInfo) *types.VmConfigSpec {
		return &types.VmConfigSpec{Property: []types.VAppPropertySpec{{
			ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: operation}, Info: info,
		}}}
	}
	edited := types.ArrayUpdateOperationEdit
	values, fields := "VApp.InstanceConfig", "VApp.ApplicationConfig"
	for _, one := range []struct {
		spec *types.VmConfigSpec
		all  []string
	}{
		{property(edited, &types.VAppPropertyInfo{Key: 1, Value: "x"}), []string{values}},
		{property(edited, &types.VAppPropertyInfo{Key: 1, Id: "a", Value: "x"}), []string{values, fields}},
		{property(edited, &types.VAppPropertyInfo{Key: 1, Label: "x"}), []string{fields}},
		{property(types.ArrayUpdateOperationRemove, nil), []string{fields}},
		{&types.VmConfigSpec{Eula: []string{"x"}}, []string{fields}},
		{&types.VmConfigSpec{IpAssignment: &types.VAppIPAssignmentInfo{IpProtocol: "IPv4"}}, []string{values}},
		{&types.VmConfigSpec{IpAssignment: &types.VAppIPAssignmentInfo{SupportedIpProtocol: []string{"IPv4"}}}, []string{fields}},
	} {
		if all := forSpec(&types.VirtualMachineConfigSpec{VAppConfig: one.spec}); !slices.Equal(all, one.all) {
			t.Errorf("%+v needs %v", one.spec, all)
		}
	}
}

func TestTasksOfWhatAUserMayNotAccessAreNotListed(t *testing.T) {
	files := []string{"Datastore.FileManagement", "Datastore.Browse"}
	s := opened(t, func(c *Config) {
		c.Users = append(c.Users,
			User{Name: "below@vsphere.local", Password: "other", On: map[string][]string{"DC0/datastore/LocalDS_0": files}},
			User{Name: "above@vsphere.local", Password: "other", On: map[string][]string{"DC0/datastore/LocalDS_0": files, "DC0": {"System.Read"}}})
	})
	listed := func(user string) bool {
		client := s.login(user, "other")
		task, err := object.NewFileManager(client.Client).DeleteDatastoreFile(background, "[LocalDS_0] nothing", s.datacenter)
		refused[*types.FileNotFound](s, "a file that is not there", task, err)
		var found mo.TaskManager
		s.must(client.RetrieveOne(background, *client.ServiceContent.TaskManager, []string{"recentTask"}, &found))
		return slices.Contains(found.RecentTask, task.Reference())
	}
	if listed("below@vsphere.local") || !listed("above@vsphere.local") {
		t.Error("a task on a file is its data center's")
	}
	s.ask("PUT", "/switches", `{"lists_all_tasks": true}`)
	if !listed("below@vsphere.local") {
		t.Error("with the switch all are listed")
	}
}

func TestARoleCountsOnItsObjectAndBelowUnlessAnotherOneIsSetThere(t *testing.T) {
	on, off := "VirtualMachine.Interact.PowerOn", "VirtualMachine.Interact.PowerOff"
	s := opened(t, func(c *Config) {
		c.Users = append(c.Users, User{Name: "operator@vsphere.local", Password: "other", On: map[string][]string{
			"DC0": {on, off, "Datastore.FileManagement"}, "DC0/vm": {on}, "DC0/host/DC0_C0": {"VirtualMachine.Config.Annotation"},
			"DC0/datastore/LocalDS_0": {"Datastore.Browse"},
		}})
	})
	vm := s.imported("node-1")
	client := s.login("operator@vsphere.local", "other")
	mine := object.NewVirtualMachine(client.Client, vm.Reference())
	s.done(mine.PowerOn(background))
	// That of the data center does not reach it, and that of the cluster does as well.
	_, err := mine.PowerOff(background)
	wanted(s, "powering off", err, new(*types.NoPermission))
	_, err = mine.Reconfigure(background, types.VirtualMachineConfigSpec{Annotation: "x"})
	s.must(err)
	_, err = mine.Reconfigure(background, types.VirtualMachineConfigSpec{NumCPUs: 2})
	wanted(s, "other settings", err, new(*types.NoPermission))
	// A file's datastore counts.
	files := object.NewFileManager(client.Client)
	wanted(s, "a directory", files.MakeDirectory(background, "[LocalDS_0] d", s.datacenter, false), new(*types.NoPermission))
	root := client.ServiceContent.RootFolder
	held, err := object.NewAuthorizationManager(client.Client).HasUserPrivilegeOnEntities(background,
		[]types.ManagedObjectReference{root, s.datacenter.Reference(), vm.Reference()}, "operator@vsphere.local", []string{off})
	s.must(err)
	var granted []bool
	for _, one := range held {
		granted = append(granted, one.PrivAvailability[0].IsGranted)
	}
	if len(granted) != 3 || granted[0] || !granted[1] || granted[2] {
		t.Errorf("%v", granted)
	}
}

func TestPrivilegesThatAreAskedForExist(t *testing.T) {
	known := map[string]bool{}
	for _, privilege := range Known() {
		known[privilege] = true
	}
	for method, list := range needed {
		for _, privilege := range list {
			if !known[privilege] {
				t.Errorf("%s asks for %s", method, privilege)
			}
		}
	}
	everything := types.VirtualMachineConfigSpec{
		Name: "x", Annotation: "x", NumCPUs: 1, MemoryMB: 1, ExtraConfig: []types.BaseOptionValue{&types.OptionValue{}}, Firmware: "efi",
		ManagedBy: &types.ManagedByInfo{}, VAppConfig: &types.VmConfigSpec{}, CpuAllocation: &types.ResourceAllocationInfo{},
	}
	for _, operation := range []types.VirtualDeviceConfigSpecOperation{add, edit, remove} {
		for _, device := range []types.BaseVirtualDevice{&types.VirtualDisk{}, &types.VirtualVmxnet3{}} {
			everything.DeviceChange = append(everything.DeviceChange, change(operation, device).DeviceChange...)
		}
	}
	for _, privilege := range forSpec(&everything) {
		if !known[privilege] {
			t.Errorf("a change asks for %s", privilege)
		}
	}
}

func TestOthersMachinesAreThere(t *testing.T) {
	s := opened(t, func(c *Config) { c.Others = 20 })
	list, err := s.finder.VirtualMachineList(background, "*")
	s.must(err)
	if len(list) != 20 {
		t.Errorf("%d machines", len(list))
	}
}
