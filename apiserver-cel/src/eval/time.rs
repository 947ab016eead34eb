//! Parts of times and durations. Times are in UTC unless a time zone is named.

use super::outcome::{Outcome, failed};
use super::value::Value;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

pub fn call(name: &str, values: &[Value]) -> Option<Outcome> {
    let found = match values {
        [Value::Duration(d)] => match name {
            "getHours" => d.as_hours(),
            "getMinutes" => d.as_mins(),
            "getSeconds" => d.as_secs(),
            // The whole of it, unlike a time's.
            "getMilliseconds" => i64::try_from(d.as_millis()).unwrap_or(i64::MAX),
            _ => return None,
        },
        [Value::Time(time, _)] => part(time, name)?,
        [Value::Time(time, _), Value::Text(zone)] => {
            let Some(known) = time_zone(zone) else {
                return Some(failed(format!("unknown time zone {zone}")));
            };
            match time.to_zoned(TimeZone::UTC) {
                Ok(time) => part(&time.with_time_zone(known).datetime(), name)?,
                Err(why) => return Some(failed(why.to_string())),
            }
        }
        _ => return None,
    };
    Some(Ok(Value::Int(found)))
}

fn part(time: &DateTime, name: &str) -> Option<i64> {
    Some(match name {
        "getFullYear" => i64::from(time.year()),
        // Months, days of the month and days of the year count from zero.
        "getMonth" => i64::from(time.month()) - 1,
        "getDate" => i64::from(time.day()),
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getHours" => i64::from(time.hour()),
        "getMinutes" => i64::from(time.minute()),
        "getSeconds" => i64::from(time.second()),
        "getMilliseconds" => i64::from(time.millisecond()),
        _ => return None,
    })
}

/// A zone by its name, or by its offset: `+02:00`, `-02:30`, `02:00`.
fn time_zone(name: &str) -> Option<TimeZone> {
    let Some((hours, minutes)) = name.split_once(':') else {
        return match name {
            "" | "UTC" => Some(TimeZone::UTC),
            name => TimeZone::get(name).ok(),
        };
    };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let east = hours * 3600 + if name.starts_with('-') { -minutes } else { minutes } * 60;
    Offset::from_seconds(east).ok().map(TimeZone::fixed)
}
