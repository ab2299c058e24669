// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** Widths and layouts of the words that software, walker and accelerator exchange. doc/registers.md draws them. */
object Words {
  val vpnBits = 27
  val frameBits = 36
  val idBits = 28
  val pteBits = 64
  val addressBits = 56
  val pageOffsetBits = 12

  /** 64-bit words in a page. */
  val pageWords = 512

  /** Flits, beats and registers are all this wide. */
  val wordBits = 64

  /** A page-table entry that is not valid but names a page in remote memory. */
  def isRemote(pte: UInt): Bool = !pte(0) && pte(1)

  /** The page identifier of a remote entry. */
  def pageId(pte: UInt): UInt = pte(12 + idBits - 1, 12)

  /** What a remote entry becomes once its page lies in `frame`: its protection bits with V set, its software bits. */
  def localEntry(remote: UInt, frame: UInt): UInt =
    Cat(0.U((pteBits - 10 - frameBits).W), frame(frameBits - 1, 0), remote(11, 10), remote(9, 3), 1.U(1.W))
}

/** A request for the page behind a remote entry. */
class WalkRequest extends Bundle {
  val vpn = UInt(Words.vpnBits.W)
  val pte = UInt(Words.pteBits.W)
  val pteAddress = UInt(Words.addressBits.W)
  /** The address space: the frame of the root table that the walk began at. */
  val root = UInt(Words.frameBits.W)
}

/** The answer: walk again, or, if `refused`, raise the page fault after all. */
class WalkAnswer extends Bundle {
  val refused = Bool()
}

/** An entry of the NewQ. */
class NewPage(p: AcceleratorParameters) extends Bundle {
  val hart = UInt(8.W)
  val vpn = UInt(Words.vpnBits.W)
  val id = UInt(Words.idBits.W)
  val root = UInt(Words.frameBits.W)
  override def cloneType: this.type = new NewPage(p).asInstanceOf[this.type]
}

/** A page to be written to remote memory. */
class Eviction extends Bundle {
  val id = UInt(Words.idBits.W)
  val frame = UInt(Words.frameBits.W)
}

/** How a transfer ended. */
class TransferOutcome extends Bundle {
  val ok = Bool()
  /** It failed because local memory did not take or give a block. */
  val bus = Bool()
}

/** An access to local memory that the bus answered with an error. */
class BusError extends Bundle {
  val access = UInt(BusAccess.width.W)
  val address = UInt(Words.addressBits.W)
}

/** A request to the remote-memory client. */
class PageTransfer extends Bundle {
  val write = Bool()
  val id = UInt(Words.idBits.W)
  val frame = UInt(Words.frameBits.W)
}

/** A flit of the link to the blade. `head` tells where a packet begins, so that a receiver finds its way back after a
  * packet that was cut short. */
class Flit extends Bundle {
  val head = Bool()
  val data = UInt(Words.wordBits.W)
}

/** Head flits: kind, status and tag. In requests the page identifier is the flit that follows. */
object Packet {
  /** As many as a head has room for, so that sequence numbers don't run out in years. */
  val tagBits = 59
  val kindRead = 1.U(4.W)
  val kindWrite = 2.U(4.W)
  val kindReadDone = 3.U(4.W)
  val kindWriteDone = 4.U(4.W)
  /** Ends a packet that can't be completed. Nobody answers it. */
  val kindAbandon = 5.U(4.W)

  def request(kind: UInt, tag: UInt): UInt = Cat(kind, 0.U(1.W), tag.pad(tagBits))
  def kind(head: UInt): UInt = head(63, 60)
  def failed(head: UInt): Bool = head(59)
  def tag(head: UInt): UInt = head(58, 0)
}

class Link extends Bundle {
  val request = Decoupled(new Flit)
  val response = Flipped(Decoupled(new Flit))
}

/** One 8-byte access to local memory, coherent with the harts' caches. */
class WordAccess extends Bundle {
  val write = Bool()
  val address = UInt(Words.addressBits.W)
  val data = UInt(Words.wordBits.W)
}

class WordPort extends Bundle {
  val request = Decoupled(new WordAccess)
  /** The read's data; for writes only that it is done; or an error of the bus, and nothing was read or written. */
  val response = Flipped(Valid(new Bundle {
    val data = UInt(Words.wordBits.W)
    val error = Bool()
  }))
}
