// Package streamvmdk turns a streamOptimized VMDK, read once from front to back, into a raw disk.
//
// The format is that of VMware's "Virtual Disk Format 5.0", chapters "Hosted Sparse Extents" and "Stream-Optimized
// Compressed Sparse Extents". It is a second reader of what crate ova writes, made from the specification and not from that
// crate. It knows nothing of virtual machines.
package streamvmdk

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	sector = 512
	// magic is "KDMV", little endian.
	magic = 0x564d444b
	// The flags that a stream has: compressed grains, and markers.
	compressed = 1 << 16
	markers    = 1 << 17
	// The largest grain that is taken: writers use 64 KiB.
	maxGrain = 1 << 20
)

// Kinds of markers that are no grain.
const (
	endOfStream = iota
	grainTable
	grainDirectory
	footer
)

// header is the SparseExtentHeader that a stream begins with.
type header struct {
	Magic, Version, Flags         uint32
	Capacity, GrainSize           uint64
	DescriptorOffset              uint64
	DescriptorSize                uint64
	NumGTEsPerGT                  uint32
	RgdOffset, GdOffset, OverHead uint64
	Unclean                       uint8
	NewLines                      [4]uint8
	Algorithm                     uint16
	_                             [433]uint8
}

// Unpack writes the grains of the stream where they belong in a disk of so many bytes, and says how many bytes of data
// there were. Grains that the stream leaves out stay unchanged in the disk. A stream of another capacity, one that is cut, and one
// that has grains out of their order are errors.
func Unpack(from io.Reader, to io.WriterAt, capacity int64) (int64, error) {
	in := bufio.NewReaderSize(from, 1<<17)
	var head header
	if err := binary.Read(in, binary.LittleEndian, &head); err != nil {
		return 0, fmt.Errorf("the header of the VMDK: %w", err)
	}
	if err := head.check(capacity); err != nil {
		return 0, err
	}
	if _, err := io.CopyN(io.Discard, in, int64(head.OverHead-1)*sector); err != nil {
		return 0, fmt.Errorf("what comes before the grains of the VMDK: %w", err)
	}
	grains := &grains{in: in, to: to, size: int64(head.GrainSize) * sector, capacity: capacity, last: -1}
	for {
		ended, err := grains.next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return grains.written, fmt.Errorf("the VMDK ends without its end-of-stream marker: %w", io.ErrUnexpectedEOF)
		}
		if err != nil || ended {
			return grains.written, err
		}
	}
}

func (h *header) check(capacity int64) error {
	switch {
	case h.Magic != magic:
		return fmt.Errorf("no sparse VMDK: it begins with %#x", h.Magic)
	case h.Version != 3:
		return fmt.Errorf("version %d of the sparse VMDK: streams have 3", h.Version)
	case h.Flags&compressed == 0 || h.Flags&markers == 0 || h.Algorithm != 1:
		return fmt.Errorf("the VMDK is not streamOptimized: flags %#x, compression %d", h.Flags, h.Algorithm)
	case h.GrainSize == 0 || h.GrainSize*sector > maxGrain:
		return fmt.Errorf("grains of %d sectors", h.GrainSize)
	case h.OverHead == 0 || h.OverHead > 1<<20:
		return fmt.Errorf("%d sectors before the grains of the VMDK", h.OverHead)
	case int64(h.Capacity)*sector != capacity:
		return fmt.Errorf("the VMDK has a capacity of %d bytes, and the disk %d", int64(h.Capacity)*sector, capacity)
	}
	return nil
}

type grains struct {
	in             *bufio.Reader
	to             io.WriterAt
	size, capacity int64
	last, written  int64
}

// next reads one marker and what belongs to it, and says whether it was the end of the stream.
func (g *grains) next() (bool, error) {
	var start [12]byte
	if _, err := io.ReadFull(g.in, start[:]); err != nil {
		return false, err
	}
	value, size := binary.LittleEndian.Uint64(start[:]), binary.LittleEndian.Uint32(start[8:])
	if size != 0 {
		return false, g.grain(int64(value), int64(size))
	}
	var rest [sector - 12]byte
	if _, err := io.ReadFull(g.in, rest[:]); err != nil {
		return false, err
	}
	switch kind := binary.LittleEndian.Uint32(rest[:]); kind {
	case endOfStream:
		return true, nil
	case grainTable, grainDirectory, footer:
		if value > 1<<20 {
			return false, fmt.Errorf("a table of %d sectors in the VMDK", value)
		}
		_, err := io.CopyN(io.Discard, g.in, int64(value)*sector)
		return false, err
	default:
		return false, fmt.Errorf("a marker of kind %d in the VMDK", kind)
	}
}

// grain reads a compressed grain, whose marker of 12 bytes has been read, up to the end of its last sector.
func (g *grains) grain(lba, size int64) error {
	offset := lba * sector
	switch {
	case lba < 0 || offset >= g.capacity || offset%g.size != 0:
		return fmt.Errorf("a grain at sector %d of a disk of %d bytes", lba, g.capacity)
	case offset <= g.last:
		return fmt.Errorf("the grain at byte %d comes after the one at %d", offset, g.last)
	case size > 2*maxGrain:
		return fmt.Errorf("a compressed grain of %d bytes", size)
	}
	packed := make([]byte, (12+size+sector-1)/sector*sector-12)
	if _, err := io.ReadFull(g.in, packed); err != nil {
		return err
	}
	unpacker, err := zlib.NewReader(bytes.NewReader(packed[:size]))
	if err != nil {
		return fmt.Errorf("the grain at sector %d: %w", lba, err)
	}
	data, err := io.ReadAll(io.LimitReader(unpacker, g.size+1))
	if err != nil {
		return fmt.Errorf("the grain at sector %d: %v", lba, err)
	}
	if int64(len(data)) != g.size {
		return fmt.Errorf("the grain at sector %d unpacks to %d bytes, and grains have %d", lba, len(data), g.size)
	}
	if left := g.capacity - offset; left < g.size {
		data = data[:left]
	}
	g.last = offset
	g.written += int64(len(data))
	_, err = g.to.WriteAt(data, offset)
	return err
}
