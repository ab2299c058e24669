// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** What must be reachable. Only proofs have covers: there each becomes a property that must be refuted. */
object Cover {
  var enabled = false

  def apply(condition: Bool, name: String): Unit = if (enabled) assert(!condition, s"cover: $name")

  /** Each state of a machine. */
  def states(state: UInt, prefix: String, states: Seq[(UInt, String)]): Unit =
    states.foreach { case (value, name) => apply(state === value, s"$prefix: $name") }
}

/** A value that nobody knows, and that stays: what holds for it holds for all. */
object Watched {
  def apply(value: UInt): Unit = {
    val before = RegNext(value)
    val begun = RegNext(true.B, false.B)
    assert(!(begun && value =/= before), "environment: what is watched changed")
  }
}

/** One entry of a queue is followed, whichever the environment chooses: it comes out as it went in, and when its turn has come. */
class Follow(depth: Int, width: Int) extends Module {
  val io = IO(new Bundle {
    val choose = Input(Bool())
    val enter = Flipped(Valid(UInt(width.W)))
    val leave = Flipped(Valid(UInt(width.W)))
    val count = Input(UInt((log2Ceil(depth) + 1).W))
  })
  private val following = RegInit(false.B)
  private val ahead = Reg(UInt((log2Ceil(depth) + 1).W))
  private val what = Reg(UInt(width.W))
  when(!following && io.choose && io.enter.valid) {
    following := true.B
    ahead := io.count - io.leave.valid
    what := io.enter.bits
  }
  private val turn = following && io.leave.valid && ahead === 0.U
  when(following && io.leave.valid) {
    ahead := ahead - 1.U
    when(ahead === 0.U) { following := false.B }
  }
  assert(!(turn && io.leave.bits =/= what), "queue: an entry left as another")
  assert(!(following && ahead >= io.count), "queue: an entry was lost")
  Cover(turn, "an entry was followed")
  Cover(following && io.count === depth.U, "an entry is in a full queue")
}

/** The FreeQ; of each frame some bits stand for all. */
class FrameQueueProof(depth: Int) extends Module {
  val io = IO(new Bundle {
    val enqueue = Flipped(Decoupled(UInt(Words.frameBits.W)))
    val dequeue = Decoupled(UInt(Words.frameBits.W))
    val choose = Input(Bool())
  })
  private val queue = Module(new FrameQueue(depth))
  queue.io.enqueue <> io.enqueue
  io.dequeue <> queue.io.dequeue
  private val follow = Module(new Follow(depth, 3))
  follow.io.choose := io.choose
  follow.io.enter.valid := io.enqueue.fire()
  follow.io.enter.bits := io.enqueue.bits
  follow.io.leave.valid := io.dequeue.fire()
  follow.io.leave.bits := io.dequeue.bits
  follow.io.count := queue.io.count
}

/** The NewQ. Whoever fills it looks for a place first: that the fetch unit does so is shown in FetchProof. */
class NewQueueProof(p: AcceleratorParameters) extends Module {
  val io = IO(new Bundle {
    val enqueue = Flipped(Decoupled(new NewPage(p)))
    val dequeue = Decoupled(new NewPage(p))
    val choose = Input(Bool())
  })
  private val queue = Module(new NewQueue(p))
  queue.io.enqueue.bits := io.enqueue.bits
  queue.io.enqueue.valid := io.enqueue.valid && queue.io.enqueue.ready
  io.enqueue.ready := queue.io.enqueue.ready
  io.dequeue <> queue.io.dequeue
  private def some(page: NewPage): UInt = Cat(page.hart(0), page.vpn(0), page.id(0), page.root(0))
  private val follow = Module(new Follow(p.newDepth, 4))
  follow.io.choose := io.choose
  follow.io.enter.valid := io.enqueue.fire()
  follow.io.enter.bits := some(io.enqueue.bits)
  follow.io.leave.valid := io.dequeue.fire()
  follow.io.leave.bits := some(io.dequeue.bits)
  follow.io.count := queue.io.count
}

