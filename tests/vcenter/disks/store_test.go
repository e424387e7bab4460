package disks

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

const size = 3 << 20

func store(t *testing.T) *Store {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "vm"), 0o700); err != nil {
		t.Fatal(err)
	}
	made := New()
	made.Mount("ds", root)
	return made
}

func must[T any](t *testing.T) func(T, Fault) T {
	return func(value T, fault Fault) T {
		t.Helper()
		if fault != nil {
			t.Fatalf("%T: %+v", fault, fault)
		}
		return value
	}
}

func refused[F any](t *testing.T, what string, fault Fault) {
	t.Helper()
	if _, right := any(fault).(F); !right {
		t.Errorf("%s: %T", what, fault)
	}
}

func TestADiskIsARawFileOfItsCapacity(t *testing.T) {
	s := store(t)
	disk := must[*Disk](t)(s.Create("[ds] vm/a.vmdk", size, false))
	info, err := os.Stat(disk.Chain[0])
	if err != nil || info.Size() != size {
		t.Fatalf("%v %v", info, err)
	}
	if disk.Capacity != size || !strings.HasPrefix(disk.UUID, "6000C29") || s.Used("ds") != size {
		t.Errorf("%+v, %d bytes used", disk, s.Used("ds"))
	}
	if again := must[*Disk](t)(s.Read("[ds] vm/a.vmdk")); again.UUID != disk.UUID {
		t.Errorf("another UUID: %s", again.UUID)
	}
	_, fault := s.Create("[ds] vm/a.vmdk", size, false)
	refused[*types.FileAlreadyExists](t, "the same again", fault)
	_, fault = s.Create("[ds] nowhere/a.vmdk", size, false)
	refused[*types.FileNotFound](t, "no directory", fault)
	_, fault = s.Read("[other] vm/a.vmdk")
	refused[*types.InvalidDatastore](t, "no datastore", fault)
	if fault := s.Delete("[ds] vm/a.vmdk"); fault != nil {
		t.Fatal(fault)
	}
	left, _ := os.ReadDir(filepath.Dir(disk.Chain[0]))
	if len(left) != 0 || s.Used("ds") != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAUUIDHasBothForms(t *testing.T) {
	uuid := "6000C293-7ba0-3a03-9f22-56c52993b727"
	if Spaced(uuid) != "60 00 C2 93 7b a0 3a 03-9f 22 56 c5 29 93 b7 27" || dashed(Spaced(uuid)) != uuid {
		t.Errorf("%s, %s", Spaced(uuid), dashed(Spaced(uuid)))
	}
	s := store(t)
	must[*Disk](t)(s.Create("[ds] vm/a.vmdk", size, true))
	if fault := s.SetUUID("[ds] vm/a.vmdk", Spaced(uuid)); fault != nil {
		t.Fatal(fault)
	}
	if disk := must[*Disk](t)(s.Read("[ds] vm/a.vmdk")); disk.UUID != uuid {
		t.Error(disk.UUID)
	}
	refused[*types.InvalidArgument](t, "no UUID", s.SetUUID("[ds] vm/a.vmdk", "60 00"))
}

func TestACopyHoldsTheSameAndIsAnotherDisk(t *testing.T) {
	s := store(t)
	disk := must[*Disk](t)(s.Create("[ds] vm/a.vmdk", size, false))
	data := make([]byte, size)
	copy(data[size-5000:], "at the end")
	if err := os.WriteFile(disk.Chain[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	made := must[*Disk](t)(s.Copy("[ds] vm/a.vmdk", "[ds] vm/b.vmdk", true))
	held, err := os.ReadFile(made.Chain[0])
	if err != nil || !bytes.Equal(held, data) {
		t.Errorf("the copy differs: %v", err)
	}
	if made.UUID == disk.UUID {
		t.Error("the copy has the UUID of its source")
	}
}

func TestRunningMachinesLockTheirDisks(t *testing.T) {
	s := store(t)
	must[*Disk](t)(s.Create("[ds] vm/base.vmdk", size, false))
	must[*Disk](t)(s.Child("[ds] vm/one.vmdk", "[ds] vm/base.vmdk"))
	disk := must[*Disk](t)(s.Child("[ds] vm/two.vmdk", "[ds] vm/base.vmdk"))
	if len(disk.Chain) != 2 || disk.Capacity != size {
		t.Fatalf("%+v", disk)
	}
	for holder, name := range map[string]string{"vm-1": "[ds] vm/one.vmdk", "vm-2": "[ds] vm/two.vmdk"} {
		if fault := s.Lock(holder, name); fault != nil {
			t.Fatalf("linked clones share their base: %T", fault)
		}
	}
	refused[*types.FileLocked](t, "another's delta", s.Lock("vm-3", "[ds] vm/one.vmdk"))
	refused[*types.FileLocked](t, "the base of running clones", s.Lock("vm-3", "[ds] vm/base.vmdk"))
	refused[*types.FileLocked](t, "deleting a locked disk", s.Delete("[ds] vm/one.vmdk"))
	refused[*types.FileLocked](t, "its directory", s.Locked("", "[ds] vm"))
	refused[*types.FileLocked](t, "its extent", s.Locked("", "[ds] vm/one-delta.vmdk"))
	s.Unlock("vm-1")
	if fault := s.Lock("vm-3", "[ds] vm/one.vmdk"); fault != nil {
		t.Errorf("given back: %T", fault)
	}
	s.Unlock("vm-2")
	s.Unlock("vm-3")
	refused[*types.FileLocked](t, "a parent", s.Delete("[ds] vm/base.vmdk"))
	refused[*types.FileLocked](t, "moving a parent", s.Move("[ds] vm/base.vmdk", "[ds] vm/other.vmdk"))
	if fault := s.Move("[ds] vm/two.vmdk", "[ds] vm/moved.vmdk"); fault != nil {
		t.Errorf("moving: %T", fault)
	}
	if moved := must[*Disk](t)(s.Read("[ds] vm/moved.vmdk")); len(moved.Chain) != 2 || moved.UUID != disk.UUID {
		t.Errorf("%+v", moved)
	}
}
