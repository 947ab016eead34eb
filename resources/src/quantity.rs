//! Kubernetes quantities (`1500m`, `2Gi`, `1e3`) as integers in base units.
//!
//! The grammar is that of apimachinery's `resource.Quantity`: an optional sign,
//! digits with at most one point, and a decimal suffix (`n u m k M G T P E`), a
//! binary one (`Ki` to `Ei`) or an exponent. A value between two base units is
//! rounded away from zero, so a request is never under-counted; a value outside
//! `i64` saturates.

use thiserror::Error;

use crate::ResourceName;

/// A text that is not a Kubernetes quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "resource {name:?}: {found:?} is not a quantity; allowed: a decimal number with an optional suffix of n, u, m, k, \
     M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
)]
pub struct QuantityError {
    pub name: String,
    pub found: String,
}

/// Parses a quantity into base units of `name`: millicores for `cpu`, else units.
///
/// # Errors
/// A text outside the grammar above.
pub fn parse(name: &str, text: &str) -> Result<i64, QuantityError> {
    parse_units(text, unit_exponent(name))
        .ok_or_else(|| QuantityError { name: name.to_owned(), found: text.to_owned() })
}

/// The canonical text of an amount: `2` or `1500m` for cpu, the largest exact
/// binary suffix for bytes, plain digits for the rest.
pub fn format(name: &str, amount: i64) -> String {
    if name == ResourceName::CPU {
        return match amount % 1000 {
            0 => (amount / 1000).to_string(),
            _ => format!("{amount}m"),
        };
    }
    if !is_bytes(name) || amount == 0 {
        return amount.to_string();
    }
    let steps = (amount.trailing_zeros() / 10).min(6) as usize;
    let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][steps];
    format!("{}{suffix}", amount >> (10 * steps))
}

/// Resources counted in bytes.
pub fn is_bytes(name: &str) -> bool {
    let name = name.strip_prefix("requests.").unwrap_or(name);
    name == ResourceName::MEMORY
        || name == ResourceName::EPHEMERAL_STORAGE
        || name == "storage"
        || name.starts_with("hugepages-")
}

/// Base units per unit, as a power of ten.
fn unit_exponent(name: &str) -> i32 {
    if name == ResourceName::CPU { 3 } else { 0 }
}

enum Scale {
    /// A power of ten.
    Decimal(i32),
    /// A power of two.
    Binary(u32),
}

fn parse_units(text: &str, unit_exponent: i32) -> Option<i64> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let scale = parse_suffix(suffix)?;
    let amount = scaled_digits(whole, fraction, &scale, unit_exponent);
    Some(if negative { amount.saturating_neg() } else { amount })
}

fn parse_suffix(suffix: &str) -> Option<Scale> {
    let scale = match suffix {
        "n" => Scale::Decimal(-9),
        "u" => Scale::Decimal(-6),
        "m" => Scale::Decimal(-3),
        "" => Scale::Decimal(0),
        "k" => Scale::Decimal(3),
        "M" => Scale::Decimal(6),
        "G" => Scale::Decimal(9),
        "T" => Scale::Decimal(12),
        "P" => Scale::Decimal(15),
        "E" => Scale::Decimal(18),
        "Ki" => Scale::Binary(10),
        "Mi" => Scale::Binary(20),
        "Gi" => Scale::Binary(30),
        "Ti" => Scale::Binary(40),
        "Pi" => Scale::Binary(50),
        "Ei" => Scale::Binary(60),
        _ => return parse_exponent(suffix),
    };
    Some(scale)
}

fn parse_exponent(suffix: &str) -> Option<Scale> {
    let text = suffix.strip_prefix(['e', 'E'])?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // An exponent too long for i32 is past every bound below anyway.
    let size = digits.parse::<i32>().unwrap_or(i32::MAX / 4).min(i32::MAX / 4);
    Some(Scale::Decimal(if text.starts_with('-') { -size } else { size }))
}

/// Nineteen digits hold every i64; twice that many before rounding is exact for
/// every value that does not saturate.
const KEPT_DIGITS: usize = 38;

fn scaled_digits(whole: &str, fraction: &str, scale: &Scale, unit_exponent: i32) -> i64 {
    let mut mantissa: u128 = 0;
    let mut exponent = unit_exponent;
    let mut inexact = false;
    let digits = whole.bytes().map(|b| (b, 0)).chain(fraction.bytes().map(|b| (b, -1)));
    let mut kept = 0;
    for (digit, shift) in digits {
        let digit = u128::from(digit - b'0');
        if kept < KEPT_DIGITS - 1 {
            mantissa = mantissa * 10 + digit;
            kept += usize::from(mantissa != 0);
            exponent = exponent.saturating_add(shift);
        } else {
            inexact |= digit != 0;
            exponent = exponent.saturating_add(1 + shift);
        }
    }
    if mantissa == 0 {
        return i64::from(inexact);
    }
    let (binary, decimal) = match scale {
        Scale::Binary(bits) => (*bits, exponent),
        Scale::Decimal(power) => (0, exponent.saturating_add(*power)),
    };
    let amount = if decimal >= 0 {
        10_u128
            .checked_pow(decimal.unsigned_abs())
            .and_then(|power| mantissa.checked_mul(power))
            .and_then(|product| product.checked_mul(1 << binary))
    } else {
        Some(divide_up(mantissa, binary, decimal.unsigned_abs(), &mut inexact))
    };
    let rounded = amount.and_then(|amount| amount.checked_add(u128::from(inexact)));
    rounded.and_then(|amount| i64::try_from(amount).ok()).unwrap_or(i64::MAX)
}