/** The fetch path between a memory, of which one entry is watched, a client, and software.
  *
  * Software follows the rules of doc/design.md: it replaces an entry that is not remote at any time, and one that is remote only while
  * fetches are disabled and none is under way. Walkers may ask with what they read long ago.
  *
  * All bits of an entry, an address or a frame go the same way, or are compared with each other. So some of each stand for all, and
  * the others are zero: with all of them the proof does not end.
  *
  * @param bounded whoever is waited for takes a few cycles at the most, and then so does a fetch
  */
class FetchProof(p: AcceleratorParameters, bounded: Boolean) extends Module {
  override def desiredName: String = if (bounded) "FetchEnds" else "FetchProof"
  val io = IO(new Bundle {
    val give = Flipped(Decoupled(UInt(Words.frameBits.W)))
    val noted = Decoupled(new NewPage(p))
    val enabled = Input(Bool())
    val walks = Vec(p.ports, Flipped(Decoupled(new WalkRequest)))
    val answers = Vec(p.ports, Valid(new WalkAnswer))
    val transfer = Decoupled(new PageTransfer)
    val transferred = Flipped(Valid(new TransferOutcome))
    val evictionPending = Input(Bool())
    val evictionFailed = Input(Bool())
    /** Memory: takes a request, answers it, with an error or with this, where another address than the watched is read. */
    val accept = Input(Bool())
    val respond = Input(Bool())
    val broken = Input(Bool())
    val other = Input(UInt(Words.wordBits.W))
    /** Software writes the watched entry. */
    val watch = Input(UInt(Words.addressBits.W))
    val replace = Input(Bool())
    val replacement = Input(UInt(Words.pteBits.W))
  })
  private val path = Module(new FetchPath(p))
  // Valid, remote, a bit of the protection, one that software may use, and two of the frame or the identifier.
  private val entryMask = (0x3 | 1 << 4 | 1 << 10 | 1 << 12 | 1 << 13).U(Words.pteBits.W)
  private val addressMask = 8.U(Words.addressBits.W)
  private val watch = io.watch & addressMask
  path.io.give <> io.give
  path.io.give.bits := io.give.bits & 3.U
  io.noted <> path.io.noted
  path.io.enabled := io.enabled
  path.io.walks <> io.walks
  path.io.walks.foreach { walk =>
    walk.bits.vpn := 0.U
    walk.bits.root := 0.U
  }
  path.io.walks.zip(io.walks).foreach { case (inner, outer) =>
    inner.bits.pte := outer.bits.pte & entryMask
    inner.bits.pteAddress := outer.bits.pteAddress & addressMask
  }
  io.answers := path.io.answers
  io.transfer <> path.io.transfer
  path.io.transferred := io.transferred
  path.io.evictionPending := io.evictionPending
  path.io.evictionFailed := io.evictionFailed
  Watched(watch)

  // Memory does one access at a time, at the moment when it takes it.
  private val cell = RegInit(0.U(Words.pteBits.W))
  private val pending = RegInit(false.B)
  private val data = Reg(UInt(Words.wordBits.W))
  private val failed = Reg(Bool())
  private val request = path.io.memory.request
  request.ready := io.accept && !pending
  private val taken = request.fire()
  private val here = request.bits.address === watch
  private val written = taken && request.bits.write && here && !io.broken
  when(taken) {
    pending := true.B
    data := Mux(here, cell, io.other & entryMask)
    failed := io.broken
  }
  private val response = pending && io.respond
  when(response) { pending := false.B }
  path.io.memory.response.valid := response
  path.io.memory.response.bits.data := data
  path.io.memory.response.bits.error := failed
  private val mayReplace = !Words.isRemote(cell) || !io.enabled && !path.io.busy
  when(written) { cell := request.bits.data }.elsewhen(io.replace && mayReplace && !taken) { cell := io.replacement & entryMask }

