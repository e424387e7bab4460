package bed

import (
	"net/http"
	"slices"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/faults"
)

// login says whether a name and password are a user's.
func (w *world) login(asked *types.Login) bool {
	if password, _ := w.bed.own.Password(); asked.UserName == w.bed.own.Username() && asked.Password == password {
		return true
	}
	return slices.ContainsFunc(w.bed.config.Users, func(user User) bool {
		return sameUser(user.Name, asked.UserName) && user.Password == asked.Password
	})
}

// noted remembers whose a session is, when an answer gives one.
type noted struct {
	http.ResponseWriter
	world *world
}

func (n *noted) WriteHeader(status int) {
	response := http.Response{Header: n.Header()}
	for _, cookie := range response.Cookies() {
		if cookie.Name == faults.Cookie {
			n.world.note(cookie.Value)
		}
	}
	n.ResponseWriter.WriteHeader(status)
}

func (w *world) note(session string) {
	user := ""
	for _, one := range w.sessionList() {
		if one.Key == session {
			user = one.UserName
		}
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.sessions[session] = user
}

// sessionList are the sessions that have not ended.
func (w *world) sessionList() []types.UserSession {
	ctx := w.own()
	view, is := ctx.Session.Get(*w.model.ServiceContent.SessionManager).(*vcsim.SessionManager)
	if !is {
		return nil
	}
	return view.SessionList
}

// active says whether a request has the cookie of a session.
func (w *world) active(request *http.Request) bool {
	cookie, err := request.Cookie(faults.Cookie)
	return err == nil && slices.ContainsFunc(w.sessionList(), func(s types.UserSession) bool { return s.Key == cookie.Value })
}

// endSession ends the session of a request.
func (w *world) endSession(request *http.Request) {
	if cookie, err := request.Cookie(faults.Cookie); err == nil {
		w.terminate(cookie.Value)
	}
}

// endSessions ends them all.
func (w *world) endSessions() int {
	list := w.sessionList()
	for _, session := range list {
		w.terminate(session.Key)
	}
	return len(list)
}

func (w *world) terminate(session string) {
	manager := w.registry.SessionManager()
	_ = manager.TerminateSession(w.own(), &types.TerminateSession{SessionId: []string{session}}).(*methods.TerminateSessionBody)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.sessions, session)
}
