// Package trace sends spans of API calls and of slow file operations to an
// OpenTelemetry collector, if the environment names one
// (OTEL_EXPORTER_OTLP_ENDPOINT). Without it there is no tracer, and nothing is
// spent on it.
//
// The spans are OpenTelemetry's own, made and batched by its SDK. Sending them
// is ours, in OTLP's JSON form over HTTP, because the ready-made exporter brings
// gRPC along: it makes the program 7 MB larger, which is a third more, for one
// POST request.
package trace
