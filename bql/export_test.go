package bql

// Memory returns what the limit remembers of the previous completion and of
// the hold window: the bytes it was over, and the lowest slack (false = none).
func (l *Limit) Memory() (over, slack uint32, ok bool) {
	return l.prevOver, l.lowestSlack, l.lowestSlack != noSlack
}
