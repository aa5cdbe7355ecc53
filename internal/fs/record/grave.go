package record

// Grave is the row that says that objects of a segment in the tree's store are of no use any
// more.
type Grave struct {
	Since int64  // by the owner's idea of the store's clock, in nanoseconds since 1970
	Below uint64 // generations below it are of no use
}

const graveFormat = 1

// Append encodes the row.
func (g Grave) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(graveFormat)
	e.int(g.Since)
	e.uint(g.Below)
	return e.b
}

// DecodeGrave reads the row.
func DecodeGrave(b []byte) (Grave, error) {
	d := decoder{b: b}
	if err := d.format("grave", graveFormat); err != nil {
		return Grave{}, err
	}
	g := Grave{Since: d.int(), Below: d.uint()}
	return g, d.finish("grave")
}
