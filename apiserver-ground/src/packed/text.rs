//! Short forms of texts: ids, times, whole numbers and addresses. A short form is used only if it decodes to the
//! same text.

use std::io::Write;

const DAY: u64 = 86_400;
/// Seconds of the year 10000, the first that has another form.
const YEAR_10000: u64 = 253_402_300_800;

/// The bytes of a lower-case id.
pub fn uuid(s: &str) -> Option<[u8; 16]> {
    let id = uuid::Uuid::try_parse(s).ok()?;
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    (id.hyphenated().encode_lower(&mut text) == s).then(|| *id.as_bytes())
}

/// Appends an id.
pub fn write_uuid(bytes: [u8; 16], out: &mut Vec<u8>) {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    out.extend_from_slice(uuid::Uuid::from_bytes(bytes).hyphenated().encode_lower(&mut text).as_bytes());
}

/// Seconds since 1970 of `YYYY-MM-DDTHH:MM:SSZ`.
pub fn time(s: &str) -> Option<u64> {
    let b: &[u8; 20] = s.as_bytes().try_into().ok()?;
    if [b[4], b[7], b[10], b[13], b[16], b[19]] != *b"--T::Z" {
        return None;
    }
    let number = |from: usize, to: usize| {
        let digit = |n: u64, d: &u8| d.is_ascii_digit().then(|| n * 10 + u64::from(d - b'0'));
        b[from..to].iter().try_fold(0, digit)
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let right =
        year >= 1970 && (1..=12).contains(&month) && day >= 1 && hour < 24 && minute < 60 && second < 60;
    if !right {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // A day its month does not have comes back as another.
    (civil_from_days(days) == (year, month, day)).then_some(days * DAY + hour * 3600 + minute * 60 + second)
}

/// Appends a time; nothing for one that no text has.
pub fn write_time(seconds: u64, out: &mut Vec<u8>) {
    if seconds >= YEAR_10000 {
        return;
    }
    let (year, month, day) = civil_from_days(seconds / DAY);
    let rest = seconds % DAY;
    let mut text = *b"0000-00-00T00:00:00Z";
    let mut put = |at: usize, width: usize, mut n: u64| {
        for place in text[at..at + width].iter_mut().rev() {
            *place = b'0' + (n % 10) as u8;
            n /= 10;
        }
    };
    put(0, 4, year);
    put(5, 2, month);
    put(8, 2, day);
    put(11, 2, rest / 3600);
    put(14, 2, rest / 60 % 60);
    put(17, 2, rest % 60);
    out.extend_from_slice(&text);
}

/// Days since 1970-01-01, for years from 1970 on (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * (month + if month > 2 { 0 } else { 12 } - 3) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// The number of a text of digits.
pub fn digits(s: &str) -> Option<u64> {
    let plain = s.bytes().all(|b| b.is_ascii_digit()) && (s.len() == 1 || !s.starts_with('0'));
    if plain { s.parse().ok() } else { None }
}

/// Appends a number.
pub fn write_digits(n: u64, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, &n);
}

/// The bytes of an address.
pub fn ipv4(s: &str) -> Option<[u8; 4]> {
    // The parser refuses leading zeros, so the text comes back the same.
    s.parse::<std::net::Ipv4Addr>().ok().map(|ip| ip.octets())
}

/// Appends an address.
pub fn write_ipv4(bytes: [u8; 4], out: &mut Vec<u8>) {
    let _ = write!(out, "{}", std::net::Ipv4Addr::from(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were() {
        // Every day up to 2100 and some odd ones, against a library.
        for days in (0..47_482).chain([2_932_000, 100_000, 1_000_000]) {
            let seconds = days * DAY + days % DAY;
            let expect = jiff::Timestamp::from_second(seconds as i64).unwrap().to_string();
            let mut text = Vec::new();
            write_time(seconds, &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), expect);
            assert_eq!(time(&expect), Some(seconds), "{expect}");
        }
        for wrong in
            ["2026-02-29T00:00:00Z", "2100-02-29T00:00:00Z", "2026-00-10T00:00:00Z", "2026-04-31T00:00:00Z"]
        {
            assert_eq!(time(wrong), None);
        }
        let mut text = Vec::new();
        write_time(u64::MAX, &mut text);
        assert!(text.is_empty());
    }
}
