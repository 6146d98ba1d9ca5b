package dequeue_test

import "testing"

// The tables and worked traces of kernel-semantics.md, §1.7 and §1.16.

func TestBulkIsBoundedByBytesBeforeEachPacket(t *testing.T)    { runScript(t, "bulk_vectors") }
func TestFairnessIsRoundRobinWithAQuotaOfPackets(t *testing.T) { runScript(t, "fairness") }

// What DESIGN.md adds to them.

func TestNoPostedPacketIsWithoutABell(t *testing.T)   { runScript(t, "doorbell") }
func TestDownKeepsPacketsAndRingsWhenUp(t *testing.T) { runScript(t, "down") }
func TestThrottledRootIsRunAtItsInstant(t *testing.T) { runScript(t, "throttled") }
func TestNoQueueSendsAtOnceOrDrops(t *testing.T)      { runScript(t, "noqueue") }
