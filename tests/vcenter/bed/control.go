package bed

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"path"
	"strings"
	"time"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/faults"
)

// Control serves requests of tests to a bed, in addition to the API. All bodies are JSON; an error is {"error": "…"}.
//
//	GET    /machines   each machine: name, power state, host, disks with their files, guestinfo, storage policies
//	GET    /calls      calls and bytes by name, the names in their order, calls and tasks at once (faults.Snapshot)
//	DELETE /calls      sets the counts to zero
//	GET    /rules      faults.Rule, and how often each was met
//	POST   /rules      adds one: {"method": "PowerOnVM_Task", "do": "lose-answer"} → {"id": 1}
//	DELETE /rules      removes them all, and ends their delays
//	GET    /switches   Switches
//	PUT    /switches   changes them
//	POST   /end        ends all sessions → {"sessions": 2}
//	POST   /restart    {"milliseconds": 500}: ends sessions and leases, and answers no client for so long
//	POST   /drift      {"machine": "name", "directory": "other"}: moves a machine's files, as Storage vMotion does
//	POST   /question   {"machine": "name", "text": "moved or copied?"}: a machine asks this until it is given no text; its tasks go on
//	POST   /rename     {"path": "DC0/vm/lab", "to": "name"}: gives any object another name, as a colleague does
//	POST   /remove-host {"host": "name"}: takes a host out of the inventory, whose machines run on
//	POST   /client-clone {"machine": "name", "to": "other"}: clones a machine as vSphere Client does
//	POST   /reset      all as it was at the start
func (b *Bed) Control() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(json.RawMessage) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			var asked json.RawMessage
			err := json.NewDecoder(r.Body).Decode(&asked)
			if err != nil && r.ContentLength == 0 {
				asked, err = json.RawMessage("{}"), nil
			}
			var said any
			if err == nil {
				said, err = answer(asked)
			}
			w.Header().Set("Content-Type", "application/json")
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				said = map[string]string{"error": err.Error()}
			}
			if err := json.NewEncoder(w).Encode(said); err != nil {
				log.Printf("%s: %v", pattern, err)
			}
		})
	}
	done := struct{}{}
	handle("GET /machines", func(json.RawMessage) (any, error) { return b.now().machines(), nil })
	handle("GET /calls", func(json.RawMessage) (any, error) {
		return b.front.Counts.Snapshot(), nil
	})
	handle("DELETE /calls", func(json.RawMessage) (any, error) { b.front.Counts.Reset(); return done, nil })
	handle("GET /rules", func(json.RawMessage) (any, error) { return b.front.Rules.List(), nil })
	handle("DELETE /rules", func(json.RawMessage) (any, error) { b.front.Rules.Clear(); return done, nil })
	handle("POST /rules", func(asked json.RawMessage) (any, error) {
		var rule faults.Rule
		if err := strictly(asked, &rule); err != nil {
			return nil, err
		}
		id, err := b.front.Rules.Add(rule)
		return map[string]int{"id": id}, err
	})
	handle("GET /switches", func(json.RawMessage) (any, error) { return b.Switches(), nil })
	handle("PUT /switches", func(asked json.RawMessage) (any, error) {
		if err := b.change(asked); err != nil {
			return nil, err
		}
		now := b.now()
		now.unlock()
		now.account(now.own())
		return done, nil
	})
	handle("POST /end", func(json.RawMessage) (any, error) { return map[string]int{"sessions": b.now().endSessions()}, nil })
	handle("POST /restart", func(asked json.RawMessage) (any, error) {
		var restart struct {
			Milliseconds int `json:"milliseconds"`
		}
		if err := strictly(asked, &restart); err != nil {
			return nil, err
		}
		b.Restart(time.Duration(restart.Milliseconds) * time.Millisecond)
		return done, nil
	})
	handle("POST /drift", func(asked json.RawMessage) (any, error) {
		var drift struct {
			Machine   string `json:"machine"`
			Directory string `json:"directory"`
		}
		if err := strictly(asked, &drift); err != nil {
			return nil, err
		}
		return done, b.now().drift(drift.Machine, drift.Directory)
	})
	handle("POST /question", func(asked json.RawMessage) (any, error) {
		var question struct {
			Machine string `json:"machine"`
			Text    string `json:"text"`
		}
		if err := strictly(asked, &question); err != nil {
			return nil, err
		}
		return done, b.now().question(question.Machine, question.Text)
	})
	handle("POST /rename", func(asked json.RawMessage) (any, error) {
		var rename struct {
			Path string `json:"path"`
			To   string `json:"to"`
		}
		if err := strictly(asked, &rename); err != nil {
			return nil, err
		}
		return done, b.now().renamed(rename.Path, rename.To)
	})
	handle("POST /remove-host", func(asked json.RawMessage) (any, error) {
		var removal struct {
			Host string `json:"host"`
		}
		if err := strictly(asked, &removal); err != nil {
			return nil, err
		}
		return done, b.now().removeHost(removal.Host)
	})
	handle("POST /client-clone", func(asked json.RawMessage) (any, error) {
		var clone struct {
			Machine string `json:"machine"`
			To      string `json:"to"`
		}
		if err := strictly(asked, &clone); err != nil {
			return nil, err
		}
		return done, b.now().clientClone(clone.Machine, clone.To)
	})
	handle("POST /reset", func(json.RawMessage) (any, error) { return done, b.Reset() })
	return mux
}