  assert(!(written && !Words.isRemote(cell)), "fetch: an entry was resolved twice")
  assert(!(written && request.bits.data =/= Words.localEntry(cell, request.bits.data >> 10)), "fetch: an entry got another protection")

  // What was fetched is what is mapped.
  private val fetchedId = Reg(UInt(Words.idBits.W))
  private val fetchedFrame = Reg(UInt(Words.frameBits.W))
  private val whole = RegInit(false.B)
  when(io.transfer.fire()) {
    fetchedId := io.transfer.bits.id
    fetchedFrame := io.transfer.bits.frame
    whole := false.B
  }.elsewhen(io.transferred.valid) { whole := io.transferred.bits.ok }.elsewhen(written) { whole := false.B }
  assert(!(written && !whole), "fetch: a page was mapped that had not come")
  assert(!(written && Words.pageId(cell) =/= fetchedId), "fetch: another page was mapped than was fetched")
  assert(!(written && request.bits.data(9 + Words.frameBits, 10) =/= fetchedFrame), "fetch: another frame was mapped than was filled")
  private val noted = path.io.noteMade
  assert(!(noted.valid && noted.bits =/= fetchedId), "fetch: another page was noted than was fetched")

  // A client that answers what it was asked, and only that.
  private val underWay = RegInit(false.B)
  when(io.transfer.fire()) { underWay := true.B }.elsewhen(io.transferred.valid) { underWay := false.B }
  assert(!(io.transferred.valid && !underWay), "environment: the client answers what it was not asked")

  private def atMost(waits: Bool, cycles: Int, name: String): Unit = {
    val count = RegInit(0.U(4.W))
    count := Mux(waits, count + 1.U, 0.U)
    if (bounded) assert(!(waits && count === cycles.U), s"environment: $name")
  }
  private val few = 2
  atMost(request.valid && !request.ready, few, "memory takes a request")
  atMost(pending && !response, few, "memory answers")
  atMost(io.transfer.valid && !io.transfer.ready, few, "the client takes a request")
  atMost(underWay && !io.transferred.valid, few, "the client answers")
  atMost(io.evictionPending, few, "an eviction ends")
  // Decide, take, travel, write and answer, each with its wait; the look at the entry goes on beside the travel.
  private val longest = 5 * (few + 1) + 2
  private val age = RegInit(0.U(6.W))
  age := Mux(path.io.busy, age + 1.U, 0.U)
  if (bounded) {
    assert(age <= longest.U, "fetch: one does not end")
    Cover(age === longest.U, "the longest fetch")
  }
  for (i <- 0 until p.ports) {
    assert(!(path.io.waiting(i) && !path.io.busy && !io.answers(i).valid), "fetch: a request was forgotten")
    Cover(io.answers(i).valid && !io.answers(i).bits.refused, s"port $i: the walk goes on")
  }
  Cover(written, "the watched entry is resolved")
  Cover(path.io.refused.valid && path.io.refused.bits === Refusal.disabled, "refused: disabled")
  Cover(path.io.refused.valid && path.io.refused.bits === Refusal.noFrame, "refused: no frame")
  Cover(path.io.refused.valid && path.io.refused.bits === Refusal.newQueueFull, "refused: NewQ full")
  Cover(path.io.refused.valid && path.io.refused.bits === Refusal.fetchFailed, "refused: fetch failed")
  Cover(path.io.refused.valid && path.io.refused.bits === Refusal.evictionFailed, "refused: eviction failed")
  Cover(path.io.refused.valid && path.io.refused.bits === Refusal.busError, "refused: error of the bus")
  Cover(io.answers(0).valid && RegNext(io.answers(1).valid, false.B), "two are answered, one cycle after the other")
}

