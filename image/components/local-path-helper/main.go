// Command local-path-helper makes or removes the directory of a local volume on its node. local-path-provisioner starts it
// there in a pod that sees the directory of all volumes, with these arguments:
//
//	-p PATH -s BYTES -m Filesystem|Block -a create|delete
//
// The size is not enforced: the file system of all volumes is one.
//
// The path comes from the provisioner, which lets a StorageClass choose it (CVE-2025-62878). So the name of the directory must
// begin with the volume's own name: no claim gets the directory of another one.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The prefix of the directories of volumes: local-path-provisioner names them after their PersistentVolume.
const prefix = "pvc-"

// The inode of the topmost directory of an ext4 file system (fs/ext4/ext4.h, EXT4_ROOT_INO): no other directory has it.
const ext4Root = 2

// The name of the volume: the provisioner calls the pod helper-pod-ACTION-VOLUME, and the name of a pod is its host name.
var volumeName = func(action string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	name, found := strings.CutPrefix(host, "helper-pod-"+action+"-")
	if !found || !strings.HasPrefix(name, prefix) {
		return "", fmt.Errorf("the pod's name %q has no volume in it", host)
	}
	return name, nil
}

// Whether the directory of all volumes is a separate disk, which the agent mounts there. On a node without one it is a
// directory of the node's: the user who writes a claim may name such a node in it, and the provisioner does not ask.
var ownDisk = func(directory os.FileInfo) bool {
	stat, ok := directory.Sys().(*syscall.Stat_t)
	return ok && stat.Ino == ext4Root
}

func main() {
	path := flag.String("p", "", "directory of the volume")
	flag.Int64("s", 0, "size in bytes, which is not enforced")
	mode := flag.String("m", "", "mode of the volume")
	action := flag.String("a", "", "create or delete")
	flag.Parse()
	if err := run(*path, *mode, *action); err != nil {
		fmt.Fprintln(os.Stderr, "local-path-helper:", err)
		os.Exit(1)
	}
}

func run(path, mode, action string) error {
	directory, name := filepath.Split(filepath.Clean(path))
	if action != "create" && action != "delete" {
		return fmt.Errorf("%q is nothing that is done to a volume", action)
	}
	volume, err := volumeName(action)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(path) || !strings.HasPrefix(name, volume+"_") {
		return fmt.Errorf("%q is no directory of the volume %s", path, volume)
	}
	// Whatever a name or a link in a volume says, nothing outside of the directory of all volumes is touched.
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	// To delete, too: where the disk is away, its directory stays on it, and nothing below it may be taken for that.
	if !ownDisk(info) {
		return fmt.Errorf("%s is not on a disk for local volumes: this node has none", directory)
	}
	if action == "delete" {
		return root.RemoveAll(name)
	}
	if mode != "Filesystem" {
		return fmt.Errorf("a local volume is a file system, not %q", mode)
	}
	if err := root.Mkdir(name, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	// Any user of the pod may write there: the umask has narrowed the mode of creation.
	return root.Chmod(name, 0o777)
}
