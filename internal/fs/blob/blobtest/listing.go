package blobtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// fill stores keys, some at a time.
func (w *world) fill(keys []blob.Key) {
	w.Helper()
	work := make(chan blob.Key, len(keys))
	for _, k := range keys {
		work <- k
	}
	close(work)
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for k := range work {
				if _, err := w.put(k, string(k), blob.Condition{}); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	w.must(errors.Join(errs...))
}

// expect is the listing by definition: every key under its name, each name
// once, in byte order.
func expect(keys []blob.Key, opt blob.ListOptions) (objects, prefixes []string) {
	for _, k := range keys {
		rest, ok := strings.CutPrefix(string(k), opt.Prefix)
		if !ok {
			continue
		}
		head, _, folded := strings.Cut(rest, "/")
		switch {
		case folded && opt.Delimiter == "/":
			if p := opt.Prefix + head + "/"; p > opt.StartAfter {
				prefixes = append(prefixes, p)
			}
		case string(k) > opt.StartAfter:
			objects = append(objects, string(k))
		}
	}
	slices.Sort(objects)
	slices.Sort(prefixes)
	return objects, slices.Compact(prefixes)
}

// listed follows all pages of a listing.
func (w *world) listed(opt blob.ListOptions) (objects, prefixes []string, pages int) {
	w.Helper()
	for {
		page, err := w.List(w.Context(), opt)
		w.must(err)
		pages++
		if n := len(page.Objects) + len(page.Prefixes); opt.Limit > 0 && n > opt.Limit {
			w.Fatalf("%d entries on a page of %d", n, opt.Limit)
		}
		for _, e := range page.Objects {
			objects = append(objects, string(e.Key))
			if e.Size != int64(len(e.Key)) || e.Modified.IsZero() {
				w.Fatalf("listed as %+v", e)
			}
		}
		prefixes = append(prefixes, page.Prefixes...)
		if opt.Token = page.Next; opt.Token == "" {
			return objects, prefixes, pages
		}
	}
}

func (w *world) sameListing(keys []blob.Key, opt blob.ListOptions) {
	w.Helper()
	objects, prefixes := expect(keys, opt)
	gotObjects, gotPrefixes, _ := w.listed(opt)
	if !slices.Equal(gotObjects, objects) || !slices.Equal(gotPrefixes, prefixes) {
		w.Fatalf("list %+v:\n%d objects %.300q\n%d prefixes %.300q\nwant\n%d objects %.300q\n%d prefixes %.300q", opt,
			len(gotObjects), gotObjects, len(gotPrefixes), gotPrefixes, len(objects), objects, len(prefixes), prefixes)
	}
}

func listing(w *world) {
	var keys []blob.Key
	for i := range 1030 {
		keys = append(keys, blob.Key(fmt.Sprintf("many/%05d", i)))
	}
	for i := range 70 {
		keys = append(keys, blob.Key(fmt.Sprintf("trees/%02d/journal/%d", i, i)), blob.Key(fmt.Sprintf("trees/%02d!", i)))
	}
	w.fill(keys)
	for _, opt := range []blob.ListOptions{
		{}, {Delimiter: "/"}, {Prefix: "many/"}, {Prefix: "many/", Delimiter: "/"}, {Prefix: "man"}, {Prefix: "man", Delimiter: "/"},
		{Prefix: "many"}, {Prefix: "many", Delimiter: "/"}, {Prefix: "trees/", Delimiter: "/"}, {Prefix: "trees/0", Delimiter: "/"},
		{Prefix: "trees/0", Delimiter: "/", Limit: 3}, {Prefix: "trees/", Limit: 7}, {Prefix: "trees/07/", Delimiter: "/"},
		{Prefix: "many/", StartAfter: "many/00999"}, {Prefix: "many/", StartAfter: "many/00999x"}, {Prefix: "many/", StartAfter: "a"},
		{Prefix: "many/", StartAfter: "z"}, {StartAfter: "trees/68"}, {Prefix: "trees/", Delimiter: "/", StartAfter: "trees/66/"},
		{Prefix: "trees/", Delimiter: "/", StartAfter: "trees/66/journal/66"}, {Prefix: "nothing"}, {Prefix: "many/00500/"},
	} {
		w.sameListing(keys, opt)
	}
	if _, _, pages := w.listed(blob.ListOptions{}); pages < 2 {
		w.Errorf("%d objects came on one page", len(keys))
	}
	n := 0
	for _, err := range w.All(w.Context(), blob.ListOptions{Prefix: "trees/"}) {
		w.must(err)
		n++
	}
	if n != 140 {
		w.Errorf("%d of 140 objects", n)
	}
	_, err := w.List(w.Context(), blob.ListOptions{Delimiter: "-"})
	w.want(tine.KindUnsupported, err)
}

// randomKeys makes keys of few letters, so that they share prefixes, none of
// which is a folder of another.
func randomKeys(rng *rand.Rand, n int) []blob.Key {
	letters := []string{"a", "b", "a!", "a-b", "a0", "A"}
	folders := map[string]bool{}
	var keys []blob.Key
	for len(keys) < n {
		k := letters[rng.IntN(len(letters))]
		for range rng.IntN(4) {
			k += "/" + letters[rng.IntN(len(letters))]
		}
		clash := folders[k] || slices.ContainsFunc(keys, func(o blob.Key) bool { return string(o) == k || strings.HasPrefix(k, string(o)+"/") })
		if clash {
			n--
			continue
		}
		keys = append(keys, blob.Key(k))
		for i := range k {
			if k[i] == '/' {
				folders[k[:i]] = true
			}
		}
	}
	return keys
}

func listingRandom(w *world) {
	rng := random(w.T)
	keys := randomKeys(rng, 60)
	w.fill(keys)
	piece := func() string {
		k := string(keys[rng.IntN(len(keys))])
		return k[:rng.IntN(len(k)+1)]
	}
	for range 60 {
		opt := blob.ListOptions{Limit: rng.IntN(5)}
		if rng.IntN(3) > 0 {
			opt.Prefix = piece()
		}
		if rng.IntN(2) > 0 {
			opt.Delimiter = "/"
		}
		if rng.IntN(3) == 0 {
			opt.StartAfter = piece()
		}
		w.sameListing(keys, opt)
	}
}

func names(w *world) {
	var keys []blob.Key
	for b := byte(0x20); b < 0x7f; b++ {
		if b == '\\' || b == '/' {
			continue
		}
		keys = append(keys, blob.Key(fmt.Sprintf("byte %02x/x%sy", b, string(rune(b)))))
	}
	keys = append(keys, "name/%41", "name/A", "name/a", "name/%25", "name/+plus", "name/a b", "name/a+b", "name/a%20b", "name/?q=1&r#f", "name/~", "name/-",
		blob.Key("long/"+strings.Repeat("%", blob.MaxPartBytes)), blob.Key("long/"+strings.Repeat("x", blob.MaxPartBytes)),
		blob.Key(strings.Repeat(strings.Repeat(":", 79)+"/", 9)+strings.Repeat("p", 48)))
	for _, k := range keys {
		w.must(k.Check())
	}
	w.fill(keys)
	for _, k := range keys {
		w.have(k, string(k))
	}
	w.sameListing(keys, blob.ListOptions{})
	w.sameListing(keys, blob.ListOptions{Delimiter: "/"})
	w.sameListing(keys, blob.ListOptions{Prefix: "name/", StartAfter: "name/%41"})
	w.must(w.Delete(w.Context(), keys...))
	w.sameListing(nil, blob.ListOptions{})
}

func deleteMany(w *world) {
	var keys, gone []blob.Key
	for i := range 30 {
		keys = append(keys, blob.Key(fmt.Sprintf("d/%04d", i)))
	}
	for i := range 1200 {
		gone = append(gone, blob.Key(fmt.Sprintf("never/%04d", i)))
	}
	w.fill(keys)
	w.must(w.Delete(w.Context()))
	w.must(w.Delete(w.Context(), append(gone, keys[:20]...)...))
	w.sameListing(keys[20:], blob.ListOptions{})
}
