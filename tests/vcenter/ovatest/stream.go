// Package ovatest makes small OVAs for the tests of the bed: a form with properties, a system disk with data, a blank disk.
package ovatest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
)

const (
	sector       = 512
	grainSectors = 128
)

// Stream packs a raw disk, a multiple of 64 KiB, into a streamOptimized VMDK with its tables in the footer, as VMware's "Virtual
// Disk Format 5.0" has it. The tables themselves are left out: a reader of a stream uses its markers.
func Stream(raw []byte) []byte {
	out := new(bytes.Buffer)
	put := func(values ...any) {
		for _, value := range values {
			// A buffer takes everything.
			_ = binary.Write(out, binary.LittleEndian, value)
		}
	}
	pad := func() { out.Write(make([]byte, (sector-out.Len()%sector)%sector)) }
	put([]byte("KDMV"), uint32(3), uint32(1<<17|1<<16|1), uint64(len(raw)/sector), uint64(grainSectors))
	put(uint64(1), uint64(1), uint32(512), uint64(0), ^uint64(0), uint64(grainSectors))
	put(uint8(0), []byte("\n \r\n"), uint16(1))
	pad()
	out.WriteString("# Disk DescriptorFile\nversion=1\ncreateType=\"streamOptimized\"\n")
	out.Write(make([]byte, grainSectors*sector-out.Len()))
	for at := 0; at < len(raw); at += grainSectors * sector {
		grain := raw[at:min(at+grainSectors*sector, len(raw))]
		if len(bytes.Trim(grain, "\x00")) == 0 {
			continue
		}
		packed := new(bytes.Buffer)
		packer := zlib.NewWriter(packed)
		_, _ = packer.Write(grain)
		_ = packer.Close()
		put(uint64(at/sector), uint32(packed.Len()))
		out.Write(packed.Bytes())
		pad()
	}
	// A footer of one sector, then the end of the stream.
	put(uint64(1), uint32(0), uint32(3))
	pad()
	out.Write(make([]byte, sector))
	put(uint64(0), uint32(0), uint32(0))
	pad()
	return out.Bytes()
}
