// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

class RegisterAccess extends Bundle {
  val write = Bool()
  val offset = UInt(12.W)
  val whole = Bool()
  val data = UInt(64.W)
}

/** The registers. An access that is not legal reads zero, changes nothing, and is noted in the error register. */
class Registers(p: AcceleratorParameters) extends Module {
  val io = IO(new Bundle {
    val access = Flipped(Valid(new RegisterAccess))
    val readData = Output(UInt(64.W))
    val interrupt = Output(Bool())
    val enabled = Output(Bool())
    val timeout = Output(UInt(32.W))
    val free = Decoupled(UInt(Words.frameBits.W))
    val freeCount = Input(UInt(16.W))
    /** The head of the FreeQ, and that software takes it back. */
    val freeHead = Flipped(Valid(UInt(Words.frameBits.W)))
    val freePop = Output(Bool())
    val fresh = Flipped(Decoupled(new NewPage(p)))
    val freshCount = Input(UInt(16.W))
    val evict = Decoupled(new Eviction)
    val evictCount = Input(UInt(8.W))
    val evictUnfinished = Input(UInt(8.W))
    val evicted = Flipped(Decoupled(new Bundle {
      val id = UInt(Words.idBits.W)
      val failed = Bool()
    }))
    val software = Decoupled(new PageTransfer)
    val softwareDone = Flipped(Valid(new TransferOutcome))
    val tagsSpent = Input(Bool())
    /** Of the fetch unit, and of the client. */
    val busErrors = Vec(2, Flipped(Valid(new BusError)))
    val fetchBusy = Input(Bool())
    val refusal = Flipped(Valid(new Bundle {
      val reason = UInt(Refusal.width.W)
      val hart = UInt(8.W)
      val vpn = UInt(Words.vpnBits.W)
      val id = UInt(Words.idBits.W)
    }))
    val finished = Flipped(Valid(UInt(32.W)))
    val repeated = Input(Bool())
    val travelling = Input(Bool())
    val dropped = Input(Bool())
  })
  import RegisterMap._

  private val write = io.access.valid && io.access.bits.write
  private val read = io.access.valid && !io.access.bits.write
  private val data = io.access.bits.data
  private def at(register: Register, number: Int = 0): Bool = io.access.bits.offset === (register.offset + 8 * number).U
  private def writing(register: Register, number: Int = 0): Bool = write && io.access.bits.whole && at(register, number)
  private def reading(register: Register): Bool = read && io.access.bits.whole && at(register)

  private val enable = RegInit(false.B)
  private val interruptEnables = RegInit(0.U(6.W))
  private val threshold = RegInit(p.newDepth.U(16.W))
  // Half of what the client's clock counts: it can tell how old a request is until it looks again.
  private val timeoutCycles = RegInit("h7fffffff".U(31.W))
  private val errorCause = RegInit(0.U(4.W))
  private val errorOffset = Reg(UInt(12.W))
  private val remoteFrameNumber = RegInit(0.U(Words.frameBits.W))
  private val remoteWaiting = RegInit(false.B)
  private val remoteBusy = RegInit(false.B)
  private val remoteDone = RegInit(false.B)
  private val remoteFailed = RegInit(false.B)
  private val remoteBus = RegInit(false.B)
  private val remoteTransfer = Reg(new PageTransfer)
  private val refusals = RegInit(VecInit(Seq.fill(p.harts)(0.U(64.W))))
  private val busErrorWord = RegInit(0.U(64.W))
  // Frames that software may name, from the first to the one that is none any more. None after a reset. Locked until the next one.
  private val frameBaseNumber = RegInit(0.U(Words.frameBits.W))
  private val frameLimitNumber = RegInit(0.U(Words.frameBits.W))
  private val locked = RegInit(false.B)

  when(writing(control)) { enable := control.get(data, "enable") }
  when(writing(interruptEnable)) { interruptEnables := data }
  when(writing(newThreshold)) { threshold := newThreshold.get(data, "entries") }
  when(writing(timeout)) { timeoutCycles := timeout.get(data, "cycles") }
  io.enabled := enable
  io.timeout := timeoutCycles

