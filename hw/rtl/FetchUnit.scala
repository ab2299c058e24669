// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** Brings in the page behind a remote entry, one at a time.
  *
  *   Idle ──> Decide ──> Read ──> Transfer ──> Update ──> Finish ──> Idle
  *              ├ no frame, NewQ full, disabled, eviction failed: refuse
  *              └ its eviction is under way: stay            Transfer failed, error of the bus: refuse; entry changed meanwhile: walk again
  *
  * While the page travels, the entry is read again: another hart, whose walk began before an earlier fetch ended, may ask for
  * a page that is there already. It walks again. Those who wait for the same entry when a fetch ends are answered with it.
  *
  * Invariants:
  *  1. The frame at the head of the FreeQ leaves it if and only if the entry that maps it is written, and then a NewQ entry is made.
  *  2. No request is left without an answer, provided that the client answers (its time-out guarantees that) and memory does.
  *  3. A page whose eviction is under way is not read from the blade before the eviction has ended.
  *  4. An entry is written only when all of its page is in the frame, and the entry was read again without an error.
  */
class FetchUnit(p: AcceleratorParameters) extends Module {
  val io = IO(new Bundle {
    val enabled = Input(Bool())
    val walks = Vec(p.ports, Flipped(Decoupled(new WalkRequest)))
    val answers = Vec(p.ports, Valid(new WalkAnswer))
    val free = Flipped(Decoupled(UInt(Words.frameBits.W)))
    val fresh = Decoupled(new NewPage(p))
    val transfer = Decoupled(new PageTransfer)
    val transferred = Flipped(Valid(new TransferOutcome))
    val memory = new WordPort
    val evictionId = Output(UInt(Words.idBits.W))
    val evictionPending = Input(Bool())
    val evictionFailed = Input(Bool())
    val refusal = Valid(new Bundle {
      val reason = UInt(Refusal.width.W)
      val hart = UInt(8.W)
      val vpn = UInt(Words.vpnBits.W)
      val id = UInt(Words.idBits.W)
    })
    val busError = Valid(new BusError)
    val busy = Output(Bool())
    /** For the counters: a page has been fetched, so many cycles after the request was taken. */
    val finished = Valid(UInt(32.W))
    val repeated = Output(Bool())
    /** The page is travelling: cycles spent here belong to client and blade. */
    val travelling = Output(Bool())
  })
  private val sIdle :: sDecide :: sRead :: sTransfer :: sUpdate :: sWritten :: sFinish :: Nil = Enum(7)
  private val state = RegInit(sIdle)
  private val port = Reg(UInt(p.portBits.W))
  private val request = Reg(new WalkRequest)
  private val cycles = Reg(UInt(32.W))

  private val id = Words.pageId(request.pte)
  private val arbiter = Module(new RRArbiter(new WalkRequest, p.ports))
  arbiter.io.in.zip(io.walks).foreach { case (a, w) => a.valid := w.valid; a.bits := w.bits }
  arbiter.io.out.ready := state === sIdle

  // Those who wait for the entry that has just been written get their answer with the one who asked first.
  private val joins = io.walks.map(w => state === sFinish && w.valid && w.bits.pteAddress === request.pteAddress)
  private val joined = joins.map(j => RegNext(j, false.B))
  io.walks.zip(arbiter.io.in).zip(joins).foreach { case ((w, a), join) => w.ready := a.ready || join }

  cycles := cycles + 1.U
  when(arbiter.io.out.fire()) {
    request := arbiter.io.out.bits
    port := arbiter.io.chosen
    cycles := 1.U
    state := sDecide
  }

  // The entry is read again while the page travels.
  private val sUnread :: sReading :: sSame :: sChanged :: sBroken :: Nil = Enum(5)
  private val check = RegInit(sUnread)
  private val outcome = Reg(new TransferOutcome)
  private val arrived = RegInit(false.B)
  // The page was sent away after it was decided to read it. What comes may be the blade's older copy,
  // although the entry is the same again.
  private val leaving = RegInit(false.B)

