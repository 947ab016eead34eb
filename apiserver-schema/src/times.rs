//! Times in objects: which texts are times, and what is wrong with one that is none.
//!
//! Inputs: the text of a field. Texts of errors: those of Go, which names the part of the layout it stopped at. Absent on
//! purpose: clocks.

/// Layout of times to the second.
pub const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// Layout of times to the microsecond.
pub const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// A time as RFC 3339 has it: nothing shorter, and no name of a zone.
pub fn read(text: &str) -> Option<jiff::Timestamp> {
    let long = text.len() >= "2006-01-02T15:04:05Z".len() && text.as_bytes().get(10) == Some(&b'T');
    let ends = text.ends_with('Z') || text.get(text.len().saturating_sub(6)..)?.starts_with(['+', '-']);
    (long && ends).then(|| text.parse().ok()).flatten()
}

/// A time with exactly six digits of a second.
pub fn read_micros(text: &str) -> Option<jiff::Timestamp> {
    let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
    let six = fraction.bytes().take_while(u8::is_ascii_digit).count() == 6;
    read(text).filter(|_| six)
}

/// Why a text is no time of this layout.
pub fn problem(text: &str, layout: &str) -> String {
    let stopped = |at: &str, rest: &str| {
        format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {at:?}")
    };
    let parts = [("", "2006"), ("-", "01"), ("-", "02"), ("T", "15"), (":", "04"), (":", "05")];
    let ranges = [
        (0, 9999, ""),
        (1, 12, "month"),
        (0, 31, "day"),
        (0, 23, "hour"),
        (0, 59, "minute"),
        (0, 59, "second"),
    ];
    let mut rest = text;
    for ((before, part), (least, most, what)) in parts.into_iter().zip(ranges) {
        let Some(after) = rest.strip_prefix(before) else { return stopped(before, rest) };
        let digits = after.get(..part.len()).filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
        let Some(number) = digits.and_then(|d| d.parse::<u32>().ok()) else { return stopped(part, after) };
        if !(least..=most).contains(&number) {
            return format!("parsing time {text:?}: {what} out of range");
        }
        rest = &after[part.len()..];
    }
    let fraction =
        rest.strip_prefix('.').map_or(0, |after| after.bytes().take_while(u8::is_ascii_digit).count());
    if layout == MICROS && fraction != 6 {
        return stopped(".000000", rest);
    }
    if fraction > 0 {
        rest = &rest[1 + fraction..];
    }
    let zone = rest.as_bytes();
    let length = match zone.first() {
        Some(b'Z') => 1,
        Some(b'+' | b'-') if zone.len() >= 6 && zone[3] == b':' => 6,
        _ => return stopped("Z07:00", rest),
    };
    match rest.get(length..) {
        Some("") => format!("parsing time {text:?}: day out of range"),
        Some(extra) => format!("parsing time {text:?}: extra text: {extra:?}"),
        None => stopped("Z07:00", rest),
    }
}

#[cfg(test)]
mod tests;