  // Frames come as addresses: the offset within the page must be zero, and the frame number must fit.
  private val frameAligned = data(11, 0) === 0.U && (data >> (12 + Words.frameBits)).asUInt === 0.U
  private val addressFrame = freePush.get(data, "frame")
  private def owned(frame: UInt): Bool = frame >= frameBaseNumber && frame < frameLimitNumber
  private val frameLegal = frameAligned && owned(addressFrame)
  private val evictLegal = owned(evictPush.get(data, "frame"))
  when(writing(frameBase) && frameAligned && !locked) { frameBaseNumber := addressFrame }
  when(writing(frameLimit) && frameAligned && !locked) { frameLimitNumber := addressFrame }
  when(writing(frameLock) && frameLock.get(data, "locked").asBool) { locked := true.B }
  io.free.valid := writing(freePush) && frameLegal
  io.free.bits := addressFrame
  // A frame is taken back only where no fetch can be using it.
  private val freePopLegal = !enable && !io.fetchBusy
  io.freePop := reading(freePop) && freePopLegal && io.freeHead.valid
  io.fresh.ready := reading(newPop)
  io.evict.valid := writing(evictPush) && evictLegal
  io.evict.bits.frame := evictPush.get(data, "frame")
  io.evict.bits.id := evictPush.get(data, "id")
  // A failed eviction stays at the head, and keeps its page from being fetched, until software has seen to it and says so.
  private val evictedFailed = io.evicted.valid && io.evicted.bits.failed
  io.evicted.ready := Mux(evictedFailed, writing(evictPop), reading(evictPop))

  when(writing(remoteFrame) && frameLegal) { remoteFrameNumber := addressFrame }
  // The range may have been another one when the frame was named.
  private val start = writing(remoteStart) && !remoteBusy && owned(remoteFrameNumber)
  when(start) {
    remoteWaiting := true.B
    remoteBusy := true.B
    remoteDone := false.B
    remoteFailed := false.B
    remoteBus := false.B
    remoteTransfer.write := remoteStart.get(data, "write")
    remoteTransfer.id := remoteStart.get(data, "id")
    remoteTransfer.frame := remoteFrameNumber
  }
  io.software.valid := remoteWaiting
  io.software.bits := remoteTransfer
  when(io.software.fire()) { remoteWaiting := false.B }
  when(io.softwareDone.valid) {
    remoteBusy := false.B
    remoteDone := true.B
    remoteFailed := !io.softwareDone.bits.ok
    remoteBus := io.softwareDone.bits.bus
  }
  when(writing(busError)) { busErrorWord := 0.U }
  for (error <- io.busErrors) {
    when(error.valid && !busErrorWord(63)) {
      busErrorWord := busError.word("valid" -> 1.U, "access" -> error.bits.access, "address" -> error.bits.address)
    }
  }

  // Counters: 64 bits, only reset clears them.
  private def counter(add: Bool, amount: UInt = 1.U): UInt = {
    val value = RegInit(0.U(64.W))
    when(add) { value := value + amount }
    value
  }
  private val longest = RegInit(0.U(32.W))
  when(io.finished.valid && io.finished.bits > longest) { longest := io.finished.bits }
  private val counters: Seq[(Register, UInt)] = Seq(
    fetches -> counter(io.finished.valid),
    fetchCycles -> counter(io.finished.valid, io.finished.bits),
    travelCycles -> counter(io.travelling),
    fetchLongest -> longest,
    refused -> counter(io.refusal.valid),
    repeated -> counter(io.repeated),
    evicted -> counter(io.evicted.fire() && !io.evicted.bits.failed),
    dropped -> counter(io.dropped))

  when(io.refusal.valid) {
    for (h <- 0 until p.harts) when(io.refusal.bits.hart === h.U) {
      refusals(h) := refusal.word("valid" -> 1.U, "reason" -> io.refusal.bits.reason, "vpn" -> io.refusal.bits.vpn, "id" -> io.refusal.bits.id)
    }
  }
  for (h <- 0 until p.harts) {
    when(writing(refusal, h) && !(io.refusal.valid && io.refusal.bits.hart === h.U)) { refusals(h) := 0.U }
  }

  private val pending = interruptPending.word(
    "new" -> (io.freshCount >= threshold && io.freshCount =/= 0.U),
    "free" -> (io.freeCount === 0.U),
    "evicted" -> io.evicted.valid,
    "remote" -> remoteDone,
    "error" -> (errorCause =/= 0.U),
    "bus" -> busErrorWord(63))
  io.interrupt := (pending & interruptEnables).orR

  private val statusWord = status.word(
    "fetching" -> io.fetchBusy,
    "evicting" -> (io.evictUnfinished =/= 0.U),
    "transferring" -> remoteBusy,
    "tags_spent" -> io.tagsSpent,
    "free_count" -> io.freeCount,
    "new_count" -> io.freshCount,
    "evict_count" -> io.evictCount,
    "evict_unfinished" -> io.evictUnfinished)
  private val identityWord = identity.word(
    "signature" -> "h504641".U,
    "version" -> 2.U,
    "harts" -> p.harts.U,
    "evict_depth" -> log2Ceil(p.evictDepth).U,
    "new_depth" -> log2Ceil(p.newDepth).U,
    "free_depth" -> log2Ceil(p.freeDepth).U)
  private def orZero(valid: Bool, word: UInt): UInt = Mux(valid, word, 0.U(64.W))

