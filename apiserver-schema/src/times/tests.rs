use super::*;

#[test]
fn the_part_that_is_no_time_is_named() {
    let of = |text: &str| problem(text, SECONDS);
    let start = |text: &str| format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse ");
    assert_eq!(of("abc"), start("abc") + "\"abc\" as \"2006\"");
    assert_eq!(of("2026-01-01"), start("2026-01-01") + "\"\" as \"T\"");
    assert_eq!(of("2026-01-01T00:00:00"), start("2026-01-01T00:00:00") + "\"\" as \"Z07:00\"");
    assert_eq!(of("2026-13-01T00:00:00Z"), "parsing time \"2026-13-01T00:00:00Z\": month out of range");
    assert_eq!(of("2026-02-30T00:00:00Z"), "parsing time \"2026-02-30T00:00:00Z\": day out of range");
    assert_eq!(of("2026-02-01T00:00:00Zx"), "parsing time \"2026-02-01T00:00:00Zx\": extra text: \"x\"");
    let micro = problem("2026-02-01T00:00:00Z", MICROS);
    assert!(micro.ends_with("cannot parse \"Z\" as \".000000\""), "{micro}");
    assert!(read("2026-02-01T00:00:00Z").is_some() && read_micros("2026-02-01T00:00:00Z").is_none());
    assert!(read_micros("2026-02-01T00:00:00.123456Z").is_some());
}
