// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** Blocks of 64 bytes that may be under way at once, in each direction. A block that is read needs a buffer, because its words can't be
  * held back; a block that is written needs none once its words are sent. So there may be many more writes, and there must be: a page arrives
  * with a word in each cycle, and a block takes a hundred cycles to get into memory.
  */
case class BlockTags(reads: Int = 4, writes: Int = 16) {
  require(isPow2(reads) && isPow2(writes), "numbers of tags are powers of two")
  val readBits: Int = log2Ceil(reads) max 1
  val writeBits: Int = log2Ceil(writes) max 1
}

/** Access to local memory by blocks of 64 bytes, several at once, told apart by tags. */
class BlockPort(tags: BlockTags) extends Bundle {
  val read = Decoupled(new Bundle {
    val address = UInt(Words.addressBits.W)
    val tag = UInt(tags.readBits.W)
  })
  /** Eight words for each read, in order within a tag. They can't be held back. */
  val readData = Flipped(Valid(new Bundle {
    val tag = UInt(tags.readBits.W)
    val word = UInt(Words.wordBits.W)
    /** The bus has no such word, or can't vouch for it. */
    val error = Bool()
  }))
  /** Eight words for each block, one after the other, all offered without a gap. */
  val write = Decoupled(new Bundle {
    val address = UInt(Words.addressBits.W)
    val tag = UInt(tags.writeBits.W)
    val word = UInt(Words.wordBits.W)
  })
  val written = Flipped(Valid(new Bundle {
    val tag = UInt(tags.writeBits.W)
    /** The block was not written. */
    val error = Bool()
  }))
  override def cloneType: this.type = new BlockPort(tags).asInstanceOf[this.type]
}

object Block {
  val words = 8
  val perPage: Int = Words.pageWords / words
  def address(frame: UInt, block: UInt): UInt = Cat(frame, block(5, 0), 0.U(6.W))
}

/** Reads a frame as a stream of words, in order. Every block that is under way has its buffer: `tags` blocks ahead.
  *
  * After an error of the bus no further word is offered, so a page with an error in it is never sent whole. The reader stays busy
  * until all that it has asked for has come.
  *
  * @param blocks of a page; fewer for proofs
  */
class PageReader(tags: Int, blocks: Int = Block.perPage) extends Module {
  val io = IO(new Bundle {
    val start = Flipped(Valid(UInt(Words.frameBits.W)))
    val read = Decoupled(new Bundle {
      val address = UInt(Words.addressBits.W)
      val tag = UInt((log2Ceil(tags) max 1).W)
    })
    val readData = Flipped(Valid(new Bundle {
      val tag = UInt((log2Ceil(tags) max 1).W)
      val word = UInt(Words.wordBits.W)
      val error = Bool()
    }))
    val words = Decoupled(UInt(Words.wordBits.W))
    val busy = Output(Bool())
    val failed = Output(Bool())
    val frame = Output(UInt(Words.frameBits.W))
  })
  private val frame = Reg(UInt(Words.frameBits.W))
  private val failed = RegInit(false.B)
  private val asked = RegInit(blocks.U(7.W))
  private val drained = RegInit(blocks.U(7.W))
  private val word = RegInit(0.U(3.W))
  private val buffers = Reg(Vec(tags, Vec(Block.words, UInt(Words.wordBits.W))))
  private val filled = RegInit(VecInit(Seq.fill(tags)(0.U(4.W))))
  /** Blocks of which some words are still to come. */
  private val open = RegInit(0.U((log2Ceil(tags) + 1).W))
  private def tagOf(block: UInt): UInt = block(log2Ceil(tags) - 1, 0)

  io.busy := drained =/= blocks.U
  io.failed := failed
  io.frame := frame
  when(io.start.valid) {
    frame := io.start.bits
    asked := 0.U
    drained := 0.U
    word := 0.U
    failed := false.B
  }
  io.read.valid := !failed && asked =/= blocks.U && (asked - drained) < tags.U
  io.read.bits.address := Block.address(frame, asked)
  io.read.bits.tag := tagOf(asked)
  when(io.read.fire()) { asked := asked + 1.U }

