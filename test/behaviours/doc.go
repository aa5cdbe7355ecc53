// Package behaviours tests, one by one, what BEHAVIOURS.md says that programs may
// count on. Its tests run against a real server with one disk that is mounted
// twice, with other processes and users where a behaviour is about them.
package behaviours
