package api

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Where data is when a call that makes it durable returns.
const (
	DurabilityLocal  = "local"
	DurabilityBucket = "bucket"
)

// NewStore asks for an object store to be known. No credential is part of it: the
// server finds one in its environment, or by the named profile.
type NewStore struct {
	Name     string `json:"name" doc:"1 to 128 letters, digits, '.', '_' and '-', starting with a letter, a digit or '_'" example:"eu"`
	URL      string `json:"url" doc:"s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, azblob://CONTAINER/PREFIX?account=NAME or file:///DIRECTORY" example:"s3://bucket/tine?region=eu-central-1"`
	Region   string `json:"region,omitempty" doc:"Of s3"`
	Profile  string `json:"profile,omitempty" doc:"Of s3: the profile of the configuration of the AWS SDK from which credentials are taken"`
	Endpoint string `json:"endpoint,omitempty" doc:"The URL of a server that is not the service itself"`
	CAFile   string `json:"ca_file,omitempty" doc:"A file on the server's machine, in PEM, of authorities that are trusted too; as an absolute path"`
}

// Store is an object store that disks may live in.
type Store struct {
	Name    string       `json:"name" example:"eu"`
	ID      string       `json:"id,omitempty" doc:"The store's own; absent if it has never answered" example:"sto_01k0000000000000000000000c"`
	URL     string       `json:"url"`
	Region  string       `json:"region,omitempty" doc:"Absent if it is not known"`
	State   string       `json:"state" enum:"ready,waiting,failing" doc:"waiting: it has not answered since the server started; its disks go on with what is on this machine. failing: it does not take what is to be stored"`
	Error   *Error       `json:"error,omitempty" doc:"Why it is waiting or failing"`
	Since   *time.Time   `json:"since,omitempty" doc:"Since when"`
	Disks   int          `json:"disks" doc:"That live in it and are known here, those in the trash included"`
	Lost    int          `json:"lost" doc:"Of these, those that another server has taken over"`
	Backlog uint64       `json:"backlog_commits" doc:"Commits that it does not have yet"`
	TakeUp  bool         `json:"take_up" doc:"What lies in it is being taken up by this server"`
	Left    []TreeTaking `json:"left" nullable:"false" doc:"Trees that could not be taken up at the last attempt, and why"`
}

// StoreList is the answer to a listing of stores.
type StoreList struct {
	Stores []Store `json:"stores" nullable:"false"`
}

// TreeTaking is what has become of a tree of a store.
type TreeTaking struct {
	Tree  string   `json:"tree"`
	Disks []string `json:"disks" nullable:"false" doc:"The names of its disks, if they are here now"`
	Error *Error   `json:"error,omitempty" doc:"Why they are not: of the kind in_use while another server has the tree"`
}

// TakeUpList is the answer to a taking up.
type TakeUpList struct {
	Trees []TreeTaking `json:"trees" nullable:"false"`
}

// StoreCheck is what was found by trying a store.
type StoreCheck struct {
	Store string      `json:"store"`
	Steps []StoreStep `json:"steps" nullable:"false"`
	Clock *float64    `json:"clock_ahead_seconds,omitempty" doc:"The store's clock before the server's; some stores tell full seconds only"`
}

// StoreStep is one thing that was tried.
type StoreStep struct {
	Name  string  `json:"name" doc:"open, write, read, list, conditional writes, delete"`
	Milli float64 `json:"milliseconds" doc:"Of one small request, the median of several"`
	Error *Error  `json:"error,omitempty"`
}

// DiskStore is what a disk's store has of it. Disks of one tree share it.
type DiskStore struct {
	Name       string     `json:"name" doc:"Empty if the store is not known here"`
	ID         string     `json:"id"`
	Region     string     `json:"region,omitempty"`
	Durability string     `json:"durability" enum:"local,bucket" doc:"Where data is when fsync returns: on the server's device, or in the store as well"`
	Backlog    uint64     `json:"backlog_commits" doc:"Commits of the disk's tree that the store does not have yet"`
	Error      *Error     `json:"error,omitempty" doc:"Why it does not take any now"`
	Since      *time.Time `json:"since,omitempty" doc:"Since when"`
	Elsewhere  *Error     `json:"elsewhere,omitempty" doc:"Another server has taken the disk over; what is here is the state of that moment"`
}

// AddStore makes a store known to the server, which tries it first and
// remembers it.
func (c *Client) AddStore(ctx context.Context, n NewStore) (Store, error) {
	return call[Store](ctx, c, http.MethodPost, nil, n, "stores")
}

// Stores lists the stores.
func (c *Client) Stores(ctx context.Context) ([]Store, error) {
	out, err := call[StoreList](ctx, c, http.MethodGet, nil, nil, "stores")
	return out.Stores, err
}

// CheckStore has the server try what is done with a store.
func (c *Client) CheckStore(ctx context.Context, name string) (StoreCheck, error) {
	return call[StoreCheck](ctx, c, http.MethodPost, nil, nil, "stores", name, "check")
}

// RemoveStore makes the server forget a store in which no disk lives. What is in
// it stays.
func (c *Client) RemoveStore(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, nil, "stores", name)
}

// TakeUp has the server take up the trees of a store that it does not serve, and
// tells of each what has become of it.
func (c *Client) TakeUp(ctx context.Context, name string) ([]TreeTaking, error) {
	out, err := call[TakeUpList](ctx, c, http.MethodPost, nil, nil, "stores", name, "take-up")
	return out.Trees, err
}

// SyncStore returns when the disk's store has all that has reached the server for
// the disk.
func (c *Client) SyncStore(ctx context.Context, disk string) error {
	return c.do(ctx, http.MethodPost, url.Values{"to_store": {"true"}}, "disks", disk, "sync")
}

// CreateDiskIn makes an empty disk as the request says. It is durable, also in
// its store, when the call returns.
func (c *Client) CreateDiskIn(ctx context.Context, n NewDisk) (Disk, error) {
	return call[Disk](ctx, c, http.MethodPost, nil, n, "disks")
}
