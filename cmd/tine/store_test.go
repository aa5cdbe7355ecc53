package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStores: what people do with a store, on a directory.
func TestStores(t *testing.T) {
	w := newWorld(t)
	for _, d := range []string{"s", "other"} {
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.steps([]step{
		{"store ls", 0, `^NAME +URL +REGION +DISKS +BEHIND +STATE\n$`, ""},
		{"store add eu file://DIR/none", exitUnavailable, "", `must exist`},
		{"store add eu s3://id:hush@bucket", exitUsage, "", `^tine: the URL of the store holds a user or password\n`},
		{"store add a/b file://DIR/s", exitUsage, "", `not allowed`},
		{"store add eu file://DIR/s --region x", exitUsage, "", `has no parameter "region"`},
		{"store add eu file://DIR/s", 0, `^added the store eu at file://\S+/s\n`, ""},
		{"store add eu file://DIR/other", exitExists, "", `already`},
		{"store add more file://DIR/s", exitExists, "", `known already as "eu"`},
		{"store check eu", 0, `write +works.*read +works.*list +works.*conditional writes +works.*delete +works.*clock`, ""},
		{"store check eu --json", 0, `"clock_ahead_seconds"`, ""},
		{"store check none", exitNotFound, "", `store ls`},
		{"disk create bare --durability bucket", exitUsage, "", `needs a store`},
		{"disk create bare --store none", exitNotFound, "", `no store "none"`},
		{"disk create bare --durability never --store eu", exitUsage, "", `durability`},
		{"disk create here", 0, `^created the disk here\n$`, ""},
		{"disk create work --store eu --durability bucket", 0, `^created the disk work in the store eu\n$`, ""},
		{"disk create try --from work --store eu", exitUsage, "", `store`},
		{"fork work try", 0, `try`, ""},
		{"checkpoint create work one", 0, `one`, ""},
		{"disk ls", 0, `NAME .* STORE *\nhere .* - *\ntry .* eu *\nwork .* eu *\n$`, ""},
		{"disk ls --json", 0, `"store": \{\s+"name": "eu",\s+"id": "sto_\w+",\s+"durability": "bucket"`, ""},
		{"disk show work", 0, `store: +eu\nfsync returns when: +the store has the data\nnot in the store yet: +nothing\n`, ""},
		{"sync work --to-store", 0, `^all that reached work is in its store\n$`, ""},
		{"sync here --to-store", exitUsage, "", `lives in no store`},
		{"store ls", 0, `eu +file://\S+/s +- +2 +0 +ready\n$`, ""},
		{"store take-up eu", 0, `^there is nothing to take up in eu\n$`, ""},
		{"store take-up none", exitNotFound, "", `none`},
		{"store rm eu", exitInUse, "", `2 disks live in store "eu": try, work`},
		{"doctor", 0, `ok +store eu +file://\S+, write \S+ ms`, ""},
		{"events", 0, `store-add .*eu .*disk-create +work in store eu`, ""},
		{"__complete store check e", 0, `^eu\n:4\n`, `.`},
		{"__complete disk create x --store e", 0, `^eu\n:4\n`, `.`},
		{"__complete disk create x --durability b", 0, `^bucket\n:4\n`, `.`},
	})
	w.stopServe()
	w.serve()
	w.steps([]step{
		{"disk ls", 0, `work .* eu *\n$`, ""},
		{"disk rm --purge work", 0, `for good`, ""},
		{"disk rm --purge try", 0, `for good`, ""},
		{"store rm eu", 0, `^forgot the store eu; what is in it stays\n$`, ""},
		{"store ls", 0, `^NAME[^\n]*\n$`, ""},
	})
}