/** The writer of pages, of a page with a few blocks: one word of it is watched, and one bit of that stands for all. */
class PageWriterProof(tags: Int, blocks: Int) extends Module {
  private val tagBits = log2Ceil(tags) max 1
  val io = IO(new Bundle {
    val start = Flipped(Valid(UInt(Words.frameBits.W)))
    val abort = Input(Bool())
    val words = Flipped(Decoupled(UInt(Words.wordBits.W)))
    val accept = Input(Bool())
    val written = Flipped(Valid(UInt(tagBits.W)))
    val error = Input(Bool())
    val watch = Input(UInt(9.W))
  })
  private val writer = Module(new PageWriter(tags, blocks))
  Watched(io.watch)
  private val start = io.start.valid && !writer.io.busy
  writer.io.start.valid := start
  writer.io.start.bits := io.start.bits
  // The client gives up only a page that has begun.
  private val abort = io.abort && writer.io.busy
  writer.io.abort := abort
  writer.io.words <> io.words
  writer.io.write.ready := io.accept
  writer.io.written.valid := io.written.valid
  writer.io.written.bits.tag := io.written.bits
  writer.io.written.bits.error := io.error

  private val frame = Reg(Bool())
  private val in = RegInit(0.U(10.W))
  private val out = RegInit(0.U(10.W))
  private val bit = Reg(Bool())
  private val aborted = RegInit(false.B)
  private val begun = RegInit(false.B)
  when(start) {
    frame := io.start.bits(0)
    in := 0.U
    out := 0.U
    aborted := false.B
    begun := true.B
  }.otherwise {
    when(io.words.fire()) {
      in := in + 1.U
      when(in === io.watch) { bit := io.words.bits(0) }
    }
    when(writer.io.write.fire()) { out := out + 1.U }
    when(abort) { aborted := true.B }
  }
  private val partial = out(2, 0) =/= 0.U
  assert(!(io.written.valid && partial && io.written.bits === out(3 + tagBits - 1, 3)), "environment: a block is written before all of it was sent")
  private val sends = writer.io.write.fire()
  assert(!(sends && out === io.watch && writer.io.write.bits.word(0) =/= bit), "page writer: a word is written as another")
  assert(!(sends && writer.io.write.bits.address(12) =/= frame), "page writer: a word is written to another frame")
  assert(!(sends && writer.io.write.bits.address(11, 6) =/= out(8, 3)), "page writer: a word is written to another place")
  assert(!(begun && !writer.io.busy && !aborted && !start && out =/= (blocks * Block.words).U), "page writer: a page was not written whole")
}

/** The reader of pages, of a page with a few blocks: one word of it is watched, and one bit of that stands for all. Memory answers what it
  * was asked, in any order of blocks, and with an error where it likes.
  */
class PageReaderProof(tags: Int, blocks: Int) extends Module {
  private val tagBits = log2Ceil(tags) max 1
  val io = IO(new Bundle {
    val start = Flipped(Valid(UInt(Words.frameBits.W)))
    val accept = Input(Bool())
    val deliver = Flipped(Valid(new Bundle {
      val tag = UInt(tagBits.W)
      val word = UInt(Words.wordBits.W)
      val error = Bool()
    }))
    val words = Decoupled(UInt(Words.wordBits.W))
    val watch = Input(UInt(9.W))
  })
  private val reader = Module(new PageReader(tags, blocks))
  Watched(io.watch)
  private val start = io.start.valid && !reader.io.busy
  reader.io.start.valid := start
  reader.io.start.bits := io.start.bits
  io.words <> reader.io.words
  reader.io.read.ready := io.accept

  // Which block each tag stands for, and how many of its words are still to come.
  private val block = Reg(Vec(tags, UInt(6.W)))
  private val left = RegInit(VecInit(Seq.fill(tags)(0.U(4.W))))
  private val tag = io.deliver.bits.tag
  private val delivers = io.deliver.valid && left(tag) =/= 0.U
  private val word = Cat(block(tag), (Block.words.U - left(tag))(2, 0))
  reader.io.readData.valid := delivers
  reader.io.readData.bits.tag := tag
  reader.io.readData.bits.word := io.deliver.bits.word
  reader.io.readData.bits.error := io.deliver.bits.error

