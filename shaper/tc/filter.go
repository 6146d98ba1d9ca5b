package tc

import (
	"fmt"
	"strconv"

	"sluice/shaper/tree"
)

// filter takes a filter command as far as its kind, and keeps the words behind
// it.
func (s *parse) filter() error {
	r, f := &s.c.Request, &s.c.Filter
	for len(s.args) > 0 {
		word := s.next()
		switch word {
		case "root":
			r.Parent = tree.Root
			continue
		case "ingress", "egress":
			r.Parent = tree.Ingress
			continue
		case "help":
			return &Error{Usage: usageFilter}
		}
		set := s.filterValue(word)
		if set == nil {
			if s.c.Verb == "show" {
				return &Error{Msg: fmt.Sprintf(` What is "%s"? Try "tc filter help"`, word), Code: ExitUsage}
			}
			r.Kind, f.Words, s.args = word, s.args, nil
			break
		}
		v, err := s.value()
		if err == nil {
			err = set(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// filterValue returns what to do with the value of a keyword, nil when the word
// is none.
func (s *parse) filterValue(word string) func(string) error {
	r, f := &s.c.Request, &s.c.Filter
	number := func(to *uint32, max uint64, why string) func(string) error {
		return func(v string) error {
			n, err := strconv.ParseUint(v, 0, 32)
			if err != nil || n > max {
				return wrongArg(v, why)
			}
			*to = uint32(n)
			return nil
		}
	}
	switch word {
	case "dev":
		return func(v string) error { s.c.Dev = v; return nil }
	case "parent":
		return s.classID(&r.Parent, "invalid parent ID")
	case "protocol":
		return func(v string) error {
			if !protocols[v] {
				if _, err := strconv.ParseUint(v, 0, 16); err != nil {
					return wrongArg(v, "invalid protocol")
				}
			}
			f.Protocol = v
			return nil
		}
	case "prio", "pref", "preference", "priority":
		return number(&f.Pref, 0xffff, "invalid priority value")
	case "chain":
		return number(&f.Chain, 1<<32-1, "invalid chain index value")
	case "handle":
		return func(v string) error { f.Handle = v; return nil }
	}
	return nil
}

// protocols are the names of link-layer protocols.
var protocols = map[string]bool{
	"all": true, "ip": true, "ipv4": true, "ipv6": true, "arp": true, "802.1Q": true, "802.1q": true,
	"802.1ad": true, "802.2": true, "ipx": true, "ppp": true, "ppp_disc": true, "ppp_ses": true,
	"mpls_uc": true, "mpls_mc": true, "LLDP": true, "lldp": true,
}
