// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** Offsets of the registers, in bytes. Every register is eight bytes; doc/registers.md says what they do. */
object RegisterMap {
  val identity = 0x00
  val control = 0x08
  val status = 0x10
  val interruptEnable = 0x18
  val interruptPending = 0x20
  val newThreshold = 0x28
  val timeout = 0x30
  val error = 0x38
  val freePush = 0x40
  val newPop = 0x48
  val evictPush = 0x50
  val evictPop = 0x58
  val remoteFrame = 0x60
  val remoteStart = 0x68
  val remoteStatus = 0x70
  val freePop = 0x78
  val counters = 0x80
  val frameBase = 0xc0
  val frameLimit = 0xc8
  val frameLock = 0xd0
  val busError = 0xd8
  val newContext = 0xe0
  val refusals = 0x100
}

/** Why a register access was not done. */
object AccessError {
  val notEightBytes = 1
  val noSuchRegister = 2
  val readOnly = 3
  val writeOnly = 4
  val queueFull = 5
  val busy = 6
  val badValue = 7
  val locked = 8
}

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
  private def at(offset: Int): Bool = io.access.bits.offset === offset.U
  private def writing(offset: Int): Bool = write && io.access.bits.whole && at(offset)
  private def reading(offset: Int): Bool = read && io.access.bits.whole && at(offset)

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

  when(writing(control)) { enable := data(0) }
  when(writing(interruptEnable)) { interruptEnables := data }
  when(writing(newThreshold)) { threshold := data }
  when(writing(timeout)) { timeoutCycles := data }
  io.enabled := enable
  io.timeout := timeoutCycles

  // Frames come as addresses: the offset within the page must be zero, and the frame number must fit.
  private val frameAligned = data(11, 0) === 0.U && (data >> (12 + Words.frameBits)).asUInt === 0.U
  private val addressFrame = data(12 + Words.frameBits - 1, 12)
  private def owned(frame: UInt): Bool = frame >= frameBaseNumber && frame < frameLimitNumber
  private val frameLegal = frameAligned && owned(addressFrame)
  private val evictLegal = owned(data(Words.frameBits - 1, 0))
  when(writing(frameBase) && frameAligned && !locked) { frameBaseNumber := addressFrame }
  when(writing(frameLimit) && frameAligned && !locked) { frameLimitNumber := addressFrame }
  when(writing(frameLock) && data(0)) { locked := true.B }
  io.free.valid := writing(freePush) && frameLegal
  io.free.bits := data(12 + Words.frameBits - 1, 12)
  // A frame is taken back only where no fetch can be using it.
  private val freePopLegal = !enable && !io.fetchBusy
  io.freePop := reading(freePop) && freePopLegal && io.freeHead.valid
  io.fresh.ready := reading(newPop)
  io.evict.valid := writing(evictPush) && evictLegal
  io.evict.bits.frame := data(Words.frameBits - 1, 0)
  io.evict.bits.id := data(63, Words.frameBits)
  // A failed eviction stays at the head, and keeps its page from being fetched, until software has seen to it and says so.
  private val evictedFailed = io.evicted.valid && io.evicted.bits.failed
  io.evicted.ready := Mux(evictedFailed, writing(evictPop), reading(evictPop))

  when(writing(remoteFrame) && frameLegal) { remoteFrameNumber := data(12 + Words.frameBits - 1, 12) }
  // The range may have been another one when the frame was named.
  private val start = writing(remoteStart) && !remoteBusy && owned(remoteFrameNumber)
  when(start) {
    remoteWaiting := true.B
    remoteBusy := true.B
    remoteDone := false.B
    remoteFailed := false.B
    remoteBus := false.B
    remoteTransfer.write := data(63)
    remoteTransfer.id := data(Words.idBits - 1, 0)
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
      busErrorWord := Cat(1.U(1.W), error.bits.access, 0.U((60 - Words.addressBits).W), error.bits.address)
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
  private val counterValues = Seq(
    counter(io.finished.valid),
    counter(io.finished.valid, io.finished.bits),
    counter(io.travelling),
    longest,
    counter(io.refusal.valid),
    counter(io.repeated),
    counter(io.evicted.fire() && !io.evicted.bits.failed),
    counter(io.dropped))
  private val counterOffsets = counterValues.indices.map(counters + 8 * _)
  private val refusalOffsets = (0 until p.harts).map(RegisterMap.refusals + 8 * _)

  when(io.refusal.valid) {
    for (h <- 0 until p.harts) when(io.refusal.bits.hart === h.U) {
      refusals(h) := Cat(1.U(1.W), io.refusal.bits.reason, 0.U((64 - 4 - Words.vpnBits - Words.idBits).W),
        io.refusal.bits.vpn, io.refusal.bits.id)
    }
  }
  for ((offset, h) <- refusalOffsets.zipWithIndex) {
    when(writing(offset) && !(io.refusal.valid && io.refusal.bits.hart === h.U)) { refusals(h) := 0.U }
  }

  private val pending = Cat(
    busErrorWord(63),
    errorCause =/= 0.U,
    remoteDone,
    io.evicted.valid,
    io.freeCount === 0.U,
    io.freshCount >= threshold && io.freshCount =/= 0.U)
  io.interrupt := (pending & interruptEnables).orR

  private val statusWord = Cat(0.U(8.W), io.evictUnfinished, io.evictCount, io.freshCount, io.freeCount,
    0.U(4.W), io.tagsSpent, remoteBusy, io.evictUnfinished =/= 0.U, io.fetchBusy)
  private val newWord = Mux(io.fresh.valid,
    Cat(1.U(1.W), io.fresh.bits.hart, io.fresh.bits.vpn, io.fresh.bits.id), 0.U(64.W))
  private val evictedWord = Mux(io.evicted.valid,
    Cat(1.U(1.W), io.evicted.bits.failed, 0.U((62 - Words.idBits).W), io.evicted.bits.id), 0.U(64.W))
  private val identityWord = Cat("h504641".U(24.W), 2.U(8.W), p.harts.U(8.W), log2Ceil(p.evictDepth).U(8.W),
    log2Ceil(p.newDepth).U(8.W), log2Ceil(p.freeDepth).U(8.W))

  private val readable: Seq[(Int, UInt)] = Seq(
    identity -> identityWord,
    control -> Cat(0.U(63.W), enable),
    status -> statusWord,
    interruptEnable -> interruptEnables,
    interruptPending -> pending,
    newThreshold -> threshold,
    timeout -> timeoutCycles,
    error -> Cat(errorCause =/= 0.U, 0.U(43.W), errorCause, 0.U(4.W), errorOffset),
    newPop -> newWord,
    evictPop -> evictedWord,
    remoteFrame -> Cat(remoteFrameNumber, 0.U(12.W)),
    remoteStatus -> Cat(remoteBus, remoteFailed, remoteDone, remoteBusy),
    freePop -> Mux(io.freePop, Cat(1.U(1.W), 0.U((63 - 12 - Words.frameBits).W), io.freeHead.bits, 0.U(12.W)), 0.U(64.W)),
    frameBase -> Cat(frameBaseNumber, 0.U(12.W)),
    frameLimit -> Cat(frameLimitNumber, 0.U(12.W)),
    frameLock -> Cat(0.U(63.W), locked),
    busError -> busErrorWord,
    newContext -> Mux(io.fresh.valid, Cat(1.U(1.W), 0.U((63 - Words.frameBits).W), io.fresh.bits.root), 0.U(64.W))) ++
    counterOffsets.zip(counterValues) ++ refusalOffsets.zip(refusals)
  private val writable: Seq[Int] = Seq(control, interruptEnable, newThreshold, timeout, error, freePush, evictPush, evictPop,
    remoteFrame, remoteStart, frameBase, frameLimit, frameLock, busError) ++ refusalOffsets

  private def isOneOf(offsets: Seq[Int]): Bool = offsets.map(at).reduce(_ || _)
  private val canRead = isOneOf(readable.map(_._1))
  private val canWrite = isOneOf(writable)
  private val cause = MuxCase(0.U(4.W), Seq(
    !io.access.bits.whole -> AccessError.notEightBytes.U,
    (!canRead && !canWrite) -> AccessError.noSuchRegister.U,
    (write && !canWrite) -> AccessError.readOnly.U,
    (read && !canRead) -> AccessError.writeOnly.U,
    (write && (at(frameBase) || at(frameLimit)) && locked) -> AccessError.locked.U,
    (write && (at(frameBase) || at(frameLimit)) && !frameAligned) -> AccessError.badValue.U,
    (write && (at(freePush) || at(remoteFrame)) && !frameLegal) -> AccessError.badValue.U,
    (write && at(evictPush) && !evictLegal) -> AccessError.badValue.U,
    (read && at(freePop) && !freePopLegal) -> AccessError.busy.U,
    (write && at(freePush) && !io.free.ready) -> AccessError.queueFull.U,
    (write && at(evictPush) && !io.evict.ready) -> AccessError.queueFull.U,
    (write && at(evictPop) && !evictedFailed) -> AccessError.badValue.U,
    (write && at(remoteStart) && remoteBusy) -> AccessError.busy.U,
    (write && at(remoteStart) && !owned(remoteFrameNumber)) -> AccessError.badValue.U))
  // The first error stays until software clears it.
  when(writing(error)) { errorCause := 0.U }.elsewhen(io.access.valid && cause =/= 0.U && errorCause === 0.U) {
    errorCause := cause
    errorOffset := io.access.bits.offset
  }
  io.readData := Mux(io.access.bits.whole, Mux1H(readable.map { case (offset, value) => at(offset) -> value.pad(64) }), 0.U)

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
