// Packet path, except String.

package qdisc

import "fmt"

// ClassID names a qdisc or a class: 32 bits of major, 32 of minor. tc's 16:16
// form is the part of it that tc can say. A qdisc's handle has minor 0.
type ClassID uint64

// MakeID joins a major and a minor number.
func MakeID(major, minor uint32) ClassID { return ClassID(major)<<32 | ClassID(minor) }

// FromTC widens tc's 16:16 form.
func FromTC(h uint32) ClassID { return MakeID(h>>16, h&0xffff) }

// Major returns the qdisc's part.
func (id ClassID) Major() uint32 { return uint32(id >> 32) }

// Minor returns the class's part.
func (id ClassID) Minor() uint32 { return uint32(id) }

// TC returns the 16:16 form, and whether the id fits it.
func (id ClassID) TC() (uint32, bool) {
	return id.Major()<<16 | id.Minor()&0xffff, id.Major() <= 0xffff && id.Minor() <= 0xffff
}

// String prints the id as tc does: hexadecimal, "1:" for a handle, "1:a".
func (id ClassID) String() string {
	switch {
	case id.Minor() == 0:
		return fmt.Sprintf("%x:", id.Major())
	case id.Major() == 0:
		return fmt.Sprintf(":%x", id.Minor())
	}
	return fmt.Sprintf("%x:%x", id.Major(), id.Minor())
}
