//go:build linux

// Packet path, except newRing, close and setsockopt.

package afpacket

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is a memory mapped TPACKET_V2 ring. A slot is owned by whom its status
// word says: the word is read before and written after everything else in the
// slot, both atomically, which on every processor Go supports orders the rest.
type ring struct {
	mem   []byte
	size  uint32 // of a slot
	slots uint32
	mask  uint32 // slots - 1
}

// header is a slot's struct tpacket2_hdr.
type header = unix.Tpacket2Hdr

func (r *ring) header(i uint32) *header {
	return (*header)(unsafe.Pointer(&r.mem[(i&r.mask)*r.size]))
}

// slot returns the bytes of slot i, header included.
func (r *ring) slot(i uint32) []byte {
	at := (i & r.mask) * r.size
	return r.mem[at : at+r.size : at+r.size]
}

func status(h *header) uint32       { return atomic.LoadUint32(&h.Status) }
func setStatus(h *header, s uint32) { atomic.StoreUint32(&h.Status, s) }

// packetType returns sll_pkttype of the address behind a received header.
func packetType(slot []byte) byte {
	return slot[unix.SizeofTpacket2Hdr+unsafe.Offsetof(unix.RawSockaddrLinklayer{}.Pkttype)]
}

// vnetHeader is struct virtio_net_hdr, in the machine's byte order.
type vnetHeader struct {
	flags, gsoType                         uint8
	hdrLen, gsoSize, csumStart, csumOffset uint16
}

const sizeofVnet = int(unsafe.Sizeof(vnetHeader{}))

func vnetAt(b []byte) *vnetHeader {
	_ = b[sizeofVnet-1]
	return (*vnetHeader)(unsafe.Pointer(&b[0]))
}

// newRing maps a ring of a socket on which it was asked for.
func newRing(fd int, req unix.TpacketReq) (ring, error) {
	mem, err := unix.Mmap(fd, 0, int(req.Block_size)*int(req.Block_nr),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ring{}, err
	}
	return ring{mem: mem, size: req.Frame_size, slots: req.Frame_nr, mask: req.Frame_nr - 1}, nil
}

func (r *ring) close() error {
	if r.mem == nil {
		return nil
	}
	mem := r.mem
	r.mem = nil
	return unix.Munmap(mem)
}

// ringDoorbell is sendto without data: the kernel sends what stands on the ring
// and returns how many bytes it took. It doesn't block, so the scheduler need not
// hear of it.
func ringDoorbell(fd int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// packetStatistics returns the frames that found the ring full since the last
// call. to is scratch memory, so that nothing is allocated.
func packetStatistics(fd int, to *unix.TpacketStats) uint64 {
	size := uint32(unix.SizeofTpacketStats)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS,
		uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return uint64(to.Drops)
}

// clearError reads and so clears a socket's error.
func clearError(fd int) {
	var value, size int32 = 0, 4
	unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR,
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
}

// ioctlIfreq is an interface ioctl on memory the caller keeps.
func ioctlIfreq(fd int, request uint, ifr *ifreq) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(ifr)))
	return errno
}

// ifreq is struct ifreq: a name, and a union of which we use three members.
type ifreq struct {
	name  [unix.IFNAMSIZ]byte
	union [24]byte
	value ethtoolValue // what the union's pointer member points at
}

// ethtoolValue is struct ethtool_value.
type ethtoolValue struct{ cmd, data uint32 }

// carrier asks the named device for its carrier. Its driver may not know. The
// flags would say the same up to a second later, when the kernel's linkwatch has
// run. r must be on the heap, as part of an object that the caller holds.
func (r *ifreq) carrier(fd int) (carrier, known bool) {
	r.value = ethtoolValue{cmd: unix.ETHTOOL_GLINK}
	*(*uintptr)(unsafe.Pointer(&r.union)) = uintptr(unsafe.Pointer(&r.value))
	errno := ioctlIfreq(fd, unix.SIOCETHTOOL, r)
	return r.value.data != 0, errno == 0
}

func (r *ifreq) setInt(v int32) { *(*int32)(unsafe.Pointer(&r.union)) = v }
func (r *ifreq) int() int32     { return *(*int32)(unsafe.Pointer(&r.union)) }
func (r *ifreq) short() uint16  { return *(*uint16)(unsafe.Pointer(&r.union)) }
