// Package bed is a vCenter to test against: vcsim, govmomi's simulator, with what it lets pass and vCenter refuses (see
// the comments of each file, which cite what vCenter does), faults on request, and machines that may have bodies.
package bed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/bodies"
	"vcenter/faults"
)

// Config is what a bed is like.
type Config struct {
	// Listen is host and port of the API. Port 0 is any.
	Listen string
	// Directory holds a directory for each datastore. Its content is deleted.
	Directory string
	// Datastores and Hosts are how many there are.
	Datastores, Hosts int
	// Others is the number of machines that no test uses.
	Others int
	// Users are who can log in.
	Users []User
	// ESX is a bare host instead of a vCenter, as vcsim has it: to be refused.
	ESX bool
	// API is the version of the API: "8.0.3.0" without one.
	API string
	// LeaseTimeout is how long a lease lives without a word of progress: 300 s on vCenter.
	LeaseTimeout time.Duration
	// AfterFunc starts a lease's time: time.AfterFunc without one. A test's own lets it move the time itself.
	AfterFunc func(time.Duration, func()) Timer
	// Carrier gives machines their bodies.
	Carrier bodies.Carrier
	// Bodies says that these are more than none: disks of running machines stay as they are.
	Bodies bool
}

// Timer is what ends a lease, as time.Timer does.
type Timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