// change changes switches.
func (b *Bed) change(asked json.RawMessage) error {
	b.mutex.Lock()
	// A map is decoded into what is in it already.
	before := b.switches.DatastoresAway
	b.switches.DatastoresAway = nil
	err := strictly(asked, &b.switches)
	if b.switches.DatastoresAway == nil {
		b.switches.DatastoresAway = before
	}
	away := b.switches.HostsAway
	b.mutex.Unlock()
	if err != nil {
		return err
	}
	return b.setHosts(!away)
}

// strictly reads JSON that has no other fields.
func strictly(asked json.RawMessage, into any) error {
	decoder := json.NewDecoder(strings.NewReader(string(asked)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// Machine is what control says of a machine.
type Machine struct {
	Name      string              `json:"name"`
	Object    string              `json:"object"`
	UUID      string              `json:"uuid"`
	Power     string              `json:"power"`
	Host      string              `json:"host"`
	Template  bool                `json:"template"`
	Disks     map[string][]string `json:"disks"`
	Guestinfo map[string]string   `json:"guestinfo"`
	// Policy is the storage policy of the machine's own files, and Policies are those of its disks by their files, as they were asked for.
	Policy   string            `json:"policy"`
	Policies map[string]string `json:"policies"`
}

func (w *world) machines() []Machine {
	list := []Machine{}
	homes, ofDisks := w.policies.noted()
	for _, entity := range w.registry.All("VirtualMachine") {
		machine := entity.(*vcsim.VirtualMachine)
		w.registry.WithLock(w.own(), machine, func() {
			found := Machine{
				Name: machine.Name, Object: machine.Self.Value, UUID: machine.Config.Uuid, Power: string(machine.Runtime.PowerState),
				Host: machine.Runtime.Host.Value, Template: machine.Config.Template, Disks: map[string][]string{}, Guestinfo: guestinfo(machine),
				Policy: homes[machine.Self], Policies: map[string]string{},
			}
			for _, file := range files(machine) {
				if disk, failed := w.disks.Read(file); failed == nil {
					found.Disks[file] = disk.Chain
					if policy := ofDisks[file]; policy != "" {
						found.Policies[file] = policy
					}
				}
			}
			list = append(list, found)
		})
	}
	return list
}

// drift moves all disks of a machine's own directory into another one of the same datastore, as Storage vMotion leaves them:
// they have other paths and the same UUIDs. The machine may run.
func (w *world) drift(named, directory string) error {
	machine, is := w.registry.FindByName(named, w.folder().ChildEntity).(*vcsim.VirtualMachine)
	if !is {
		return fmt.Errorf("no machine %q in the datacenter's folder", named)
	}
	if directory == "" || strings.ContainsAny(directory, "/[]") {
		return fmt.Errorf("%q is no name of a directory", directory)
	}
	var err error
	w.alone(machine.Self, func() {
		ctx := w.own()
		old := directoryOf(machine)
		target := old[:strings.Index(old, "]")+1] + " " + directory
		if err = w.makeDirectory(target); err != nil {
			return
		}
		failed := w.rename(ctx, machine, old, target)
		if failed != nil {
			err = fmt.Errorf("%s", message(failed))
		}
	})
	return err
}

// question has a machine ask something: "the current question, if any, that is blocking the virtual machine's execution" (reference of
// VirtualMachineRuntimeInfo). Without a text it asks nothing more. That a task waits meanwhile, a rule says.
func (w *world) question(named, text string) error {
	machine, err := w.named(named)
	if err != nil {
		return err
	}
	w.registry.WithLock(w.own(), machine, func() {
		machine.Runtime.Question = nil
		if text != "" {
			machine.Runtime.Question = &types.VirtualMachineQuestionInfo{Id: "1", Text: text}
		}
	})
	return nil
}

// rename moves a machine's disks from one directory to another.
func (w *world) rename(ctx *vcsim.Context, machine *vcsim.VirtualMachine, old, target string) fault {
	return w.rewrite(ctx, machine, func(backing *types.VirtualDiskFlatVer2BackingInfo) fault {
		if !strings.HasPrefix(backing.FileName, old+"/") {
			return nil
		}
		to := target + "/" + path.Base(backing.FileName)
		if failed := w.disks.Rename(backing.FileName, to); failed != nil {
			return failed
		}
		backing.FileName = to
		return nil
	})
}
