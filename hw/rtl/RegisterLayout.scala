// SPDX-License-Identifier: MIT OR Apache-2.0
package farmem.pfa

import chisel3._
import chisel3.util._

/** Some bits of a register's word, and what they are called. */
case class RegisterField(name: String, high: Int, low: Int) {
  val width: Int = high - low + 1
}

/** A register, as registers.toml describes it. */
case class Register(name: String, offset: Int, readable: Boolean, writable: Boolean, fields: RegisterField*) {
  private def field(name: String): RegisterField =
    fields.find(_.name == name).getOrElse(sys.error(s"${this.name} has no field $name"))

  /** The field of a word that was written. */
  def get(word: UInt, name: String): UInt = word(field(name).high, field(name).low)

  /** The word to be read: each field has a value, and what is no field is zero. */
  def word(values: (String, UInt)*): UInt = {
    require(values.map(_._1).sorted == fields.map(_.name).sorted, s"$name: each field has one value")
    val given = values.toMap
    val (top, parts) = fields.sortBy(_.low).foldLeft((0, List.empty[UInt])) { case ((at, above), f) =>
      val gap = if (f.low > at) List(0.U((f.low - at).W)) else Nil
      (f.high + 1, given(f.name).pad(f.width)(f.width - 1, 0) :: gap ::: above)
    }
    Cat(if (top < Words.wordBits) 0.U((Words.wordBits - top).W) :: parts else parts)
  }
}