// Switches are what can be changed while the bed runs.
type Switches struct {
	// EditPropertiesWhileOn lets properties of a running machine be edited. Whether vCenter does is not certain (govmomi 2201).
	EditPropertiesWhileOn bool `json:"edit_properties_while_on"`
	// ClonesChangeTheirSource counts a clone as a change of the settings of what is cloned. Whether vCenter does is not certain.
	ClonesChangeTheirSource bool `json:"clones_change_their_source"`
	// CloneDrops names parts of CloneSpec.config that have no effect: "vapp", "uuid", "extra", "devices". A report says so of the vApp
	// configuration (govmomi 2201); of no part it is documented.
	CloneDrops []string `json:"clone_drops"`
	// ImportDrops names parts of the settings that an import does not have in the end: "uuid", "extra".
	ImportDrops []string `json:"import_drops"`
	// ReconfigureDrops is the same for ReconfigVM_Task.
	ReconfigureDrops []string `json:"reconfigure_drops"`
	// ShowsPasswords shows passwords of forms, which vCenter does not.
	ShowsPasswords bool `json:"shows_passwords"`
	// RewritesTemplates has a clone change names and summaries of what is cloned, which vCenter does by itself at other times.
	RewritesTemplates bool `json:"rewrites_templates"`
	// ListsAllTasks lists the tasks of all objects to everybody, whatever they may see.
	ListsAllTasks bool `json:"lists_all_tasks"`
	// HostsAway has no host answer at its own address: uploads do not reach it.
	HostsAway bool `json:"hosts_away"`
	// KeepsGuestinfo keeps what a guest has set of guestinfo when its machine is powered off, which is reported (open-vm-tools 288).
	KeepsGuestinfo bool `json:"keeps_guestinfo"`
	// GuestsSay is an entry of guestinfo, "key=value", that each guest sets once it runs. "" sets none.
	GuestsSay string `json:"guests_say"`
	// CopiesKeepUUID gives a copy of a disk the UUID of that disk. Whether vCenter does is not documented.
	CopiesKeepUUID bool `json:"copies_keep_uuid"`
	// MostFree is what is free of each datastore at most, in bytes: others take the rest. 0 leaves it as it is.
	MostFree int64 `json:"most_free"`
	// ShowsSettingsWhileMade shows the settings of a machine while the task that clones it runs. vCenter does not: "unavailable [..] during the
	// initial phases of virtual machine creation" (reference of VirtualMachine.config; vsphere-influxdb-go#44).
	ShowsSettingsWhileMade bool `json:"shows_settings_while_made"`
	// Inaccessible are the names of machines whose files vCenter does not reach: their settings are not shown, and what else there is of them
	// is ("unavailable if the server is unable to access the virtual machine files on disk").
	Inaccessible []string `json:"inaccessible"`
	// FindsInaccessible finds them by their UUID, as vCenter may: where it has no config of a machine it may not (ansible#57642,
	// terraform-provider-vsphere#382).
	FindsInaccessible bool `json:"finds_inaccessible"`
	// Traceless are the names of those of which no file and no datastore is shown either.
	Traceless []string `json:"traceless"`
	// DatastoresAway has for each datastore that is away, by its name, the fault that calls about its files end with, such as InvalidDatastore.
	// With FileNotFound it says that no host reaches it.
	DatastoresAway map[string]string `json:"datastores_away"`
	// SimplePatterns has a datastore's browser take "*" at the begin or the end of a pattern alone, and "?" as itself. The patterns of vCenter are not
	// documented.
	SimplePatterns bool `json:"simple_patterns"`
	// RefusesWithoutHost refuses to make a machine without a host where DRS is manual: "DRS-enabled cluster in manual mode, an
	// InvalidArgument exception is thrown" (reference of VAppCloneSpec.host). Whether other calls are refused as well is not certain.
	RefusesWithoutHost bool `json:"refuses_without_host"`
	// DatastoreType is what each datastore says of its type, such as NFS. "" leaves it as it is.
	DatastoreType string `json:"datastore_type"`
	// InOrderUUIDs has guests that are powered on from now on read their BIOS UUID in vCenter's order of bytes, as those of
	// hardware before 13 and some imported ones do (kubernetes-archived/#450).
	InOrderUUIDs bool `json:"in_order_uuids"`
	// HidesObjectIDs has no device show that it is a First Class Disk (VirtualDisk.vDiskId).
	HidesObjectIDs bool `json:"hides_object_ids"`
	// ObjectsGoWithMachines has a First Class Disk go with the machine that holds it, whatever was asked for.
	ObjectsGoWithMachines bool `json:"objects_go_with_machines"`
	// RefusesObjectSnapshots and RefusesObjectExtension refuse these of a First Class Disk that a machine holds.
	RefusesObjectSnapshots bool `json:"refuses_object_snapshots"`
	RefusesObjectExtension bool `json:"refuses_object_extension"`
	// DropsEmptyControllers takes SCSI controllers away at power-off that nothing hangs on.
	DropsEmptyControllers bool `json:"drops_empty_controllers"`
	// IgnoresLocks lets a disk be attached that a running machine holds.
	IgnoresLocks bool `json:"ignores_locks"`
	// StaleLocks leaves locks of machines that are powered off, until it is false again: as those of a host that has failed.
	StaleLocks bool `json:"stale_locks"`
	// DecodesNamesTwice takes the name of a file at /folder as escaped twice.
	DecodesNamesTwice bool `json:"decodes_names_twice"`
	// ShortensEntries keeps 64 KiB of an entry of extraConfig.
	ShortensEntries bool `json:"shortens_entries"`
	// IgnoresChangeVersion changes a machine whatever version its settings were seen in.
	IgnoresChangeVersion bool `json:"ignores_change_version"`
	// NoSettingsLocks has hosts make no file NAME.vmx.lck at power-on, and KeepsSettingsLocks has them leave it at power-off and at the
	// machine's end. VMware documents such files for Workstation ("Using Lock Files to Prevent Consistency Problems on Virtual Hard Disks"),
	// which removes them at power-off. For ESXi none of this is documented.
	NoSettingsLocks    bool `json:"no_settings_locks"`
	KeepsSettingsLocks bool `json:"keeps_settings_locks"`
	// EditsReplaceOverrides has an edit of an override of HA remove the settings that it leaves out.
	EditsReplaceOverrides bool `json:"edits_replace_overrides"`
	// LeavesAborted leaves the machine of a lease that is aborted.
	LeavesAborted bool `json:"leaves_aborted"`
}

