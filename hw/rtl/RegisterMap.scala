// SPDX-License-Identifier: MIT OR Apache-2.0
// Made from registers.toml by scripts/registers.py.
package farmem.pfa

import chisel3._

/** The registers; doc/registers.md says what they do. */
object RegisterMap {
  val base: BigInt = 0x10020000L
  val identity = Register("IDENTITY", 0x00, readable = true, writable = false,
    RegisterField("signature", 63, 40),
    RegisterField("version", 39, 32),
    RegisterField("harts", 31, 24),
    RegisterField("evict_depth", 23, 16),
    RegisterField("new_depth", 15, 8),
    RegisterField("free_depth", 7, 0))
  val control = Register("CONTROL", 0x08, readable = true, writable = true,
    RegisterField("enable", 0, 0))
  val status = Register("STATUS", 0x10, readable = true, writable = false,
    RegisterField("fetching", 0, 0),
    RegisterField("evicting", 1, 1),
    RegisterField("transferring", 2, 2),
    RegisterField("tags_spent", 3, 3),
    RegisterField("free_count", 23, 8),
    RegisterField("new_count", 39, 24),
    RegisterField("evict_count", 47, 40),
    RegisterField("evict_unfinished", 55, 48))
  val interruptEnable = Register("INTERRUPT_ENABLE", 0x18, readable = true, writable = true,
    RegisterField("new", 0, 0),
    RegisterField("free", 1, 1),
    RegisterField("evicted", 2, 2),
    RegisterField("remote", 3, 3),
    RegisterField("error", 4, 4),
    RegisterField("bus", 5, 5))
  val interruptPending = Register("INTERRUPT_PENDING", 0x20, readable = true, writable = false,
    RegisterField("new", 0, 0),
    RegisterField("free", 1, 1),
    RegisterField("evicted", 2, 2),
    RegisterField("remote", 3, 3),
    RegisterField("error", 4, 4),
    RegisterField("bus", 5, 5))
  val newThreshold = Register("NEW_THRESHOLD", 0x28, readable = true, writable = true,
    RegisterField("entries", 15, 0))
  val timeout = Register("TIMEOUT", 0x30, readable = true, writable = true,
    RegisterField("cycles", 30, 0))
  val error = Register("ERROR", 0x38, readable = true, writable = true,
    RegisterField("valid", 63, 63),
    RegisterField("cause", 19, 16),
    RegisterField("offset", 11, 0))
  val freePush = Register("FREE_PUSH", 0x40, readable = false, writable = true,
    RegisterField("frame", 47, 12))
  val newPop = Register("NEW_POP", 0x48, readable = true, writable = false,
    RegisterField("valid", 63, 63),
    RegisterField("hart", 62, 55),
    RegisterField("vpn", 54, 28),
    RegisterField("id", 27, 0))
  val evictPush = Register("EVICT_PUSH", 0x50, readable = false, writable = true,
    RegisterField("id", 63, 36),
    RegisterField("frame", 35, 0))
  val evictPop = Register("EVICT_POP", 0x58, readable = true, writable = true,
    RegisterField("valid", 63, 63),
    RegisterField("failed", 62, 62),
    RegisterField("id", 27, 0))
  val remoteFrame = Register("REMOTE_FRAME", 0x60, readable = true, writable = true,
    RegisterField("frame", 47, 12))
  val remoteStart = Register("REMOTE_START", 0x68, readable = false, writable = true,
    RegisterField("write", 63, 63),
    RegisterField("id", 27, 0))
  val remoteStatus = Register("REMOTE_STATUS", 0x70, readable = true, writable = false,
    RegisterField("under_way", 0, 0),
    RegisterField("ended", 1, 1),
    RegisterField("failed", 2, 2),
    RegisterField("bus", 3, 3))
  val freePop = Register("FREE_POP", 0x78, readable = true, writable = false,
    RegisterField("valid", 63, 63),
    RegisterField("frame", 47, 12))
  val fetches = Register("FETCHES", 0x80, readable = true, writable = false)
  val fetchCycles = Register("FETCH_CYCLES", 0x88, readable = true, writable = false)
  val travelCycles = Register("TRAVEL_CYCLES", 0x90, readable = true, writable = false)
  val fetchLongest = Register("FETCH_LONGEST", 0x98, readable = true, writable = false)
  val refused = Register("REFUSED", 0xa0, readable = true, writable = false)
  val repeated = Register("REPEATED", 0xa8, readable = true, writable = false)
  val evicted = Register("EVICTED", 0xb0, readable = true, writable = false)
  val dropped = Register("DROPPED", 0xb8, readable = true, writable = false)
  val frameBase = Register("FRAME_BASE", 0xc0, readable = true, writable = true,
    RegisterField("frame", 47, 12))
  val frameLimit = Register("FRAME_LIMIT", 0xc8, readable = true, writable = true,
    RegisterField("frame", 47, 12))
  val frameLock = Register("FRAME_LOCK", 0xd0, readable = true, writable = true,
    RegisterField("locked", 0, 0))
  val busError = Register("BUS_ERROR", 0xd8, readable = true, writable = true,
    RegisterField("valid", 63, 63),
    RegisterField("access", 62, 60),
    RegisterField("address", 55, 0))
  val newContext = Register("NEW_CONTEXT", 0xe0, readable = true, writable = false,
    RegisterField("valid", 63, 63),
    RegisterField("root", 35, 0))
  val refusal = Register("REFUSAL", 0x100, readable = true, writable = true,
    RegisterField("valid", 63, 63),
    RegisterField("reason", 62, 60),
    RegisterField("vpn", 54, 28),
    RegisterField("id", 27, 0))
  val all: Seq[Register] = Seq(
    identity,
    control,
    status,
    interruptEnable,
    interruptPending,
    newThreshold,
    timeout,
    error,
    freePush,
    newPop,
    evictPush,
    evictPop,
    remoteFrame,
    remoteStart,
    remoteStatus,
    freePop,
    fetches,
    fetchCycles,
    travelCycles,
    fetchLongest,
    refused,
    repeated,
    evicted,
    dropped,
    frameBase,
    frameLimit,
    frameLock,
    busError,
    newContext,
    refusal)
}

/** Reasons of a refusal. Zero is none. */
object Refusal {
  val width = 3
  val disabled = 1.U(width.W)
  val noFrame = 2.U(width.W)
  val newQueueFull = 3.U(width.W)
  val fetchFailed = 4.U(width.W)
  val evictionFailed = 5.U(width.W)
  val busError = 6.U(width.W)
}

/** Accesses in BUS_ERROR. Zero is none. */
object BusAccess {
  val width = 3
  val frameWrite = 1.U(width.W)
  val frameRead = 2.U(width.W)
  val entryRead = 3.U(width.W)
  val entryWrite = 4.U(width.W)
}

/** Causes in ERROR. Zero is none. */
object AccessError {
  val width = 4
  val notEightBytes = 1.U(width.W)
  val noSuchRegister = 2.U(width.W)
  val readOnly = 3.U(width.W)
  val writeOnly = 4.U(width.W)
  val queueFull = 5.U(width.W)
  val busy = 6.U(width.W)
  val badValue = 7.U(width.W)
  val locked = 8.U(width.W)
}
