//! Schedules of CronJobs: five fields of numbers, or a word such as `@daily`.
//!
//! Input: the text. Source: the standard form of the parser that Kubernetes uses. Absent on purpose: when it is next.

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

struct Bounds {
    least: u32,
    most: u32,
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
    // A zone may stand in front; the caller refuses it with words of its own.
    let text = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest.trim()),
        None => schedule,
    };
    if let Some(word) = text.strip_prefix('@') {
        return named(text, word);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: {fields:?}", fields.len()));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        field.split(',').filter(|part| !part.is_empty()).try_for_each(|part| range(part, bounds))
    })
}

fn named(text: &str, word: &str) -> Result<(), String> {
    match word {
        "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => Ok(()),
        _ => {
            let every = word.strip_prefix("every ").is_some_and(is_duration);
            every.then_some(()).ok_or_else(|| format!("unrecognized descriptor: {text}"))
        }
    }
}

/// A length of time as Go writes it, such as 1h30m.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        if digits == 0 {
            return false;
        }
        let units = ["ns", "us", "µs", "ms", "s", "m", "h"];
        let unit: usize = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        if !units.contains(&&rest[digits..digits + unit]) {
            return false;
        }
        rest = &rest[digits + unit..];
    }
    !text.is_empty()
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let name = text.to_lowercase();
    if let Some(i) = bounds.names.iter().position(|n| *n == name) {
        return Ok(bounds.least + u32::try_from(i).unwrap_or(0));
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })
}

fn range(part: &str, bounds: &Bounds) -> Result<(), String> {
    let mut steps = part.split('/');
    let span = steps.next().unwrap_or_default();
    let step = steps.next();
    if steps.next().is_some() {
        return Err(format!("too many slashes: {part}"));
    }
    let (first, last) = match span {
        "*" | "?" => (bounds.least, bounds.most),
        _ => {
            let mut ends = span.split('-');
            let first = number(ends.next().unwrap_or_default(), bounds)?;
            let last = match ends.next() {
                Some(end) => number(end, bounds)?,
                None if step.is_some() => bounds.most,
                None => first,
            };
            if ends.next().is_some() {
                return Err(format!("too many hyphens: {part}"));
            }
            (first, last)
        }
    };
    if let Some(step) = step
        && number(step, &Bounds { least: 0, most: u32::MAX, names: &[] })? == 0
    {
        return Err(format!("step of range should be a positive number: {part}"));
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
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn schedules() {
        for fine in
            ["* * * * *", "*/5 0-3,12 1 jan-MAR mon", "0 0 ? * 6", "@daily", "@every 1h30m", "5/15 * * * *"]
        {
            assert_eq!(super::check(fine), Ok(()), "{fine}");
        }
        for wrong in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "*/0 * * * *",
            "5-1 * * * *",
            "1-2-3 * * * *",
            "1/2/3 * * * *",
            "a * * * *",
            "@sometimes",
            "@every day",
        ] {
            assert!(super::check(wrong).is_err(), "{wrong}");
        }
    }
}