// Bed is a running vCenter.
type Bed struct {
	config Config
	// Certificate is what the API shows, in PEM; Thumbprint is its SHA-1, as vSphere writes it, and ThumbprintSHA256 the other
	// one that vSphere Client shows.
	Certificate                  []byte
	Thumbprint, ThumbprintSHA256 string

	front  faults.Middleware
	server *http.Server
	at     *url.URL

	// own is the user that the bed itself logs in as.
	own *url.Userinfo

	mutex    sync.Mutex
	current  *world
	switches Switches
	// hosts are where hosts answer at their own addresses.
	hosts       []net.Listener
	certificate tls.Certificate
	// down is the time until which the API answers no client.
	down time.Time
}

// Start makes a bed and serves it.
func Start(config Config) (*Bed, error) {
	if config.API == "" {
		config.API = "8.0.3.0"
	}
	if config.AfterFunc == nil {
		config.AfterFunc = func(after time.Duration, run func()) Timer { return time.AfterFunc(after, run) }
	}
	bed := &Bed{config: config, own: url.UserPassword("vcenter", uuid.NewString())}
	certificate, err := bed.certify()
	if err != nil {
		return nil, fmt.Errorf("a certificate: %w", err)
	}
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return nil, err
	}
	bed.at = &url.URL{Scheme: "https", Host: listener.Addr().String()}
	if bed.current, err = bed.world(); err != nil {
		_ = listener.Close()
		return nil, err
	}
	bed.front.Next = http.HandlerFunc(bed.serve)
	bed.front.End = func(request *http.Request) { bed.now().endSession(request) }
	bed.server = &http.Server{
		Handler: &bed.front, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(quiet{}, "", 0),
		// Without HTTP/2, as vCenter's SOAP endpoint: a call that is dropped takes its connection with it.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	bed.certificate = certificate
	bed.listen(listener)
	if err := bed.setHosts(true); err != nil {
		bed.Close()
		return nil, err
	}
	go func() {
		for event := range config.Carrier.Events() {
			bed.now().said(event)
		}
	}()
	return bed, nil
}

func (b *Bed) listen(listener net.Listener) {
	go func() {
		served := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{b.certificate}, MinVersion: tls.VersionTLS12})
		_ = b.server.Serve(served)
	}()
}

// hostName is a host's name: its own address on the loopback interface, where it answers at the port of the API. A bed that listens
// elsewhere has the one address.
func (b *Bed) hostName(number int) string {
	if ip := net.ParseIP(b.at.Hostname()); b.config.ESX || ip == nil || !ip.Equal(net.IPv4(127, 0, 0, 1)) {
		return b.at.Hostname()
	}
	return net.IPv4(127, 0, 1, byte(number+1)).String()
}

// setHosts has hosts answer at their own addresses, or not.
func (b *Bed) setHosts(answer bool) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if answer == (len(b.hosts) > 0) || b.hostName(0) == b.at.Hostname() {
		return nil
	}
	for _, listener := range b.hosts {
		_ = listener.Close()
	}
	b.hosts = nil
	for number := 0; answer && number < b.config.Hosts; number++ {
		listener, err := net.Listen("tcp", net.JoinHostPort(b.hostName(number), b.at.Port()))
		if err != nil {
			return err
		}
		b.hosts = append(b.hosts, listener)
		b.listen(listener)
	}
	return nil
}

// quiet leaves out what the server says of connections that were dropped on purpose.
type quiet struct{}

func (quiet) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "panic") {
		log.Print(string(p))
	}
	return len(p), nil
}