  when(io.readData.valid) {
    val tag = io.readData.bits.tag
    buffers(tag)(filled(tag)(2, 0)) := io.readData.bits.word
    filled(tag) := filled(tag) + 1.U
    when(io.readData.bits.error) { failed := true.B }
  }
  private val whole = io.readData.valid && filled(io.readData.bits.tag) === (Block.words - 1).U
  open := open + io.read.fire() - whole
  when(io.busy && failed && open === 0.U) {
    asked := blocks.U
    drained := blocks.U
    filled.foreach(_ := 0.U)
  }
  private val current = tagOf(drained)
  io.words.valid := io.busy && !failed && filled(current) > word
  io.words.bits := buffers(current)(word)
  when(io.words.fire()) {
    word := word + 1.U
    when(word === (Block.words - 1).U) {
      filled(current) := 0.U
      drained := drained + 1.U
    }
  }
  assert(!(io.start.valid && io.busy), "page reader: started twice")
  assert(!(io.readData.valid && filled(io.readData.bits.tag) === Block.words.U), "page reader: a block has eight words")
}

/** Writes a stream of words to a frame. Ends when all is written, or after `abort` when what had begun is written.
  *
  * @param blocks of a page; fewer for proofs
  */
class PageWriter(tags: Int, blocks: Int = Block.perPage) extends Module {
  val io = IO(new Bundle {
    val start = Flipped(Valid(UInt(Words.frameBits.W)))
    val abort = Input(Bool())
    val words = Flipped(Decoupled(UInt(Words.wordBits.W)))
    val write = Decoupled(new Bundle {
      val address = UInt(Words.addressBits.W)
      val tag = UInt((log2Ceil(tags) max 1).W)
      val word = UInt(Words.wordBits.W)
    })
    val written = Flipped(Valid(new Bundle {
      val tag = UInt((log2Ceil(tags) max 1).W)
      val error = Bool()
    }))
    val busy = Output(Bool())
    /** Some block of this frame was not written. */
    val failed = Output(Bool())
    val frame = Output(UInt(Words.frameBits.W))
  })
  private val frame = Reg(UInt(Words.frameBits.W))
  private val failed = RegInit(false.B)
  /** Blocks received, sent and written: written ≤ sent ≤ received ≤ sent + filling, sent ≤ written + tags. */
  private val received = RegInit(0.U(7.W))
  private val sent = RegInit(0.U(7.W))
  private val written = RegInit(0.U(7.W))
  private val last = RegInit(0.U(7.W))
  private val receivedWord = RegInit(0.U(3.W))
  private val sentWord = RegInit(0.U(3.W))
  /** One block is sent while the next is received. */
  private val filling = 2
  private val buffers = Reg(Vec(filling, Vec(Block.words, UInt(Words.wordBits.W))))
  /** Blocks may be written out of order: a tag is reused when its own block is. */
  private val inUse = RegInit(VecInit(Seq.fill(tags)(false.B)))
  private def tagOf(block: UInt): UInt = block(log2Ceil(tags) - 1, 0)

  io.busy := written =/= last
  io.failed := failed
  io.frame := frame
  when(io.start.valid) {
    frame := io.start.bits
    received := 0.U
    sent := 0.U
    written := 0.U
    last := blocks.U
    receivedWord := 0.U
    sentWord := 0.U
    failed := false.B
  }
  when(io.abort) { last := received }

  io.words.ready := received =/= last && !io.abort && (received - sent) < filling.U
  when(io.words.fire()) {
    buffers(received(0))(receivedWord) := io.words.bits
    receivedWord := receivedWord + 1.U
    when(receivedWord === (Block.words - 1).U) { received := received + 1.U }
  }
  io.write.valid := sent =/= received && (sentWord =/= 0.U || !inUse(tagOf(sent)))
  io.write.bits.address := Block.address(frame, sent)
  io.write.bits.tag := tagOf(sent)
  io.write.bits.word := buffers(sent(0))(sentWord)
  when(io.write.fire()) {
    sentWord := sentWord + 1.U
    inUse(tagOf(sent)) := true.B
    when(sentWord === (Block.words - 1).U) { sent := sent + 1.U }
  }
  when(io.written.valid) {
    written := written + 1.U
    inUse(io.written.bits.tag) := false.B
    when(io.written.bits.error) { failed := true.B }
  }
  assert(!(io.start.valid && io.busy), "page writer: started twice")
  assert(!(io.written.valid && !inUse(io.written.bits.tag)), "page writer: written what was not sent")
  assert(written <= sent && sent <= received, "page writer: order of blocks")
}
