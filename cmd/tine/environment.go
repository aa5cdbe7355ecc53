package main

import (
	"io"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/keeper"
)

// environment is all that a command sees of the process that it runs in, so
// that tests can run commands in their own.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	uid            int
	terminal       bool                    // stderr is one: progress is shown there
	guard          func(data string) error // starts what clears up after a server; nil in tests
	screen         func() int              // lines of the terminal that stdout is; 0: it is none, or a dumb one; nil as 0
}

func realEnvironment() environment {
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	return environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, uid: os.Geteuid(), terminal: err == nil, guard: startGuard, screen: screenLines}
}

// screenLines returns how many lines the terminal has that is standard output.
func screenLines() int {
	if t := os.Getenv("TERM"); t == "" || t == "dumb" {
		return 0
	}
	w, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(w.Row)
}

// startGuard runs this same program as the guard of the server.
func startGuard(data string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return keeper.StartGuard(program, data)
}

// defaultAuthor is who makes checkpoints and forks when nobody is named:
// TINE_AUTHOR, or user@host as version control systems have it.
func (e environment) defaultAuthor() string {
	if a := e.getenv("TINE_AUTHOR"); a != "" {
		return a
	}
	name := "uid" + strconv.Itoa(e.uid)
	if u, err := user.LookupId(strconv.Itoa(e.uid)); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}
