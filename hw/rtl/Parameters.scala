// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3.util.{isPow2, log2Ceil}

/** What may differ between two builds of the accelerator.
  *
  * @param freeDepth  frames that may wait in the FreeQ
  * @param newDepth   fetched pages that may wait in the NewQ
  * @param evictDepth evictions that may be under way or not yet reported
  * @param tagBits    bits of a request's tag: a slot, and a sequence number that is never used again
  * @param harts      harts whose walkers ask for pages; each has a data and an instruction port
  */
case class AcceleratorParameters(
    freeDepth: Int = 64,
    newDepth: Int = 64,
    evictDepth: Int = 8,
    harts: Int = 1,
    tagBits: Int = Packet.tagBits,
    address: BigInt = RegisterMap.base) {
  require(isPow2(freeDepth) && isPow2(newDepth) && isPow2(evictDepth), "depths are powers of two")
  require(freeDepth <= 32768 && newDepth <= 32768 && evictDepth <= 64, "the counts must fit their register fields")
  require(tagBits <= Packet.tagBits, "a tag must fit its place in a head")
  require(harts >= 1 && harts <= 16, "one refusal register for each hart")

  /** Walker ports: port 2h is hart h's data side, port 2h + 1 its instruction side. */
  val ports: Int = 2 * harts
  val portBits: Int = log2Ceil(ports) max 1
  val slotBits: Int = log2Ceil(evictDepth) max 1
}
