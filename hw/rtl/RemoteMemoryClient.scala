// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** Moves pages between local memory and a blade, over a link of flits.
  *
  * Three users: the fetch unit, software (the baseline of the evaluation), and the EvictQ. A request occupies its user's
  * slot until it is answered, until the blade says that it failed, or until `timeout` cycles have passed. So every request ends.
  * The link must never hold back requests for ever: a link that is down takes flits and loses them.
  *
  * Requests are sent one after the other, the fetch unit's first; a whole page is sent in one packet. Answers may come in any
  * order. They are known by the tag: slot and sequence number, so that an answer that comes after its time-out is dropped,
  * and never written to a frame that has a new owner. A sequence number is used once between two resets. When the last one is
  * spent, all requests fail: that is safe, and takes years.
  *
  * Invariants:
  *  1. Every request ends, and once.
  *  2. No two requests between two resets have a tag in common.
  *  3. A frame is neither read nor written after its request has ended.
  *  4. A request in which the bus reported an error has failed.
  *
  * @param blocks of a page, and bits of the clock: fewer for proofs
  */
class RemoteMemoryClient(p: AcceleratorParameters, tags: BlockTags, blocks: Int = Block.perPage, clockBits: Int = 32) extends Module {
  private val words = blocks * Block.words
  private val slots = RemoteMemoryClient.firstEviction + p.evictDepth
  private val slotBits = log2Ceil(slots)
  val io = IO(new Bundle {
    val timeout = Input(UInt(clockBits.W))
    val fetch = Flipped(Decoupled(new PageTransfer))
    val fetched = Valid(new TransferOutcome)
    val software = Flipped(Decoupled(new PageTransfer))
    val softwareDone = Valid(new TransferOutcome)
    val eviction = Flipped(Decoupled(new Eviction))
    val evictionSlot = Input(UInt(p.slotBits.W))
    val evicted = Valid(new Bundle {
      val slot = UInt(p.slotBits.W)
      val failed = Bool()
    })
    val busError = Valid(new BusError)
    /** There is no sequence number left. */
    val spent = Output(Bool())
    val link = new Link
    val blocks = new BlockPort(tags)
  })
  override def desiredName: String = if (p.tagBits == Packet.tagBits) "RemoteMemoryClient" else s"RemoteMemoryClientTags${p.tagBits}"
  private val reader = Module(new PageReader(tags.reads, blocks))
  private val writer = Module(new PageWriter(tags.writes, blocks))
  io.blocks.read <> reader.io.read
  reader.io.readData := io.blocks.readData
  io.blocks.write <> writer.io.write
  writer.io.written := io.blocks.written

  private val now = RegInit(0.U(clockBits.W))
  now := now + 1.U
  private val sequence = RegInit(0.U((p.tagBits - slotBits).W))
  private val spent = RegInit(false.B)
  io.spent := spent
  private val busy = RegInit(VecInit(Seq.fill(slots)(false.B)))
  private val started = Mem(slots, UInt(clockBits.W))
  private val tag = Mem(slots, UInt(p.tagBits.W))
  private val frame = Mem(slots, UInt(Words.frameBits.W))
  private val writes = Reg(Vec(slots, Bool()))

  // Sending.
  private val tIdle :: tHead :: tId :: tData :: tAbandon :: tBroken :: Nil = Enum(6)
  private val tx = RegInit(tIdle)
  private val txSlot = Reg(UInt(slotBits.W))
  private val txId = Reg(UInt(Words.idBits.W))
  private val txWrite = Reg(Bool())
  private val txLeft = Reg(UInt(10.W))

  private val takeFetch = io.fetch.valid
  private val takeSoftware = !takeFetch && io.software.valid
  private val takeEviction = !takeFetch && !takeSoftware && io.eviction.valid
  // A write that has timed out may still be reading its frame: the next one waits for the reader.
  private val open = tx === tIdle && !reader.io.busy
  io.fetch.ready := open
  io.software.ready := open && !takeFetch
  io.eviction.ready := open && !takeFetch && !takeSoftware

  private val evictionTransfer = Wire(new PageTransfer)
  evictionTransfer.write := true.B
  evictionTransfer.id := io.eviction.bits.id
  evictionTransfer.frame := io.eviction.bits.frame
  private val chosen = Mux(takeFetch, io.fetch.bits, Mux(takeSoftware, io.software.bits, evictionTransfer))
  private val chosenSlot = Mux(takeFetch, 0.U, Mux(takeSoftware, 1.U,
    io.evictionSlot.pad(slotBits) + RemoteMemoryClient.firstEviction.U))(slotBits - 1, 0)
  private val take = open && (takeFetch || takeSoftware || takeEviction)
  private val send = take && !spent
  reader.io.start.valid := send && chosen.write
  reader.io.start.bits := chosen.frame
  when(take) {
    busy(chosenSlot) := true.B
    started(chosenSlot) := now
    tag(chosenSlot) := Cat(sequence, chosenSlot)
    frame(chosenSlot) := chosen.frame
    writes(chosenSlot) := chosen.write
  }
  when(send) {
    sequence := sequence + 1.U
    spent := sequence.andR
    txSlot := chosenSlot
    txId := chosen.id
    txWrite := chosen.write
    txLeft := words.U
    tx := tHead
  }
  private val headOut = tx === tHead || tx === tAbandon
  private val headKindOut = Mux(tx === tAbandon, Packet.kindAbandon, Mux(txWrite, Packet.kindWrite, Packet.kindRead))
  io.link.request.valid := headOut || tx === tId || tx === tData && reader.io.words.valid
  io.link.request.bits.head := headOut
  io.link.request.bits.data := Mux(headOut, Packet.request(headKindOut, tag(txSlot)),
    Mux(tx === tId, txId, reader.io.words.bits))
  reader.io.words.ready := tx === tData && io.link.request.ready
  when(io.link.request.fire()) {
    when(tx === tHead) { tx := tId }
    when(tx === tId) { tx := Mux(txWrite, tData, tIdle) }
    when(tx === tData) {
      txLeft := txLeft - 1.U
      when(txLeft === 1.U) { tx := tIdle }
    }
    when(tx === tAbandon) { tx := tBroken }
  }
  // The frame can't be read: the packet ends before its last word, so the blade stores nothing of it.
  when(tx === tData && reader.io.failed) { tx := tAbandon }
  private val broken = tx === tBroken && !reader.io.busy

