package keeper

// ChangeKind is what has become of a mount.
type ChangeKind string

// The kinds.
const (
	Mounting   ChangeKind = "mount"
	Remounting ChangeKind = "remount"
	Unmounting ChangeKind = "unmount"
	Lost       ChangeKind = "mount-lost" // unmounted from outside
)

// Change tells what has become of a mount.
type Change struct {
	Record
	Kind ChangeKind
}

// Observe has fn told of every mount that is made, changed, taken away or lost, with no
// lock held. It must be called before Restore.
func (k *Keeper) Observe(fn func(Change)) { k.observer = fn }

func (k *Keeper) tell(kind ChangeKind, r Record) {
	if k.observer != nil {
		k.observer(Change{r, kind})
	}
}
