package disks

import (
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// Lock takes a disk for a running machine, for itself alone, and its parents together with others: all or nothing. VMFS and
// NFS lock a disk's extent as long as a machine runs with it ("Failed to lock the file": vsphere-storage-for-docker 89,
// govmomi 2039), and a base disk that several linked clones read stays locked against writers.
func (s *Store) Lock(holder, name string) Fault {
	files, fault := s.line(name)
	if fault != nil {
		return fault
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for level, file := range files {
		writer, written := s.exclusive[file]
		others := len(s.held[file])
		if s.held[file][holder] {
			others--
		}
		if written && writer != holder || level == 0 && others > 0 {
			return &types.FileLocked{FileFault: types.FileFault{File: name}}
		}
	}
	for level, file := range files {
		if s.held[file] == nil {
			s.held[file] = map[string]bool{}
		}
		s.held[file][holder] = true
		if level == 0 {
			s.exclusive[file] = holder
		}
	}
	return nil
}

// Unlock gives back all that a machine has locked.
func (s *Store) Unlock(holder string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for file, holders := range s.held {
		delete(holders, holder)
		if len(holders) == 0 {
			delete(s.held, file)
		}
		if s.exclusive[file] == holder {
			delete(s.exclusive, file)
		}
	}
}

// Locked is the fault of a disk, or of a directory with disks, that another than the holder has locked.
func (s *Store) Locked(holder, name string) Fault {
	file, fault := s.File(name)
	if fault != nil {
		return fault
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	flat := strings.TrimSuffix(strings.TrimSuffix(file, "-flat.vmdk"), "-delta.vmdk")
	if flat != file {
		flat += ".vmdk"
	}
	for locked, holders := range s.held {
		if locked != flat && locked != file && !strings.HasPrefix(locked, file+"/") {
			continue
		}
		if len(holders) > 1 || !holders[holder] {
			return &types.FileLocked{FileFault: types.FileFault{File: name}}
		}
	}
	return nil
}

// free is the fault of a disk that anybody has locked.
func (s *Store) free(name, file string) Fault {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.held[file]) > 0 {
		return &types.FileLocked{FileFault: types.FileFault{File: name}}
	}
	return nil
}

// line is the descriptor's file of a disk, and those of its parents.
func (s *Store) line(name string) ([]string, Fault) {
	var files []string
	for name != "" {
		file, fault := s.File(name)
		if fault != nil {
			return nil, fault
		}
		found, err := read(file)
		if err != nil {
			return nil, failure(name, err)
		}
		files = append(files, filepath.Clean(file))
		name = found.parent
	}
	return files, nil
}
