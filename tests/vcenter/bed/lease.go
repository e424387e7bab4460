package bed

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"path"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// lease is the import of a machine: its disks can be uploaded as long as the client reports its progress. vcsim throws uploads
// away, never ends a lease, and keeps the machine of one that is aborted.
type lease struct {
	mo.HttpNfcLease
	world *world
	timer Timer

	mutex sync.Mutex
	// disks has, for the last part of each URL, the disk and what has arrived for it.
	disks map[string]*upload
}

type upload struct {
	key, path string
	size      int64
	sha1, all hash.Hash
}

// pool answers for resource pools.
type pool struct {
	*vcsim.ResourcePool
	world *world
}

// ImportVApp makes a machine of an import specification, and gives a lease for its disks.
func (p *pool) ImportVApp(ctx *vcsim.Context, asked *types.ImportVApp) soap.HasFault {
	refuse := func(why fault) soap.HasFault { return &methods.ImportVAppBody{Fault_: vcsim.Fault("", why)} }
	spec, is := asked.Spec.(*types.VirtualMachineImportSpec)
	if !is {
		return refuse(&types.InvalidArgument{InvalidProperty: "spec"})
	}
	in := p.world.folder()
	if asked.Folder != nil {
		if in, is = p.world.registry.Get(*asked.Folder).(*vcsim.Folder); !is {
			return refuse(&types.ManagedObjectNotFound{Obj: *asked.Folder})
		}
	}
	made := &lease{world: p.world, disks: map[string]*upload{}}
	made.Self = ref{Type: "HttpNfcLease", Value: "session[" + ctx.Session.Key + "]" + uuid.NewString()}
	made.State = types.HttpNfcLeaseStateInitializing
	made.timer = p.world.bed.config.AfterFunc(p.world.bed.config.LeaseTimeout, made.expire)
	ctx.Session.Put(made)
	p.world.mutex.Lock()
	p.world.leases[made.Self.Value] = made
	p.world.mutex.Unlock()
	p.world.task(ctx, "ImportVApp", p.ResourcePool, func(ctx *vcsim.Context) (types.AnyType, fault) {
		return nil, made.open(ctx, in, spec, p.Self, asked.Host)
	}, func(ctx *vcsim.Context, failed fault) {
		if failed != nil {
			made.drop(ctx, failed)
		}
	})
	return &methods.ImportVAppBody{Res: &types.ImportVAppResponse{Returnval: made.Self}}
}

// open makes the machine, and says where its disks can be uploaded.
func (l *lease) open(ctx *vcsim.Context, in *vcsim.Folder, spec *types.VirtualMachineImportSpec, pool ref, host *ref) fault {
	if failed := configurable(spec); failed != nil {
		return failed
	}
	if failed := l.world.hostless(pool, host); failed != nil {
		return failed
	}
	dropped(&spec.ConfigSpec, l.world.bed.Switches().ImportDrops)
	machine, failed := l.world.create(ctx, in, spec.ConfigSpec, pool, host)
	if failed != nil {
		return failed
	}
	// As long as the lease is open, nothing else can be done with the machine.
	l.world.take(machine.Self, l.Self)
	all := devices(machine)
	// "*" or the host's name: vCenter names the host as a rule (terraform-provider-vsphere 1072), and the upload goes there. A host that is
	// renamed here keeps its address.
	place := l.world.bed.url("")
	if at, is := l.world.registry.Get(*machine.Runtime.Host).(*vcsim.HostSystem); is {
		place.Host = net.JoinHostPort(at.Summary.Config.Name, place.Port())
	}
	info := &types.HttpNfcLeaseInfo{
		Lease: l.Self, Entity: machine.Self, LeaseTimeout: int32(max(1, l.world.bed.config.LeaseTimeout/time.Second)),
	}
	for _, device := range all.SelectByType((*types.VirtualDisk)(nil)) {
		disk := device.(*types.VirtualDisk)
		file := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName
		id := deviceID(machine.Name, all, disk)
		name := fmt.Sprintf("disk-%d.vmdk", len(l.disks))
		l.disks[name] = &upload{key: id, path: file}
		info.TotalDiskCapacityInKB += disk.CapacityInKB
		info.DeviceUrl = append(info.DeviceUrl, types.HttpNfcLeaseDeviceUrl{
			Key: id, ImportKey: id, Url: place.JoinPath("nfc", l.Self.Value, name).String(),
			SslThumbprint: l.world.bed.Thumbprint, Disk: types.NewBool(true), TargetId: name, FileSize: 0,
		})
	}
	l.timer.Reset(l.world.bed.config.LeaseTimeout)
	l.world.registry.AtomicUpdate(ctx, l, []types.PropertyChange{
		{Name: "info", Val: info}, {Name: "initializeProgress", Val: int32(100)}, {Name: "state", Val: types.HttpNfcLeaseStateReady},
	})
	return nil
}

