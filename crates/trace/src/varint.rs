//! Numbers of few bytes where they are small: seven bits each, the lowest first, the eighth says that more
//! follow (LEB128). Signed ones alternate: 0, −1, 1, −2, … (zigzag).

use std::io::{self, Read, Write};

/// Bytes of the longest number.
const MOST_BYTES: u32 = 10;

pub(crate) fn write(to: &mut impl Write, mut number: u64) -> io::Result<()> {
    while number >= 0x80 {
        to.write_all(&[number as u8 | 0x80])?;
        number >>= 7;
    }
    to.write_all(&[number as u8])
}

pub(crate) fn write_signed(to: &mut impl Write, number: i64) -> io::Result<()> {
    write(to, (number << 1 ^ number >> 63) as u64)
}

/// # Errors
/// As reading; `InvalidData` when the number has no end.
pub(crate) fn read(from: &mut impl Read) -> io::Result<u64> {
    let mut number = 0;
    for position in 0..MOST_BYTES {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        number |= u64::from(byte[0] & 0x7f) << (7 * position);
        if byte[0] < 0x80 {
            return Ok(number);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// # Errors
/// As [`read`].
pub(crate) fn read_signed(from: &mut impl Read) -> io::Result<i64> {
    let number = read(from)?;
    Ok((number >> 1) as i64 ^ -((number & 1) as i64))
}