// world makes an inventory and what serves it.
func (b *Bed) world() (*world, error) {
	made, err := newWorld(b)
	if err != nil {
		return nil, err
	}
	made.service.RegisterEndpoints = true
	made.service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword("nobody", "")}
	// vcsim sets up its handlers for a separate server. The bed closes that server at once, and calls the handlers from its own.
	made.service.NewServer().Close()
	made.watchPolicies()
	made.service.Listen.Host, made.service.Listen.Scheme = b.at.Host, b.at.Scheme
	manager := made.registry.SessionManager()
	manager.ServiceHostName, manager.ValidLogin = b.at.Host, made.login
	made.libraries = made.libraryServer()
	return made, made.populate(b.config.Others)
}

// now is the inventory of now.
func (b *Bed) now() *world {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.current
}

// Switches are those of now.
func (b *Bed) Switches() Switches {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.switches
}

// URL is the API's, without a user.
func (b *Bed) URL() *url.URL { return b.url("/sdk") }

func (b *Bed) url(path string) *url.URL {
	at := *b.at
	at.Path = path
	return &at
}

// serve answers what is not spoilt.
func (b *Bed) serve(response http.ResponseWriter, request *http.Request) {
	b.mutex.Lock()
	world, down := b.current, time.Now().Before(b.down)
	b.mutex.Unlock()
	switch {
	case down:
		http.Error(response, "vCenter is starting", http.StatusServiceUnavailable)
	case strings.HasPrefix(request.URL.Path, "/nfc/"):
		world.serveNFC(response, request)
	case strings.HasPrefix(request.URL.Path, "/folder/") && !world.active(request):
		// vcsim serves files to everybody.
		http.Error(response, "log in first", http.StatusUnauthorized)
	case strings.HasPrefix(request.URL.Path, "/folder/") && b.refusesFile(request):
		http.Error(response, "no such name", http.StatusBadRequest)
	case !b.config.ESX && (strings.HasPrefix(request.URL.Path, "/rest") || strings.HasPrefix(request.URL.Path, "/api")):
		world.serveLibraries(response, request)
	default:
		world.service.ServeMux.ServeHTTP(&noted{ResponseWriter: response, world: world}, request)
	}
}

// refusesFile says whether a switch has a file at /folder refused.
func (b *Bed) refusesFile(request *http.Request) bool {
	_, err := url.PathUnescape(request.URL.Path)
	return err != nil && b.Switches().DecodesNamesTwice
}

// Reset makes everything as it was at the start: inventory, datastores, rules, counts. Bodies are cut.
func (b *Bed) Reset() error {
	b.now().close()
	made, err := b.world()
	if err != nil {
		return err
	}
	b.mutex.Lock()
	b.current, b.switches, b.down = made, Switches{}, time.Time{}
	b.mutex.Unlock()
	b.front.Rules.Clear()
	b.front.Counts.Reset()
	return b.setHosts(true)
}

// Restart ends all sessions and leases, as a vCenter that restarts does, and answers no client for so long. Machines continue to run.
func (b *Bed) Restart(down time.Duration) {
	world := b.now()
	b.mutex.Lock()
	b.down = time.Now().Add(down)
	b.mutex.Unlock()
	world.endSessions()
	world.mutex.Lock()
	leases := make([]*lease, 0, len(world.leases))
	for _, open := range world.leases {
		leases = append(leases, open)
	}
	world.mutex.Unlock()
	for _, open := range leases {
		open.drop(world.own(), &types.RequestCanceled{})
	}
}

// Close ends the bed and its bodies.
func (b *Bed) Close() {
	_ = b.server.Close()
	b.now().close()
	_ = b.config.Carrier.Close()
}

// certify makes a certificate for the API, valid for a year. It is self-signed and no CA's: TLS clients that follow RFC 5280 refuse a
// CA's certificate as that of a server.
func (b *Bed) certify() (tls.Certificate, error) {
	host, _, err := net.SplitHostPort(b.config.Listen)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "vCenter to test against"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else if host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	b.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	thumbprint := func(sum []byte) string { return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":") }
	one, two := sha1.Sum(der), sha256.Sum256(der)
	b.Thumbprint, b.ThumbprintSHA256 = thumbprint(one[:]), thumbprint(two[:])
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
