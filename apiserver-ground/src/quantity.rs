//! Quantities in the one form a server writes them in.
//!
//! Inputs: the text or number of a quantity. Absent on purpose: arithmetic.

use serde_json::Value;

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes by powers of a thousand, from 10^-9.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// The smallest part that is kept, as a power of ten.
const SMALLEST: i32 = -9;

/// True for most texts that are canonical already: whole numbers with the largest suffix that fits. Cheap, because every
/// quantity of every written object is looked at several times.
pub fn is_canonical(value: &Value) -> bool {
    /// All numbers of so many digits fit.
    const DIGITS: usize = 18;
    let Value::String(text) = value else { return false };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    if text == "0" {
        return true;
    }
    if digits == 0 || digits > DIGITS || number.starts_with('0') {
        return false;
    }
    let number = number.bytes().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    match suffix {
        "n" | "u" | "m" | "" | "k" | "M" | "G" | "T" | "P" => number % 1000 != 0,
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" => number % 1024 != 0,
        _ => false,
    }
}

/// The canonical text; None for what is no quantity, or too large for this.
pub fn canonical(value: &Value) -> Option<String> {
    let number;
    let text = match value {
        Value::String(s) => s.as_str(),
        Value::Number(n) => {
            number = n.to_string();
            &number
        }
        _ => return None,
    };
    let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all: String = [whole, fraction].concat();
    if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mantissa: i128 = all.parse().ok()?;
    let scale = -i32::try_from(fraction.len()).ok()?;
    if mantissa == 0 {
        return Some("0".into());
    }
    let sign = if negative { "-" } else { "" };
    let body = if let Some(power) = BINARY.iter().skip(1).position(|s| *s == suffix) {
        let scaled = mantissa.checked_mul(1024i128.checked_pow(u32::try_from(power).ok()? + 1)?)?;
        binary(scaled, scale)?
    } else if let Some(power) = DECIMAL.iter().position(|s| *s == suffix) {
        decimal(mantissa, scale + 3 * i32::try_from(power).ok()? + SMALLEST, DECIMAL_SUFFIX)?
    } else {
        let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        decimal(mantissa, scale + exponent, EXPONENT)?
    };
    Some(format!("{sign}{body}"))
}

type Suffix = fn(i32) -> Option<String>;

const DECIMAL_SUFFIX: Suffix = |exponent| {
    let place = usize::try_from((exponent - SMALLEST) / 3).ok()?;
    DECIMAL.get(place).map(ToString::to_string)
};
const EXPONENT: Suffix = |exponent| Some(if exponent == 0 { String::new() } else { format!("e{exponent}") });

/// `mantissa` times ten to `exponent`, with the largest suffix that needs no fraction.
fn decimal(mut mantissa: i128, mut exponent: i32, suffix: Suffix) -> Option<String> {
    while exponent < SMALLEST {
        // Smaller parts count as one.
        mantissa = mantissa / 10 + i128::from(mantissa % 10 != 0);
        exponent += 1;
    }
    while mantissa % 10 == 0 && mantissa != 0 {
        mantissa /= 10;
        exponent += 1;
    }
    while exponent.rem_euclid(3) != 0 || exponent > 18 {
        mantissa = mantissa.checked_mul(10)?;
        exponent -= 1;
    }
    Some(format!("{mantissa}{}", suffix(exponent)?))
}

/// Bytes, rounded up, with the largest power of 1024 that divides them.
fn binary(mantissa: i128, scale: i32) -> Option<String> {
    let divisor = 10i128.checked_pow(u32::try_from(-scale).ok()?)?;
    // Below 1024 the decimal form is exact and shorter.
    if mantissa < divisor.checked_mul(1024)? {
        return decimal(mantissa, scale, DECIMAL_SUFFIX);
    }
    let mut bytes = mantissa / divisor + i128::from(mantissa % divisor != 0);
    let mut power = 0;
    while bytes % 1024 == 0 && power + 1 < BINARY.len() {
        bytes /= 1024;
        power += 1;
    }
    Some(format!("{bytes}{}", BINARY[power]))
}

#[cfg(test)]
mod tests;
