// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import freechips.rocketchip.config.{Config, Field, Parameters}
import freechips.rocketchip.devices.debug.DebugModuleKey
import freechips.rocketchip.devices.tilelink._
import freechips.rocketchip.diplomacy._
import freechips.rocketchip.diplomaticobjectmodel.logicaltree.LogicalModuleTree
import freechips.rocketchip.rocket._
import freechips.rocketchip.subsystem._
import freechips.rocketchip.tile._
import freechips.rocketchip.tilelink.TLFragmenter
import freechips.rocketchip.util.CoreMonitorBundle

case object AcceleratorKey extends Field[AcceleratorParameters]

/** Rocket tiles with walker hooks, the accelerator, interrupt controllers, a port to memory, and one to the simulator's devices. */
class PfaSystem(implicit p: Parameters) extends BaseSubsystem
    with HasTiles
    with CanHavePeripheryPLIC
    with CanHavePeripheryCLINT
    with HasHierarchicalBusTopology
    with CanHaveMasterAXI4MemPort
    with CanHaveMasterAXI4MMIOPort {
  private val tileParameters = p(RocketTilesKey)
  val pfaTiles: Seq[PfaTile] = tileParameters.map { tp =>
    val crossing = RocketCrossingParams()
    val tile = LazyModule(new PfaTile(tp, crossing, PriorityMuxHartIdFromSeq(tileParameters), logicalTreeNode))
    connectMasterPortsToSBus(tile, crossing)
    connectSlavePortsToCBus(tile, crossing)
    connectInterrupts(tile, None, clintOpt, plicOpt)
    tile
  }
  val tiles: Seq[BaseTile] = pfaTiles
  override protected def tileParams: Seq[TileParams] = tileParameters
  def coreMonitorBundles: List[CoreMonitorBundle] = Nil

  val accelerator = LazyModule(new Accelerator(p(AcceleratorKey)))
  pbus.coupleTo("pfa") { accelerator.registerNode := TLFragmenter(pbus) := _ }
  fbus.fromMaster(Some("pfa"))() := accelerator.memoryNode
  ibus.fromSync := accelerator.interruptNode
  accelerator.hookSinks.zip(pfaTiles).foreach { case (sink, tile) => sink := tile.hookSource }

  val linkSink = BundleBridgeSink[Link]()
  linkSink := accelerator.linkSource
  val commitSinks = pfaTiles.map { tile =>
    val sink = BundleBridgeSink[Commit]()
    sink := tile.commitSource
    sink
  }
  override lazy val module = new PfaSystemModule(this)
}

class PfaSystemModule(outer: PfaSystem) extends BaseSubsystemModuleImp(outer)
    with HasResetVectorWire
    with HasTilesModuleImp
    with HasRTCModuleImp {
  global_reset_vector := PfaSystem.resetVector.U
  tile_inputs.zip(outer.hartIdList).foreach { case (wire, i) =>
    wire.hartid := i.U
    wire.reset_vector := global_reset_vector
  }
  val link = IO(new Link)
  link <> outer.linkSink.bundle
  val commit = IO(Output(Vec(outer.commitSinks.size, new Commit)))
  commit.zip(outer.commitSinks).foreach { case (port, sink) => port := sink.bundle }
}

object PfaSystem {
  /** The first byte of memory: programs are loaded there before the reset ends. */
  val resetVector: BigInt = 0x80000000L
}

/** The core of the evaluation: in order, 16 KB caches, RV64IMAC, Sv39. */
class WithCores(n: Int) extends Config((site, here, up) => {
  case RocketTilesKey => List.tabulate(n)(hart => RocketTileParams(
    hartId = hart,
    core = RocketCoreParams(
      fpu = None,
      mulDiv = Some(MulDivParams(mulUnroll = 8, mulEarlyOut = true, divEarlyOut = true))),
    dcache = Some(DCacheParams(rowBits = site(SystemBusKey).beatBits, nSets = 64, nWays = 4, nMSHRs = 0,
      blockBytes = site(CacheBlockBytes))),
    icache = Some(ICacheParams(rowBits = site(SystemBusKey).beatBits, nSets = 64, nWays = 4,
      blockBytes = site(CacheBlockBytes)))))
})

class SystemConfig(accelerator: AcceleratorParameters) extends Config(
  new Config((site, here, up) => {
    case AcceleratorKey => accelerator
    case DebugModuleKey => None
    case PLICKey => Some(PLICParams())
    // Console and settings: one request at a time is enough. The port's bookkeeping is for each identifier, and simulated in every cycle.
    case ExtBus => up(ExtBus, site).map(_.copy(idBits = 1))
    case BroadcastKey => up(BroadcastKey, site).copy(nTrackers = 16)
    case MonitorsEnabled => false
  }) ++
    new WithCores(accelerator.harts) ++
    new WithDefaultMemPort ++
    new WithDefaultMMIOPort ++
    new WithTimebase(BigInt(1000000)) ++
    new WithDTS("farmem,pfa", Nil) ++
    new BaseSubsystemConfig)
