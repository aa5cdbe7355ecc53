package importer

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

const (
	// copiers is how many files' data is copied at once.
	copiers = 4
	// reportEvery is the time between two reports of progress.
	reportEvery = 200 * time.Millisecond
	// cleanUpTime bounds the removal of an unfinished disk after its request
	// was cancelled.
	cleanUpTime = 30 * time.Second
)

// Importer makes disks from directories. Its methods may be called
// concurrently.
type Importer struct {
	host *volume.Host
	data string
	log  *slog.Logger
	life context.Context // done when the server stops
	stop context.CancelFunc

	mu      sync.Mutex // guards the file that notes unfinished imports
	pending []string
}

// Open reads which imports the last server left unfinished; CleanUp removes
// what they made.
func Open(host *volume.Host, data string, log *slog.Logger) (*Importer, error) {
	names, err := readPending(data)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.Background())
	return &Importer{host: host, data: data, log: log, life: life, stop: stop, pending: names}, nil
}

// Stop cancels the running imports, and every one that comes later.
func (im *Importer) Stop() { im.stop() }

// CleanUp purges the disks of imports that a crash cut short.
func (im *Importer) CleanUp(ctx context.Context) {
	im.mu.Lock()
	names := append([]string(nil), im.pending...)
	im.mu.Unlock()
	for _, name := range names {
		if err := im.discard(ctx, name); err != nil {
			im.log.Error("could not remove an unfinished import; it is tried again at the next start", "disk", name, "error", err)
			continue
		}
		im.log.Info("removed an unfinished import", "disk", name)
	}
}

// Import copies the directory into a new disk called name. Report is told of
// progress and notes, from several goroutines but never at once. On return
// without an error the disk is durable; on an error there is none.
func (im *Importer) Import(ctx context.Context, c volume.Caller, name, dir string, report func(api.ImportLine)) (volume.DiskInfo, api.ImportProgress, error) {
	src, skip, err := im.openSource(dir)
	if err != nil {
		return volume.DiskInfo{}, api.ImportProgress{}, err
	}
	defer src.Close()
	return im.newDisk(ctx, c, name, func(ctx context.Context, temp string) (api.ImportProgress, error) {
		return im.fill(ctx, c, volume.Ref{Disk: temp}, "import of "+dir, report, func(ctx context.Context, s *volume.Session, r *reporter) error {
			return copyTree(ctx, s, src, skip, dir, r)
		})
	})
}

