package bed

import (
	"testing"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
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
