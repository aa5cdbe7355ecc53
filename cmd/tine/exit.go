package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

// The exit codes. They are promised: scripts decide on them.
const (
	exitOK          = 0
	exitInternal    = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitExists      = 4
	exitInUse       = 5
	exitConflict    = 6
	exitDenied      = 7
	exitReadOnly    = 8
	exitNoSpace     = 9
	exitUnavailable = 10
	exitIO          = 11
	exitVersion     = 12
	exitUnsupported = 13
	exitDamaged     = 14
	exitInterrupted = 130
)

const exitCodesHelp = `The exit codes of tine, which stay as they are:

    0  done
    1  a bug in tine, or a failed check of the doctor
    2  the command line or a value in it is wrong
    3  there is no such disk, checkpoint, mount or file
    4  there is one already
    5  in use: mounted, attached or locked
    6  conflict: the target has changed in the meantime
    7  not allowed to this user
    8  read-only
    9  no space left, or over a quota
   10  the server is not there, starting or stopping
   11  a device failed, or data is damaged or lost
   12  written by another version of tine
   13  not supported here
   14  the check could be made, and found errors
  130  interrupted`

// exitCode is the one table from kinds of error to exit codes.
func exitCode(k tine.ErrorKind) int {
	codes := [tine.NumKinds]int{
		tine.KindInternal:     exitInternal,
		tine.KindNotFound:     exitNotFound,
		tine.KindExists:       exitExists,
		tine.KindNotDir:       exitUsage,
		tine.KindIsDir:        exitUsage,
		tine.KindNotEmpty:     exitExists,
		tine.KindPermission:   exitDenied,
		tine.KindAccess:       exitDenied,
		tine.KindInvalid:      exitUsage,
		tine.KindNameTooLong:  exitUsage,
		tine.KindTooBig:       exitUsage,
		tine.KindTooManyLinks: exitUsage,
		tine.KindNoSpace:      exitNoSpace,
		tine.KindQuota:        exitNoSpace,
		tine.KindReadOnly:     exitReadOnly,
		tine.KindStale:        exitConflict,
		tine.KindCorrupt:      exitIO,
		tine.KindIO:           exitIO,
		tine.KindBusy:         exitInUse,
		tine.KindConflict:     exitConflict,
		tine.KindNoAttr:       exitNotFound,
		tine.KindRange:        exitUsage,
		tine.KindAgain:        exitInUse,
		tine.KindDeadlock:     exitInUse,
		tine.KindInterrupted:  exitInterrupted,
		tine.KindNoSeek:       exitUsage,
		tine.KindUnsupported:  exitUnsupported,
		tine.KindCrossDevice:  exitUsage,
		tine.KindLoop:         exitUsage,
		tine.KindVersion:      exitVersion,
		tine.KindUnavailable:  exitUnavailable,
		tine.KindTooLarge:     exitUsage,
	}
	if int(k) < len(codes) && codes[k] != 0 {
		return codes[k]
	}
	return exitInternal
}

// usageError is a command line that cannot be understood.
type usageError struct {
	command string // whose help explains it
	msg     string
}

func (e *usageError) Error() string { return e.msg }

// silentError ends a command that has printed all there is to say.
type silentError struct{ code int }

func (e *silentError) Error() string { return "failed" }

// describe turns any error into the shape of the API.
func describe(err error) api.Error {
	var fromServer *api.Error
	var usage *usageError
	var own *tine.Error
	switch {
	case errors.As(err, &fromServer):
		return *fromServer
	case errors.As(err, &usage):
		return api.Error{Kind: tine.KindInvalid.String(), Message: usage.msg, Hint: "see `" + usage.command + " --help`"}
	case errors.As(err, &own):
		return api.Error{Kind: own.Kind.String(), Message: err.Error(), Hint: tine.HintOf(err)}
	}
	// What is left is cobra's own: unknown commands and flags.
	return api.Error{Kind: tine.KindInvalid.String(), Message: err.Error(), Hint: "see `tine --help`"}
}

// indented is a text of several lines below the name of the program. Names in it
// may hold anything: nothing of them reaches the terminal as a command, and no
// line of them stands where one of the program's own would.
func indented(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n      ")
}

// report prints the error and returns the exit code.
func (c *cli) report(err error) int {
	var silent *silentError
	if errors.As(err, &silent) {
		return silent.code
	}
	e := describe(err)
	if c.json {
		b, merr := json.Marshal(map[string]api.Error{"error": e})
		if merr == nil {
			fmt.Fprintln(c.env.stderr, string(b))
		}
	} else {
		fmt.Fprintf(c.env.stderr, "tine: %s\n", indented(e.Message))
		if e.Hint != "" {
			fmt.Fprintf(c.env.stderr, "      %s\n", indented(e.Hint))
		}
	}
	return exitCode(tine.ParseKind(e.Kind))
}
