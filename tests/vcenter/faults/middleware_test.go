package faults

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// served answers every call, and says how many had their effect.
func served(t *testing.T, rules ...Rule) (*Middleware, *soap.Client, *int, *int) {
	t.Helper()
	effects, ended := new(int), new(int)
	m := &Middleware{
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			*effects++
			_, _ = io.WriteString(w, `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>`+
				`<CurrentTimeResponse xmlns="urn:vim25"><returnval>2026-01-01T00:00:00Z</returnval></CurrentTimeResponse></Body></Envelope>`)
		}),
		End: func(*http.Request) { *ended++ },
	}
	for _, rule := range rules {
		_, err := m.Rules.Add(rule)
		must(t, err)
	}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL + "/sdk")
	must(t, err)
	return m, soap.NewClient(at, true), effects, ended
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ask(client *soap.Client) error {
	_, err := methods.CurrentTime(context.Background(), client, &types.CurrentTime{
		This: types.ManagedObjectReference{Type: "ServiceInstance", Value: "ServiceInstance"},
	})
	return err
}

func TestAFaultKeepsItsTypeAndHasNoEffect(t *testing.T) {
	_, client, effects, _ := served(t, Rule{Method: "CurrentTime", Skip: 1, Do: Fail, Fault: "HostCommunication"})
	// The first goes through.
	must(t, ask(client))
	err := ask(client)
	if !soap.IsSoapFault(err) {
		t.Fatalf("no fault: %v", err)
	}
	if _, right := soap.ToSoapFault(err).VimFault().(types.HostCommunication); !right || *effects != 1 {
		t.Errorf("%T, %d effects", soap.ToSoapFault(err).VimFault(), *effects)
	}
	if err := ask(client); err != nil || *effects != 2 {
		t.Errorf("once only: %v", err)
	}
}

func TestALostAnswerHadItsEffectAndADroppedCallHadNone(t *testing.T) {
	_, client, effects, _ := served(t, Rule{Do: LoseAnswer}, Rule{Do: Drop, Skip: 1})
	if err := ask(client); err == nil || soap.IsSoapFault(err) || *effects != 1 {
		t.Errorf("lost: %v, %d effects", err, *effects)
	}
	if err := ask(client); err == nil || soap.IsSoapFault(err) || *effects != 1 {
		t.Errorf("dropped: %v, %d effects", err, *effects)
	}
}

func TestSessionsEndAndProxiesAnswer(t *testing.T) {
	_, client, effects, ended := served(t, Rule{Do: EndSession}, Rule{Do: Status, Code: 503, Skip: 1}, Rule{Do: Delay, Milliseconds: 1, Skip: 2})
	if err := ask(client); err != nil || *ended != 1 {
		t.Errorf("%v, %d ended", err, *ended)
	}
	if err := ask(client); err == nil || !strings.Contains(err.Error(), "503") {
		t.Error(err)
	}
	if err := ask(client); err != nil || *effects != 2 {
		t.Error(err)
	}
}

func TestAnUploadBreaksOffAfterSoManyBytes(t *testing.T) {
	m, client, effects, _ := served(t, Rule{Method: "NFC", Do: Drop, Bytes: 1000})
	at := client.URL()
	at.Path = "/nfc/1/disk.vmdk"
	response, err := http.Post(at.String(), "", strings.NewReader(strings.Repeat("x", 100_000)))
	if err == nil {
		response.Body.Close()
		t.Error("answered")
	}
	said := m.Counts.Snapshot()
	if *effects != 0 || said.ByName["NFC"].In != 1000 || len(said.Order) != 1 {
		t.Errorf("%d effects, %+v", *effects, said)
	}
}

func TestCallsAndBytesAreCounted(t *testing.T) {
	m, client, _, _ := served(t)
	for range 3 {
		must(t, ask(client))
	}
	said := m.Counts.Snapshot()
	if sum := said.ByName["CurrentTime"]; sum.Calls != 3 || sum.In < 300 || sum.Out < 300 || strings.Join(said.Order, " ") != "CurrentTime CurrentTime CurrentTime" {
		t.Errorf("%+v", said)
	}
	if said.CallsAtOnce != 1 {
		t.Errorf("they came one after the other: %+v", said)
	}
}

func TestTheMostCallsAtOnceAreCountedUntilTheyAreAnswered(t *testing.T) {
	m, client, _, _ := served(t, Rule{Method: "CurrentTime", Times: 3, Do: Delay, Milliseconds: 60_000})
	ended := make(chan error)
	for range 3 {
		go func() { ended <- ask(client) }()
	}
	for m.Counts.Snapshot().CallsAtOnce < 3 {
		time.Sleep(time.Millisecond)
	}
	m.Rules.Clear()
	for range 3 {
		must(t, <-ended)
	}
	m.Counts.Reset()
	for range 20 {
		must(t, ask(client))
	}
	if said := m.Counts.Snapshot(); said.CallsAtOnce != 1 {
		t.Errorf("an answered call counts on: %+v", said)
	}
}

func TestRulesThatCannotBeMeantAreRefused(t *testing.T) {
	var rules Rules
	for _, bad := range []Rule{{Do: "explode"}, {Do: Fail, Fault: "NoSuchFault"}, {Do: Fail, Fault: "VirtualMachineConfigSpec"}, {Do: Delay}, {Do: Status, Code: 200}} {
		if _, err := rules.Add(bad); err == nil {
			t.Errorf("taken: %+v", bad)
		}
	}
	_, err := rules.Add(Rule{Do: FailTask, Fault: "GenericVmConfigFault", Method: "PowerOnVM_Task"})
	must(t, err)
	if rules.Call("PowerOnVM_Task") != nil {
		t.Error("a rule of tasks has spoilt a call")
	}
	if rules.Task("PowerOnVM_Task") == nil || rules.Task("PowerOnVM_Task") != nil {
		t.Error("a rule of tasks spoils one task")
	}
}