// newDisk makes a disk that has its name only once fill has filled it.
func (im *Importer) newDisk(ctx context.Context, c volume.Caller, name string,
	fill func(ctx context.Context, temp string) (api.ImportProgress, error)) (volume.DiskInfo, api.ImportProgress, error) {
	var none volume.DiskInfo
	if err := im.checkName(ctx, c, name); err != nil {
		return none, api.ImportProgress{}, err
	}
	temp, err := im.begin(ctx, c)
	if err != nil {
		return none, api.ImportProgress{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(im.life, cancel)()
	totals, err := fill(ctx, temp)
	if err == nil && ctx.Err() != nil {
		err = cancelled()
	}
	var info volume.DiskInfo
	if err == nil {
		// Not to be cut short any more: it is known that there is a disk, or that
		// there is none.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
		info, err = im.host.RenameDisk(last, c, temp, name)
	}
	if err != nil {
		// The request may be gone; the disk must go all the same.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
		if derr := im.discard(clean, temp); derr != nil {
			im.log.Error("could not remove a failed import; it is tried again at the next start", "disk", temp, "error", derr)
		}
		return none, totals, im.stopped(err)
	}
	if err := im.forget(temp); err != nil {
		// The note names a disk that no longer has that name: harmless.
		im.log.Warn("could not take back the note of a finished import", "disk", temp, "error", err)
	}
	return info, totals, nil
}

// openSource opens the directory and finds what must not be copied.
func (im *Importer) openSource(dir string) (*os.File, devIno, error) {
	if !filepath.IsAbs(dir) {
		return nil, devIno{}, tine.Errorf(tine.KindInvalid, "the directory %q is not an absolute path", dir)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, devIno{}, oserr.Wrap(err, "open the directory %s", dir)
	}
	src := os.NewFile(uintptr(fd), dir)
	var data unix.Stat_t
	if err := unix.Stat(im.data, &data); err != nil {
		_ = src.Close()
		return nil, devIno{}, oserr.Wrap(err, "look at the data directory")
	}
	if im.inData(dir) {
		_ = src.Close()
		return nil, devIno{}, tine.Errorf(tine.KindInvalid, "%s lies in the server's data directory", dir).
			WithHint("to copy a disk, fork it: tine fork")
	}
	return src, devIno{data.Dev, data.Ino}, nil
}

func (im *Importer) inData(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	data, err := filepath.EvalSymlinks(im.data)
	return err == nil && (real == data || strings.HasPrefix(real, data+"/"))
}

// checkName refuses a taken or malformed name before the work, not after it.
func (im *Importer) checkName(ctx context.Context, c volume.Caller, name string) error {
	if err := tine.CheckName("disk", name); err != nil {
		return err
	}
	_, err := im.host.Disk(ctx, c, name)
	switch {
	case err == nil:
		return tine.Errorf(tine.KindExists, "there is a disk %q already", name).WithHint("choose another name; `tine disk ls` lists those in use")
	case tine.KindOf(err) == tine.KindNotFound:
		return nil
	}
	return err
}

// begin makes the disk under its temporary name, noted first.
func (im *Importer) begin(ctx context.Context, c volume.Caller) (string, error) {
	temp := "import-" + rand.Text()
	if err := im.remember(temp); err != nil {
		return "", err
	}
	if _, err := im.host.CreateDisk(ctx, c, temp); err != nil {
		return "", errors.Join(err, im.forget(temp))
	}
	return temp, nil
}

// fill attaches to the disk and has copy fill it, with progress reported
// meanwhile. The session is gone when it returns, and what it wrote is durable.
func (im *Importer) fill(ctx context.Context, c volume.Caller, disk volume.Ref, label string, report func(api.ImportLine),
	copy func(context.Context, *volume.Session, *reporter) error) (api.ImportProgress, error) {
	s, err := im.host.Attach(ctx, c, disk, volume.AttachOptions{Label: label})
	if err != nil {
		return api.ImportProgress{}, err
	}
	r := &reporter{report: report, counts: &counts{}}
	stop := make(chan struct{})
	ticking := make(chan struct{})
	go func() {
		defer close(ticking)
		r.tick(stop)
	}()
	err = copy(ctx, s, r)
	close(stop)
	<-ticking
	if err == nil {
		err = s.FsyncNode(volume.Root)
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	if derr := s.Detach(clean); err == nil {
		err = derr
	}
	return r.counts.progress(), err
}

// copyTree runs the walker and the copiers and waits for all of them. The
// first error stops the others.
func copyTree(ctx context.Context, s *volume.Session, src *os.File, skip devIno, dir string, r *reporter) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan job, copiers)
	w := &walker{session: s, jobs: jobs, counts: r.counts, note: r.note, links: map[devIno]volume.Node{}, skip: skip}
	var wg sync.WaitGroup
	for range copiers {
		wg.Go(func() {
			if err := w.copier(ctx, jobs); err != nil {
				cancel(err)
				for j := range jobs {
					j.close()
				}
			}
		})
	}
	if err := w.directory(ctx, src, volume.Root, dir); err != nil {
		cancel(err)
	}
	close(jobs)
	wg.Wait()
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) {
		return cancelled()
	}
	return err
}

// stopped gives the reason of what the server's stop has ended. Without it that
// looks as if the user had.
func (im *Importer) stopped(err error) error {
	if err == nil || im.life.Err() == nil {
		return err
	}
	return tine.Errorf(tine.KindUnavailable, "the server is stopping: %w", err).WithHint("start it, then try again")
}

func cancelled() error { return tine.Errorf(tine.KindInterrupted, "the import was cancelled") }

// discard purges an unfinished disk and forgets it.
func (im *Importer) discard(ctx context.Context, temp string) error {
	c := volume.Caller{Tenant: tine.DefaultTenant, Author: "tine", Principal: "server"}
	if _, err := im.host.RemoveDisk(ctx, c, temp, true); err != nil && tine.KindOf(err) != tine.KindNotFound {
		return err
	}
	return im.forget(temp)
}
