package bed

import (
	"reflect"
	"strconv"
	"strings"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// datacenter answers for datacenters.
type datacenter struct {
	*vcsim.Datacenter
	world *world
}

// PowerOnMultiVMTask powers machines on, each by a separate task.
func (d *datacenter) PowerOnMultiVMTask(ctx *vcsim.Context, asked *types.PowerOnMultiVM_Task) soap.HasFault {
	task := d.world.task(ctx, "PowerOnMultiVM_Task", d.Datacenter, func(ctx *vcsim.Context) (types.AnyType, fault) {
		result := types.ClusterPowerOnVmResult{}
		for _, at := range asked.Vm {
			found, failed := d.world.machine(at)
			if failed != nil {
				result.NotAttempted = append(result.NotAttempted, types.ClusterNotAttemptedVmInfo{
					Vm: at, Fault: types.LocalizedMethodFault{Fault: failed, LocalizedMessage: message(failed)},
				})
				continue
			}
			started := d.world.task(ctx, "PowerOnVM_Task", found, func(ctx *vcsim.Context) (types.AnyType, fault) {
				return nil, d.world.powerOn(ctx, found)
			})
			result.Attempted = append(result.Attempted, types.ClusterAttemptedVmInfo{Vm: at, Task: &started})
		}
		return result, nil
	})
	return &methods.PowerOnMultiVM_TaskBody{Res: &types.PowerOnMultiVM_TaskResponse{Returnval: task}}
}

// cluster answers for clusters.
type cluster struct {
	*vcsim.ClusterComputeResource
	world *world
}

// ReconfigureComputeResourceTask changes a cluster's rules among others. vCenter knows a rule that is edited by its key, vcsim
// by its name: so the rule takes its new name first.
func (c *cluster) ReconfigureComputeResourceTask(ctx *vcsim.Context, asked *types.ReconfigureComputeResource_Task) soap.HasFault {
	task := c.world.task(ctx, "ReconfigureComputeResource_Task", c.ClusterComputeResource, func(ctx *vcsim.Context) (types.AnyType, fault) {
		if spec, is := asked.Spec.(*types.ClusterConfigSpecEx); is {
			if c.world.hasStranger(c.ClusterComputeResource, spec.RulesSpec) {
				return nil, &types.InvalidArgument{InvalidProperty: "spec.rulesSpec.info.vm"}
			}
			for _, change := range spec.RulesSpec {
				if change.Operation != types.ArrayUpdateOperationEdit {
					continue
				}
				var wanted, found *types.ClusterRuleInfo
				wanted = change.Info.GetClusterRuleInfo()
				for _, rule := range c.world.rules(c.ClusterComputeResource) {
					if rule.GetClusterRuleInfo().Key == wanted.Key {
						found = rule.GetClusterRuleInfo()
					}
				}
				if found == nil {
					return nil, &types.InvalidArgument{InvalidProperty: "spec.rulesSpec.info.key"}
				}
				wanted.RuleUuid = found.RuleUuid
				c.world.registry.WithLock(ctx, c.ClusterComputeResource, func() { found.Name = wanted.Name })
			}
		}
		result, failed := c.world.inner(ctx, c.ClusterComputeResource, func() soap.HasFault {
			return c.ClusterComputeResource.ReconfigureComputeResourceTask(ctx, asked)
		})
		if failed == nil {
			c.world.registry.WithLock(ctx, c.ClusterComputeResource, func() { c.world.editOverrides(c.ClusterComputeResource, asked.Spec) })
		}
		return result, failed
	})
	return &methods.ReconfigureComputeResource_TaskBody{Res: &types.ReconfigureComputeResource_TaskResponse{Returnval: task}}
}

// mounted has hosts that were added later reach all datastores, as the others do: vcsim's have none, and it ends where a machine is put there.
func (w *world) mounted(ctx *vcsim.Context, at ref) {
	pool, is := w.registry.Get(at).(*vcsim.ResourcePool)
	if !is {
		return
	}
	owner, is := w.registry.Get(pool.Owner).(*vcsim.ClusterComputeResource)
	if !is {
		return
	}
	for _, at := range owner.Host {
		host, is := w.registry.Get(at).(*vcsim.HostSystem)
		if !is || len(host.Datastore) > 0 {
			continue
		}
		for _, entity := range w.registry.All("Datastore") {
			datastore := entity.(*vcsim.Datastore)
			w.registry.WithLock(ctx, datastore, func() {
				datastore.Host = append(datastore.Host, types.DatastoreHostMount{Key: at})
			})
			w.registry.WithLock(ctx, host, func() { host.Datastore = append(host.Datastore, datastore.Self) })
		}
	}
}

// hasStranger says whether a rule names a machine of another cluster.
func (w *world) hasStranger(of *vcsim.ClusterComputeResource, changes []types.ClusterRuleSpec) bool {
	for _, change := range changes {
		rule, is := change.Info.(*types.ClusterAntiAffinityRuleSpec)
		if !is {
			continue
		}
		for _, at := range rule.Vm {
			found, failed := w.machine(at)
			if failed != nil {
				continue
			}
			host, is := w.registry.Get(*found.Runtime.Host).(*vcsim.HostSystem)
			if !is || host.Parent == nil || *host.Parent != of.Self {
				return true
			}
		}
	}
	return false
}

// editOverrides edits overrides of HA: vcsim changes their restart priority and keeps all else. "If you set the modify
// parameter to true [..], an unset property has no effect on the existing property value" (reference of ClusterDasVmSettings).
func (w *world) editOverrides(of *vcsim.ClusterComputeResource, asked types.BaseComputeResourceConfigSpec) {
	spec, is := asked.(*types.ClusterConfigSpecEx)
	config, known := of.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !is || !known {
		return
	}
	for _, change := range spec.DasVmConfigSpec {
		for i := range config.DasVmConfig {
			if change.Operation != types.ArrayUpdateOperationEdit || config.DasVmConfig[i].Key != change.Info.Key {
				continue
			}
			if w.bed.Switches().EditsReplaceOverrides {
				config.DasVmConfig[i] = *change.Info
			} else {
				setGiven(reflect.ValueOf(&config.DasVmConfig[i]).Elem(), reflect.ValueOf(change.Info).Elem())
			}
		}
	}
}

// setGiven sets the fields that are given, also those of structures below.
func setGiven(now, given reflect.Value) {
	for i := range given.NumField() {
		to, from := now.Field(i), given.Field(i)
		below := from.Kind() == reflect.Pointer && from.Type().Elem().Kind() == reflect.Struct
		switch {
		case from.IsZero():
		case below && !to.IsNil():
			setGiven(to.Elem(), from.Elem())
		default:
			to.Set(from)
		}
	}
}

// hostless is the fault of a machine that is to be made without a host where none is chosen: "For a stand-alone host or a cluster with DRS,
// host can be omitted, and the system selects a default" (reference of ResourcePool.ImportVApp and Folder.CreateVM_Task). Of clones the
// reference of VirtualMachineRelocateSpec says the same up to 8.0: see clonesToAnyHost.
func (w *world) hostless(at ref, host *ref) fault {
	pool, is := w.registry.Get(at).(*vcsim.ResourcePool)
	if !is || host != nil {
		return nil
	}
	owner, is := w.registry.Get(pool.Owner).(*vcsim.ClusterComputeResource)
	if !is {
		return nil
	}
	config, is := owner.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if is && w.bed.Switches().RefusesWithoutHost && config.DrsConfig.DefaultVmBehavior == types.DrsBehaviorManual {
		return &types.InvalidArgument{InvalidProperty: "host"}
	}
	if is && config.DrsConfig.Enabled != nil && !*config.DrsConfig.Enabled {
		return &types.InvalidArgument{InvalidProperty: "host"}
	}
	return nil
}

// clonesToAnyHost is whether a clone without a host is put onto any one: "if a resource pool is specified, the target pool represents a
// cluster, and this is a clone [..], a random compatible host is chosen" (reference of VirtualMachineRelocateSpec of 9.0).
func (w *world) clonesToAnyHost() bool {
	major, _, _ := strings.Cut(w.bed.config.API, ".")
	number, err := strconv.Atoi(major)
	return err == nil && number >= 9
}

func (w *world) rules(of *vcsim.ClusterComputeResource) []types.BaseClusterRuleInfo {
	if config, is := of.ConfigurationEx.(*types.ClusterConfigInfoEx); is {
		return config.Rule
	}
	return nil
}

// place finds a host for a machine that is powered on: its own if nothing is against it. A host is left out while it is in
// maintenance or not connected, and while a machine runs there that an anti-affinity rule keeps apart from this one. Without a
// host left, a rule's fault is RuleViolation, as the reference has it; else what vcsim says of the host in maintenance.
func (w *world) place(ctx *vcsim.Context, machine *vcsim.VirtualMachine) fault {
	host, is := w.registry.Get(*machine.Runtime.Host).(*vcsim.HostSystem)
	if !is || host.Parent == nil {
		return nil
	}
	in, is := w.registry.Get(*host.Parent).(*vcsim.ClusterComputeResource)
	if !is {
		return nil
	}
	var against types.BaseClusterRuleInfo
	for _, at := range append([]ref{host.Self}, in.Host...) {
		candidate, is := w.registry.Get(at).(*vcsim.HostSystem)
		if !is || candidate.Runtime.InMaintenanceMode || candidate.Runtime.ConnectionState != types.HostSystemConnectionStateConnected {
			continue
		}
		if rule := w.apart(in, machine, at); rule != nil {
			against = rule
			continue
		}
		if at != host.Self {
			w.registry.AtomicUpdate(ctx, machine, []types.PropertyChange{
				{Name: "runtime.host", Val: &at}, {Name: "summary.runtime.host", Val: &at},
			})
		}
		return nil
	}
	if against != nil {
		return &types.RuleViolation{Host: &host.Self, Rule: against}
	}
	return &types.InvalidState{}
}

// apart is the rule that keeps a machine from a host.
func (w *world) apart(in *vcsim.ClusterComputeResource, machine *vcsim.VirtualMachine, at ref) types.BaseClusterRuleInfo {
	for _, rule := range w.rules(in) {
		apart, is := rule.(*types.ClusterAntiAffinityRuleSpec)
		if !is || apart.Enabled == nil || !*apart.Enabled || vcsim.FindReference(apart.Vm, machine.Self) == nil {
			continue
		}
		for _, other := range apart.Vm {
			found, failed := w.machine(other)
			if failed == nil && other != machine.Self && w.running(found) != nil && *found.Runtime.Host == at {
				return rule
			}
		}
	}
	return nil
}
