//! Durations as Go writes them.

/// `1h30m`, `1.5h`, `250ms`: decimal numbers, each with its unit (`d`, `h`, `m`, `s`, `ms`, `us`); only `0` needs none.
/// `None` for anything else. In microseconds. Days are Volcano's; Go has none.
pub fn duration_us(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let of_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut sum = 0_i64;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c| !of_number(c))?);
        let (unit, after) = after.split_at(after.find(of_number).unwrap_or(after.len()));
        let unit_us = match unit {
            "d" => 86_400_000_000,
            "h" => 3_600_000_000,
            "m" => 60_000_000,
            "s" => 1_000_000,
            "ms" => 1_000,
            "us" | "µs" => 1,
            _ => return None,
        };
        sum = sum.checked_add(times(number, unit_us)?)?;
        rest = after;
    }
    Some(sum)
}

/// `1.5` times a unit, rounded down.
fn times(number: &str, unit: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // `.5` and `1.` are numbers, `.` is none.
    let or_zero = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<i64>().ok() };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = or_zero(whole)?.checked_mul(unit)?;
    // More digits than these are below the smallest unit.
    let digits = &fraction[..fraction.len().min(12)];
    let part = i128::from(or_zero(digits)?) * i128::from(unit) / 10_i128.pow(digits.len() as u32);
    whole.checked_add(i64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, us) in [
            ("0", 0),
            ("90s", 90_000_000),
            (" 1h2m3s ", 3_723_000_000),
            ("1.5h", 5_400_000_000),
            (".5s1.ms", 501_000),
            ("2d", 172_800_000_000),
            ("250ms10us", 250_010),
            ("5000000000s", 5_000_000_000_000_000),
        ] {
            assert_eq!(duration_us(text), Some(us), "{text}");
        }
        for text in ["", " ", "5", "s", "-1s", "1y", "1h5", "1.2.3s", ".s", "1e3s", "99999999999999999999s"] {
            assert_eq!(duration_us(text), None, "{text}");
        }
    }
}
