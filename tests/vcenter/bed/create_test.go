package bed

import (
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/ovatest"
)

func TestAMachinesSummaryHasNoEmptyEnumeration(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	var found mo.VirtualMachine
	s.must(vm.Properties(background, vm.Reference(), []string{"runtime", "summary"}, &found))
	for where, runtime := range map[string]types.VirtualMachineRuntimeInfo{"runtime": found.Runtime, "summary": found.Summary.Runtime} {
		if runtime.FaultToleranceState != types.VirtualMachineFaultToleranceStateNotConfigured ||
			runtime.RecordReplayState != types.VirtualMachineRecordReplayStateInactive {
			t.Errorf("%s: %q %q", where, runtime.FaultToleranceState, runtime.RecordReplayState)
		}
	}
}

func TestWithoutDRSNoHostIsChosenForANewMachine(t *testing.T) {
	s := opened(t)
	first, cluster := s.withoutDRS()
	spec := s.cloneSpec()
	task, err := first.Clone(background, s.folder, "node-2", spec)
	refused[*types.InvalidArgument](s, "a clone without a host", task, err)
	hosts, err := cluster.Hosts(background)
	s.must(err)
	host := hosts[0].Reference()
	spec.Location.Host = &host
	s.done(first.Clone(background, s.folder, "node-2", spec))
}

func TestFrom9OnAnyHostIsChosenForACloneAndNoneForAnImport(t *testing.T) {
	s := opened(t, func(config *Config) { config.API = "9.0.0.0" })
	first, _ := s.withoutDRS()
	s.done(first.Clone(background, s.folder, "node-2", s.cloneSpec()))
}

// withoutDRS is a machine of a cluster that has DRS turned off since, so that it takes no import without a host.
func (s *site) withoutDRS() (*object.VirtualMachine, *object.ClusterComputeResource) {
	s.Helper()
	first := s.imported("node-0")
	cluster, err := s.finder.DefaultClusterComputeResource(background)
	s.must(err)
	off := types.ClusterConfigSpecEx{DrsConfig: &types.ClusterDrsConfigInfo{Enabled: types.NewBool(false)}}
	s.done(cluster.Reconfigure(background, &off, true))
	_, err = s.importOf(ovatest.Descriptor(1))
	wanted(s, "an import without a host", err, new(*types.InvalidArgument))
	return first, cluster
}

// cloneSpec names a resource pool and no host.
func (s *site) cloneSpec() types.VirtualMachineCloneSpec {
	pool := s.pool.Reference()
	return types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &pool}}
}
