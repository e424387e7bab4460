package streamvmdk

import (
	"bytes"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vcenter/ovatest"
)

const capacity = 5 << 20

// packed is a disk with data at both ends and a hole between, and as a stream.
func packed(t *testing.T) (disk, stream []byte) {
	t.Helper()
	disk = make([]byte, capacity)
	random := rand.New(rand.NewSource(1))
	random.Read(disk[:100_000])
	random.Read(disk[capacity-3000:])
	return disk, ovatest.Stream(disk)
}

func unpack(t *testing.T, stream []byte, capacity int64) ([]byte, int64, error) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(capacity); err != nil {
		t.Fatal(err)
	}
	written, failure := Unpack(bytes.NewReader(stream), file, capacity)
	raw, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return raw, written, failure
}

func TestADiskComesBackAsItWas(t *testing.T) {
	disk, stream := packed(t)
	raw, written, err := unpack(t, stream, capacity)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(raw, disk) {
		t.Error("the disk differs")
	}
	if written == 0 || written >= capacity {
		t.Errorf("%d bytes of data were written of %d", written, capacity)
	}
}

func TestWhatIsNoWholeStreamIsRefused(t *testing.T) {
	_, stream := packed(t)
	changed := func(at int, to byte) []byte {
		copied := bytes.Clone(stream)
		copied[at] = to
		return copied
	}
	for name, bad := range map[string]struct {
		stream []byte
		says   string
	}{
		"empty":             {nil, "header"},
		"another file":      {[]byte(strings.Repeat("OVF?", 500)), "no sparse VMDK"},
		"an older version":  {changed(4, 1), "version 1"},
		"not compressed":    {changed(10, 0), "not streamOptimized"},
		"cut in the grains": {stream[:len(stream)/2], "end-of-stream"},
		"cut at its end":    {stream[:len(stream)-512], "end-of-stream"},
	} {
		if _, _, err := unpack(t, bad.stream, capacity); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := unpack(t, stream, capacity*2); err == nil || !strings.Contains(err.Error(), "capacity") {
		t.Errorf("another capacity: %v", err)
	}
}
