package disks

import "os"

// IsParent says whether a delta stands on this disk.
func (s *Store) IsParent(name string) bool { return s.Children(name) > 0 }

// Children is how many deltas stand on this disk.
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

// Forget drops what is known of disks whose files somebody has deleted without a word.
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