  private val readable: Seq[(Register, UInt)] = Seq(
    identity -> identityWord,
    control -> control.word("enable" -> enable),
    status -> statusWord,
    interruptEnable -> interruptEnables,
    interruptPending -> pending,
    newThreshold -> threshold,
    timeout -> timeoutCycles,
    error -> error.word("valid" -> (errorCause =/= 0.U), "cause" -> errorCause, "offset" -> errorOffset),
    newPop -> orZero(io.fresh.valid,
      newPop.word("valid" -> 1.U, "hart" -> io.fresh.bits.hart, "vpn" -> io.fresh.bits.vpn, "id" -> io.fresh.bits.id)),
    evictPop -> orZero(io.evicted.valid,
      evictPop.word("valid" -> 1.U, "failed" -> io.evicted.bits.failed, "id" -> io.evicted.bits.id)),
    remoteFrame -> remoteFrame.word("frame" -> remoteFrameNumber),
    remoteStatus -> remoteStatus.word("under_way" -> remoteBusy, "ended" -> remoteDone, "failed" -> remoteFailed, "bus" -> remoteBus),
    freePop -> orZero(io.freePop, freePop.word("valid" -> 1.U, "frame" -> io.freeHead.bits)),
    frameBase -> frameBase.word("frame" -> frameBaseNumber),
    frameLimit -> frameLimit.word("frame" -> frameLimitNumber),
    frameLock -> frameLock.word("locked" -> locked),
    busError -> busErrorWord,
    newContext -> orZero(io.fresh.valid, newContext.word("valid" -> 1.U, "root" -> io.fresh.bits.root))) ++ counters
  // What registers.toml says may be read has a value here, and nothing else has.
  require((refusal +: readable.map(_._1)).toSet == all.filter(_.readable).toSet, "each register that can be read has a value")

  // Those that are there once for each hart have so many offsets.
  private def numbers(register: Register): Range = 0 until (if (register == refusal) p.harts else 1)
  private def isOneOf(registers: Seq[Register]): Bool = registers.flatMap(r => numbers(r).map(at(r, _))).reduce(_ || _)
  private val canRead = isOneOf(all.filter(_.readable))
  private val canWrite = isOneOf(all.filter(_.writable))
  private val cause = MuxCase(0.U(4.W), Seq(
    !io.access.bits.whole -> AccessError.notEightBytes,
    (!canRead && !canWrite) -> AccessError.noSuchRegister,
    (write && !canWrite) -> AccessError.readOnly,
    (read && !canRead) -> AccessError.writeOnly,
    (write && (at(frameBase) || at(frameLimit)) && locked) -> AccessError.locked,
    (write && (at(frameBase) || at(frameLimit)) && !frameAligned) -> AccessError.badValue,
    (write && (at(freePush) || at(remoteFrame)) && !frameLegal) -> AccessError.badValue,
    (write && at(evictPush) && !evictLegal) -> AccessError.badValue,
    (read && at(freePop) && !freePopLegal) -> AccessError.busy,
    (write && at(freePush) && !io.free.ready) -> AccessError.queueFull,
    (write && at(evictPush) && !io.evict.ready) -> AccessError.queueFull,
    (write && at(evictPop) && !evictedFailed) -> AccessError.badValue,
    (write && at(remoteStart) && remoteBusy) -> AccessError.busy,
    (write && at(remoteStart) && !owned(remoteFrameNumber)) -> AccessError.badValue))
  // The first error stays until software clears it.
  when(writing(error)) { errorCause := 0.U }.elsewhen(io.access.valid && cause =/= 0.U && errorCause === 0.U) {
    errorCause := cause
    errorOffset := io.access.bits.offset
  }
  private val values = readable.map { case (register, value) => at(register) -> value.pad(64) } ++ numbers(refusal).map(h => at(refusal, h) -> refusals(h))
  io.readData := Mux(io.access.bits.whole, Mux1H(values), 0.U)

  private val legal = io.access.valid && cause === 0.U
  assert(!(io.free.valid && !owned(io.free.bits)), "registers: a frame that is not software's to give")
  assert(!(io.evict.valid && !owned(io.evict.bits.frame)), "registers: a frame that is not software's to send")
  assert(!(start && !owned(remoteFrameNumber)), "registers: a frame that is not software's to transfer")
  assert(!(io.free.fire() && !legal), "registers: an access that is not legal gave a frame")
  assert(!(io.evict.fire() && !legal), "registers: an access that is not legal began an eviction")
  assert(!(io.freePop && (enable || io.fetchBusy || !legal)), "registers: a frame was taken back while a fetch may use it")
  assert(!(io.evicted.fire() && io.evicted.bits.failed && !write), "registers: a failed eviction was forgotten by a read")
  assert(!(io.access.valid && read && cause =/= 0.U && io.readData =/= 0.U), "registers: an access that is not legal had a result")
}
