use super::*;

#[test]
fn one_form_of_each() {
    for (given, wanted) in [
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("100", "100"),
        ("0Gi", "0"),
        ("00.0", "0"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("12E2", "1200"),
        ("1E", "1E"),
        ("-1000m", "-1"),
        ("+2", "2"),
        ("0.1n", "1n"),
        ("1.3Ki", "1332"),
    ] {
        assert_eq!(canonical(&given.into()).as_deref(), Some(wanted), "{given}");
    }
    assert_eq!(canonical(&serde_json::json!(1500)).as_deref(), Some("1500"));
    assert_eq!(canonical(&serde_json::json!(2.5)).as_deref(), Some("2500m"));
    for number in [0_u64, 1, 7, 999, 1000, 1023, 1024, 1500, 3072, 123_456_789, 999_999_999_999_999_999] {
        for suffix in
            ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "x", "e3"]
        {
            let text = format!("{number}{suffix}");
            let is_so = is_canonical(&text.as_str().into());
            assert!(!is_so || canonical(&text.as_str().into()).as_ref() == Some(&text), "{text}");
            let common = (1..1000).contains(&number) && !matches!(suffix, "E" | "Ei" | "x" | "e3");
            assert!(is_so || !common, "{text} takes the fast way");
        }
    }
    for odd in ["01", "+1", "-1", "1.5", "", "Gi"] {
        assert!(!is_canonical(&odd.into()), "{odd}");
    }
    for bad in ["", "x", "1x", "1.2.3", "e3"] {
        assert_eq!(canonical(&bad.into()), None, "{bad}");
    }
}
