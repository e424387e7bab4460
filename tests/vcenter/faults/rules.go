// Package faults spoils calls on request, and counts them. It is HTTP middleware in front of the API. It knows only the name of a
// call: the first element in the Body of its SOAP envelope.
package faults

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// The effects of rules.
const (
	// Answer with a fault; nothing takes effect.
	Fail = "fault"
	// Wait, then do what was asked.
	Delay = "delay"
	// Do what was asked, and close the connection instead of answering.
	LoseAnswer = "lose-answer"
	// Close the connection; nothing takes effect. Of an upload, after so many bytes.
	Drop = "drop"
	// End the caller's session, and go on: what vCenter says then is the answer.
	EndSession = "end-session"
	// Answer with an HTTP status that has no SOAP in it, as a proxy does before a vCenter that restarts.
	Status = "status"
	// The task that the call starts fails with a fault, without effect.
	FailTask = "fail-task"
	// The task takes effect, and then fails with a fault.
	FailTaskLate = "fail-task-late"
	// The task takes so long, and reads of its object do not wait meanwhile.
	DelayTask = "delay-task"
)

// Rule says what to do with which calls.
type Rule struct {
	// ID names the rule in control calls.
	ID int `json:"id"`
	// Method is a call's name, as "PowerOnVM_Task", "NFC" for an upload, "Datastore" for a file, "REST" for a content library; empty is any.
	Method string `json:"method,omitempty"`
	// Skip is how many calls that match go through before.
	Skip int `json:"skip,omitempty"`
	// Times is how many calls are spoilt: 0 is one, a negative number is all.
	Times int `json:"times,omitempty"`
	// Do is one of the constants above.
	Do string `json:"do"`
	// Fault is the name of the fault's type, as "HostCommunication".
	Fault string `json:"fault,omitempty"`
	// Message is the text of an answer with a fault. If it is empty, the text is the name of the type.
	Message string `json:"message,omitempty"`
	// Milliseconds is how long a delay is.
	Milliseconds int `json:"milliseconds,omitempty"`
	// Bytes of an upload that go through before it is dropped.
	Bytes int64 `json:"bytes,omitempty"`
	// Code is an HTTP status.
	Code int `json:"code,omitempty"`

	seen, done int
	// cleared is closed when the rules are taken away.
	cleared chan struct{}
}

func (r *Rule) ofTask() bool {
	return r.Do == FailTask || r.Do == FailTaskLate || r.Do == DelayTask
}

// Rules are the rules of a bed.
type Rules struct {
	mutex sync.Mutex
	rules []*Rule
	last  int
	// cleared is closed when the rules are taken away.
	cleared chan struct{}
}

// Add checks a rule and puts it behind the others.
func (r *Rules) Add(rule Rule) (int, error) {
	switch rule.Do {
	case Fail, FailTask, FailTaskLate:
		if _, err := rule.Make(); err != nil {
			return 0, err
		}
	case Delay, DelayTask:
		if rule.Milliseconds <= 0 {
			return 0, fmt.Errorf("a %s needs milliseconds", rule.Do)
		}
	case Status:
		if rule.Code < 400 || rule.Code > 599 {
			return 0, fmt.Errorf("a status needs a code from 400 to 599, not %d", rule.Code)
		}
	case LoseAnswer, Drop, EndSession:
	default:
		return 0, fmt.Errorf("unknown: %q; there are fault, delay, lose-answer, drop, end-session, status, fail-task, "+
			"fail-task-late, delay-task", rule.Do)
	}
	if rule.Times == 0 {
		rule.Times = 1
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.last++
	rule.ID, rule.seen, rule.done = r.last, 0, 0
	if r.cleared == nil {
		r.cleared = make(chan struct{})
	}
	rule.cleared = r.cleared
	r.rules = append(r.rules, &rule)
	return rule.ID, nil
}

// Clear takes all rules away, and ends the delays that some of them have begun.
func (r *Rules) Clear() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.rules = nil
	if r.cleared != nil {
		close(r.cleared)
		r.cleared = nil
	}
}

// Wait waits as long as the rule wants, until the rules are removed or the client ends the request.
func (r *Rule) Wait(over <-chan struct{}) {
	select {
	case <-time.After(time.Duration(r.Milliseconds) * time.Millisecond):
	case <-r.cleared:
	case <-over:
	}
}

// List has the rules, and whether each has done anything.
func (r *Rules) List() []map[string]any {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	list := []map[string]any{}
	for _, rule := range r.rules {
		list = append(list, map[string]any{"rule": *rule, "seen": rule.seen, "done": rule.done})
	}
	return list
}

// Call is the rule for this call, if one spoils it.
func (r *Rules) Call(method string) *Rule { return r.match(method, false) }

// Task is the rule for the task that this call has started, if one spoils it.
func (r *Rules) Task(method string) *Rule { return r.match(method, true) }

func (r *Rules) match(method string, task bool) *Rule {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var found *Rule
	for _, rule := range r.rules {
		if rule.ofTask() != task || rule.Method != "" && rule.Method != method {
			continue
		}
		rule.seen++
		if found == nil && rule.seen > rule.Skip && (rule.Times < 0 || rule.done < rule.Times) {
			rule.done++
			copied := *rule
			found = &copied
		}
	}
	return found
}

// Make is the fault that the rule names.
func (r *Rule) Make() (types.BaseMethodFault, error) {
	kind, known := types.TypeFunc()(r.Fault)
	if known {
		if fault, right := reflect.New(kind).Interface().(types.BaseMethodFault); right {
			return fault, nil
		}
	}
	return nil, fmt.Errorf("%q is no fault of the vSphere API", r.Fault)
}