  private val frame = Reg(Bool())
  private val asked = RegInit(0.U(7.W))
  private val out = RegInit(0.U(10.W))
  private val bit = Reg(Bool())
  private val broken = RegInit(false.B)
  private val begun = RegInit(false.B)
  private val asks = reader.io.read.fire()
  private val offers = io.words.fire()
  when(delivers) {
    left(tag) := left(tag) - 1.U
    when(word === io.watch) { bit := io.deliver.bits.word(0) }
    when(io.deliver.bits.error) { broken := true.B }
  }
  when(asks) {
    block(reader.io.read.bits.tag) := asked
    left(reader.io.read.bits.tag) := Block.words.U
    asked := asked + 1.U
  }
  when(offers) { out := out + 1.U }
  when(start) {
    frame := io.start.bits(0)
    asked := 0.U
    out := 0.U
    broken := false.B
    begun := true.B
  }
  private val whole = out === (blocks * Block.words).U
  assert(!(asks && left(reader.io.read.bits.tag) =/= 0.U), "page reader: a tag is used twice at once")
  assert(!(asks && reader.io.read.bits.address(12) =/= frame), "page reader: a word is read from another frame")
  assert(!(asks && reader.io.read.bits.address(11, 6) =/= asked), "page reader: a word is read from another place")
  assert(!(offers && out === io.watch && io.words.bits(0) =/= bit), "page reader: a word is offered as another")
  assert(!(offers && broken), "page reader: a word is offered after an error of the bus")
  assert(!(begun && reader.io.failed =/= broken), "page reader: an error of the bus was forgotten, or made up")
  assert(!(begun && !reader.io.busy && !broken && !whole), "page reader: a page was not offered whole")
  assert(!(!reader.io.busy && left.map(_ =/= 0.U).reduce(_ || _)), "page reader: it ended before all had come that it asked for")
  Cover(begun && whole && !reader.io.busy, "a page was offered whole")
  Cover(begun && broken && !reader.io.busy, "a page was given up")
  Cover(left.map(_ =/= 0.U).reduce(_ && _), "all tags are under way")
}

/** The client, of pages with one block and of tags that run out soon, between three users, a memory and a blade that does as it likes.
  *
  * Users ask for one page at a time. Frames of the fetch unit are odd here, all others even, so that it shows whose frame is written.
  */
class ClientProof(p: AcceleratorParameters, tags: BlockTags, blocks: Int, clockBits: Int) extends Module {
  val io = IO(new Bundle {
    val timeout = Input(UInt((clockBits - 1).W))
    val fetch = Flipped(Decoupled(UInt(2.W)))
    val software = Flipped(Decoupled(new Bundle {
      val write = Bool()
      val frame = UInt(2.W)
    }))
    val eviction = Flipped(Decoupled(UInt(2.W)))
    val link = new Link
    /** Memory: takes a request, brings a word of a block, says that one was written, each with an error or without. */
    val acceptRead = Input(Bool())
    val acceptWrite = Input(Bool())
    val deliver = Flipped(Valid(UInt(tags.readBits.W)))
    val written = Flipped(Valid(UInt(tags.writeBits.W)))
    val broken = Input(Bool())
    val watch = Input(UInt(p.tagBits.W))
  })
  private val client = Module(new RemoteMemoryClient(p, tags, blocks, clockBits))
  Watched(io.watch)
  client.io.timeout := io.timeout
  client.io.link <> io.link

  private val fetching = RegInit(false.B)
  private val transferring = RegInit(false.B)
  private val evicting = RegInit(false.B)
  private def order(user: DecoupledIO[PageTransfer], wanted: Bool, busy: Bool): Unit = {
    user.valid := wanted && !busy
    user.bits.id := 0.U
    when(user.fire()) { busy := true.B }
  }
  order(client.io.fetch, io.fetch.valid, fetching)
  client.io.fetch.bits.write := false.B
  client.io.fetch.bits.frame := Cat(io.fetch.bits, 1.U(1.W))
  io.fetch.ready := client.io.fetch.ready && !fetching
  order(client.io.software, io.software.valid, transferring)
  client.io.software.bits.write := io.software.bits.write
  client.io.software.bits.frame := Cat(io.software.bits.frame, 0.U(1.W))
  io.software.ready := client.io.software.ready && !transferring
  client.io.eviction.valid := io.eviction.valid && !evicting
  client.io.eviction.bits.id := 0.U
  client.io.eviction.bits.frame := Cat(io.eviction.bits, 0.U(1.W))
  client.io.evictionSlot := 0.U
  io.eviction.ready := client.io.eviction.ready && !evicting
  when(client.io.eviction.fire()) { evicting := true.B }

