package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Lets directories of the test be disks.
func pretend(t *testing.T) {
	asked := ownDisk
	ownDisk = func(os.FileInfo) bool { return true }
	t.Cleanup(func() { ownDisk = asked })
}

// Lets the test be the pod of this volume.
func as(t *testing.T, volume string) {
	asked := volumeName
	volumeName = func(string) (string, error) { return volume, nil }
	t.Cleanup(func() { volumeName = asked })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWithoutADiskNothingIsMadeAndNothingRemoved(t *testing.T) {
	as(t, "pvc-1")
	volume := filepath.Join(t.TempDir(), "pvc-1_shop_data")
	refused := func(action string) {
		err := run(volume, "Filesystem", action)
		if err == nil || !strings.Contains(err.Error(), "this node has none") {
			t.Fatal(action, err)
		}
	}
	refused("create")
	if _, err := os.Stat(volume); err == nil {
		t.Fatal("it was made")
	}
	must(t, os.Mkdir(volume, 0o700))
	refused("delete")
	if _, err := os.Stat(volume); err != nil {
		t.Fatal("it was removed", err)
	}
}

func TestVolumesComeAndGoAndNothingElseDoes(t *testing.T) {
	pretend(t)
	as(t, "pvc-1")
	volumes := t.TempDir()
	outside := t.TempDir()
	volume := filepath.Join(volumes, "pvc-1_shop_data")
	for range 2 {
		must(t, run(volume, "Filesystem", "create"))
	}
	if info, err := os.Stat(volume); err != nil || info.Mode().Perm() != 0o777 {
		t.Fatal(info, err)
	}
	must(t, os.Symlink(outside, filepath.Join(volume, "link")))
	must(t, os.Symlink(outside, filepath.Join(volumes, "pvc-1_link")))
	must(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	for _, name := range []string{"pvc-1_shop_data", "pvc-1_link", "pvc-1_none"} {
		if err := run(filepath.Join(volumes, name), "Filesystem", "delete"); err != nil {
			t.Fatal(name, err)
		}
	}
	if left, _ := os.ReadDir(volumes); len(left) != 0 {
		t.Fatal(left)
	}
	_, err := os.Stat(filepath.Join(outside, "kept"))
	must(t, err)
}

// A StorageClass may choose the path with `pathPattern`.
func TestTheDirectoryOfAnotherVolumeIsRefused(t *testing.T) {
	pretend(t)
	as(t, "pvc-1")
	volumes := t.TempDir()
	for _, name := range []string{"pvc-2_shop_data", "pvc-12_shop_data", "pvc-1", "pvc-_pvc-1_data"} {
		other := filepath.Join(volumes, name)
		must(t, os.MkdirAll(other, 0o700))
		for _, action := range []string{"create", "delete"} {
			err := run(other, "Filesystem", action)
			if err == nil || !strings.Contains(err.Error(), "no directory of the volume pvc-1") {
				t.Error(name, action, err)
			}
		}
		if info, err := os.Stat(other); err != nil || info.Mode().Perm() != 0o700 {
			t.Error(name, "was changed:", info, err)
		}
	}
}

func TestAPodThatIsOfNoVolumeDoesNothing(t *testing.T) {
	pretend(t)
	// The host of this test is called neither helper-pod-create-pvc-… nor helper-pod-delete-pvc-….
	volume := filepath.Join(t.TempDir(), "pvc-1_shop_data")
	for _, action := range []string{"create", "delete"} {
		if err := run(volume, "Filesystem", action); err == nil || !strings.Contains(err.Error(), "no volume in it") {
			t.Fatal(action, err)
		}
	}
}

func TestWhatIsNoVolumeIsRefused(t *testing.T) {
	pretend(t)
	as(t, "pvc-1")
	volumes := t.TempDir()
	for _, try := range [][3]string{
		{filepath.Join(volumes, "other"), "Filesystem", "create"},
		{filepath.Join(volumes, "pvc-1_", ".."), "Filesystem", "delete"},
		{"pvc-1_", "Filesystem", "create"},
		{"/", "Filesystem", "delete"},
		{filepath.Join(volumes, "pvc-1_"), "Block", "create"},
		{filepath.Join(volumes, "pvc-1_"), "Filesystem", "format"},
		{filepath.Join(volumes, "none", "pvc-1_"), "Filesystem", "create"},
	} {
		if err := run(try[0], try[1], try[2]); err == nil {
			t.Error("not refused:", try)
		}
	}
}
