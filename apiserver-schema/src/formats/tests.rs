use super::*;

#[test]
fn texts_have_formats_or_not() {
    for (format, good, bad) in [
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("cidr", "fd00::/64", "10.0.0.0"),
        ("mac", "00:00:5e:00:53:01", "00:00:5e:00:53"),
        ("mac", "0000.5e00.5301", "0000.5e00.53"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "{123e4567-e89b-12d3-a456-426614174000}"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("uri", "https://example.com/x", "example.com"),
        ("uri", "/a/b", ""),
        ("email", "a@example.com", "a"),
        ("email", "Ann <a@example.com>", "a@b@c d"),
        ("hostname", "a-b.example.com", "-a"),
        ("duration", "1h30m", "1x"),
        ("duration", "2 days", "h"),
        ("hexcolor", "#ffF", "#ffff"),
        ("ssn", "123-45-6789", "123-45-678"),
        ("date", "2026-01-31", "2026-02-31"),
        ("date-time", "2026-01-31T00:00:00Z", "2026-01-31"),
    ] {
        assert!(fits(format, good), "{format} {good}");
        assert!(!fits(format, bad), "{format} {bad}");
    }
    assert!(fits("nothing-known", "x"));
}
