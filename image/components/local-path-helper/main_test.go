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

func TestWithoutADiskNoVolumeIsMade(t *testing.T) {
	volume := filepath.Join(t.TempDir(), "pvc-1_shop_data")
	if err := run(volume, "Filesystem", "create"); err == nil || !strings.Contains(err.Error(), "this node has none") {
		t.Fatal(err)
	}
	if _, err := os.Stat(volume); err == nil {
		t.Fatal("it was made")
	}
	// What was made before, on a disk or not, may go.
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := run(volume, "Filesystem", "delete"); err != nil {
		t.Fatal(err)
	}
}

func TestVolumesComeAndGoAndNothingElseDoes(t *testing.T) {
	pretend(t)
	volumes := t.TempDir()
	outside := t.TempDir()
	volume := filepath.Join(volumes, "pvc-1_shop_data")
	for range 2 {
		if err := run(volume, "Filesystem", "create"); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(volume); err != nil || info.Mode().Perm() != 0o777 {
		t.Fatal(info, err)
	}
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(volumes, "pvc-link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pvc-1_shop_data", "pvc-link", "pvc-none"} {
		if err := run(filepath.Join(volumes, name), "Filesystem", "delete"); err != nil {
			t.Fatal(name, err)
		}
	}
	if left, _ := os.ReadDir(volumes); len(left) != 0 {
		t.Fatal(left)
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsNoVolumeIsRefused(t *testing.T) {
	pretend(t)
	volumes := t.TempDir()
	for _, try := range [][3]string{
		{filepath.Join(volumes, "other"), "Filesystem", "create"},
		{filepath.Join(volumes, "pvc-1", ".."), "Filesystem", "delete"},
		{"pvc-1", "Filesystem", "create"},
		{"/", "Filesystem", "delete"},
		{filepath.Join(volumes, "pvc-1"), "Block", "create"},
		{filepath.Join(volumes, "pvc-1"), "Filesystem", "format"},
		{filepath.Join(volumes, "none", "pvc-1"), "Filesystem", "create"},
	} {
		if err := run(try[0], try[1], try[2]); err == nil {
			t.Error("not refused:", try)
		}
	}
}
