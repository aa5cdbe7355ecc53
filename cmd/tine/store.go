package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/stores"
	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/open"
	"tine.dev/tine/internal/tine"
)

// openStore makes an object store of a URL, in which "ca" may name a file of
// authorities. Credentials come from the environment of this process.
func openStore(ctx context.Context, text string) (*blob.Store, error) {
	var o open.Options
	if u, err := url.Parse(text); err == nil {
		if q := u.Query(); q.Has(stores.CAParameter) {
			o.CAFile = q.Get(stores.CAParameter)
			q.Del(stores.CAParameter)
			u.RawQuery = q.Encode()
			text = u.String()
		}
	}
	d, err := open.Driver(ctx, text, o)
	if err != nil {
		return nil, err
	}
	return blob.NewStore(d, blob.Options{}), nil
}

func (c *cli) storeCommand() *cobra.Command {
	return holder("store", "Add, list, check and remove object stores that disks may live in",
		c.storeAdd(), c.storeList(), c.storeCheck(), c.storeRemove(), c.storeTakeUp())
}

func (c *cli) storeAdd() *cobra.Command {
	var n api.NewStore
	cmd := &cobra.Command{
		Use: "add NAME URL", Short: "Make an object store known to the server",
		Long: "Make an object store known to the server, under a name. The server tries it first, and remembers it. URL is one of\n\n" +
			"  s3://BUCKET/PREFIX    gs://BUCKET/PREFIX    azblob://CONTAINER/PREFIX?account=NAME    file:///DIRECTORY\n\n" +
			"Credentials are never given here: the server takes them from its environment, as the store's own tools do\n" +
			"(AWS_ACCESS_KEY_ID, ~/.aws, instance roles, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_KEY, ...), or\n" +
			"from the named profile.",
		Example: "  tine store add eu s3://bucket/tine --region eu-central-1\n" +
			"  tine store add lab s3://bucket --endpoint https://minio.lab:9000 --region us-east-1 --profile lab --ca /etc/ssl/lab.pem\n" +
			"  tine store add nas file:///mnt/nas/tine",
		Args: arguments(2, 2), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			n.Name, n.URL = args[0], args[1]
			if n.CAFile != "" {
				var err error
				if n.CAFile, err = absolute(n.CAFile); err != nil {
					return err
				}
			}
			s, err := c.client().AddStore(cmd.Context(), n)
			if err != nil {
				return err
			}
			return c.print(s, func() {
				c.say("added the store %s at %s", s.Name, printable(s.URL))
				c.say("`tine disk create NAME --store %s` makes a disk in it; `tine store take-up %s` serves those that lie there", s.Name, s.Name)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&n.Region, "region", "", "of s3: the region of the bucket")
	f.StringVar(&n.Profile, "profile", "", "of s3: the profile of the AWS configuration that has the credentials")
	f.StringVar(&n.Endpoint, "endpoint", "", "the `URL` of a server that is not the service itself")
	f.StringVar(&n.CAFile, "ca", "", "a `FILE` in PEM of authorities that are trusted too")
	must(cmd.MarkFlagFilename("ca"))
	return cmd
}

func (c *cli) storeList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the stores, and how they are", Example: "  tine store ls\n  tine store ls --json", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ss, err := c.client().Stores(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(api.StoreList{Stores: ss}, func() {
				rows := make([][]string, 0, len(ss))
				for _, s := range ss {
					rows = append(rows, []string{s.Name, s.URL, dash(s.Region), fmt.Sprint(s.Disks), fmt.Sprint(s.Backlog), storeState(s)})
				}
				c.table([]string{"NAME", "URL", "REGION", "DISKS", "BEHIND", "STATE"}, rows)
			})
		},
	}
}

// storeState tells how a store is, for people.
func storeState(s api.Store) string {
	words := []string{s.State}
	if s.Error != nil {
		words[0] += ": " + s.Error.Message
		if s.Since != nil {
			words[0] += " (since " + at(*s.Since) + ")"
		}
	}
	if s.Lost > 0 {
		words = append(words, plural(int64(s.Lost), "disk")+" taken over by another server")
	}
	if n := len(s.Left); n > 0 && s.Left[0].Error != nil {
		words = append(words, plural(int64(n), "tree")+" to be taken up: "+s.Left[0].Error.Message)
	}
	return strings.Join(words, "; ")
}

