package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

// statusOf is the one table from kinds of error to HTTP status.
func statusOf(k tine.ErrorKind) int {
	statuses := [tine.NumKinds]int{
		tine.KindInternal:     http.StatusInternalServerError,
		tine.KindNotFound:     http.StatusNotFound,
		tine.KindExists:       http.StatusConflict,
		tine.KindNotDir:       http.StatusUnprocessableEntity,
		tine.KindIsDir:        http.StatusUnprocessableEntity,
		tine.KindNotEmpty:     http.StatusConflict,
		tine.KindPermission:   http.StatusForbidden,
		tine.KindAccess:       http.StatusForbidden,
		tine.KindInvalid:      http.StatusUnprocessableEntity,
		tine.KindNameTooLong:  http.StatusUnprocessableEntity,
		tine.KindTooBig:       http.StatusUnprocessableEntity,
		tine.KindTooManyLinks: http.StatusUnprocessableEntity,
		tine.KindNoSpace:      http.StatusInsufficientStorage,
		tine.KindQuota:        http.StatusInsufficientStorage,
		tine.KindReadOnly:     http.StatusForbidden,
		tine.KindStale:        http.StatusConflict,
		tine.KindCorrupt:      http.StatusInternalServerError,
		tine.KindIO:           http.StatusInternalServerError,
		tine.KindBusy:         http.StatusConflict,
		tine.KindConflict:     http.StatusConflict,
		tine.KindNoAttr:       http.StatusNotFound,
		tine.KindRange:        http.StatusUnprocessableEntity,
		tine.KindAgain:        http.StatusConflict,
		tine.KindDeadlock:     http.StatusConflict,
		tine.KindInterrupted:  http.StatusServiceUnavailable,
		tine.KindNoSeek:       http.StatusUnprocessableEntity,
		tine.KindUnsupported:  http.StatusNotImplemented,
		tine.KindCrossDevice:  http.StatusUnprocessableEntity,
		tine.KindLoop:         http.StatusUnprocessableEntity,
		tine.KindVersion:      http.StatusInternalServerError,
		tine.KindUnavailable:  http.StatusServiceUnavailable,
		tine.KindTooLarge:     http.StatusUnprocessableEntity,
	}
	if int(k) < len(statuses) && statuses[k] != 0 {
		return statuses[k]
	}
	return http.StatusInternalServerError
}

// wireError is an error on its way to the client.
type wireError struct {
	body   api.Error
	status int
}

// Error returns the message.
func (e *wireError) Error() string { return e.body.Message }

// GetStatus tells huma the status.
func (e *wireError) GetStatus() int { return e.status }

// MarshalJSON writes what the client gets.
func (e *wireError) MarshalJSON() ([]byte, error) { return json.Marshal(e.body) }

// toWire gives an error of the engine its wire form.
func toWire(err error) *wireError {
	kind := tine.KindOf(err)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		kind = tine.KindInterrupted
	}
	return &wireError{
		body:   api.Error{Kind: kind.String(), Message: strings.ToValidUTF8(err.Error(), "\uFFFD"), Hint: tine.HintOf(err)},
		status: statusOf(kind),
	}
}

// reshape gives the errors that huma makes itself, for requests that do not
// fit their description, the same shape as all others.
func reshape(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	ctx.SetHeader("Content-Type", "application/json")
	e := api.Error{Kind: tine.KindInvalid.String(), Message: m.Detail}
	switch {
	case m.Status >= 500:
		e.Kind = tine.KindInternal.String()
	case m.Status == http.StatusRequestEntityTooLarge:
		e.Kind = tine.KindTooLarge.String()
	}
	for _, d := range m.Errors {
		if d == nil {
			continue
		}
		e.Message += "; " + d.Message
		if d.Location != "" {
			e.Message += " (" + d.Location + ")"
		}
	}
	e.Message = strings.ToValidUTF8(e.Message, "\uFFFD")
	return &e, nil
}

// writeError answers a plain HTTP request with an error.
func writeError(w http.ResponseWriter, err error) {
	e := toWire(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_ = json.NewEncoder(w).Encode(e.body)
}
