// Package disks keeps virtual disks as files in the directories of datastores: a descriptor, and next to it a raw flat file of
// the disk's capacity, which fits a loop device, or the empty file of a delta. It knows locks, and who is whose parent; of
// virtual machines it knows nothing but the name that holds a lock.
//
// Its errors are the faults that vCenter has for them.
package disks

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

const sector = 512

// Fault is a fault of the vSphere API.
type Fault = types.BaseMethodFault

// Store is the disks of all datastores.
type Store struct {
	mutex sync.Mutex
	// roots has each datastore's directory.
	roots map[string]string
	// held has the holders of each locked disk, by its descriptor's file.
	held map[string]map[string]bool
	// exclusive has the one who writes to a locked disk.
	exclusive map[string]string
	// parents has, for each delta's descriptor, that of its parent.
	parents map[string]string
	// used has the bytes that each disk takes, by its descriptor's file.
	used map[string]int64
}

// Disk is what there is to say of a disk.
type Disk struct {
	// Path is the datastore path of the descriptor.
	Path     string
	Capacity int64
	UUID     string
	Thin     bool
	// Chain has the raw file, or for a delta its own file and then those of its parents.
	Chain []string
	// Parent is the datastore path of a delta's parent.
	Parent string
}

// New is a store without datastores.
func New() *Store {
	return &Store{
		roots: map[string]string{}, held: map[string]map[string]bool{}, exclusive: map[string]string{},
		parents: map[string]string{}, used: map[string]int64{},
	}
}

// Mount makes a datastore of a directory.
func (s *Store) Mount(datastore, directory string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.roots[datastore] = directory
}

// RenameDatastore gives a datastore another name. Its directory stays. Deltas name their parents by it.
func (s *Store) RenameDatastore(from, to string) Fault {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	directory, known := s.roots[from]
	if !known {
		return &types.InvalidDatastore{Name: from}
	}
	for file := range s.parents {
		delta, err := read(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return failure(file, err)
		}
		if rest, is := strings.CutPrefix(delta.parent, "["+from+"]"); is {
			delta.parent = "[" + to + "]" + rest
			if err := os.WriteFile(file, delta.text(), 0o600); err != nil {
				return failure(file, err)
			}
		}
	}
	delete(s.roots, from)
	s.roots[to] = directory
	return nil
}

// File is where a datastore path is on this machine.
func (s *Store) File(name string) (string, Fault) {
	var p object.DatastorePath
	if !p.FromString(name) {
		return "", &types.InvalidDatastorePath{InvalidDatastore: types.InvalidDatastore{Name: name}, DatastorePath: name}
	}
	s.mutex.Lock()
	root, known := s.roots[p.Datastore]
	s.mutex.Unlock()
	if !known {
		return "", &types.InvalidDatastore{Name: p.Datastore}
	}
	return filepath.Join(root, path.Clean("/"+p.Path)), nil
}

// Used is how many bytes the disks of a datastore take: all of a thick one, what was written of a thin one.
func (s *Store) Used(datastore string) int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	root := s.roots[datastore] + "/"
	var sum int64
	for file, bytes := range s.used {
		if strings.HasPrefix(file, root) {
			sum += bytes
		}
	}
	return sum
}

// Create makes a blank disk of so many bytes. Left behind when it fails: nothing.
func (s *Store) Create(name string, capacity int64, thin bool) (*Disk, Fault) {
	file, fault := s.absent(name)
	if fault != nil {
		return nil, fault
	}
	flat := strings.TrimSuffix(filepath.Base(file), ".vmdk") + "-flat.vmdk"
	made := &descriptor{sectors: (capacity + sector - 1) / sector, extent: flat, uuid: newUUID(), thin: thin}
	if fault := lay(file, made, capacity); fault != nil {
		return nil, fault
	}
	s.mutex.Lock()
	if thin {
		s.used[file] = 0
	} else {
		s.used[file] = capacity
	}
	s.mutex.Unlock()
	return s.Read(name)
}

// Child makes a delta of a disk. Later writes are stored by the carrier of the machine: the file of the delta is empty.
func (s *Store) Child(name, parent string) (*Disk, Fault) {
	from, fault := s.Read(parent)
	if fault != nil {
		return nil, fault
	}
	file, fault := s.absent(name)
	if fault != nil {
		return nil, fault
	}
	delta := strings.TrimSuffix(filepath.Base(file), ".vmdk") + "-delta.vmdk"
	made := &descriptor{sectors: from.Capacity / sector, extent: delta, parent: parent, uuid: from.UUID, thin: true}
	if fault := lay(file, made, 0); fault != nil {
		return nil, fault
	}
	above, fault := s.File(parent)
	if fault != nil {
		return nil, fault
	}
	s.mutex.Lock()
	s.parents[file] = above
	s.mutex.Unlock()
	return s.Read(name)
}

