package disks

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

func suffix(number int) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf("_%d", number)
}

// Copy makes an independent disk with another UUID and the content of a disk.
func (s *Store) Copy(from, to string, thin bool) (*Disk, Fault) {
	source, fault := s.Read(from)
	if fault != nil {
		return nil, fault
	}
	made, fault := s.Create(to, source.Capacity, thin)
	if fault != nil {
		return nil, fault
	}
	if fault := s.Fill(to, from); fault != nil {
		_ = s.Delete(to)
		return nil, fault
	}
	return made, nil
}

// Fill copies into a blank disk what another of the same capacity holds. A delta with writes cannot be copied:
// its format is its carrier's. A delta without writes has the content of its parent.
func (s *Store) Fill(to, from string) Fault {
	source, fault := s.Read(from)
	if fault != nil {
		return fault
	}
	made, fault := s.Read(to)
	if fault != nil {
		return fault
	}
	last := len(source.Chain) - 1
	for _, delta := range source.Chain[:last] {
		if info, err := os.Stat(delta); err != nil || info.Size() > 0 {
			return &types.NotSupported{}
		}
	}
	bytes, err := copySparse(source.Chain[last], made.Chain[0])
	if err != nil {
		return failure(to, err)
	}
	s.Written(to, bytes)
	return nil
}

// copySparse copies what is not zero.
func copySparse(from, to string) (int64, error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	block := make([]byte, 1<<20)
	var written int64
	for at := int64(0); ; {
		// Holes are skipped without being read.
		next, err := in.Seek(at, 3 /* SEEK_DATA */)
		if err != nil {
			// Nothing but a hole follows.
			return written, nil
		}
		at = next / int64(len(block)) * int64(len(block))
		count, err := in.ReadAt(block, at)
		if count > 0 && strings.Trim(string(block[:count]), "\x00") != "" {
			if _, err := out.WriteAt(block[:count], at); err != nil {
				return written, err
			}
			written += int64(count)
		}
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, err
		}
		at += int64(count)
	}
}

// Move gives a disk another name. Its deltas would lose their parent, as on a real datastore: it is refused.
func (s *Store) Move(from, to string) Fault {
	source, fault := s.File(from)
	if fault != nil {
		return fault
	}
	if fault := s.free(from, source); fault != nil {
		return fault
	}
	if s.IsParent(from) {
		return &types.FileLocked{FileFault: types.FileFault{File: from}}
	}
	return s.Rename(from, to)
}

// Rename moves a disk's files, as Storage vMotion does under a running machine: a process that has the disk open keeps it.
func (s *Store) Rename(from, to string) Fault {
	source, fault := s.File(from)
	if fault != nil {
		return fault
	}
	found, err := read(source)
	if err != nil {
		return failure(from, err)
	}
	target, fault := s.absent(to)
	if fault != nil {
		return fault
	}
	old := filepath.Join(filepath.Dir(source), found.extent)
	kind := "-flat.vmdk"
	if found.parent != "" {
		kind = "-delta.vmdk"
	}
	found.extent = strings.TrimSuffix(filepath.Base(target), ".vmdk") + kind
	if err := os.WriteFile(target, found.text(), 0o600); err != nil {
		return failure(to, err)
	}
	if err := os.Rename(old, filepath.Join(filepath.Dir(target), found.extent)); err != nil {
		_ = os.Remove(target)
		return failure(to, err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if bytes, known := s.used[source]; known {
		s.used[target] = bytes
		delete(s.used, source)
	}
	if above, delta := s.parents[source]; delta {
		s.parents[target] = above
		delete(s.parents, source)
	}
	if holders := s.held[source]; holders != nil {
		s.held[target] = holders
		delete(s.held, source)
	}
	if writer, written := s.exclusive[source]; written {
		s.exclusive[target] = writer
		delete(s.exclusive, source)
	}
	return failure(from, os.Remove(source))
}
