// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** One TLB's side of a core, as doc/interface.md describes it with its timing. Directions as the core sees them. */
class TlbPort extends Bundle {
  /** The TLB's request for a walk. */
  val walkValid = Output(Bool())
  val walkVpn = Output(UInt(Words.vpnBits.W))
  val walkWanted = Output(Bool())
  val walkReady = Input(Bool())
  /** What the walker is asked. */
  val walkerValid = Input(Bool())
  val walkerVpn = Input(UInt(Words.vpnBits.W))
  val walkerWanted = Input(Bool())
  val walkerReady = Output(Bool())
  /** The walker's answer, and the entry behind it. */
  val answerValid = Output(Bool())
  val answerRemote = Output(Bool())
  val answerPte = Output(UInt(Words.pteBits.W))
  val answerPteAddress = Output(UInt(Words.addressBits.W))
  val root = Output(UInt(Words.frameBits.W))
  /** What the TLB is told. */
  val passAnswer = Input(Bool())
  val faultAnswer = Input(Bool())
  /** Of the pipeline, for instructions. */
  val settled = Output(Bool())
  val redirected = Output(Bool())
  val discard = Input(Bool())
}

/** The accelerator with its walker hooks, and nothing of any core or bus: what is to be wrapped for another core than Rocket. */
class PageFaultAccelerator(p: AcceleratorParameters, tags: BlockTags) extends Module {
  val io = IO(new Bundle {
    /** For each hart: its data TLB, and its instruction TLB. */
    val tlbs = Vec(p.harts, Vec(2, Flipped(new TlbPort)))
    val access = Flipped(Valid(new RegisterAccess))
    val readData = Output(UInt(64.W))
    val interrupt = Output(Bool())
    val memory = new WordPort
    val blocks = new BlockPort(tags)
    val link = new Link
  })
  private val core = Module(new AcceleratorCore(p, tags))
  core.io.access := io.access
  io.readData := core.io.readData
  io.interrupt := core.io.interrupt
  io.memory <> core.io.memory
  io.blocks <> core.io.blocks
  io.link <> core.io.link
  for (hart <- 0 until p.harts) {
    val hooks = Seq(Module(new WalkerHook(speculative = false)), Module(new WalkerHook(speculative = true)))
    core.io.hooks(hart).dropped := hooks(1).io.dropped
    for ((hook, side) <- hooks.zipWithIndex) {
      val tlb = io.tlbs(hart)(side)
      hook.io.walkValid := tlb.walkValid
      hook.io.walkVpn := tlb.walkVpn
      hook.io.walkWanted := tlb.walkWanted
      tlb.walkReady := hook.io.walkReady
      tlb.walkerValid := hook.io.walkerValid
      tlb.walkerVpn := hook.io.walkerVpn
      tlb.walkerWanted := hook.io.walkerWanted
      hook.io.walkerReady := tlb.walkerReady
      hook.io.answerValid := tlb.answerValid
      hook.io.answerRemote := tlb.answerRemote
      hook.io.answerPte := tlb.answerPte
      hook.io.answerPteAddress := tlb.answerPteAddress
      hook.io.root := tlb.root
      tlb.passAnswer := hook.io.passAnswer
      tlb.faultAnswer := hook.io.faultAnswer
      hook.io.settled := tlb.settled
      hook.io.redirected := tlb.redirected
      tlb.discard := hook.io.discard
      core.io.hooks(hart).walks(side) <> hook.io.fetch
      hook.io.fetched := core.io.hooks(hart).answers(side)
    }
  }
}
