package record

// Shipped is the row that says how much of a tree its store has. It is changed
// after the store has it, so the store may have one journal object more.
type Shipped struct {
	Number   uint64 // of the newest journal object; 0: none yet
	Term     uint64 // under which this server writes the journal
	Sequence uint64 // of the newest outbox entry in it; entries up to it are removed
	Checksum uint32 // of that journal object, for the next one to carry
}

const shippedFormat = 1

// Append encodes the row.
func (s Shipped) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(shippedFormat)
	e.uint(s.Number)
	e.uint(s.Term)
	e.uint(s.Sequence)
	e.uint(uint64(s.Checksum))
	return e.b
}

// DecodeShipped reads the row.
func DecodeShipped(b []byte) (Shipped, error) {
	d := decoder{b: b}
	if err := d.format("shipped", shippedFormat); err != nil {
		return Shipped{}, err
	}
	s := Shipped{Number: d.uint(), Term: d.uint(), Sequence: d.uint()}
	sum := d.uint()
	if s.Checksum = uint32(sum); uint64(s.Checksum) != sum {
		d.fail()
	}
	return s, d.finish("shipped")
}
