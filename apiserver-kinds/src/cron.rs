//! Schedules of CronJobs: five fields of numbers, or a word such as `@daily`.
//!
//! Input: the text. Source: the standard form of the parser that Kubernetes uses, in whose words faults are told. Absent on
//! purpose: when it is next.

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const UNITS: [&str; 8] = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];

struct Bounds {
    least: i64,
    most: i64,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, most: 59, names: &[] },
    Bounds { least: 0, most: 23, names: &[] },
    Bounds { least: 1, most: 31, names: &[] },
    Bounds { least: 1, most: 12, names: &MONTHS },
    Bounds { least: 0, most: 6, names: &DAYS },
];

/// Checks a schedule.
///
/// # Errors
/// What is wrong with it.
pub fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_string());
    }
    let mut text = schedule;
    // A zone may stand in front; the caller refuses it with words of its own.
    if let Some(zoned) = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        let Some((name, rest)) = zoned.split_once(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_string());
        };
        zone(name).map_err(|why| format!("provided bad location {name}: {why}"))?;
        text = rest.trim();
    }
    if text.starts_with('@') {
        return named(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        field.split(',').filter(|part| !part.is_empty()).try_for_each(|part| range(part, bounds))
    })
}

/// Checks the name of a time zone, whose capitals matter.
///
/// # Errors
/// What is wrong with it.
pub fn zone(name: &str) -> Result<(), String> {
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(());
    }
    if name.contains("..") || name.starts_with('/') || name.contains('\\') {
        return Err("time: invalid location name".to_string());
    }
    let known = jiff::tz::TimeZone::get(name).is_ok_and(|zone| zone.iana_name() == Some(name));
    if known { Ok(()) } else { Err(format!("unknown time zone {name}")) }
}

fn named(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            Some(length) => {
                duration(length).map_err(|why| format!("failed to parse duration {text}: time: {why}"))
            }
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

/// A length of time as Go writes it, such as 1h30m.
fn duration(text: &str) -> Result<(), String> {
    let invalid = || format!("invalid duration {text:?}");
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let amount = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(amount);
        if !digits.bytes().any(|b| b.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return Err(invalid());
        }
        let length = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(length);
        if unit.is_empty() {
            return Err(format!("missing unit in duration {text:?}"));
        }
        if !UNITS.contains(&unit) {
            return Err(format!("unknown unit {unit:?} in duration {text:?}"));
        }
        rest = next;
    }
    Ok(())
}

fn number(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number = match text.parse::<i64>() {
        Ok(number) => number,
        Err(_) => {
            let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let why = if whole { "value out of range" } else { "invalid syntax" };
            return Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}"));
        }
    };
    if number < 0 { Err(format!("negative number ({number}) not allowed: {text}")) } else { Ok(number) }
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<i64, String> {
    let name = text.to_lowercase();
    match (bounds.least..).zip(bounds.names).find(|(_, known)| **known == name) {
        Some((number, _)) => Ok(number),
        None => number(text),
    }
}

fn range(part: &str, bounds: &Bounds) -> Result<(), String> {
    let mut steps = part.split('/');
    let span = steps.next().unwrap_or_default();
    let ends: Vec<&str> = span.split('-').collect();
    let (first, mut last) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.least, bounds.most),
        [first] => {
            let first = number_or_name(first, bounds)?;
            (first, first)
        }
        [first, rest @ ..] => {
            let first = number_or_name(first, bounds)?;
            let [last] = rest else { return Err(format!("too many hyphens: {part}")) };
            (first, number_or_name(last, bounds)?)
        }
        [] => (bounds.least, bounds.most),
    };
    let mut step = 1;
    if let Some(text) = steps.next() {
        if steps.next().is_some() {
            return Err(format!("too many slashes: {part}"));
        }
        step = number(text)?;
        // From one number on, up to the last there is.
        if ends.len() == 1 {
            last = bounds.most;
        }
    }
    if first < bounds.least {
        return Err(format!("beginning of range ({first}) below minimum ({}): {part}", bounds.least));
    }
    if last > bounds.most {
        return Err(format!("end of range ({last}) above maximum ({}): {part}", bounds.most));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn schedules() {
        for fine in [
            "* * * * *",
            "*/5 0-3,12 1 jan-MAR mon",
            "0 0 ? * 6",
            "@daily",
            "@every 1h30m",
            "@every 1.5s",
            "5/15 * * * *",
            "CRON_TZ=UTC 0 0 * * *",
            "TZ=Europe/Berlin @hourly",
        ] {
            assert_eq!(super::check(fine), Ok(()), "{fine}");
        }
        for (wrong, why) in [
            ("", "empty spec string"),
            (" ", "expected exactly 5 fields, found 0: []"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            (" @daily", "expected exactly 5 fields, found 1: [@daily]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * 13 *", "end of range (13) above maximum (12): 13"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("*/-2 * * * *", "negative number (-2) not allowed: -2"),
            (
                "99999999999999999999 * * * *",
                "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
            ("@every day", "failed to parse duration @every day: time: invalid duration \"day\""),
            ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
            ("@every 5d", "failed to parse duration @every 5d: time: unknown unit \"d\" in duration \"5d\""),
            ("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
            ("TZ=Mars * * * * *", "provided bad location Mars: unknown time zone Mars"),
        ] {
            assert_eq!(super::check(wrong), Err(why.to_string()), "{wrong}");
        }
    }

    #[test]
    fn capitals_of_a_zone_matter() {
        assert_eq!(super::zone("Europe/Berlin"), Ok(()));
        assert_eq!(super::zone("europe/berlin"), Err("unknown time zone europe/berlin".to_string()));
        assert_eq!(super::zone("Etc/UTC"), Ok(()));
    }
}
