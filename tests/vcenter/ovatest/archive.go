package ovatest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
)

// Archive is the appliance as an OVA: descriptor, manifest with SHA-256 sums, system disk.
func Archive() []byte {
	stream := Stream(SystemDisk())
	descriptor := []byte(Descriptor(len(stream)))
	manifest := fmt.Sprintf("SHA256(appliance.ovf)= %x\nSHA256(system.vmdk)= %x\n", sha256.Sum256(descriptor), sha256.Sum256(stream))
	out := new(bytes.Buffer)
	packed := tar.NewWriter(out)
	for _, member := range []struct {
		name string
		data []byte
	}{{"appliance.ovf", descriptor}, {"appliance.mf", []byte(manifest)}, {"system.vmdk", stream}} {
		// A buffer takes everything.
		_ = packed.WriteHeader(&tar.Header{Name: member.name, Size: int64(len(member.data)), Mode: 0o644, Format: tar.FormatUSTAR})
		_, _ = packed.Write(member.data)
	}
	_ = packed.Close()
	return out.Bytes()
}
