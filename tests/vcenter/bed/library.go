package bed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/ovf"
	vapi "github.com/vmware/govmomi/vapi/simulator"
	"github.com/vmware/govmomi/vapi/vcenter"

	"vcenter/streamvmdk"
)

// libraryServer answers for content libraries, as vcsim has them: the REST API at /rest and /api. It asks the SOAP API for what it does
// to machines, in a separate session with all privileges: the caller's privileges are not checked. Its sessions do not end
// when the bed ends all.
func (w *world) libraryServer() http.Handler {
	at := &url.URL{Scheme: "https", Host: w.bed.at.Host, Path: "/sdk", User: w.bed.own}
	_, handler := vapi.New(at, w.registry)
	return handler
}

// stored is how a file of an item is called in its directory: vcsim takes apart what is called .vmdk, and keeps half of it.
func stored(file string) string {
	if disk, is := strings.CutSuffix(file, ".vmdk"); is {
		return disk + ".stream"
	}
	return file
}

// serveLibraries answers a request of the REST API. vcsim deploys an item without its disks' contents.
func (w *world) serveLibraries(response http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodPut && strings.HasPrefix(request.URL.Path, "/rest/com/vmware/cis/data/") {
		request.URL.Path = stored(request.URL.Path)
	}
	item, of := strings.CutPrefix(request.URL.Path, "/rest/com/vmware/vcenter/ovf/library-item/id:")
	if !of || request.URL.Query().Get("~action") != "deploy" {
		w.libraries.ServeHTTP(response, request)
		return
	}
	kept := &kept{header: http.Header{}, status: http.StatusOK}
	w.libraries.ServeHTTP(kept, request)
	var said struct {
		Value vcenter.Deployment `json:"value"`
	}
	if err := json.Unmarshal(kept.body.Bytes(), &said); err == nil && said.Value.Succeeded && said.Value.ResourceID != nil {
		if err := w.fillFromItem(item, ref{Type: said.Value.ResourceID.Type, Value: said.Value.ResourceID.Value}); err != nil {
			http.Error(response, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	maps.Copy(response.Header(), kept.header)
	response.WriteHeader(kept.status)
	_, _ = response.Write(kept.body.Bytes())
}

// kept is an answer that is not sent yet.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) WriteHeader(status int)      { k.status = status }
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }

// fillFromItem unpacks the disks of a library item into a machine's: vcsim keeps the files of an item in a directory of its
// datastore, and makes the machine's disks in the descriptor's order.
func (w *world) fillFromItem(item string, at ref) error {
	found, err := filepath.Glob(filepath.Join(w.bed.config.Directory, "*", "contentlib-*", filepath.Base(item), "*.ovf"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("the descriptors of the item %s: %v %v", item, found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	envelope, err := ovf.Unmarshal(bytes.NewReader(text))
	if err != nil {
		return err
	}
	machine, failed := w.machine(at)
	if failed != nil {
		return fmt.Errorf("%T", failed)
	}
	disks := files(machine)
	for _, hardware := range envelope.VirtualSystem.VirtualHardware[0].Item {
		if hardware.ResourceType == nil || *hardware.ResourceType != ovf.DiskDrive || len(hardware.HostResource) == 0 {
			continue
		}
		if len(disks) == 0 {
			return fmt.Errorf("%s has fewer disks than the item", machine.Name)
		}
		to := disks[0]
		disks = disks[1:]
		if file := fileOf(envelope, path.Base(hardware.HostResource[0])); file != "" {
			if err := w.unpackFile(filepath.Join(filepath.Dir(found[0]), stored(filepath.Base(file))), to); err != nil {
				return err
			}
		}
	}
	w.account(w.own())
	return nil
}

// fileOf is the file of a disk of a descriptor; empty if it has none.
func fileOf(envelope *ovf.Envelope, disk string) string {
	if envelope.Disk == nil {
		return ""
	}
	for _, described := range envelope.Disk.Disks {
		if described.DiskID != disk || described.FileRef == nil {
			continue
		}
		for _, reference := range envelope.References {
			if reference.ID == *described.FileRef {
				return reference.Href
			}
		}
	}
	return ""
}

func (w *world) unpackFile(from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	return w.unpack(file, to)
}

// unpack fills a disk from a stream.
func (w *world) unpack(from io.Reader, to string) error {
	disk, failed := w.disks.Read(to)
	if failed != nil {
		return fmt.Errorf("%T", failed)
	}
	file, err := os.OpenFile(disk.Chain[0], os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(disk.Capacity); err != nil {
		return err
	}
	written, err := streamvmdk.Unpack(from, file, disk.Capacity)
	if err != nil {
		return err
	}
	w.disks.Written(to, written)
	return nil
}
