// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** FreeQ: frames that the operating system gave to the accelerator, in the order in which they will be used.
  *
  * A frame leaves only when a page lies in it (`dequeue.ready`); until then the fetch unit reads it at the head. So a
  * fetch that fails needs no way back for its frame.
  *
  * Invariants:
  *  1. A frame is in the queue at most once.
  *  2. Nothing is accepted into a full queue: `enqueue.ready` tells.
  */
class FrameQueue(depth: Int) extends Module {
  val io = IO(new Bundle {
    val enqueue = Flipped(Decoupled(UInt(Words.frameBits.W)))
    val dequeue = Decoupled(UInt(Words.frameBits.W))
    val count = Output(UInt((log2Ceil(depth) + 1).W))
  })
  private val indexBits = log2Ceil(depth) max 1
  private val frames = Reg(Vec(depth, UInt(Words.frameBits.W)))
  private val head = RegInit(0.U(indexBits.W))
  private val count = RegInit(0.U((log2Ceil(depth) + 1).W))

  private def at(offset: UInt): UInt = if (depth == 1) 0.U else (head + offset)(indexBits - 1, 0)

  io.enqueue.ready := count =/= depth.U
  io.dequeue.valid := count =/= 0.U
  io.dequeue.bits := frames(head)
  io.count := count

  when(io.enqueue.fire()) { frames(at(count)) := io.enqueue.bits }
  when(io.dequeue.fire()) { head := at(1.U) }
  count := count + io.enqueue.fire() - io.dequeue.fire()

  assert(count <= depth.U, "FreeQ: more frames than places")
  // Each place is looked at where it is. One after the other from the head, each would be a choice among all of them: depth × depth.
  private def taken(place: Int): Bool = if (depth == 1) count =/= 0.U else (place.U(indexBits.W) - head)(indexBits - 1, 0) < count
  private val held = (0 until depth).map(i => taken(i) && frames(i) === io.enqueue.bits)
  assert(!(io.enqueue.fire() && held.reduce(_ || _)), "FreeQ: a frame was given twice")
}
