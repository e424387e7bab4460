package faults

import (
	"bytes"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	vim "github.com/vmware/govmomi/vim25/xml"
)

// Count is what calls of one name came to.
type Count struct {
	Calls int64 `json:"calls"`
	In    int64 `json:"in"`
	Out   int64 `json:"out"`
}

// Counts are what all calls came to.
type Counts struct {
	mutex  sync.Mutex
	byName map[string]Count
	// order has the names in the order in which the calls came.
	order []string
	// At once: calls that are not answered yet, waits for updates aside, and tasks that have not ended; and the most of each.
	calls, mostCalls, tasks, mostTasks int
	// busy are the tasks that were begun on a machine while another one worked there.
	busy int64
}

// Snapshot is what all calls came to since the last reset.
type Snapshot struct {
	ByName map[string]Count `json:"by_name"`
	// Order has the names in the order in which the calls came.
	Order []string `json:"order"`
	// CallsAtOnce and TasksAtOnce are the most that there were, waits for updates not counted.
	CallsAtOnce int `json:"calls_at_once"`
	TasksAtOnce int `json:"tasks_at_once"`
	// Busy are the tasks that failed because another one was at work on the machine.
	Busy int64 `json:"busy"`
}

// Snapshot has the counts since the last reset.
func (c *Counts) Snapshot() Snapshot {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return Snapshot{
		ByName: maps.Clone(c.byName), Order: append([]string{}, c.order...),
		CallsAtOnce: c.mostCalls, TasksAtOnce: c.mostTasks, Busy: c.busy,
	}
}

// Reset sets the counts to zero. Calls that run are still counted.
func (c *Counts) Reset() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.byName, c.order, c.busy = nil, nil, 0
	c.mostCalls, c.mostTasks = c.calls, c.tasks
}

// Task counts a task that works, until what it returns is called.
func (c *Counts) Task() func() {
	return c.atOnce(&c.tasks, &c.mostTasks)
}

// Refused counts a task that another one has kept from its machine.
func (c *Counts) Refused() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.busy++
}

// waits are the calls that idle until something changes.
var waits = map[string]bool{"WaitForUpdatesEx": true, "WaitForUpdates": true}

// begin counts a call until what it returns is called, once or more often.
func (c *Counts) begin(name string) func() {
	c.mutex.Lock()
	c.order = append(c.order, name)
	c.mutex.Unlock()
	if waits[name] {
		return func() {}
	}
	return c.atOnce(&c.calls, &c.mostCalls)
}

func (c *Counts) atOnce(now, most *int) func() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	*now++
	*most = max(*most, *now)
	return sync.OnceFunc(func() {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		*now--
	})
}

func (c *Counts) add(name string, in, out int64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.byName == nil {
		c.byName = map[string]Count{}
	}
	sum := c.byName[name]
	c.byName[name] = Count{sum.Calls + 1, sum.In + in, sum.Out + out}
}

// Middleware spoils and counts the calls to another handler.
type Middleware struct {
	Rules  Rules
	Counts Counts
	// Next answers what is not spoilt.
	Next http.Handler
	// End ends the session of a request.
	End func(*http.Request)
}

// ServeHTTP answers a request, or not.
func (m *Middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, err := called(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	in := &counted{body: r.Body, limit: -1}
	over := m.Counts.begin(name)
	out := &answer{ResponseWriter: w, over: over}
	r.Body = in
	defer func() { over(); m.Counts.add(name, in.bytes, out.bytes) }()
	rule := m.Rules.Call(name)
	if rule == nil {
		m.Next.ServeHTTP(out, r)
		return
	}
	switch rule.Do {
	case Delay:
		rule.Wait(r.Context().Done())
		m.Next.ServeHTTP(out, r)
	case Fail:
		_, _ = io.Copy(io.Discard, r.Body)
		writeFault(out, rule)
	case Status:
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(out, http.StatusText(rule.Code), rule.Code)
	case EndSession:
		m.End(r)
		m.Next.ServeHTTP(out, r)
	case LoseAnswer:
		m.Next.ServeHTTP(&answer{ResponseWriter: nowhere{}}, r)
		panic(http.ErrAbortHandler)
	case Drop:
		if rule.Bytes > 0 {
			// The bytes that were sent until then have arrived, and the other side saw the connection break.
			in.limit = rule.Bytes
			m.Next.ServeHTTP(&answer{ResponseWriter: nowhere{}}, r)
		}
		panic(http.ErrAbortHandler)
	}
}

// called is the name of a request. Of a SOAP request, the body is put back.
func called(r *http.Request) (string, error) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/nfc/"):
		return "NFC", nil
	case strings.HasPrefix(r.URL.Path, "/folder/"):
		return "Datastore", nil
	case strings.HasPrefix(r.URL.Path, "/rest/"), strings.HasPrefix(r.URL.Path, "/api/"):
		return "REST", nil
	case r.Method != http.MethodPost:
		return r.Method + " " + r.URL.Path, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	_ = r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(body))
	decoder := xml.NewDecoder(bytes.NewReader(body))
	inside := false
	for {
		token, err := decoder.Token()
		if err != nil {
			return "no SOAP", nil
		}
		if start, is := token.(xml.StartElement); is {
			if inside {
				return start.Name.Local, nil
			}
			inside = start.Name.Local == "Body"
		}
	}
}

type counted struct {
	body         io.ReadCloser
	bytes, limit int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.limit >= 0 {
		if c.bytes >= c.limit {
			return 0, io.ErrUnexpectedEOF
		}
		p = p[:min(int64(len(p)), c.limit-c.bytes)]
	}
	n, err := c.body.Read(p)
	c.bytes += int64(n)
	return n, err
}

func (c *counted) Close() error { return c.body.Close() }

type answer struct {
	http.ResponseWriter
	bytes int64
	// over says that the call is answered: before the other side can have read all of it, and ask for more.
	over func()
}

func (a *answer) Write(p []byte) (int, error) {
	length, err := strconv.ParseInt(a.Header().Get("Content-Length"), 10, 64)
	if a.over != nil && err == nil && a.bytes+int64(len(p)) >= length {
		a.over()
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) WriteHeader(int)             {}
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// writeFault answers as vCenter does: status 500, and the fault's type as name and as xsi:type of the detail.
func writeFault(w http.ResponseWriter, rule *Rule) {
	fault, err := rule.Make()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	type detail struct {
		XMLName vim.Name
		Type    string `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
		types.BaseMethodFault
	}
	var body struct {
		XMLName vim.Name `xml:"http://schemas.xmlsoap.org/soap/envelope/ Envelope"`
		Body    struct {
			Fault struct {
				XMLName vim.Name `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault"`
				Code    string   `xml:"faultcode"`
				String  string   `xml:"faultstring"`
				Detail  struct {
					Fault detail
				} `xml:"detail"`
			}
		} `xml:"http://schemas.xmlsoap.org/soap/envelope/ Body"`
	}
	body.Body.Fault.Code = "ServerFaultCode"
	body.Body.Fault.String = "injected: " + rule.Fault
	if rule.Message != "" {
		body.Body.Fault.String = rule.Message
	}
	body.Body.Fault.Detail.Fault = detail{
		XMLName: vim.Name{Space: "urn:vim25", Local: rule.Fault + "Fault"}, Type: rule.Fault, BaseMethodFault: fault,
	}
	text, err := vim.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write(append([]byte(xml.Header), text...))
}

// The cookie that carries a session.
const Cookie = soap.SessionCookieName
