// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import java.io.{File, PrintWriter}

import chisel3.Driver
import freechips.rocketchip.config.Parameters
import freechips.rocketchip.diplomacy.LazyModule
import freechips.rocketchip.util.ElaborationArtefacts

/** Elaborates the system, or units by themselves, to Verilog; what is released to SystemVerilog.
  *
  *   Generate DIRECTORY system HARTS FREE NEW EVICT
  *   Generate DIRECTORY release HARTS FREE NEW EVICT     the accelerator without a core
  *   Generate DIRECTORY units NAME...
  *   Generate DIRECTORY deep NAME...        with queues of 64 places
  *   Generate DIRECTORY covers NAME...      with what must be reachable, for proofs
  */
object Generate {
  private val usage = "usage: Generate DIRECTORY ((system | release) HARTS FREE_DEPTH NEW_DEPTH EVICT_DEPTH | units NAME... | deep NAME... | covers NAME...)"

  def main(arguments: Array[String]): Unit = arguments.toList match {
    case directory :: "system" :: harts :: free :: fresh :: evict :: Nil =>
      val parameters = AcceleratorParameters(free.toInt, fresh.toInt, evict.toInt, harts.toInt)
      implicit val p: Parameters = new SystemConfig(parameters).toInstance
      emit(directory, () => { val system = LazyModule(new PfaSystem); system.module })
      for ((extension, contents) <- ElaborationArtefacts.files if extension == "dts") {
        val out = new PrintWriter(new File(directory, "PfaSystem.dts"))
        try out.write(contents()) finally out.close()
      }
    case directory :: "release" :: harts :: free :: fresh :: evict :: Nil =>
      emit(directory, () => new PageFaultAccelerator(AcceleratorParameters(free.toInt, fresh.toInt, evict.toInt, harts.toInt), BlockTags()),
        compiler = "sverilog")
    case directory :: (kind @ ("units" | "covers" | "deep")) :: names if names.nonEmpty =>
      Cover.enabled = kind == "covers"
      // As deep as the system of the evaluation, or small: tests reach full queues soon, and proofs end.
      val depth = if (kind == "deep") 64 else 4
      names.foreach(name => emit(directory, unit(name, depth)))
    case _ =>
      Console.err.println(usage)
      sys.exit(2)
  }

  private def unit(name: String, depth: Int): () => chisel3.RawModule = {
    val small = AcceleratorParameters(freeDepth = depth, newDepth = depth, evictDepth = depth, harts = 2)
    name match {
      case "FrameQueue" => () => new FrameQueue(small.freeDepth)
      case "NewQueue" => () => new NewQueue(small)
      case "EvictQueue" => () => new EvictQueue(small)
      case "WalkerHook" => () => new WalkerHook(speculative = true)
      // The smallest: a whole fetch takes nine cycles, and the next one begins within those of a proof.
      case "FrameQueueProof" => () => new FrameQueueProof(small.freeDepth)
      case "NewQueueProof" => () => new NewQueueProof(small)
      case "FetchProof" => () => new FetchProof(small.copy(freeDepth = 2, newDepth = 1, harts = 1), bounded = false)
      case "FetchEnds" => () => new FetchProof(small.copy(freeDepth = 2, newDepth = 1, harts = 1), bounded = true)
      case "PageWriterProof" => () => new PageWriterProof(tags = 2, blocks = 4)
      case "PageReaderProof" => () => new PageReaderProof(tags = 2, blocks = 4)
      case "ClientProof" => () => new ClientProof(small.copy(evictDepth = 1, tagBits = 4), BlockTags(reads = 2, writes = 2), blocks = 1, clockBits = 4)
      case "FetchPath" => () => new FetchPath(small.copy(freeDepth = 2, newDepth = 1, harts = 1))
      // At its full depth: tags have the fewest sequence numbers there.
      case "RemoteMemoryClient" => () => new RemoteMemoryClient(AcceleratorParameters(evictDepth = 64), BlockTags())
      case "RemoteMemoryClientTags9" => () => new RemoteMemoryClient(small.copy(tagBits = 9), BlockTags())
      case "Registers" => () => new Registers(small)
      case "AcceleratorCore" => () => new AcceleratorCore(small, BlockTags())
      case other => sys.error(s"no unit $other")
    }
  }

  private def emit(directory: String, design: () => chisel3.RawModule, compiler: String = "verilog"): Unit = {
    val result = Driver.execute(Array("--target-dir", directory, "--compiler", compiler), design)
    result match {
      case chisel3.ChiselExecutionSuccess(_, _, Some(_: firrtl.FirrtlExecutionSuccess)) =>
      case other => sys.error(s"elaboration failed: $other")
    }
  }
}
