package server

import (
	"net"
	"strings"

	"tine.dev/tine/internal/control/oserr"
)

// notifySystemd sends a state such as "READY=1" to the service manager whose
// socket NOTIFY_SOCKET names; without one it does nothing.
func notifySystemd(socket, state string) error {
	if socket == "" {
		return nil
	}
	if strings.HasPrefix(socket, "@") {
		socket = "\x00" + socket[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return oserr.Wrap(err, "reach the service manager")
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return oserr.Wrap(err, "notify the service manager")
}
