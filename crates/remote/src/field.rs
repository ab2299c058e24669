//! Arithmetic of GF(2^8), with x^8 + x^4 + x^3 + x^2 + 1, on whole ranges of bytes. Loops without branches,
//! which compilers turn into vector instructions of whatever machine it is.

/// What is added where a doubling leaves eight bits.
const OVERFLOW: u8 = 0x1d;

const fn twice(value: u8) -> u8 {
    // All ones, or all zeros, by the highest bit.
    let mask = (value as i8 >> 7) as u8;
    value << 1 ^ mask & OVERFLOW
}

/// The product.
pub(crate) const fn times(one: u8, other: u8) -> u8 {
    let (mut sum, mut power, mut bit) = (0, one, 0);
    while bit < 8 {
        if other >> bit & 1 == 1 {
            sum ^= power;
        }
        power = twice(power);
        bit += 1;
    }
    sum
}

/// 2 to a power.
pub(crate) const fn power_of_two(exponent: usize) -> u8 {
    let (mut value, mut nth) = (1, 0);
    while nth < exponent {
        value = twice(value);
        nth += 1;
    }
    value
}

/// What gives 1 when multiplied by `value`, which is not zero: its 254th power.
pub(crate) const fn inverse(value: u8) -> u8 {
    let (mut product, mut square, mut bit) = (1, value, 1);
    while bit < 8 {
        square = times(square, square);
        product = times(product, square);
        bit += 1;
    }
    product
}

/// Multiplies all by 2^`doublings`, and adds.
pub(crate) fn double_and_add(sums: &mut [u8], doublings: usize, add: &[u8]) {
    for _ in 0..doublings {
        sums.iter_mut().for_each(|sum| *sum = twice(*sum));
    }
    sums.iter_mut().zip(add).for_each(|(sum, add)| *sum ^= add);
}

/// Adds all of `add` times a factor.
pub(crate) fn add_times(sums: &mut [u8], factor: u8, add: &[u8]) {
    match factor {
        0 => {}
        1 => sums.iter_mut().zip(add).for_each(|(sum, add)| *sum ^= add),
        _ => {
            let masks: [u8; 8] = std::array::from_fn(|bit| 0_u8.wrapping_sub(factor >> bit & 1));
            for (sum, &add) in sums.iter_mut().zip(add) {
                let mut power = add;
                for mask in masks {
                    *sum ^= power & mask;
                    power = twice(power);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_zero_has_an_inverse() {
        for value in 1..=u8::MAX {
            assert_eq!(times(value, inverse(value)), 1, "{value}");
        }
    }

    #[test]
    fn a_product_distributes_over_sums() {
        for one in 0..=u8::MAX {
            for other in [0, 1, 2, 29, 143, 255] {
                assert_eq!(times(one, other), times(other, one));
                assert_eq!(times(one ^ 77, other), times(one, other) ^ times(77, other));
            }
        }
    }

    #[test]
    fn ranges_are_computed_as_single_values_are() {
        let values: Vec<u8> = (0..=u8::MAX).collect();
        for factor in 0..=u8::MAX {
            let mut sums = vec![9; values.len()];
            add_times(&mut sums, factor, &values);
            assert!(sums.iter().zip(&values).all(|(&sum, &value)| sum == 9 ^ times(value, factor)));
        }
        let mut doubled = values.clone();
        double_and_add(&mut doubled, 3, &values);
        assert!(doubled.iter().zip(&values).all(|(&sum, &value)| sum == times(value, 8) ^ value));
    }
}
