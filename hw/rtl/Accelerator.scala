// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._
import freechips.rocketchip.config.Parameters
import freechips.rocketchip.diplomacy._
import freechips.rocketchip.interrupts._
import freechips.rocketchip.tilelink._

/** What a tile's walker hook and the accelerator say to each other, for one hart. Directions as the tile sees them. */
class HookBundle extends Bundle {
  val walks = Vec(2, Decoupled(new WalkRequest))
  val answers = Vec(2, Flipped(Valid(new WalkAnswer)))
  val dropped = Output(Bool())
}

/** Everything of the accelerator but the walker hooks, without a bus. */
class AcceleratorCore(p: AcceleratorParameters, tags: BlockTags) extends Module {
  val io = IO(new Bundle {
    val hooks = Vec(p.harts, Flipped(new HookBundle))
    val access = Flipped(Valid(new RegisterAccess))
    val readData = Output(UInt(64.W))
    val interrupt = Output(Bool())
    val memory = new WordPort
    val blocks = new BlockPort(tags)
    val link = new Link
  })
  private val registers = Module(new Registers(p))
  private val free = Module(new FrameQueue(p.freeDepth))
  private val fresh = Module(new NewQueue(p))
  private val evict = Module(new EvictQueue(p))
  private val fetch = Module(new FetchUnit(p))
  private val client = Module(new RemoteMemoryClient(p, tags))

  registers.io.access := io.access
  io.readData := registers.io.readData
  io.interrupt := registers.io.interrupt

  for (h <- 0 until p.harts; side <- 0 until 2) {
    fetch.io.walks(2 * h + side) <> io.hooks(h).walks(side)
    io.hooks(h).answers(side) := fetch.io.answers(2 * h + side)
  }
  free.io.enqueue <> registers.io.free
  fetch.io.free <> free.io.dequeue
  // While fetches are disabled and none is under way, software may take frames back.
  registers.io.freeHead.valid := free.io.dequeue.valid
  registers.io.freeHead.bits := free.io.dequeue.bits
  free.io.dequeue.ready := fetch.io.free.ready || registers.io.freePop
  registers.io.busErrors(0) := fetch.io.busError
  registers.io.busErrors(1) := client.io.busError
  registers.io.tagsSpent := client.io.spent
  fresh.io.enqueue <> fetch.io.fresh
  // The fetch unit asks for room before it begins.
  registers.io.fresh <> fresh.io.dequeue
  evict.io.push <> registers.io.evict
  registers.io.evicted <> evict.io.pop
  evict.io.queryId := fetch.io.evictionId
  fetch.io.evictionPending := evict.io.queryPending
  fetch.io.evictionFailed := evict.io.queryFailed
  fetch.io.enabled := registers.io.enabled
  io.memory <> fetch.io.memory

  client.io.timeout := registers.io.timeout
  client.io.fetch <> fetch.io.transfer
  fetch.io.transferred := client.io.fetched
  client.io.software <> registers.io.software
  registers.io.softwareDone := client.io.softwareDone
  client.io.eviction <> evict.io.issue
  client.io.evictionSlot := evict.io.issueSlot
  evict.io.complete := client.io.evicted
  io.link <> client.io.link
  io.blocks <> client.io.blocks

  registers.io.freeCount := free.io.count
  registers.io.freshCount := fresh.io.count
  registers.io.evictCount := evict.io.count
  registers.io.evictUnfinished := evict.io.unfinished
  registers.io.fetchBusy := fetch.io.busy
  registers.io.refusal := fetch.io.refusal
  registers.io.finished := fetch.io.finished
  registers.io.repeated := fetch.io.repeated
  registers.io.travelling := fetch.io.travelling
  registers.io.dropped := io.hooks.map(_.dropped).reduce(_ || _)
}

/** The accelerator on TileLink: registers as a slave, local memory as a coherent master, one interrupt. */
class Accelerator(params: AcceleratorParameters)(implicit p: Parameters) extends LazyModule {
  private val tags = BlockTags()
  private val readSources = 0
  private val writeSources = tags.reads
  private val wordSource = tags.reads + tags.writes
  private val sourceBits = log2Ceil(wordSource + 1)