  private val reason = MuxCase(0.U(Refusal.width.W), Seq(
    !io.enabled -> Refusal.disabled,
    io.evictionFailed -> Refusal.evictionFailed,
    !io.fresh.ready -> Refusal.newQueueFull,
    !io.free.valid -> Refusal.noFrame))
  private val decideRefusal = state === sDecide && reason =/= 0.U && !io.evictionPending
  when(state === sDecide && !io.evictionPending) {
    check := sUnread
    arrived := false.B
    leaving := false.B
    state := Mux(reason =/= 0.U, sIdle, sRead)
  }
  when(state === sRead && io.transfer.ready) { state := sTransfer }

  private val travelling = state === sRead || state === sTransfer
  private val checking = travelling && check === sUnread
  when(checking && io.memory.request.ready) { check := sReading }
  when(check === sReading && io.memory.response.valid) {
    check := Mux(io.memory.response.bits.error, sBroken, Mux(io.memory.response.bits.data === request.pte, sSame, sChanged))
  }
  when(state === sTransfer && io.transferred.valid) {
    arrived := true.B
    outcome := io.transferred.bits
  }
  private val settled = state === sTransfer && arrived && (check === sSame || check === sChanged || check === sBroken)
  when(travelling && (io.evictionPending || io.evictionFailed)) { leaving := true.B }
  private val left = leaving || io.evictionPending || io.evictionFailed
  private val again = settled && (check === sChanged || check === sSame && left)
  private val failed = settled && (check === sBroken || check === sSame && !left && !outcome.ok)
  when(settled) { state := Mux(again || failed, sIdle, sUpdate) }

  when(state === sUpdate && io.memory.request.ready) { state := sWritten }
  private val unwritten = state === sWritten && io.memory.response.valid && io.memory.response.bits.error
  when(state === sWritten && io.memory.response.valid) { state := Mux(unwritten, sIdle, sFinish) }
  when(state === sFinish) { state := sIdle }

  io.transfer.valid := state === sRead
  io.transfer.bits.write := false.B
  io.transfer.bits.id := id
  io.transfer.bits.frame := io.free.bits
  io.memory.request.valid := checking || state === sUpdate
  io.memory.request.bits.write := state === sUpdate
  io.memory.request.bits.address := request.pteAddress
  io.memory.request.bits.data := Words.localEntry(request.pte, io.free.bits)

  private val finish = state === sFinish
  private val hart = (port >> 1).asUInt
  io.free.ready := finish
  io.fresh.valid := finish
  io.fresh.bits.hart := hart
  io.fresh.bits.vpn := request.vpn
  io.fresh.bits.id := id
  io.fresh.bits.root := request.root

  private val refused = decideRefusal || failed || unwritten
  for (i <- 0 until p.ports) {
    val mine = port === i.U
    io.answers(i).valid := mine && (refused || again || finish) || joined(i)
    io.answers(i).bits.refused := mine && refused
  }
  io.refusal.valid := refused
  io.refusal.bits.reason := Mux(unwritten || failed && (check === sBroken || outcome.bus), Refusal.busError,
    Mux(failed, Refusal.fetchFailed, reason))
  io.refusal.bits.hart := hart
  io.refusal.bits.vpn := request.vpn
  io.refusal.bits.id := id
  io.busError.valid := io.memory.response.valid && io.memory.response.bits.error
  io.busError.bits.access := Mux(state === sWritten, BusAccess.entryWrite, BusAccess.entryRead)
  io.busError.bits.address := request.pteAddress
  io.evictionId := id
  io.busy := state =/= sIdle
  io.finished.valid := finish
  io.finished.bits := cycles
  io.repeated := again
  io.travelling := travelling

  Cover.states(state, "fetch unit", Seq(sIdle -> "idle", sDecide -> "decide", sRead -> "read", sTransfer -> "transfer",
    sUpdate -> "update", sWritten -> "written", sFinish -> "finish"))
  Cover.states(check, "second look", Seq(sUnread -> "unread", sReading -> "reading", sSame -> "same", sChanged -> "changed", sBroken -> "broken"))

  assert(!(finish && !io.free.valid), "fetch: the frame went away")
  assert(!(finish && !io.fresh.ready), "fetch: no place in the NewQ")
  assert(!(io.transferred.valid && state =/= sTransfer), "fetch: a page that was not asked for")
  assert(!(arbiter.io.out.fire() && !Words.isRemote(arbiter.io.out.bits.pte)), "fetch: the entry is not remote")
}
