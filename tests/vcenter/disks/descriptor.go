package disks

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// descriptor is the content of the text file next to a disk's extent.
type descriptor struct {
	sectors int64
	extent  string
	// parent is the datastore path of the disk that this one is a delta of.
	parent string
	uuid   string
	thin   bool
}

// text is the descriptor in the form of VMware's "Virtual Disk Format 5.0", "The Descriptor File".
func (d *descriptor) text() []byte {
	kind, extent, parent := "vmfs", "VMFS", "ffffffff"
	if d.parent != "" {
		kind, extent, parent = "vmfsSparse", "VMFSSPARSE", "fffffffe"
	}
	out := new(bytes.Buffer)
	fmt.Fprintf(out, "# Disk DescriptorFile\nversion=1\nencoding=\"UTF-8\"\nCID=fffffffe\nparentCID=%s\ncreateType=\"%s\"\n", parent, kind)
	if d.parent != "" {
		fmt.Fprintf(out, "parentFileNameHint=\"%s\"\n", d.parent)
	}
	fmt.Fprintf(out, "\n# Extent description\nRW %d %s \"%s\"\n\n# The Disk Data Base\n#DDB\n", d.sectors, extent, d.extent)
	fmt.Fprintf(out, "ddb.adapterType = \"lsilogic\"\nddb.uuid = \"%s\"\nddb.virtualHWVersion = \"19\"\n", Spaced(d.uuid))
	if d.thin {
		out.WriteString("ddb.thinProvisioned = \"1\"\n")
	}
	return out.Bytes()
}

var (
	extentLine = regexp.MustCompile(`(?m)^RW (\d+) \w+ "([^"]+)"`)
	valueLine  = regexp.MustCompile(`(?m)^([\w.]+) ?= ?"([^"]*)"`)
)

func read(file string) (*descriptor, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	extent := extentLine.FindSubmatch(text)
	if extent == nil {
		return nil, fmt.Errorf("%s is no disk descriptor: it names no extent", file)
	}
	found := &descriptor{extent: string(extent[2])}
	if found.sectors, err = strconv.ParseInt(string(extent[1]), 10, 64); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, value := range valueLine.FindAllSubmatch(text, -1) {
		switch string(value[1]) {
		case "parentFileNameHint":
			found.parent = string(value[2])
		case "ddb.uuid":
			found.uuid = dashed(string(value[2]))
		case "ddb.thinProvisioned":
			found.thin = string(value[2]) == "1"
		}
	}
	return found, nil
}

// newUUID is a random one under VMware's prefix of disk UUIDs, in the form that a device's backing has it.
func newUUID() string {
	var bytes [16]byte
	// It never fails: the documentation of crypto/rand.
	_, _ = rand.Read(bytes[:])
	copy(bytes[:], []byte{0x60, 0x00, 0xc2, 0x90 | bytes[3]&0x0f})
	return dashed(hex.EncodeToString(bytes[:]))
}

func digits(uuid string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("0123456789abcdefABCDEF", r) {
			return r
		}
		return -1
	}, uuid)
}

// dashed is a UUID as a backing has it, 6000C293-7ba0-…: the first group in capitals.
func dashed(uuid string) string {
	d := strings.ToLower(digits(uuid))
	if len(d) != 32 {
		return ""
	}
	return strings.ToUpper(d[:8]) + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

// Spaced is a UUID as descriptors and VirtualDiskManager.QueryVirtualDiskUuid have it: "60 00 C2 93 7b a0 3a 03-9f 22 …".
func Spaced(uuid string) string {
	d := strings.ToLower(digits(uuid))
	if len(d) != 32 {
		return ""
	}
	d = strings.ToUpper(d[:6]) + d[6:]
	out := new(strings.Builder)
	for at := 0; at < len(d); at += 2 {
		switch at {
		case 0:
		case 16:
			out.WriteByte('-')
		default:
			out.WriteByte(' ')
		}
		out.WriteString(d[at : at+2])
	}
	return out.String()
}