// deviceID names a disk of an import: "/NAME/ParaVirtualSCSIController0:0".
func deviceID(machine string, all object.VirtualDeviceList, disk *types.VirtualDisk) string {
	controller, is := all.FindByKey(disk.ControllerKey).(types.BaseVirtualController)
	if !is || disk.UnitNumber == nil {
		return fmt.Sprintf("/%s/%d", machine, disk.Key)
	}
	kind := reflect.TypeOf(controller).Elem().Name()
	return fmt.Sprintf("/%s/%s%d:%d", machine, kind, controller.GetVirtualController().BusNumber, *disk.UnitNumber)
}

// configurable is the fault of a property that has a value and is not for users to set.
func configurable(spec *types.VirtualMachineImportSpec) fault {
	if spec.ConfigSpec.VAppConfig == nil {
		return nil
	}
	for _, property := range spec.ConfigSpec.VAppConfig.GetVmConfigSpec().Property {
		info := property.Info
		if info == nil || info.UserConfigurable != nil && *info.UserConfigurable || info.Value == "" || info.Value == info.DefaultValue {
			continue
		}
		return &types.NotUserConfigurableProperty{VAppPropertyFault: types.VAppPropertyFault{
			Id: info.Id, Category: info.Category, Label: info.Label, Type: info.Type, Value: info.Value,
		}}
	}
	return nil
}

// end closes the lease, in error or done.
func (l *lease) end(ctx *vcsim.Context, state types.HttpNfcLeaseState, why fault) bool {
	w := l.world
	w.mutex.Lock()
	_, open := w.leases[l.Self.Value]
	delete(w.leases, l.Self.Value)
	w.mutex.Unlock()
	if !open {
		return false
	}
	l.timer.Stop()
	changes := []types.PropertyChange{{Name: "state", Val: state}}
	if why != nil {
		changes = append(changes, types.PropertyChange{Name: "error", Val: &types.LocalizedMethodFault{Fault: why, LocalizedMessage: message(why)}})
	}
	w.registry.AtomicUpdate(ctx, l, changes)
	return true
}

// drop ends a lease that will not be completed, and destroys its machine.
func (l *lease) drop(ctx *vcsim.Context, why fault) bool {
	// An upload that is at work ends first, and no other begins.
	ended := l.end(ctx, types.HttpNfcLeaseStateError, why)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if ended && l.Info != nil {
		l.world.release(l.Info.Entity)
	}
	if ended && l.Info != nil && !l.world.bed.Switches().LeavesAborted {
		if machine, failed := l.world.machine(l.Info.Entity); failed == nil {
			l.world.alone(machine.Self, func() { _ = l.world.destroy(l.world.own(), machine) })
			l.world.account(l.world.own())
		}
	}
	return ended
}

// expire ends a lease without a report of progress during its time-out: "The client must call HttpNfcLeaseProgress periodically … to
// keep the lease alive" (reference of HttpNfcLease).
func (l *lease) expire() { l.drop(l.world.own(), &types.Timedout{}) }

func (l *lease) closed() *soap.Fault { return vcsim.Fault("", &types.InvalidState{}) }