  // Receiving.
  private val rIdle :: rData :: rDrain :: rAbort :: Nil = Enum(4)
  private val rx = RegInit(rIdle)
  private val rxSlot = Reg(UInt(slotBits.W))
  private val rxLeft = Reg(UInt(10.W))
  private def expired(slot: UInt): Bool = spent || (now - started(slot)) >= io.timeout
  /** A request that is still being sent. Whoever answers it lies, and before its end it can't be late. */
  private def sending(slot: UInt): Bool = tx =/= tIdle && txSlot === slot

  private val head = io.link.response.bits.data
  private val headSlot = Packet.tag(head)(slotBits - 1, 0)
  private val headKind = Packet.kind(head)
  private val known = io.link.response.valid && io.link.response.bits.head && headSlot < slots.U && busy(headSlot) &&
    !sending(headSlot) && tag(headSlot) === Packet.tag(head) &&
    headKind === Mux(writes(headSlot), Packet.kindWriteDone, Packet.kindReadDone)
  private val begin = rx === rIdle && known && !Packet.failed(head) && !writes(headSlot)
  private val endNow = rx === rIdle && known && (Packet.failed(head) || writes(headSlot))
  writer.io.start.valid := begin
  writer.io.start.bits := frame(headSlot)
  writer.io.abort := rx === rAbort
  writer.io.words.valid := rx === rData && io.link.response.valid && !io.link.response.bits.head
  writer.io.words.bits := io.link.response.bits.data
  io.link.response.ready := Mux(rx === rData, !io.link.response.bits.head && writer.io.words.ready, rx === rIdle)
  when(begin) {
    rx := rData
    rxSlot := headSlot
    rxLeft := words.U
  }
  when(rx === rData) {
    when(writer.io.words.fire()) {
      rxLeft := rxLeft - 1.U
      when(rxLeft === 1.U) { rx := rDrain }
    }.elsewhen(io.link.response.valid && io.link.response.bits.head || expired(rxSlot)) { rx := rAbort }
  }
  private val drained = (rx === rDrain || rx === rAbort && RegNext(rx === rAbort, false.B)) && !writer.io.busy
  when(drained) { rx := rIdle }

  // Time-outs: one slot is looked at in each cycle. A page that is arriving is the receiver's own affair.
  private val scan = RegInit(0.U(slotBits.W))
  scan := Mux(scan === (slots - 1).U, 0.U, scan + 1.U)
  private val arriving = rx =/= rIdle && rxSlot === scan || begin && headSlot === scan || sending(scan)
  private val brokenEnd = broken && !endNow && !drained
  when(brokenEnd) { tx := tIdle }
  private val ended = endNow || drained || brokenEnd
  private val late = !ended && busy(scan) && !arriving && expired(scan)

  private val endSlot = Mux(endNow, headSlot, Mux(drained, rxSlot, Mux(brokenEnd, txSlot, scan)))
  private val endOk = Mux(endNow, !Packet.failed(head), drained && rx === rDrain && !writer.io.failed)
  private val endBus = !endNow && (drained && writer.io.failed || brokenEnd)
  private val end = ended || late
  when(end) { busy(endSlot) := false.B }
  io.fetched.valid := end && endSlot === 0.U
  io.fetched.bits.ok := endOk
  io.fetched.bits.bus := endBus
  io.softwareDone.valid := end && endSlot === 1.U
  io.softwareDone.bits.ok := endOk
  io.softwareDone.bits.bus := endBus
  io.evicted.valid := end && endSlot >= RemoteMemoryClient.firstEviction.U
  io.evicted.bits.slot := (endSlot - RemoteMemoryClient.firstEviction.U)(p.slotBits - 1, 0)
  io.evicted.bits.failed := !endOk

  private val writeError = io.blocks.written.valid && io.blocks.written.bits.error
  io.busError.valid := writeError || io.blocks.readData.valid && io.blocks.readData.bits.error
  io.busError.bits.access := Mux(writeError, BusAccess.frameWrite, BusAccess.frameRead)
  io.busError.bits.address := Cat(Mux(writeError, writer.io.frame, reader.io.frame), 0.U(Words.pageOffsetBits.W))

  assert(!(take && busy(chosenSlot)), "client: a slot was used twice")
  assert(!(end && !busy(endSlot)), "client: a request ended twice")
  assert(!(reader.io.busy && !busy(txSlot)), "client: a frame is read after its request has ended")
  assert(!(writer.io.busy && !busy(rxSlot)), "client: a frame is written after its request has ended")
  assert(!(send && spent), "client: a tag was used twice")
  assert(!(end && sending(endSlot) && !brokenEnd), "client: a request ended before it was sent")
  assert(!(end && endBus && endOk), "client: a transfer with an error of the bus succeeded")
}

object RemoteMemoryClient {
  /** Slot 0 belongs to the fetch unit, slot 1 to software, the others to the EvictQ. */
  val firstEviction = 2
}
