// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** One TLB's way to the page-table walker.
  *
  * An answer of the walker that is not a remote entry passes in the same cycle: ordinary walks cost nothing. A remote entry
  * is kept back while the page is fetched; then the walk is repeated, so that the TLB sees what the table says by then.
  *
  * The instruction side walks for addresses that a wrong prediction made up. Its requests wait (`Held`) until the pipeline
  * has drained (`settled`: nothing older can redirect it any more), or are dropped when it is redirected, or was since the walk
  * began. What is dropped must leave no trace in the TLB: `discard` makes the TLB ignore the answer that follows one cycle later.
  *
  *   Pass ── remote entry ──> Held ── settled ──> Ask ── accepted ──> Wait ── fetched ──> Repeat ──> Pass
  *                              └── redirected ──> Discard ──> Drop ──> Pass                └ refused: fault ──> Pass
  */
class WalkerHook(speculative: Boolean) extends Module {
  val io = IO(new Bundle {
    /** From the TLB; `wanted` is false where the TLB changes its mind one cycle after it asked. */
    val walkVpn = Input(UInt(Words.vpnBits.W))
    val walkWanted = Input(Bool())
    val walkValid = Input(Bool())
    val walkReady = Output(Bool())
    /** To the walker. */
    val walkerVpn = Output(UInt(Words.vpnBits.W))
    val walkerWanted = Output(Bool())
    val walkerValid = Output(Bool())
    val walkerReady = Input(Bool())
    /** From the walker. */
    val answerValid = Input(Bool())
    val answerRemote = Input(Bool())
    val answerPte = Input(UInt(Words.pteBits.W))
    val answerPteAddress = Input(UInt(Words.addressBits.W))
    /** The frame of the root table, as the walker uses it for a walk that begins now. */
    val root = Input(UInt(Words.frameBits.W))
    /** To the TLB: the walker's answer as it is, or a fault. */
    val passAnswer = Output(Bool())
    val faultAnswer = Output(Bool())
    /** Pipeline of the instruction side. */
    val settled = Input(Bool())
    val redirected = Input(Bool())
    val discard = Output(Bool())
    /** To the fetch unit. */
    val fetch = Decoupled(new WalkRequest)
    val fetched = Flipped(Valid(new WalkAnswer))
    val dropped = Output(Bool())
  })
  private val sPass :: sHeld :: sAsk :: sWait :: sRepeat :: sDiscard :: sDrop :: Nil = Enum(7)
  private val state = RegInit(sPass)
  private val outstanding = RegInit(false.B)
  private val request = Reg(new WalkRequest)
  /** The pipeline went elsewhere after this walk began. */
  private val stale = RegInit(false.B)

  io.walkReady := state === sPass && io.walkerReady
  io.walkerValid := Mux(state === sRepeat, true.B, state === sPass && io.walkValid)
  io.walkerVpn := Mux(state === sRepeat, request.vpn, io.walkVpn)
  io.walkerWanted := state === sRepeat || io.walkWanted

  private val started = io.walkerValid && io.walkerReady && io.walkerWanted
  when(started) { outstanding := true.B }.elsewhen(io.answerValid) { outstanding := false.B }
  when(state === sPass && started) {
    request.vpn := io.walkVpn
    request.root := io.root
    stale := io.redirected
  }.elsewhen(io.redirected) { stale := true.B }

  private val remote = state === sPass && io.answerValid && io.answerRemote
  io.passAnswer := io.answerValid && !remote
  io.faultAnswer := state === sDrop || state === sWait && io.fetched.valid && io.fetched.bits.refused
  io.discard := state === sDiscard
  io.dropped := state === sDrop
  io.fetch.valid := state === sAsk
  io.fetch.bits := request

  when(remote) {
    request.pte := io.answerPte
    request.pteAddress := io.answerPteAddress
    state := (if (speculative) sHeld else sAsk)
  }
  if (speculative) {
    when(state === sHeld) {
      when(io.redirected || stale) { state := sDiscard }.elsewhen(io.settled) { state := sAsk }
    }
    when(state === sDiscard) { state := sDrop }
    when(state === sDrop) { state := sPass }
  }
  when(io.fetch.fire()) { state := sWait }
  when(state === sWait && io.fetched.valid) { state := Mux(io.fetched.bits.refused, sPass, sRepeat) }
  when(state === sRepeat && io.walkerReady) { state := sPass }

  Cover.states(state, "hook", Seq(sPass -> "pass", sAsk -> "ask", sWait -> "wait", sRepeat -> "repeat") ++
    (if (speculative) Seq(sHeld -> "held", sDiscard -> "discard", sDrop -> "drop") else Nil))

  assert(!(io.walkValid && state === sPass && outstanding), "hook: a request of a TLB that waits")
  assert(!(io.answerValid && !outstanding), "hook: an answer that nobody waits for")
  assert(!(outstanding && state =/= sPass), "hook: a walk beside a fetch")
  assert(!(io.passAnswer && io.faultAnswer), "hook: two answers at once")
  assert(!(io.fetched.valid && state =/= sWait), "hook: a page that nobody asked for")
}