func (c *cli) storeCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check NAME", Short: "Try what is done with a store: rights, conditional writes, clock, latency",
		Long: "Have the server write, read, list and delete small objects of its own in a store, and compare clocks. The\n" +
			"exit code is 0 if all of it works, else that of the first error.",
		Example: "  tine store check eu", Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeStore),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := c.client().CheckStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var failed *api.Error
			rows := [][]string{}
			for _, s := range found.Steps {
				row := []string{s.Name, "works", ms(s.Milli) + " ms"}
				if s.Error != nil {
					row = []string{s.Name, "fails", s.Error.Message}
					if failed == nil {
						failed = s.Error
					}
				}
				rows = append(rows, row)
				if s.Error != nil && s.Error.Hint != "" {
					rows = append(rows, []string{"", "", "-> " + s.Error.Hint})
				}
			}
			if found.Clock != nil {
				rows = append(rows, []string{"clock", "works", fmt.Sprintf("%+.1f s ahead of this server's", *found.Clock)})
			}
			err = c.print(found, func() { c.table([]string{"TRIED", "RESULT", "FOUND"}, rows) })
			if err == nil && failed != nil {
				err = &silentError{exitCode(tine.ParseKind(failed.Kind))}
			}
			return err
		},
	}
}

func (c *cli) storeRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Have the server forget a store",
		Long:    "Have the server forget a store. Refused while disks live in it. What is in the store stays there.",
		Example: "  tine store rm lab", Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeStore),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.client().RemoveStore(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.print(map[string]string{"store": args[0]}, func() { c.say("forgot the store %s; what is in it stays", args[0]) })
		},
	}
}

func (c *cli) storeTakeUp() *cobra.Command {
	return &cobra.Command{
		Use: "take-up NAME", Short: "Serve the disks that lie in a store",
		Long: "Take up the disks that lie in a store and are not served here: after the loss of the machine that had them, or to\n" +
			"move them. What another server has that lives is left to it, and said so. Stop that server, or wait until it has\n" +
			"not been heard of for its lease. Disks that this server had and lost to another one are taken back\n" +
			"in the state that the store has.\n\n" +
			"A server that starts without disks, with --store, does this by itself.",
		Example: "  tine store take-up eu", Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeStore),
		RunE: func(cmd *cobra.Command, args []string) error {
			ts, err := c.client().TakeUp(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var failed *api.Error
			err = c.print(api.TakeUpList{Trees: ts}, func() {
				for _, t := range ts {
					for _, d := range t.Disks {
						c.say("took up the disk %s", d)
					}
				}
				if len(ts) == 0 {
					c.say("there is nothing to take up in %s", args[0])
				}
			})
			for _, t := range ts {
				if t.Error == nil {
					continue
				}
				if failed == nil {
					failed = t.Error
				}
				if !c.json {
					fmt.Fprintf(c.env.stderr, "tine: %s\n", indented(t.Error.Message))
					if t.Error.Hint != "" {
						fmt.Fprintf(c.env.stderr, "      %s\n", indented(t.Error.Hint))
					}
				}
			}
			if err == nil && failed != nil {
				err = &silentError{exitCode(tine.ParseKind(failed.Kind))}
			}
			return err
		},
	}
}

// storeName is a disk's store, with its region.
func storeName(s *api.DiskStore) string {
	name := s.Name
	if name == "" {
		name = s.ID + " (not known here)"
	}
	if s.Region != "" {
		name += " (" + s.Region + ")"
	}
	return name
}

// storeCell tells of a disk's store in a table.
func storeCell(d api.Disk) string {
	switch s := d.Store; {
	case s == nil:
		return "-"
	case s.Elsewhere != nil:
		return storeName(s) + ", served elsewhere"
	case d.Error != nil:
		return storeName(s) + ": " + d.Error.Message
	case s.Error != nil && s.Backlog > 0:
		return storeName(s) + ", behind by " + plural(int64(s.Backlog), "commit") + ": " + s.Error.Message
	default:
		return storeName(s)
	}
}

// storeFields tells of a disk's store at length.
func storeFields(s *api.DiskStore) (in, durable, behind, elsewhere string) {
	if s == nil {
		return "", "", "", ""
	}
	in, durable, behind = storeName(s), "this machine has the data", "nothing"
	if s.Durability == api.DurabilityBucket {
		durable = "the store has the data"
	}
	if s.Backlog > 0 {
		behind = plural(int64(s.Backlog), "commit")
	}
	if s.Error != nil {
		behind += ": " + s.Error.Message
		if s.Since != nil {
			behind += " (since " + at(*s.Since) + ")"
		}
	}
	if s.Elsewhere != nil {
		elsewhere = s.Elsewhere.Message
		behind = ""
	}
	return in, durable, behind, elsewhere
}
