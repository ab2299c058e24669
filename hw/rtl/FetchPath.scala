// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** The fetch unit between its two queues, without anything else: what is proved of it. Here the queues keep promises that the fetch unit
  * alone would have to assume: a frame does not go away, and a place in the NewQ stays one.
  *
  * Invariants:
  *  1. A frame leaves the FreeQ in the cycle in which its page is noted on the NewQ, and it is the frame that the page was fetched into.
  *  2. Only who asked is answered, and once.
  *  3. No transfer begins for a page whose eviction is under way.
  */
class FetchPath(p: AcceleratorParameters) extends Module {
  val io = IO(new Bundle {
    val give = Flipped(Decoupled(UInt(Words.frameBits.W)))
    val noted = Decoupled(new NewPage(p))
    val enabled = Input(Bool())
    val walks = Vec(p.ports, Flipped(Decoupled(new WalkRequest)))
    val answers = Vec(p.ports, Valid(new WalkAnswer))
    val transfer = Decoupled(new PageTransfer)
    val transferred = Flipped(Valid(new TransferOutcome))
    val memory = new WordPort
    val evictionPending = Input(Bool())
    val evictionFailed = Input(Bool())
    /** The reason, when a request is refused. */
    val refused = Valid(UInt(Refusal.width.W))
    val busy = Output(Bool())
    val waiting = Output(Vec(p.ports, Bool()))
    /** The page that is noted in this cycle. */
    val noteMade = Valid(UInt(Words.idBits.W))
  })
  private val fetch = Module(new FetchUnit(p))
  private val free = Module(new FrameQueue(p.freeDepth))
  private val fresh = Module(new NewQueue(p))
  free.io.enqueue <> io.give
  fetch.io.free <> free.io.dequeue
  fresh.io.enqueue <> fetch.io.fresh
  io.noted <> fresh.io.dequeue
  fetch.io.enabled := io.enabled
  fetch.io.walks <> io.walks
  io.answers := fetch.io.answers
  io.transfer <> fetch.io.transfer
  fetch.io.transferred := io.transferred
  io.memory <> fetch.io.memory
  fetch.io.evictionPending := io.evictionPending
  fetch.io.evictionFailed := io.evictionFailed

  io.refused.valid := fetch.io.refusal.valid
  io.refused.bits := fetch.io.refusal.bits.reason
  io.busy := fetch.io.busy
  io.noteMade.valid := fresh.io.enqueue.fire()
  io.noteMade.bits := fresh.io.enqueue.bits.id

  private val leaves = free.io.dequeue.fire()
  private val destination = Reg(UInt(Words.frameBits.W))
  when(io.transfer.fire()) { destination := io.transfer.bits.frame }
  assert(leaves === fresh.io.enqueue.fire(), "fetch path: a frame left without a note, or a note was made without a frame")
  assert(!(leaves && free.io.dequeue.bits =/= destination), "fetch path: another frame is mapped than was filled")

  private val waiting = RegInit(VecInit(Seq.fill(p.ports)(false.B)))
  io.waiting := waiting
  for (i <- 0 until p.ports) {
    when(io.walks(i).fire()) { waiting(i) := true.B }.elsewhen(io.answers(i).valid) { waiting(i) := false.B }
    assert(!(io.walks(i).fire() && waiting(i)), "fetch path: a port that waits asked again")
    assert(!(io.answers(i).valid && !waiting(i)), "fetch path: an answer for nobody")
  }

  private val begins = io.transfer.valid && !RegNext(io.transfer.valid, false.B)
  assert(!(begins && RegNext(io.evictionPending, false.B)), "fetch path: a page was read that is on its way out")
}
