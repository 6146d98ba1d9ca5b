//go:build linux

package kernel

// For tests of what the kernel sends and what happens when it sends too much.
var (
	ParseLink       = parseLink
	ParseObject     = parseObject
	WatchWithBuffer = watch
)