  val device = new SimpleDevice("page-fault-accelerator", Seq("farmem,pfa"))
  val hookSinks: Seq[BundleBridgeSink[HookBundle]] = Seq.fill(params.harts)(BundleBridgeSink[HookBundle]())
  val linkSource = BundleBridgeSource(() => new Link)
  val interruptNode = IntSourceNode(IntSourcePortSimple(num = 1, resources = device.int))
  val registerNode = TLManagerNode(Seq(TLManagerPortParameters(
    Seq(TLManagerParameters(
      address = Seq(AddressSet(params.address, 0xfff)),
      resources = device.reg,
      regionType = RegionType.GET_EFFECTS,
      supportsGet = TransferSizes(1, 8),
      supportsPutFull = TransferSizes(1, 8),
      supportsPutPartial = TransferSizes(1, 8),
      fifoId = Some(0))),
    beatBytes = 8)))
  val memoryNode = TLClientNode(Seq(TLClientPortParameters(
    Seq(TLClientParameters(name = "pfa", sourceId = IdRange(0, wordSource + 1))))))

  lazy val module = new LazyModuleImp(this) {
    private val core = Module(new AcceleratorCore(params, tags))
    core.io.hooks.zip(hookSinks).foreach { case (hook, sink) => hook <> sink.bundle }
    linkSource.bundle <> core.io.link
    interruptNode.out.head._1(0) := core.io.interrupt

    // Registers: one beat in, one beat out, in the same cycle.
    private val (slave, slaveEdge) = registerNode.in.head
    private val isGet = slave.a.bits.opcode === TLMessages.Get
    slave.a.ready := slave.d.ready
    slave.d.valid := slave.a.valid
    slave.d.bits := slaveEdge.AccessAck(slave.a.bits, core.io.readData)
    slave.d.bits.opcode := Mux(isGet, TLMessages.AccessAckData, TLMessages.AccessAck)
    core.io.access.valid := slave.a.fire()
    core.io.access.bits.write := !isGet
    core.io.access.bits.offset := slave.a.bits.address(11, 0)
    core.io.access.bits.whole := slave.a.bits.size === 3.U && (isGet || slave.a.bits.mask.andR)
    core.io.access.bits.data := slave.a.bits.data

    // Memory.
    private val (master, edge) = memoryNode.out.head
    private val blocks = core.io.blocks
    private val word = core.io.memory
    private val lgBlock = 6.U
    private def channel(): DecoupledIO[TLBundleA] = Wire(Decoupled(new TLBundleA(edge.bundle)))
    private val readA = channel()
    readA.valid := blocks.read.valid
    readA.bits := edge.Get(blocks.read.bits.tag.pad(sourceBits) + readSources.U, blocks.read.bits.address, lgBlock)._2
    blocks.read.ready := readA.ready
    private val writeA = channel()
    writeA.valid := blocks.write.valid
    writeA.bits := edge.Put(blocks.write.bits.tag.pad(sourceBits) + writeSources.U, blocks.write.bits.address, lgBlock, blocks.write.bits.word)._2
    blocks.write.ready := writeA.ready
    private val wordA = channel()
    wordA.valid := word.request.valid
    wordA.bits := Mux(word.request.bits.write,
      edge.Put(wordSource.U, word.request.bits.address, 3.U, word.request.bits.data)._2,
      edge.Get(wordSource.U, word.request.bits.address, 3.U)._2)
    word.request.ready := wordA.ready
    TLArbiter(TLArbiter.lowestIndexFirst)(master.a,
      (edge.numBeats1(wordA.bits), wordA), (edge.numBeats1(readA.bits), readA), (edge.numBeats1(writeA.bits), writeA))

    master.d.ready := true.B
    private val source = master.d.bits.source
    blocks.readData.valid := master.d.valid && source < writeSources.U
    blocks.readData.bits.tag := source
    blocks.readData.bits.word := master.d.bits.data
    // Whoever asked is told, and maps or sends nothing of it.
    private val error = master.d.bits.denied || master.d.bits.corrupt
    blocks.readData.bits.error := error
    blocks.written.valid := master.d.valid && source >= writeSources.U && source < wordSource.U
    blocks.written.bits.tag := source - writeSources.U
    blocks.written.bits.error := error
    word.response.valid := master.d.valid && source === wordSource.U
    word.response.bits.data := master.d.bits.data
    word.response.bits.error := error
    master.b.ready := true.B
    master.c.valid := false.B
    master.e.valid := false.B
  }
}