/// `mantissa * 2^binary / 10^places`, dropping what is left into `inexact`.
fn divide_up(mantissa: u128, binary: u32, places: u32, inexact: &mut bool) -> u128 {
    let Some(divisor) = 10_u128.checked_pow(places) else {
        *inexact = true;
        return 0;
    };
    let whole = mantissa / divisor;
    // remainder < 10^38 < 2^127: multiply bit by bit so that nothing overflows.
    let mut remainder = mantissa % divisor;
    let mut result = whole;
    for _ in 0..binary {
        remainder *= 2;
        result = result.saturating_mul(2).saturating_add(remainder / divisor);
        remainder %= divisor;
    }
    *inexact |= remainder != 0;
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, text: &str, expected: i64) {
        assert_eq!(parse(name, text), Ok(expected), "{name} {text:?}");
    }

    #[test]
    fn every_suffix() {
        check("cpu", "1500m", 1500);
        check("cpu", "2", 2000);
        check("cpu", "0.1", 100);
        check("cpu", "100n", 1);
        check("cpu", "1u", 1);
        check("cpu", "999900", 999_900_000);
        check("cpu", ".5", 500);
        check("cpu", "5.", 5000);
        check("memory", "2Gi", 2 << 30);
        check("memory", "1.5Gi", 3 << 29);
        check("memory", "400000Gi", 400_000 << 30);
        check("memory", "1k", 1000);
        check("memory", "1Ki", 1024);
        check("memory", "3M", 3_000_000);
        check("memory", "4G", 4_000_000_000);
        check("memory", "5T", 5_000_000_000_000);
        check("memory", "6P", 6_000_000_000_000_000);
        check("memory", "7E", 7_000_000_000_000_000_000);
        check("memory", "1Mi", 1 << 20);
        check("memory", "1Ti", 1 << 40);
        check("memory", "1Pi", 1 << 50);
        check("memory", "1Ei", 1 << 60);
        check("memory", "128974848000m", 128_974_848);
        check("memory", "1e3", 1000);
        check("memory", "1E3", 1000);
        check("memory", "1E", 1_000_000_000_000_000_000);
        check("memory", "12e-1", 2);
        check("nvidia.com/gpu", "8", 8);
        check("nvidia.com/gpu", "500m", 1);
        check("cpu", "-1", -1000);
        check("cpu", "+1", 1000);
        check("cpu", "0", 0);
    }

    #[test]
    fn the_edges_saturate_or_round_up() {
        check("memory", "9223372036854775807", i64::MAX);
        check("memory", "9223372036854775808", i64::MAX);
        check("memory", "8Ei", i64::MAX);
        check("cpu", "9223372036854775807", i64::MAX);
        check("cpu", "1e999999999999", i64::MAX);
        check("cpu", "1e-999999999999", 1);
        check("memory", "0.000000000000000000000000000000000000000000000001", 1);
        check("memory", "0.00000000000000000000000000000000000000000001Gi", 1);
        check("memory", "0.5Ei", 1 << 59);
        check("memory", "000000000000000000000000000000000000000000001", 1);
    }

    #[test]
    fn bad_texts_are_refused_by_name() {
        for text in [
            "", ".", "+", "-", "1.1.1", "1i", "1e", "1e+", "0.1mi", "aoeu", " 1", "1 ", "1Gib", "٣", "--1",
            "1K",
        ] {
            let error = parse("memory", text).unwrap_err();
            assert_eq!((error.name.as_str(), error.found.as_str()), ("memory", text));
        }
    }

    #[test]
    fn canonical_texts() {
        assert_eq!(format("cpu", 1500), "1500m");
        assert_eq!(format("cpu", 2000), "2");
        assert_eq!(format("memory", 2 << 30), "2Gi");
        assert_eq!(format("memory", 1000), "1000");
        assert_eq!(format("memory", 0), "0");
        assert_eq!(format("memory", -2 << 30), "-2Gi");
        assert_eq!(format("nvidia.com/gpu", 1024), "1024");
    }

    proptest! {
        #[test]
        fn formatting_reads_back(amount: i64, name in prop_oneof!["cpu", "memory", "nvidia.com/gpu"]) {
            prop_assume!(amount > i64::MIN + 1);
            prop_assert_eq!(parse(&name, &format(&name, amount)), Ok(amount));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.eEinumkKMGTPi]{0,60}") {
            let _ = parse("cpu", &text);
            let _ = parse("memory", &text);
        }
    }
}
