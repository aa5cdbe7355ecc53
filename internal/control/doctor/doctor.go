// Package doctor finds out what the machine can do for tine and says what to
// do where it cannot. Every finding comes from trying, not from a table of
// versions: a device is opened, a mount is made, a file is flushed.
//
// Nothing else in tine asks the doctor. It exists so that a person can see at
// once what every other error message would tell them one at a time.
package doctor

import (
	"context"

	"tine.dev/tine/api"
)

// Status is how a check came out.
type Status string

// The statuses. Only a failure keeps a server from working.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is one finding.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do, unless ok
}

// Report is all findings.
type Report struct {
	Checks []Check `json:"checks"`
}

// Failed counts the failures.
func (r Report) Failed() int {
	n := 0
	for _, c := range r.Checks {
		if c.Status == Fail {
			n++
		}
	}
	return n
}

// Options say what is looked at.
type Options struct {
	Data    string      // the data directory if no server says another
	Client  *api.Client // talks to the server
	Version api.Version // of this program
}

// Run looks at everything. It takes well under a second, and what the server's stores
// take; it changes nothing but for a mount, and small files and objects that it removes again.
func Run(ctx context.Context, o Options) Report {
	server, serverCheck := checkServer(ctx, o)
	if server != nil {
		o.Data = server.Data
	}
	checks := []Check{checkKernel(), checkDevice(), checkMount()}
	checks = append(checks, checkData(o.Data, server != nil)...)
	checks = append(checks, checkMemory(), checkCgroup(), checkOpenFiles(), serverCheck)
	if server != nil {
		checks = append(checks, checkStores(ctx, o.Client)...)
	}
	return Report{Checks: checks}
}

func ok(name, detail string) Check        { return Check{Name: name, Status: OK, Detail: detail} }
func warn(name, detail, fix string) Check { return Check{name, Warn, detail, fix} }
func fail(name, detail, fix string) Check { return Check{name, Fail, detail, fix} }