// HttpNfcLeaseComplete ends the import.
func (l *lease) HttpNfcLeaseComplete(ctx *vcsim.Context, _ *types.HttpNfcLeaseComplete) soap.HasFault {
	if l.State != types.HttpNfcLeaseStateReady || !l.end(ctx, types.HttpNfcLeaseStateDone, nil) {
		return &methods.HttpNfcLeaseCompleteBody{Fault_: l.closed()}
	}
	l.world.account(l.world.own())
	l.world.release(l.Info.Entity)
	return &methods.HttpNfcLeaseCompleteBody{Res: new(types.HttpNfcLeaseCompleteResponse)}
}

// HttpNfcLeaseAbort undoes the import.
func (l *lease) HttpNfcLeaseAbort(ctx *vcsim.Context, asked *types.HttpNfcLeaseAbort) soap.HasFault {
	var why fault = &types.RequestCanceled{}
	if asked.Fault != nil && asked.Fault.Fault != nil {
		why = asked.Fault.Fault
	}
	if !l.drop(ctx, why) {
		return &methods.HttpNfcLeaseAbortBody{Fault_: l.closed()}
	}
	return &methods.HttpNfcLeaseAbortBody{Res: new(types.HttpNfcLeaseAbortResponse)}
}

// HttpNfcLeaseProgress keeps the lease alive.
func (l *lease) HttpNfcLeaseProgress(ctx *vcsim.Context, asked *types.HttpNfcLeaseProgress) soap.HasFault {
	if l.State != types.HttpNfcLeaseStateReady {
		return &methods.HttpNfcLeaseProgressBody{Fault_: l.closed()}
	}
	l.timer.Reset(l.world.bed.config.LeaseTimeout)
	l.world.registry.Update(ctx, l, []types.PropertyChange{{Name: "transferProgress", Val: asked.Percent}})
	return &methods.HttpNfcLeaseProgressBody{Res: new(types.HttpNfcLeaseProgressResponse)}
}

// HttpNfcLeaseGetManifest says what has arrived.
func (l *lease) HttpNfcLeaseGetManifest(*vcsim.Context, *types.HttpNfcLeaseGetManifest) soap.HasFault {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	response := new(types.HttpNfcLeaseGetManifestResponse)
	for _, disk := range l.disks {
		if disk.all != nil {
			response.Returnval = append(response.Returnval, types.HttpNfcLeaseManifestEntry{
				Key: disk.key, Sha1: hex.EncodeToString(disk.sha1.Sum(nil)), Size: disk.size, Disk: true,
				Checksum: hex.EncodeToString(disk.all.Sum(nil)), ChecksumType: string(types.HttpNfcLeaseManifestEntryChecksumTypeSha256),
			})
		}
	}
	return &methods.HttpNfcLeaseGetManifestBody{Res: response}
}

// serveNFC takes uploads. Their URLs carry the right to do so, without a session.
func (w *world) serveNFC(response http.ResponseWriter, request *http.Request) {
	parts := strings.Split(strings.TrimPrefix(path.Clean(request.URL.Path), "/nfc/"), "/")
	w.mutex.Lock()
	open := w.leases[parts[0]]
	w.mutex.Unlock()
	if open == nil || len(parts) != 2 {
		http.Error(response, "no such lease", http.StatusNotFound)
		return
	}
	if request.Method != http.MethodPut && request.Method != http.MethodPost {
		http.Error(response, "a lease for an import takes uploads", http.StatusMethodNotAllowed)
		return
	}
	if err := open.receive(parts[1], request.Body); err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	response.WriteHeader(http.StatusCreated)
}

// receive unpacks an upload into its disk. A second one takes the place of the first.
func (l *lease) receive(name string, body io.Reader) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	to := l.disks[name]
	if to == nil {
		return fmt.Errorf("this lease has no %s", name)
	}
	to.sha1, to.all, to.size = sha1.New(), sha256.New(), 0
	counted := io.TeeReader(body, io.MultiWriter(to.sha1, to.all, (*size)(&to.size)))
	if err := l.world.unpack(counted, to.path); err != nil {
		return err
	}
	// Bytes behind the end of the stream count for the sums.
	_, err := io.Copy(io.Discard, counted)
	return err
}

type size int64

func (s *size) Write(p []byte) (int, error) {
	*s += size(len(p))
	return len(p), nil
}