  // Memory answers what it was asked.
  private val blocksPort = client.io.blocks
  private val toCome = RegInit(VecInit(Seq.fill(tags.reads)(0.U(4.W))))
  private val delivers = io.deliver.valid && toCome(io.deliver.bits) =/= 0.U
  blocksPort.read.ready := io.acceptRead
  blocksPort.readData.valid := delivers
  blocksPort.readData.bits.tag := io.deliver.bits
  blocksPort.readData.bits.word := 0.U
  blocksPort.readData.bits.error := io.broken
  when(delivers) { toCome(io.deliver.bits) := toCome(io.deliver.bits) - 1.U }
  when(blocksPort.read.fire()) { toCome(blocksPort.read.bits.tag) := Block.words.U }
  private val sent = RegInit(VecInit(Seq.fill(tags.writes)(0.U(4.W))))
  private val confirms = io.written.valid && sent(io.written.bits) === Block.words.U
  blocksPort.write.ready := io.acceptWrite
  blocksPort.written.valid := confirms
  blocksPort.written.bits.tag := io.written.bits
  blocksPort.written.bits.error := io.broken
  when(confirms) { sent(io.written.bits) := 0.U }
  private val writes = blocksPort.write.fire()
  when(writes) { sent(blocksPort.write.bits.tag) := sent(blocksPort.write.bits.tag) + 1.U }

  private val ends = client.io.fetched.valid
  when(ends) { fetching := false.B }
  when(client.io.softwareDone.valid) { transferring := false.B }
  when(client.io.evicted.valid) { evicting := false.B }
  assert(!(ends && !fetching), "client: an outcome for nobody: fetch")
  assert(!(client.io.softwareDone.valid && !transferring), "client: an outcome for nobody: software")
  assert(!(client.io.evicted.valid && !evicting), "client: an outcome for nobody: eviction")

  // The fetch unit's frame.
  private val count = RegInit(0.U(10.W))
  private val odd = blocksPort.write.bits.address(12)
  private val wordsOut = sent.map(_ =/= 0.U).reduce(_ || _)
  when(client.io.fetch.fire()) { count := 0.U }.elsewhen(writes && odd) { count := count + 1.U }
  assert(!(writes && odd && !fetching), "client: a frame is written that nobody waits for")
  assert(!(ends && client.io.fetched.bits.ok && count =/= (blocks * Block.words).U), "client: a page came that was not written whole")
  assert(!(ends && client.io.fetched.bits.ok && wordsOut), "client: a page came before all of it was in memory")
  Cover(ends && client.io.fetched.bits.ok, "client: a page came")
  Cover(ends && client.io.fetched.bits.bus, "client: a fetch ends by an error of the bus")
  Cover(client.io.evicted.valid && !client.io.evicted.bits.failed, "client: a page was sent")
  Cover(client.io.evicted.valid && client.io.evicted.bits.failed, "client: a page was not sent")

  // A tag is one of a request once.
  private val heads = io.link.request.fire() && io.link.request.bits.head && Packet.kind(io.link.request.bits.data) =/= Packet.kindAbandon
  private val mine = heads && Packet.tag(io.link.request.bits.data) === io.watch
  private val seen = RegInit(false.B)
  when(mine) { seen := true.B }
  assert(!(mine && seen), "client: two requests have a tag in common")
  Cover(seen && client.io.spent, "client: tags have run out")
}
