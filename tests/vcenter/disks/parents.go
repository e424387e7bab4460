package disks

import "os"

// IsParent says whether this disk is the parent of a delta.
func (s *Store) IsParent(name string) bool { return s.Children(name) > 0 }

// Children is the number of deltas whose parent is this disk.
func (s *Store) Children(name string) int {
	file, fault := s.File(name)
	if fault != nil {
		return 0
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	count := 0
	for _, parent := range s.parents {
		if parent == file {
			count++
		}
	}
	return count
}

// Forget drops the records of disks whose files were deleted without a call of this package.
func (s *Store) Forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for file := range s.used {
		if _, err := os.Lstat(file); os.IsNotExist(err) {
			delete(s.used, file)
		}
	}
	for file := range s.parents {
		if _, err := os.Lstat(file); os.IsNotExist(err) {
			delete(s.parents, file)
		}
	}
}
