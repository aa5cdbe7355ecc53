package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// engineCases measure the disk without kernel and mount, in this process:
// what is left for the front ends.
func engineCases() []benchCase {
	on := []string{onTine}
	return []benchCase{
		{name: "engine-create", what: "no mount: create, write 100 bytes, close", unit: perSecond, on: on, run: engine(nil, engineCreate)},
		{name: "engine-create-4k", what: "no mount: create, write 4 KiB, close", unit: perSecond, on: on, run: engine(nil, engineCreate4k)},
		{name: "engine-lookup", what: "no mount: find a name", unit: perSecond, on: on, run: engine(engineFiles, engineLookup)},
		{name: "engine-unlink", what: "no mount: unlink", unit: perSecond, on: on, run: engine(engineFiles, engineUnlink)},
		{name: "engine-fsync", what: "no mount: write 4 KiB, fsync", unit: perSecond, on: on, run: engine(nil, engineFsync)},
	}
}

// engine opens a data directory, calls prepare, makes that durable, calls work
// and returns its rate: work returns how much it has done.
func engine(prepare, work func(*volume.Session, sizes) (int, error)) func(context.Context, *turn) (float64, error) {
	return func(ctx context.Context, t *turn) (v float64, err error) {
		dir, err := os.MkdirTemp(t.bench.work, "engine-")
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		host, err := volume.Open(ctx, volume.Options{Dir: dir})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, host.Close(context.WithoutCancel(ctx))) }()
		caller := volume.Caller{Tenant: tine.DefaultTenant, Author: "bench"}
		if _, err := host.CreateDisk(ctx, caller, disk); err != nil {
			return 0, err
		}
		s, err := host.Attach(ctx, caller, volume.Ref{Disk: disk}, volume.AttachOptions{})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, s.Detach(context.WithoutCancel(ctx))) }()
		if prepare != nil {
			if _, err := prepare(s, t.size); err != nil {
				return 0, err
			}
			if err := s.Sync(ctx); err != nil {
				return 0, err
			}
		}
		var done int
		took, err := duration(func() (err error) {
			done, err = work(s, t.size)
			return err
		})
		return float64(done) / took, err
	}
}

func engineName(i int) string { return fmt.Sprintf("file-%06d", i) }

func engineCreates(s *volume.Session, n, size int) (int, error) {
	content := noise(size)
	for i := range n {
		f, _, _, err := s.Create(volume.Cred{}, volume.Root, engineName(i), 0o644, true)
		if err != nil {
			return 0, err
		}
		if _, err := f.WriteAt(volume.Cred{}, content, 0); err != nil {
			return 0, err
		}
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// enginePerFile is how many times as many files as on a mount it takes to
// measure something.
const enginePerFile = 5

func engineFiles(s *volume.Session, z sizes) (int, error) {
	return engineCreates(s, enginePerFile*z.files, 100)
}
func engineCreate(s *volume.Session, z sizes) (int, error) { return engineFiles(s, z) }
func engineCreate4k(s *volume.Session, z sizes) (int, error) {
	return engineCreates(s, enginePerFile*z.files, 4096)
}

func engineLookup(s *volume.Session, z sizes) (int, error) {
	n := enginePerFile * z.files
	for i := range n {
		if _, _, err := s.Lookup(volume.Root, engineName(i)); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func engineUnlink(s *volume.Session, z sizes) (int, error) {
	n := enginePerFile * z.files
	for i := range n {
		if err := s.Unlink(volume.Cred{}, volume.Root, engineName(i)); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func engineFsync(s *volume.Session, z sizes) (int, error) {
	f, _, _, err := s.Create(volume.Cred{}, volume.Root, "file", 0o644, true)
	if err != nil {
		return 0, err
	}
	p := noise(4096)
	for i := range z.fsyncs {
		if _, err := f.WriteAt(volume.Cred{}, p, int64(i%1024)*4096); err != nil {
			return 0, errors.Join(err, f.Close())
		}
		if err := f.Fsync(context.Background(), true); err != nil {
			return 0, errors.Join(err, f.Close())
		}
	}
	return z.fsyncs, f.Close()
}
