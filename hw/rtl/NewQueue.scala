// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** NewQ: pages that were fetched, oldest first. Address and identifier are one entry and leave together.
  *
  * Invariant: an entry is only offered when there is a place for it, so nothing that was fetched is lost. The fetch unit
  * looks at `enqueue.ready` before it begins, and nobody else adds entries meanwhile.
  */
class NewQueue(p: AcceleratorParameters) extends Module {
  val io = IO(new Bundle {
    val enqueue = Flipped(Decoupled(new NewPage(p)))
    val dequeue = Decoupled(new NewPage(p))
    val count = Output(UInt((log2Ceil(p.newDepth) + 1).W))
  })
  private val queue = Module(new Queue(new NewPage(p), p.newDepth))
  queue.io.enq <> io.enqueue
  io.dequeue <> queue.io.deq
  io.count := queue.io.count

  assert(!(io.enqueue.valid && !io.enqueue.ready), "NewQ: a fetched page was lost")
  assert(queue.io.count <= p.newDepth.U, "NewQ: more pages than places")
}
