// Package httpapi serves the HTTP API: it reads requests, calls the file
// system's facade, the mount keeper and the importer, and writes answers and
// errors. It holds no state and makes no decision that would not be the same
// for another front end.
//
// The wire types are those of the public package api; the OpenAPI document is
// made from them and from the operations registered here, so that it cannot
// drift from what is served.
package httpapi