// Read looks at a disk. Its UUID is what its descriptor says.
func (s *Store) Read(name string) (*Disk, Fault) {
	file, fault := s.File(name)
	if fault != nil {
		return nil, fault
	}
	found, err := read(file)
	if err != nil {
		return nil, failure(name, err)
	}
	disk := &Disk{Path: name, Capacity: found.sectors * sector, UUID: found.uuid, Thin: found.thin, Parent: found.parent}
	disk.Chain = []string{filepath.Join(filepath.Dir(file), found.extent)}
	if found.parent != "" {
		above, fault := s.Read(found.parent)
		if fault != nil {
			return nil, fault
		}
		disk.Chain = append(disk.Chain, above.Chain...)
	}
	return disk, nil
}

// Written notes that a thin disk holds so many bytes of data.
func (s *Store) Written(name string, bytes int64) {
	if disk, fault := s.Read(name); fault == nil && disk.Thin {
		file, _ := s.File(name)
		s.mutex.Lock()
		s.used[file] = bytes
		s.mutex.Unlock()
	}
}

// SetUUID gives a disk another UUID, in any usual form.
func (s *Store) SetUUID(name, uuid string) Fault {
	if dashed(uuid) == "" {
		return &types.InvalidArgument{InvalidProperty: "uuid"}
	}
	file, fault := s.File(name)
	if fault != nil {
		return fault
	}
	if fault := s.free(name, file); fault != nil {
		return fault
	}
	found, err := read(file)
	if err != nil {
		return failure(name, err)
	}
	found.uuid = uuid
	return failure(name, os.WriteFile(file, found.text(), 0o600))
}

// Extend makes a disk larger.
func (s *Store) Extend(name string, capacity int64) Fault {
	file, fault := s.File(name)
	if fault != nil {
		return fault
	}
	found, err := read(file)
	if err == nil {
		found.sectors = capacity / sector
		err = os.Truncate(filepath.Join(filepath.Dir(file), found.extent), capacity)
	}
	if err == nil {
		err = os.WriteFile(file, found.text(), 0o600)
	}
	return failure(name, err)
}

// Delete removes a disk without a lock and without deltas.
func (s *Store) Delete(name string) Fault {
	file, fault := s.File(name)
	if fault != nil {
		return fault
	}
	found, err := read(file)
	if err != nil {
		return failure(name, err)
	}
	if fault := s.free(name, file); fault != nil {
		return fault
	}
	if s.IsParent(name) {
		return &types.FileLocked{FileFault: types.FileFault{File: name}}
	}
	for _, gone := range []string{filepath.Join(filepath.Dir(file), found.extent), file} {
		if err := os.Remove(gone); err != nil && !os.IsNotExist(err) {
			return failure(name, err)
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.used, file)
	delete(s.parents, file)
	return nil
}

// Unused is the first name "base.vmdk", "base_1.vmdk", … that no file of the directory has, nor one that is taken.
func (s *Store) Unused(directory, base string, taken []string) (string, Fault) {
	for number := 0; ; number++ {
		name := directory + "/" + base + suffix(number) + ".vmdk"
		file, fault := s.File(name)
		if fault != nil {
			return "", fault
		}
		if _, err := os.Lstat(file); os.IsNotExist(err) && !slices.Contains(taken, name) {
			return name, nil
		}
	}
}

func (s *Store) absent(name string) (string, Fault) {
	file, fault := s.File(name)
	if fault != nil {
		return "", fault
	}
	if !strings.HasSuffix(file, ".vmdk") {
		return "", &types.InvalidDatastorePath{InvalidDatastore: types.InvalidDatastore{Name: name}, DatastorePath: name}
	}
	if _, err := os.Lstat(file); err == nil {
		return "", &types.FileAlreadyExists{FileFault: types.FileFault{File: name}}
	}
	if _, err := os.Stat(filepath.Dir(file)); err != nil {
		// As for a disk that is to be made in a missing directory: FileNotFound.
		return "", failure(name, err)
	}
	return file, nil
}

func lay(file string, made *descriptor, bytes int64) Fault {
	extent := filepath.Join(filepath.Dir(file), made.extent)
	out, err := os.OpenFile(extent, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = out.Truncate(bytes)
		_ = out.Close()
	}
	if err == nil {
		err = os.WriteFile(file, made.text(), 0o600)
	}
	if err != nil {
		_ = os.Remove(extent)
	}
	return failure(file, err)
}

func failure(name string, err error) Fault {
	at := types.FileFault{File: name}
	switch {
	case err == nil:
		return nil
	case os.IsNotExist(err):
		return &types.FileNotFound{FileFault: at}
	case os.IsExist(err):
		return &types.FileAlreadyExists{FileFault: at}
	}
	return &types.CannotAccessFile{FileFault: at}
}
