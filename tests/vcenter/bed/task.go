package bed

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/faults"
)

// work is what a task does.
type work func(ctx *vcsim.Context) (types.AnyType, fault)

// task starts a separate task: vcsim's hold the lock of their object as long as they run, so that reads wait for them and a
// second task for the first. On vCenter reads go on, and what needs a machine that another task works on fails with
// TaskInProgress (vic 5647). The functions in then run before the task is reported as ended.
func (w *world) task(ctx *vcsim.Context, method string, on mo.Reference, do work, then ...func(*vcsim.Context, fault)) ref {
	at := on.Reference()
	made := w.newTask(ctx, method, at)
	if other, taken := w.take(at, made.Self); taken {
		w.bed.front.Counts.Refused()
		w.finish(ctx, made, nil, &types.TaskInProgress{Task: other})
		return made.Self
	}
	over := w.bed.front.Counts.Task()
	rule := w.bed.front.Rules.Task(method)
	own := *ctx
	own.Context = context.WithValue(context.Background(), underWay{}, made.Self)
	if rule != nil && rule.Do == faults.DelayTask && method == "CloneVM_Task" {
		// It takes its time once the machine is in the inventory.
		own.Context = context.WithValue(own.Context, delayed{}, rule)
		rule = nil
	}
	w.tasks.Add(1)
	go func() {
		defer w.tasks.Done()
		result, failed := spoilt(&own, rule, do)
		for _, then := range then {
			then(&own, failed)
		}
		w.account(&own)
		w.release(at)
		over()
		w.finish(&own, made, result, failed)
	}()
	return made.Self
}

// spoilt does the work, as a rule wants it.
func spoilt(ctx *vcsim.Context, rule *faults.Rule, do work) (types.AnyType, fault) {
	if rule == nil {
		return do(ctx)
	}
	injected, _ := rule.Make()
	switch rule.Do {
	case faults.FailTask:
		return nil, injected
	case faults.FailTaskLate:
		if result, failed := do(ctx); failed != nil {
			return result, failed
		}
		return nil, injected
	case faults.DelayTask:
		rule.Wait(nil)
	}
	return do(ctx)
}

// descriptions has TaskInfo.descriptionId by method, as vCenter's TaskManager lists it (govmomi has recorded that in simulator/vpx). Of other
// methods it is made of the method's name, which is right for most.
var descriptions = map[string]string{
	"CloneVM_Task": "VirtualMachine.clone", "CreateVM_Task": "Folder.createVm", "ImportVApp": "ResourcePool.ImportVAppLRO",
	"PowerOffVM_Task": "VirtualMachine.powerOff", "PowerOnMultiVM_Task": "Datacenter.powerOnVm", "PowerOnVM_Task": "VirtualMachine.powerOn",
	"ReconfigVM_Task": "VirtualMachine.reconfigure", "ReconfigureComputeResource_Task": "ClusterComputeResource.reconfigureEx",
	"RelocateVM_Task": "VirtualMachine.relocate", "ResetVM_Task": "VirtualMachine.reset",
	"CopyDatastoreFile_Task": "FileManager.copyFile", "DeleteDatastoreFile_Task": "FileManager.deleteFile", "MoveDatastoreFile_Task": "FileManager.moveFile",
}

func (w *world) newTask(ctx *vcsim.Context, method string, at ref) *vcsim.Task {
	id := strings.TrimSuffix(method, "_Task")
	made := vcsim.CreateTask(at, strings.ToLower(id[:1])+id[1:], nil)
	made.Info.Name = method
	if description, is := descriptions[method]; is {
		made.Info.DescriptionId = description
	}
	if ctx.Session != nil {
		made.Info.Reason = &types.TaskReasonUser{UserName: ctx.Session.UserName}
	}
	if at.Type == "FileManager" || at.Type == "VirtualDiskManager" {
		// "Managed entity to which the operation applies" (reference of TaskInfo): that of a path is its data center.
		at = w.registry.Any("Datacenter").Reference()
		made.Info.Entity = &at
	}
	if entity, is := w.registry.Get(at).(mo.Entity); is {
		made.Info.EntityName = name(entity)
	}
	w.registry.Put(made)
	w.registry.AtomicUpdate(ctx, made, []types.PropertyChange{
		{Name: "info.key", Val: made.Self.Value},
		{Name: "info.task", Val: made.Self},
		{Name: "info.startTime", Val: time.Now()},
		{Name: "info.state", Val: types.TaskInfoStateRunning},
	})
	return made
}

func (w *world) finish(ctx *vcsim.Context, made *vcsim.Task, result types.AnyType, failed fault) {
	changes := []types.PropertyChange{
		{Name: "info.completeTime", Val: time.Now()},
		{Name: "info.state", Val: types.TaskInfoStateSuccess},
	}
	if result != nil {
		changes = append(changes, types.PropertyChange{Name: "info.result", Val: result})
	}
	if failed != nil {
		changes = []types.PropertyChange{
			{Name: "info.completeTime", Val: time.Now()},
			{Name: "info.state", Val: types.TaskInfoStateError},
			{Name: "info.error", Val: types.LocalizedMethodFault{Fault: failed, LocalizedMessage: message(failed)}},
		}
	}
	w.registry.WithLock(ctx, made, func() {
		// A task that was cancelled stays so; what it did is done all the same.
		if made.Info.State == types.TaskInfoStateRunning {
			w.registry.Update(ctx, made, changes)
		}
	})
}

// message is the text of a fault. Clients should not depend on it.
func message(failed fault) string {
	text := strings.TrimPrefix(fmt.Sprintf("%T", failed), "*types.")
	if file, is := failed.(types.BaseFileFault); is {
		return fmt.Sprintf("%s: %s", text, file.GetFileFault().File)
	}
	if reason, is := failed.(*types.GenericVmConfigFault); is {
		return fmt.Sprintf("%s: %s", text, reason.Reason)
	}
	return text
}

// take makes a machine busy with a task, or says which task it is busy with. Other objects take any number.
func (w *world) take(at, task ref) (ref, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if at.Type != "VirtualMachine" {
		return ref{}, false
	}
	if other, taken := w.busy[at]; taken {
		return other, true
	}
	w.busy[at] = task
	return ref{}, false
}

func (w *world) release(at ref) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.busy, at)
	w.free.Broadcast()
}

// alone waits until a machine is not busy, and makes it so while something is done to it that is no task.
func (w *world) alone(at ref, do func()) {
	w.mutex.Lock()
	for {
		if _, taken := w.busy[at]; !taken {
			break
		}
		w.free.Wait()
	}
	w.busy[at] = ref{}
	w.mutex.Unlock()
	do()
	w.release(at)
}

// inner calls a method of vcsim's own that starts a task, and waits for that.
func (w *world) inner(ctx *vcsim.Context, on mo.Reference, call func() soap.HasFault) (types.AnyType, fault) {
	var result types.AnyType
	var failed fault
	w.registry.WithLock(ctx, on, func() {
		response := call()
		if refused := response.Fault(); refused != nil {
			failed = refused.VimFault().(fault)
			return
		}
		at := reflect.ValueOf(response).Elem().FieldByName("Res").Elem().FieldByName("Returnval").Interface().(ref)
		task := w.registry.Get(at).(*vcsim.Task)
		task.Wait()
		result = task.Info.Result
		if task.Info.Error != nil {
			failed = task.Info.Error.Fault
		}
	})
	return result, failed
}
