package stores

import (
	"net/url"
	"path/filepath"
	"strings"

	"tine.dev/tine/internal/control/statefile"
	"tine.dev/tine/internal/tine"
)

// record is what is kept of a store.
type record struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	ID   string `json:"id,omitempty"` // empty until it has answered once
	// Doubtful is set while it is not known whether the store at URL has this ID.
	Doubtful bool `json:"doubtful,omitempty"`
	TakeUp   bool `json:"take_up,omitempty"` // its trees are to be taken up
}

// recordsFormat is raised when a field's meaning changes.
const recordsFormat = 1

type recordsFile struct {
	Format int      `json:"format"`
	Stores []record `json:"stores"` // in the order in which they became known
}

// fileName is the records' place in the data directory.
const fileName = "stores.json"

func readRecords(data string) ([]record, error) {
	f := recordsFile{Format: recordsFormat}
	path := filepath.Join(data, fileName)
	if err := statefile.Read(path, &f); err != nil {
		return nil, err
	}
	if err := statefile.CheckFormat(path, f.Format, recordsFormat); err != nil {
		return nil, err
	}
	return f.Stores, nil
}

// Spec says which store is to be known, and how it is reached. What is not given
// in a field of its own may stand in the URL.
type Spec struct {
	Name, URL                 string
	Region, Profile, Endpoint string
	CAFile                    string // absolute
}

// url returns one URL that says all of it. Its errors do not quote the URL,
// which may hold a credential.
func (s Spec) url() (string, error) {
	if s.CAFile != "" && !filepath.IsAbs(s.CAFile) {
		return "", tine.Errorf(tine.KindInvalid, "the file of authorities must be an absolute path")
	}
	more := [][2]string{{"region", s.Region}, {"profile", s.Profile}, {"endpoint", s.Endpoint}, {CAParameter, s.CAFile}}
	u, err := url.Parse(s.URL)
	if err != nil {
		return s.URL, nil // who opens it says what is wrong
	}
	query, changed := u.Query(), false
	for _, p := range more {
		if p[1] == "" {
			continue
		}
		if query.Has(p[0]) {
			return "", tine.Errorf(tine.KindInvalid, "%s is given twice, in the URL of the store too", p[0]).WithHint("leave one of them out")
		}
		query.Set(p[0], p[1])
		changed = true
	}
	if !changed {
		return s.URL, nil
	}
	if strings.Contains(u.RawQuery, ";") { // Query has left something out
		return s.URL, nil
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// CAParameter is the parameter of a store's URL that names a file, in PEM, of
// authorities that are trusted besides the system's. It is for whoever opens the
// store; drivers do not know it.
const CAParameter = "ca"
