// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._
import chisel3.util.experimental.BoringUtils
import freechips.rocketchip.config.Parameters
import freechips.rocketchip.diplomacy._
import freechips.rocketchip.diplomaticobjectmodel.logicaltree.LogicalTreeNode
import freechips.rocketchip.rocket.TLBPTWIO
import freechips.rocketchip.subsystem.RocketCrossingParams
import freechips.rocketchip.tile._

/** What a hart retired in a cycle, for co-simulation. */
class Commit extends Bundle {
  val valid = Bool()
  val pc = UInt(64.W)
  val instruction = UInt(32.W)
  val privilege = UInt(3.W)
  /** Values of the registers that bits 19 to 15 and 24 to 20 of an uncompressed instruction name. */
  val source1 = UInt(64.W)
  val source2 = UInt(64.W)
}

/** A Rocket tile whose TLBs reach the walker through hooks. Rocket itself is unchanged: its own connections are overridden. */
class PfaTile(params: RocketTileParams, crossing: RocketCrossingParams, lookup: LookupByHartIdImpl, tree: LogicalTreeNode)(
    implicit p: Parameters) extends RocketTile(params, crossing, lookup, tree) {
  val hookSource = BundleBridgeSource(() => new HookBundle)
  val commitSource = BundleBridgeSource(() => new Commit)
  override lazy val module = new PfaTileModule(this)
}

class PfaTileModule(outer: PfaTile) extends RocketTileModuleImp(outer) {
  private val hookBundle = outer.hookSource.bundle

  // The last entry that the walker read, and where. It answers two cycles after it has read a leaf.
  private val walkerMemory = ptw.io.mem
  private val entry = RegEnable(walkerMemory.resp.bits.data, walkerMemory.resp.valid)
  private val entryAddress = RegEnable(walkerMemory.req.bits.addr, walkerMemory.req.valid && walkerMemory.req.ready)
  private val entryFresh = RegInit(false.B)
  when(walkerMemory.resp.valid) { entryFresh := true.B }
    .elsewhen(ptw.io.requestor.map(_.resp.valid).reduce(_ || _)) { entryFresh := false.B }

  /** A signal from inside the core, which has no port for it. */
  private def bored[T <: Data](source: T): T = {
    val sink = WireInit(0.U.asTypeOf(chiselTypeOf(source)))
    BoringUtils.bore(source, Seq(sink))
    sink
  }

  private val frontend = outer.frontend.module
  private val imem = core.io.imem
  // Nothing is in the pipeline, and nothing waits to enter it: all that is older than the next fetch has retired, and only an
  // instruction could redirect it (interrupts are taken on instructions, too). Looked at for some cycles, for margin.
  private val pipeline = core.rocketImpl
  private val empty = !bored(pipeline.ibuf.io.inst(0).valid) && !bored(pipeline.ex_pc_valid) && !bored(pipeline.mem_pc_valid) &&
    !bored(pipeline.wb_pc_valid) && !imem.resp.valid && !imem.req.valid
  private val emptyFor = RegInit(0.U(2.W))
  when(!empty) { emptyFor := 0.U }.elsewhen(!emptyFor.andR) { emptyFor := emptyFor + 1.U }
  private val settled = emptyFor.andR

  require(ptwPorts.size == 2, "a hook for the data TLB and one for the instruction TLB")
  private val hooks = Seq(Module(new WalkerHook(false)), Module(new WalkerHook(true)))
  hooks.zipWithIndex.foreach { case (hook, i) =>
    val tlb: TLBPTWIO = ptwPorts(i)
    val walker = ptw.io.requestor(i)
    val leaf = outer.pgLevels - 1

    hook.io.walkVpn := tlb.req.bits.bits.addr
    hook.io.walkWanted := tlb.req.bits.valid
    hook.io.walkValid := tlb.req.valid
    tlb.req.ready := hook.io.walkReady
    walker.req.valid := hook.io.walkerValid
    walker.req.bits.valid := hook.io.walkerWanted
    walker.req.bits.bits.addr := hook.io.walkerVpn
    hook.io.walkerReady := walker.req.ready

    hook.io.answerValid := walker.resp.valid
    hook.io.answerRemote := entryFresh && !walker.resp.bits.ae && !walker.resp.bits.pte.v &&
      walker.resp.bits.level === leaf.U && Words.isRemote(entry)
    hook.io.answerPte := entry
    hook.io.answerPteAddress := entryAddress
    hook.io.root := ptw.io.dpath.ptbr.ppn(Words.frameBits - 1, 0)

    tlb.resp.valid := hook.io.passAnswer || hook.io.faultAnswer
    tlb.resp.bits := walker.resp.bits
    when(hook.io.faultAnswer) {
      tlb.resp.bits.ae := false.B
      tlb.resp.bits.pte.v := false.B
      tlb.resp.bits.level := leaf.U
      tlb.resp.bits.homogeneous := true.B
      tlb.resp.bits.fragmented_superpage := false.B
    }
    hook.io.settled := settled
    hook.io.redirected := imem.req.valid
    hookBundle.walks(i) <> hook.io.fetch
    hook.io.fetched := hookBundle.answers(i)
  }
  private val discard = hooks(1).io.discard
  hookBundle.dropped := hooks(1).io.dropped
  // Makes the instruction TLB ignore the answer to a walk of a wrong path. It flushes what is not global.
  when(discard) {
    frontend.io.cpu.sfence.valid := true.B
    frontend.io.cpu.sfence.bits.rs1 := false.B
    frontend.io.cpu.sfence.bits.rs2 := true.B
    frontend.io.cpu.might_request := true.B
  }

  private val commit = outer.commitSource.bundle
  private val trace = core.io.trace(0)
  commit.valid := trace.valid && !trace.exception
  commit.pc := trace.iaddr.asSInt.pad(64).asUInt
  commit.instruction := trace.insn
  commit.privilege := trace.priv
  commit.source1 := bored(core.rocketImpl.coreMonitorBundle.rd0val)
  commit.source2 := bored(core.rocketImpl.coreMonitorBundle.rd1val)
}
