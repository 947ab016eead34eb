//! Durations as kubectl prints them: at most two units, coarser the longer.

/// The rule of apimachinery's `duration.HumanDuration`.
pub fn human(seconds: i64) -> String {
    let pair = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..-1 => "<invalid>".to_string(),
        -1 => "0s".to_string(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(hours / 24, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{}d", hours / 24),
        63_072_000..252_288_000 => pair(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_read_as_in_kubectl() {
        let check = |seconds, expect: &str| assert_eq!(human(seconds), expect);
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(383, "6m23s");
        check(600, "10m");
        check(3 * 3600, "3h");
        check(3 * 3600 + 120, "3h2m");
        check(50 * 3600, "2d2h");
        check(10 * 86400, "10d");
        check(800 * 86400, "2y70d");
        check(-1, "0s");
        check(-5, "<invalid>");
    }
}
