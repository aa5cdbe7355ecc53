package api

import (
	"context"
	"encoding/json"
	"net/http"
)

// CheckDisks asks for a check of the data directory.
type CheckDisks struct {
	Disks    []string `json:"disks,omitempty" doc:"Check only the trees of forks that these disks belong to; all if none is named"`
	ReadData bool     `json:"read_data,omitempty" doc:"Also read and verify every block of file data"`
}

// Finding is one thing that a check has found.
type Finding struct {
	Code     string `json:"code" example:"N001" doc:"Stable: SPECIFICATION.md lists the codes"`
	Severity string `json:"severity" enum:"error,leak,note"`
	What     string `json:"what" doc:"The particulars"`
	Meaning  string `json:"meaning" doc:"What the code says is so"`
	Effect   string `json:"effect" doc:"What it means for the user"`
	Repair   string `json:"repair" doc:"What tine fsck --repair does about it"`
	Tree     string `json:"tree,omitempty"`
	Timeline string `json:"timeline,omitempty"`
	Disk     string `json:"disk,omitempty" doc:"The first DISK or DISK@CHECKPOINT that shows it"`
	Path     string `json:"path,omitempty"`
	Key      string `json:"key,omitempty" doc:"Of the row, in hexadecimal"`
}

// CheckProgress says how far a check is.
type CheckProgress struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`
	Unit  string `json:"unit"`
}

// CheckReport ends a check.
type CheckReport struct {
	Errors       int            `json:"errors"`
	Leaks        int            `json:"leaks" doc:"Space that nothing needs"`
	Notes        int            `json:"notes"`
	Incomplete   bool           `json:"incomplete" doc:"Something could not be read, so more may be wrong"`
	Counts       map[string]int `json:"counts" nullable:"false" doc:"How many findings there are of each code; of one code 100 are told in full"`
	Trees        int64          `json:"trees"`
	Disks        int64          `json:"disks"`
	Checkpoints  int64          `json:"checkpoints"`
	Views        int64          `json:"views" doc:"Heads, checkpoints and points at which forks branch off"`
	Rows         int64          `json:"rows"`
	Segments     int64          `json:"segments"`
	SegmentBytes int64          `json:"segment_bytes"`
	DataBytes    int64          `json:"data_bytes" doc:"Read and verified"`
	Seconds      float64        `json:"seconds"`
}

// CheckLine is one line of a check's answer: progress, a finding, the end, or
// the error for which it could not be made.
type CheckLine struct {
	Progress *CheckProgress `json:"progress,omitempty"`
	Finding  *Finding       `json:"finding,omitempty"`
	Done     *CheckReport   `json:"done,omitempty"`
	Error    *Error         `json:"error,omitempty"`
}

// Check checks the data directory while the server runs, from a snapshot. fn is
// given progress and findings as they come; its error ends the call.
func (c *Client) Check(ctx context.Context, what CheckDisks, fn func(CheckLine) error) (CheckReport, error) {
	var done CheckReport
	resp, err := c.send(ctx, http.MethodPost, nil, what, "fsck")
	if err != nil {
		return done, err
	}
	return done, c.lines(ctx, resp, func(b []byte) (bool, error) {
		var l CheckLine
		if err := json.Unmarshal(b, &l); err != nil {
			return false, err
		}
		switch {
		case l.Error != nil:
			return true, l.Error
		case l.Done != nil:
			done = *l.Done
			return true, nil
		}
		return false, fn(l)
	})
}
