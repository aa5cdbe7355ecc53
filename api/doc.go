// Package api is how programs talk to a tine server: the wire types, a client
// that speaks them over the server's unix socket, and the OpenAPI 3.1
// document (openapi.json) that describes the same calls to other languages.
//
// The API is JSON over HTTP under /v1. Every failure has one shape, Error: a
// kind from a closed list, a message, and often a hint that says what to do.
// Decide on the kind, never on the message. Some calls answer with a stream of
// JSON lines, because their results may be long: a diff and an import. The
// last line of a stream says that it is complete; a stream without it was cut
// off. An export answers with a tar archive and says in a trailer that it is
// complete.
//
// The socket is the authentication: the server asks the kernel which user is
// at the other end, and serves root and its own user. The client asks the same
// of the server, so that nobody else can pose as it.
package api

//go:generate go test -count=1 ../internal/control/httpapi -run TestOpenAPIDocumentIsCurrent -update
