// Admin path.

package prio

import (
	"errors"
	"fmt"

	"sluice/qdisc"
)

// check is what tc does with the words before it asks the kernel. It always
// sends both parameters, so a change that names one of them sets the other back
// to its default; entries of the map that were not given are the default's.
func check(v qdisc.Values) error {
	if !v.Has("bands") {
		v.Set("bands", 3)
	}
	given := v["priomap"].List
	if len(given) > len(defaultMap) {
		return fmt.Errorf("\"priomap\" index > TC_PRIO_MAX=%d", len(defaultMap)-1)
	}
	whole := make([]uint64, len(defaultMap))
	for i, b := range defaultMap {
		whole[i] = uint64(b)
	}
	for i, b := range given {
		if b >= v.N("bands", 0) {
			return errors.New(`"priomap" element is out of bands`)
		}
		whole[i] = b
	}
	v["priomap"] = qdisc.Value{List: whole}
	return nil
}
