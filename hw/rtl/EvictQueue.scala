// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** EvictQ: pages on their way to remote memory, several at once.
  *
  * An eviction keeps its place from the push until its outcome is popped: waiting → under way → done or failed. Outcomes
  * are popped in the order of the pushes. So places bound what is under way, and the queue can't overflow.
  *
  * Invariants:
  *  1. `popped ≤ issued ≤ pushed ≤ popped + depth`, as positions that only grow.
  *  2. No frame and no identifier stands in two unfinished evictions.
  *  3. A completion names a place that is under way.
  */
class EvictQueue(p: AcceleratorParameters) extends Module {
  val io = IO(new Bundle {
    val push = Flipped(Decoupled(new Eviction))
    /** To the client; `slot` comes back with the outcome. */
    val issue = Decoupled(new Eviction)
    val issueSlot = Output(UInt(p.slotBits.W))
    val complete = Flipped(Valid(new Bundle {
      val slot = UInt(p.slotBits.W)
      val failed = Bool()
    }))
    val pop = Decoupled(new Bundle {
      val id = UInt(Words.idBits.W)
      val failed = Bool()
    })
    /** Is this page still on its way, or did its eviction fail without the system having been told? */
    val queryId = Input(UInt(Words.idBits.W))
    val queryPending = Output(Bool())
    val queryFailed = Output(Bool())
    val count = Output(UInt((log2Ceil(p.evictDepth) + 1).W))
    /** Evictions without an outcome. */
    val unfinished = Output(UInt((log2Ceil(p.evictDepth) + 1).W))
  })
  private val depth = p.evictDepth
  private val positionBits = log2Ceil(depth) + 1

  private val sEmpty :: sWaiting :: sUnderWay :: sDone :: sFailed :: Nil = Enum(5)
  private val state = RegInit(VecInit(Seq.fill(depth)(sEmpty)))
  private val entry = Reg(Vec(depth, new Eviction))
  private val pushed = RegInit(0.U(positionBits.W))
  private val issued = RegInit(0.U(positionBits.W))
  private val popped = RegInit(0.U(positionBits.W))

  private def slot(position: UInt): UInt = if (depth == 1) 0.U(1.W) else position(positionBits - 2, 0)
  private def ahead(a: UInt, b: UInt): UInt = (a - b)(positionBits - 1, 0)

  io.push.ready := ahead(pushed, popped) =/= depth.U
  when(io.push.fire()) {
    state(slot(pushed)) := sWaiting
    entry(slot(pushed)) := io.push.bits
    pushed := pushed + 1.U
  }

  io.issue.valid := issued =/= pushed
  io.issue.bits := entry(slot(issued))
  io.issueSlot := slot(issued)
  when(io.issue.fire()) {
    state(slot(issued)) := sUnderWay
    issued := issued + 1.U
  }

  when(io.complete.valid) {
    state(io.complete.bits.slot) := Mux(io.complete.bits.failed, sFailed, sDone)
  }

  private val oldest = state(slot(popped))
  io.pop.valid := popped =/= pushed && (oldest === sDone || oldest === sFailed)
  io.pop.bits.id := entry(slot(popped)).id
  io.pop.bits.failed := oldest === sFailed
  when(io.pop.fire()) {
    state(slot(popped)) := sEmpty
    popped := popped + 1.U
  }

  private def unfinished(s: UInt): Bool = s === sWaiting || s === sUnderWay
  private val matches = (0 until depth).map(i => entry(i).id === io.queryId)
  io.queryPending := (0 until depth).map(i => matches(i) && unfinished(state(i))).reduce(_ || _)
  io.queryFailed := (0 until depth).map(i => matches(i) && state(i) === sFailed).reduce(_ || _)
  io.count := ahead(pushed, popped)
  io.unfinished := PopCount(state.map(unfinished))

  Cover.states(oldest, "EvictQ", Seq(sEmpty -> "empty", sWaiting -> "waiting", sUnderWay -> "under way", sDone -> "done", sFailed -> "failed"))
  Cover(ahead(pushed, popped) === depth.U && io.unfinished === depth.U, "EvictQ: all places under way")
  assert(ahead(pushed, popped) <= depth.U, "EvictQ: more evictions than places")
  assert(ahead(issued, popped) <= ahead(pushed, popped), "EvictQ: issued what was not pushed")
  assert(!(io.complete.valid && state(io.complete.bits.slot) =/= sUnderWay), "EvictQ: an outcome for nothing")
  private val twice = (0 until depth).map(i => unfinished(state(i)) &&
    (entry(i).frame === io.push.bits.frame || entry(i).id === io.push.bits.id))
  assert(!(io.push.fire() && twice.reduce(_ || _)), "EvictQ: a frame or page is evicted twice at once")
}
